//! All options that are known: done, ignored for a reason, or refused for a reason.
//!
//! # References
//! mount(8), ext4(5), `Documentation/admin-guide/ext4.rst`, fuse2fs(1), mount.fuse3(8).

use finefs::{AtimePolicy, QuotaKind};

use super::row::{Group, Of, Row, What, row};
use super::values::{
    barrier, cache, commit, cpu_latency, data_cache, errors, fsname, gid, journal_device,
    journal_path, key, locking, mode, offset, room, sandbox, setuid, size_limit, threads, uid,
    umask,
};

use What::{Done, Flag, Ignored, Refused};

const MOUNTS_OWN: &str = "it speaks to mount(8)";
const ALLOCATION: &str = "finefs chooses blocks, and when it writes, in its own way";
const OBSOLETE: &str = "the kernel's ext4 ignores it too by now";
const CACHE: &str =
    "what is mounted changes only through the mount, so the kernel may keep all it knows";
const LIBRARY: &str = "finefs speaks with the kernel itself, without libfuse";
const QUOTA: &str = "only quotas of the feature quota are kept (tune2fs -O quota); leave it out";
const LABEL: &str = "finefs has no security labels for a whole mount; leave it out";
const OF_KERNEL: &str = "the kernel tells it of a mount";
const PROPAGATION: &str =
    "mount(8) does that by itself, with no file system's help: mount --bind and the like";

/// The table.
pub(super) static GROUPS: &[Group] = &[
    Group {
        heading: "What may be done in the mount",
        rows: ACCESS,
    },
    Group {
        heading: "Times of reading",
        rows: TIMES,
    },
    Group {
        heading: "What is written to the image, and when",
        rows: WRITING,
    },
    Group {
        heading: "The server",
        rows: SERVER,
    },
    Group {
        heading: "Memory file systems",
        rows: MEMORY,
    },
    Group {
        heading: "Other options of mount(8)",
        rows: MOUNT,
    },
    Group {
        heading: "Other options of the kernel's ext2, ext3 and ext4",
        rows: EXT,
    },
    Group {
        heading: "Other options of FUSE file systems",
        rows: FUSE,
    },
];

/// Sets something.
macro_rules! set {
    (|$options:ident| $set:expr) => {
        |$options, _, _| {
            $set;
            Ok(())
        }
    };
    (|$options:ident, $name:ident| $set:expr) => {
        |$options, $name, _| {
            $set;
            Ok(())
        }
    };
}

static ACCESS: &[Row] = &[
    row(
        &["ro"],
        Flag(
            set!(|o| o.kernel.is_read_only = true),
            "read-only: the image is never written, a dirty journal is replayed in memory",
        ),
    ),
    row(
        &["rw"],
        Flag(
            set!(|o| o.kernel.is_read_only = false),
            "read-write (default)",
        ),
    ),
    row(
        &["suid", "nosuid"],
        Flag(
            set!(|o, name| o.kernel.allows_suid = name == "suid"),
            "honour set-uid bits and file capabilities (root only; default of mount(8) as root), or do \
             not (default)",
        ),
    ),
    row(
        &["dev", "nodev"],
        Flag(
            set!(|o, name| o.kernel.allows_devices = name == "dev"),
            "device nodes work (root only; default of mount(8) as root), or do not (default)",
        ),
    ),
    row(
        &["exec", "noexec"],
        Flag(
            set!(|o, name| o.kernel.allows_execution = name == "exec"),
            "programs can be run (default), or not",
        ),
    ),
    row(
        &["symfollow", "nosymfollow"],
        Flag(
            set!(|o, name| o.kernel.follows_symlinks = name == "symfollow"),
            "symbolic links are followed (default), or not (root only)",
        ),
    ),
    row(
        &["remount"],
        Flag(
            set!(|o| o.is_remount = true),
            "change these flags and sync of what is mounted at DIR (root only). The server \
             goes on as it was mounted: one that has the image read-only stays so",
        ),
    ),
    row(
        &["allow_other"],
        Done(
            set!(|o| o.kernel.allow_other = true),
            "other users may use the mount too (ordinary users need user_allow_other in \
             /etc/fuse.conf)",
        ),
    ),
    row(
        &["default_permissions"],
        Done(
            set!(|o| o.kernel.checks_root = true),
            "check permissions for root too where only root can use the mount (without allow_other); \
             for everybody else they are always checked",
        ),
    ),
    row(
        &["fakeroot"],
        Done(
            set!(|o| o.kernel.makes_root = true),
            "whoever can use the mount counts as root there: no permission is checked, owners can \
             be changed, and what is made belongs to root. Not with allow_other or \
             default_permissions",
        ),
    ),
    row(
        &["uid", "gid"],
        Done(
            |options, name, value| match name {
                "uid" => uid(options, name, value),
                _ => gid(options, name, value),
            },
            "the owner and group that all files of an image are shown with, and access goes by. \
             chown(1) changes them on the image, out of sight, and what is made belongs there to \
             who made it. Not with fakeroot. Of a memory file system: those of its root (default: \
             of who mounts it)",
        ),
    )
    .takes("NUMBER|NAME", "7"),
    row(
        &["umask"],
        Done(
            umask,
            "all files are shown with the permissions that are not in it (077: 0700), and access \
             goes by these, not by modes and ACLs, which chmod(1) changes out of sight. Not with \
             fakeroot",
        ),
    )
    .takes("OCTAL", "022")
    .of(Of::Image),
    row(
        &["acl", "noacl"],
        Done(
            set!(|o, name| o.has_acls = name == "acl"),
            "honour POSIX ACLs, and let them be set (default), or know none",
        ),
    ),
    row(
        &["xattr", "noxattr"],
        Done(
            set!(|o, name| {
                o.kernel.has_xattrs = name == "xattr";
                o.has_acls &= o.kernel.has_xattrs;
            }),
            "extended attributes can be read and set (default), or there are none, and no ACLs; \
             then the kernel does not ask for one at each first write and chown, which is a fifth \
             of the requests where small files are unpacked",
        ),
    ),
    row(
        &["security_label"],
        Done(
            set!(|o| o.kernel.has_labels = true),
            "store the label that the kernel's security module (SELinux, Smack) gives to what is \
             made here: by its policy for this mount, not for the system in the image",
        ),
    ),
    row(
        &["grpid", "bsdgroups"],
        Done(
            set!(|o| o.has_bsd_groups = true),
            "what is made gets the group of its directory",
        ),
    ),
    row(
        &["nogrpid", "sysvgroups"],
        Done(
            set!(|o| o.has_bsd_groups = false),
            "what is made gets the group of who makes it, and in a directory with the set-group-ID bit \
             that of the directory (default)",
        ),
    ),
    row(
        &["allow_root"],
        Refused(
            "the kernel cannot enforce it on what it has cached; use allow_other and file permissions",
        ),
    ),
    row(
        &["context", "fscontext", "defcontext", "rootcontext"],
        Refused(LABEL),
    )
    .takes("CONTEXT", "a:b"),
];

static TIMES: &[Row] = &[
    row(
        &["relatime", "atime", "nostrictatime", "norelatime"],
        Done(
            set!(|o| o.kernel.atime = AtimePolicy::Relatime),
            "note the first reading after a change, and one a day (default)",
        ),
    ),
    row(
        &["noatime"],
        Done(set!(|o| o.kernel.atime = AtimePolicy::Noatime), "note none"),
    ),
    row(
        &["strictatime"],
        Done(set!(|o| o.kernel.atime = AtimePolicy::Strict), "note each"),
    ),
    row(
        &["diratime", "nodiratime"],
        Done(
            set!(|o, name| o.kernel.notes_directories = name == "diratime"),
            "note the reading of directories likewise (default), or not",
        ),
    ),
    row(
        &["lazytime", "nolazytime"],
        Ignored("times alone are in memory until the next commit in any case"),
    ),
    row(
        &["iversion", "noiversion", "i_version"],
        Ignored("it is for the kernel's NFS server, which does not ask FUSE for versions"),
    ),
];

static WRITING: &[Row] = &[
    row(
        &["sync"],
        Flag(
            set!(|o| o.kernel.is_synchronous = true),
            "every write is on the image when it returns, and every change of a directory",
        ),
    ),
    row(
        &["async"],
        Flag(
            set!(|o| o.kernel.is_synchronous = false),
            "it is after the next commit (default)",
        ),
    ),
    row(
        &["dirsync"],
        Done(
            set!(|o| o.kernel.is_directory_synchronous = true),
            "every change of a directory is on the image when it returns",
        ),
    ),
    row(
        &["commit"],
        Done(
            commit,
            "write changes out at least that often (default 5, also for 0, as with ext4)",
        ),
    )
    .takes("SECONDS", "30")
    .of(Of::Image),
    row(
        &["cache"],
        Done(
            cache,
            "memory for all that is held of the image, beyond which what was not used lately goes: \
             bytes, or with k, m, g or %, 1m at least (default: an eighth of the memory, at least \
             64m)",
        ),
    )
    .takes("SIZE", "256m")
    .of(Of::Image),
    row(
        &["data_cache"],
        Done(
            data_cache,
            "of it, memory for what is written to files, until the commit and after it, 1m at \
             least (default: three eighths, at most 1g)",
        ),
    )
    .takes("SIZE", "64m")
    .of(Of::Image),
    row(
        &["barrier"],
        Done(
            barrier,
            "wait for the disk at commits (1, default), or do not (0): faster, and a power loss may \
             damage the image",
        ),
    )
    .may_take("0|1", "0")
    .of(Of::Image),
    row(
        &["nobarrier"],
        Done(set!(|o| o.lacks_barriers = true), "as barrier=0"),
    )
    .of(Of::Image),
    row(
        &["discard"],
        Done(
            set!(|o| o.discards = true),
            "give the storage below what is removed back, after the commit: to the disk, or to the \
             file system that the image lies on",
        ),
    )
    .of(Of::Image),
    row(
        &["nodiscard"],
        Done(set!(|o| o.discards = false), "keep it (default); see fstrim(8)"),
    )
    .of(Of::Image),
    row(
        &["errors"],
        Done(
            errors,
            "when the image turns out to be damaged: continue (only what is damaged fails), \
             remount-ro (nothing can be changed any more) or panic (the server ends at once); default: \
             as the image says, see tune2fs -e. When changes cannot be written, nothing can be changed \
             any more in any case",
        ),
    )
    .takes("WHAT", "panic")
    .of(Of::Image),
    row(
        &["offset"],
        Done(offset, "the file system starts there in the image"),
    )
    .takes("SIZE", "1m")
    .of(Of::Image),
    row(
        &["sizelimit"],
        Done(
            size_limit,
            "the image ends after so many bytes, from the offset on (0: where its file does, as \
             with losetup)",
        ),
    )
    .takes("SIZE", "1m")
    .of(Of::Image),
    row(
        &["journal_path"],
        Done(journal_path, "the image or device that the journal lies on"),
    )
    .takes("FILE", "/dev/null")
    .of(Of::Image),
    row(
        &["journal_dev"],
        Done(journal_device, "the same, by the number of the device"),
    )
    .takes("NUMBER", "0x103")
    .of(Of::Image),
    row(
        &["key"],
        Done(
            key,
            "a file with a key of encrypted files, in binary; may be given several times",
        ),
    )
    .takes("FILE", "/dev/null")
    .of(Of::Image),
    row(
        &["usrquota", "quota", "grpquota", "prjquota"],
        Done(
            set!(|o, name| {
                let kind = match name {
                    "grpquota" => QuotaKind::Group,
                    "prjquota" => QuotaKind::Project,
                    _ => QuotaKind::User,
                };
                if !o.quota_limits.contains(&kind) {
                    o.quota_limits.push(kind);
                }
            }),
            "enforce limits, where the image has the feature quota; account is kept in any case",
        ),
    )
    .of(Of::Image),
    row(
        &["noquota"],
        Done(
            set!(|o| o.quota_limits = Vec::new()),
            "enforce none (default)",
        ),
    )
    .of(Of::Image),
    row(
        &["writeback_cache", "nowriteback_cache"],
        Done(
            set!(|o, name| o.kernel.has_writeback_cache = name == "writeback_cache"),
            "collect small writes in the kernel until close or fsync, or do not (default); faster for \
             programs that write in small pieces, but a full image is reported late",
        ),
    ),
    row(
        &["data=ordered"],
        Ignored("that is what happens: data is on the image before what points at it"),
    ),
    row(
        &["data=writeback"],
        Ignored("data is on the image before what points at it, as with data=ordered"),
    ),
    row(
        &["data"],
        Refused("data is never written to the journal; leave it out, or give data=ordered"),
    )
    .takes("MODE", "journal"),
    row(
        &["noload", "norecovery"],
        Done(
            set!(|o| {
                o.skips_recovery = true;
                o.kernel.is_read_only = true;
            }),
            "read-only, and as the image lies: without what its journal alone holds. (ro shows the \
             journal as replayed, and writes nothing either)",
        ),
    )
    .of(Of::Image),
];

static SERVER: &[Row] = &[
    row(&["threads"], Done(threads, "number of server threads")).takes("N", "3"),
    row(
        &["io_uring", "noio_uring", "no_io_uring"],
        Done(
            set!(|o, name| o.kernel.has_ring = name == "io_uring"),
            "take requests through io_uring where the kernel offers it (default; root switches it on \
             in /sys/module/fuse/parameters/enable_uring), or never",
        ),
    ),
    row(
        &["cpu_latency"],
        Done(
            cpu_latency,
            "while requests come, keep CPUs from sleep that takes longer to leave than so many \
             microseconds (root only); auto (default) means 0 where /dev/cpu_dma_latency can be \
             opened, else poll, and neither on battery; poll has a server thread look for the next \
             request for up to 200 microseconds before it sleeps (not with io_uring, nor on one \
             CPU); both cost power",
        ),
    )
    .takes("auto|off|poll|N", "0"),
    row(
        &["sandbox"],
        Done(
            sandbox,
            "once mounted, the server can open no other file, run no program, reach no other \
             machine, and has no rights of root: auto (default) as far as the kernel can, on or no \
             mount, off",
        ),
    )
    .takes("auto|on|off", "on"),
    row(
        &["setuid"],
        Done(
            setuid,
            "once mounted, the server is this user, a name or number, or with owner that of the \
             image (root only); the mount stays root's",
        ),
    )
    .takes("USER|owner", "65534"),
    row(
        &["auto_unmount"],
        Done(
            set!(|o| o.is_auto_unmounted = true),
            "when the server is killed the mount is taken away, and programs go on in the \
             directory below it; without, every call at the mount fails (ENOTCONN) until \
             finefs umount or finefs mount",
        ),
    ),
    row(
        &["locking"],
        Done(
            locking,
            "to compare with: locks of other times around the same operations; fine (default), \
             big-spin, big-sleep, big-optional, per-superblock, whole-file, whole-file-mutex",
        ),
    )
    .takes("NAME", "per-superblock"),
    row(
        &["debug"],
        Done(set!(|o| o.is_debug = true), "log every request"),
    ),
];

static MEMORY: &[Row] = &[
    row(
        &["size"],
        Done(room, "size of a memory file system (default 50%)"),
    )
    .takes("SIZE", "50%")
    .of(Of::Memory),
    row(
        &["mode"],
        Done(mode, "permissions of its root (default 1777)"),
    )
    .takes("OCTAL", "700")
    .of(Of::Memory),
    row(
        &["fsname"],
        Done(fsname, "what is shown as mounted, for a memory file system"),
    )
    .takes("NAME", "x"),
];

static MOUNT: &[Row] = &[
    row(
        &["defaults", "auto", "noauto", "nofail", "_netdev"],
        Ignored(MOUNTS_OWN),
    ),
    row(&["nouser", "users", "owner", "group"], Ignored(MOUNTS_OWN)),
    row(&["user"], Ignored(MOUNTS_OWN)).may_take("NAME", "joe"),
    row(&["x-*", "X-*"], Ignored(MOUNTS_OWN)).may_take("VALUE", "1"),
    row(&["comment", "uhelper", "helper"], Ignored(MOUNTS_OWN)).takes("TEXT", "some"),
    row(&["loop"], Ignored("an image needs no loop device")).may_take("DEVICE", "/dev/loop0"),
    row(
        &["silent", "loud"],
        Ignored("messages go to the system log or --log, as many as there are"),
    ),
    row(
        &["mand", "nomand"],
        Ignored("Linux has no mandatory locks any more"),
    ),
    row(
        &[
            "bind",
            "rbind",
            "move",
            "private",
            "rprivate",
            "shared",
            "rshared",
            "slave",
            "rslave",
            "unbindable",
            "runbindable",
        ],
        Refused(PROPAGATION),
    ),
];

static EXT: &[Row] = &[
    row(
        &["user_xattr", "nouser_xattr"],
        Ignored("users' extended attributes are always there"),
    ),
    row(
        &["bsddf"],
        Ignored("that is what happens: df leaves out what the file system itself needs"),
    ),
    row(
        &["minixdf"],
        Ignored("df leaves out what the file system itself needs, as with bsddf"),
    ),
    row(
        &["resuid=0", "resgid=0"],
        Ignored("reserved blocks are kept for metadata; nobody's data gets them"),
    ),
    row(
        &["resuid", "resgid"],
        Refused("reserved blocks are kept for metadata; nobody's data gets them; leave it out"),
    )
    .takes("NUMBER", "5"),
    row(&["usrjquota", "grpjquota", "jqfmt"], Refused(QUOTA)).takes("VALUE", "a"),
    row(
        &["journal_checksum", "nojournal_checksum"],
        Ignored("the journal has the checksums that the image's features ask for"),
    ),
    row(
        &["journal_async_commit"],
        Ignored("commits are written in the safe order"),
    ),
    row(&["journal_ioprio"], Ignored(ALLOCATION)).takes("N", "3"),
    row(
        &[
            "delalloc",
            "nodelalloc",
            "dioread_lock",
            "dioread_nolock",
            "nodioread_nolock",
            "mblk_io_submit",
            "nomblk_io_submit",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
        ],
        Ignored(ALLOCATION),
    ),
    row(
        &[
            "stripe",
            "inode_readahead_blks",
            "max_batch_time",
            "min_batch_time",
            "mb_optimize_scan",
        ],
        Ignored(ALLOCATION),
    )
    .takes("N", "64"),
    row(
        &["auto_da_alloc", "noauto_da_alloc"],
        Ignored("a commit that has a rename has the data of what was renamed"),
    )
    .may_take("0|1", "1"),
    row(
        &["init_itable"],
        Ignored("no inode tables are zeroed in the background"),
    )
    .may_take("N", "10"),
    row(
        &["noinit_itable"],
        Ignored("no inode tables are zeroed in the background"),
    ),
    row(
        &["block_validity", "noblock_validity"],
        Ignored("block numbers are always checked"),
    ),
    row(
        &["data_err"],
        Ignored("data that cannot be written makes the commit fail"),
    )
    .takes("WHAT", "abort"),
    row(&["check=none", "nocheck"], Ignored("that is what happens")),
    row(
        &["nobh", "bh", "oldalloc", "orlov", "nombcache", "no_mbcache"],
        Ignored(OBSOLETE),
    ),
    row(
        &["warn_on_error", "nowarn_on_error", "inlinecrypt"],
        Ignored("it is about the kernel's own code"),
    ),
    row(
        &["dax=never", "dax=inode"],
        Ignored("files are never read from the device's own memory"),
    ),
    row(
        &["dax"],
        Refused("files cannot be read from the device's own memory; leave it out"),
    )
    .may_take("WHEN", "always"),
    row(
        &["sb"],
        Refused("mount with the first superblock, which e2fsck -b repairs"),
    )
    .takes("BLOCK", "32768"),
    row(
        &["nouid32"],
        Refused("owners always have 32 bits; leave it out"),
    ),
    row(
        &["max_dir_size_kb"],
        Refused("directories have no such limit; leave it out"),
    )
    .takes("N", "64"),
    row(
        &["abort", "test_dummy_encryption", "fc_debug_force"],
        Refused("it is for tests of the kernel's own code"),
    ),
];

static FUSE: &[Row] = &[
    row(&["subtype=finefs"], Ignored("that is what it always is")),
    row(&["subtype"], Refused("give finefs, which it always is")).takes("NAME", "ext4"),
    row(
        &["nonempty"],
        Ignored("a directory may have files when something is mounted at it"),
    ),
    row(
        &["blkdev"],
        Ignored("a block device of root is mounted so (as fuseblk) in any case"),
    ),
    row(
        &["user_id", "group_id", "rootmode", "blksize", "max_read"],
        Ignored(OF_KERNEL),
    )
    .takes("NUMBER", "0"),
    row(
        &["kernel_cache", "auto_cache", "noauto_cache", "noforget"],
        Ignored(CACHE),
    ),
    row(
        &[
            "entry_timeout",
            "negative_timeout",
            "attr_timeout",
            "ac_attr_timeout",
            "remember",
        ],
        Ignored(CACHE),
    )
    .takes("SECONDS", "1"),
    row(
        &[
            "async_read",
            "sync_read",
            "atomic_o_trunc",
            "big_writes",
            "no_remote_lock",
            "splice_read",
            "no_splice_read",
            "splice_write",
            "no_splice_write",
            "splice_move",
            "no_splice_move",
            "clone_fd",
            "hard_remove",
            "use_ino",
            "readdir_ino",
            "intr",
        ],
        Ignored(LIBRARY),
    ),
    row(
        &[
            "max_write",
            "max_readahead",
            "max_background",
            "congestion_threshold",
            "max_idle_threads",
            "max_threads",
        ],
        Ignored(LIBRARY),
    )
    .takes("N", "1"),
    row(
        &["direct_io"],
        Refused("give it for each file that it is wanted for (O_DIRECT)"),
    ),
    row(
        &["fd", "modules"],
        Refused("finefs opens /dev/fuse itself, and has no modules"),
    )
    .takes("VALUE", "3"),
];

/// All rows.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// The row of an option, with its value if it has one.
pub(super) fn find(word: &str) -> Option<&'static Row> {
    let (name, has_value) = match word.split_once('=') {
        Some((name, _)) => (name, true),
        None => (word, false),
    };
    let is_it = |known: &str| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == known,
    };
    let takes = |row: &&Row| {
        row.names.iter().any(|known| is_it(known))
            && match row.value {
                Some(value) => has_value || value.is_optional,
                None => !has_value,
            }
    };
    // A value of its own goes first.
    let whole = |row: &&Row| row.value.is_none() && row.names.contains(&word);
    rows().find(whole).or_else(|| rows().find(takes))
}

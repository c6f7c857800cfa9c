//! All options that are known: done here, without effect or refused mostly in `without_effect`.
//!
//! # References
//! mount(8), ext4(5), `Documentation/admin-guide/ext4.rst`, fuse2fs(1), mount.fuse3(8).

use finefs::{AtimePolicy, QuotaKind};

use super::row::{Group, Of, Row, Value, What, row};
use super::values::{
    barrier, cache, commit, cpu_latency, data_cache, errors, fsname, gid, journal_device,
    journal_path, key, locking, mode, offset, room, sandbox, setuid, size_limit, threads, uid,
    umask,
};
use super::without_effect;

use What::{Done, Flag, Ignored, Refused};

const LABEL: &str = "finefs has no security labels for a whole mount; leave it out";

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
        rows: without_effect::MOUNT,
    },
    Group {
        heading: "Other options of the kernel's ext2, ext3 and ext4",
        rows: without_effect::EXT,
    },
    Group {
        heading: "Other options of FUSE file systems",
        rows: without_effect::FUSE,
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

/// What a word lacks that is an option but for its value.
pub(super) fn lacking(word: &str) -> Option<Value> {
    let of_it = rows().filter(|row| row.names.contains(&word));
    let mut values = of_it.filter_map(|row| row.value);
    values.find(|value| !value.is_optional)
}

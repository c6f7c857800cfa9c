//! The rows of the table, by group.

use super::*;

pub(super) static ACCESS: &[Row] = &[
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
            "change these flags, sync and dirsync of what is mounted at DIR (root only). The server \
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
        &["acl", "noacl"],
        Done(
            set!(|o, name| o.has_acls = name == "acl"),
            "honour POSIX ACLs, and let them be set (default), or know none",
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

pub(super) static TIMES: &[Row] = &[
    row(
        &["relatime", "atime", "nostrictatime", "norelatime"],
        Done(
            set!(|o| o.atime = AtimePolicy::Relatime),
            "note the first reading after a change, and one a day (default)",
        ),
    ),
    row(
        &["noatime"],
        Done(set!(|o| o.atime = AtimePolicy::Noatime), "note none"),
    ),
    row(
        &["strictatime"],
        Done(set!(|o| o.atime = AtimePolicy::Strict), "note each"),
    ),
    row(
        &["diratime", "nodiratime"],
        Done(
            set!(|o, name| o.notes_directories = name == "diratime"),
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

pub(super) static WRITING: &[Row] = &[
    row(
        &["sync"],
        Flag(
            set!(|o| o.kernel.is_synchronous = true),
            "every write is on the image when it returns",
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
        Flag(
            set!(|o| o.kernel.is_directory_synchronous = true),
            "every change of a directory is on the image when it returns",
        ),
    ),
    row(
        &["commit"],
        Done(commit, "write changes out at least that often (default 5)"),
    )
    .takes("SECONDS", "30")
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
        &["writeback_cache", "nowriteback_cache"],
        Done(
            set!(|o, name| o.kernel.has_writeback_cache = name == "writeback_cache"),
            "collect small writes in the kernel until close or fsync, or do not (default); faster for \
             programs that write in small pieces, but a full image is reported late and SEEK_HOLE \
             finds no holes",
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
        Refused("use ro, which replays the journal in memory and writes nothing"),
    ),
    row(
        &["discard"],
        Ignored("blocks that are freed are not given back to the device"),
    ),
    row(&["nodiscard"], Ignored("that is what happens")),
];

pub(super) static SERVER: &[Row] = &[
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
            "while requests come, keep CPUs from sleep that takes longer to leave; 0 gives the fastest \
             round trips and costs power (root only)",
        ),
    )
    .takes("MICROSECONDS", "0"),
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

pub(super) static MEMORY: &[Row] = &[
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
        &["uid"],
        Done(uid, "owner of its root (default: who mounts it)"),
    )
    .takes("NUMBER", "7")
    .of(Of::Memory),
    row(
        &["gid"],
        Done(gid, "group of its root (default: that of who mounts it)"),
    )
    .takes("NUMBER", "7")
    .of(Of::Memory),
    row(
        &["fsname"],
        Done(fsname, "what is shown as mounted, for a memory file system"),
    )
    .takes("NAME", "x"),
];

pub(super) static MOUNT: &[Row] = &[
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
    row(
        &["sizelimit"],
        Refused("the file system says itself how large it is; leave it out"),
    )
    .takes("SIZE", "1m"),
];

pub(super) static EXT: &[Row] = &[
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
    row(
        &["quota", "usrquota", "grpquota", "prjquota"],
        Refused(QUOTA),
    ),
    row(&["usrjquota", "grpjquota", "jqfmt"], Refused(QUOTA)).takes("VALUE", "a"),
    row(&["noquota"], Ignored("that is what happens")),
    row(
        &["journal_checksum", "nojournal_checksum"],
        Ignored("the journal has the checksums that the image's features ask for"),
    ),
    row(
        &["journal_async_commit"],
        Ignored("commits are written in the safe order"),
    ),
    row(&["journal_dev", "journal_path"], Refused(JOURNAL)).takes("DEVICE", "a"),
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

pub(super) static FUSE: &[Row] = &[
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
        &["auto_unmount"],
        Ignored("a process looks after the mount, and takes it away when the server dies"),
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
        &["umask"],
        Refused("modes are those of the files; change them with chmod"),
    )
    .takes("OCTAL", "022"),
    row(
        &["direct_io"],
        Refused("give it for each file that it is wanted for (O_DIRECT)"),
    ),
    row(
        &["fakeroot"],
        Refused("owners and permissions count; see default_permissions and allow_other"),
    ),
    row(
        &["setuid"],
        Refused("run finefs mount as that user (mount.fuse3 does so by itself)"),
    )
    .takes("USER", "joe"),
    row(
        &["fd", "modules"],
        Refused("finefs opens /dev/fuse itself, and has no modules"),
    )
    .takes("VALUE", "3"),
];

fn number<N: std::str::FromStr>(name: &str, value: &str) -> CliResult<N> {
    value.parse().map_err(|_| bad(name, value, "a number"))
}

fn bad(name: &str, value: &str, wanted: &str) -> Failure {
    Failure::new(format!("option {name}={value}: give {wanted}"))
}

fn commit(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.commit_interval = match number(name, value)? {
        // As with the kernel's ext4: 0 is the default.
        0 => finefs::Options::default().commit_interval,
        seconds @ 1..=COMMIT_SECONDS_MAX => Duration::from_secs(seconds),
        _ => return Err(bad(name, value, "seconds, at most 3600")),
    };
    Ok(())
}

fn barrier(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.lacks_barriers = match value {
        "0" => true,
        "1" | "" => false,
        _ => return Err(bad(name, value, "0 or 1")),
    };
    Ok(())
}

fn errors(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.on_error = Some(match value {
        "continue" => OnError::Continue,
        "remount-ro" => OnError::ReadOnly,
        "panic" => OnError::Panic,
        _ => return Err(bad(name, value, "continue, remount-ro or panic")),
    });
    Ok(())
}

fn offset(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let offset = size::bytes(value);
    options.offset_bytes =
        offset.map_err(|reason| Failure::new(format!("option {name}={value}: {reason}")))?;
    Ok(())
}

fn threads(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.kernel.threads = match number(name, value)? {
        threads @ 1..=64 => Some(threads),
        _ => return Err(bad(name, value, "1 to 64")),
    };
    Ok(())
}

fn cpu_latency(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.kernel.cpu_latency_us = match number(name, value)? {
        us @ 0..=CPU_LATENCY_US_MAX => Some(us),
        _ => return Err(bad(name, value, "microseconds, at most 1000000")),
    };
    Ok(())
}

/// A scheme under which files behave.
fn locking(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let found = value.parse().ok();
    let found = found.filter(|scheme: &LockingScheme| scheme.keeps_semantics());
    options.locking = found.ok_or_else(|| {
        let names = LockingScheme::ALL.iter().filter(|s| s.keeps_semantics());
        let names: Vec<&str> = names.map(|scheme| scheme.name()).collect();
        bad(name, value, &format!("one of {}", names.join(", ")))
    })?;
    Ok(())
}

fn room(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.size = Some(Size::parse(name, value)?);
    Ok(())
}

fn mode(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    let mode = u32::from_str_radix(value, 8).ok();
    let mode = mode.filter(|&mode| mode <= 0o7777);
    options.mode = Some(mode.ok_or_else(|| bad(name, value, "octal permissions like 755"))?);
    Ok(())
}

fn uid(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.uid = Some(number(name, value)?);
    Ok(())
}

fn gid(options: &mut MountOptions, name: &str, value: &str) -> CliResult<()> {
    options.gid = Some(number(name, value)?);
    Ok(())
}

fn fsname(options: &mut MountOptions, _: &str, value: &str) -> CliResult<()> {
    options.source = Some(value.to_owned());
    Ok(())
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// The row of an option, with its value if it has one.
pub(crate) fn find(word: &str) -> Option<&'static Row> {
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

/// Where descriptions begin, and where lines end.
const INDENT: usize = 25;
const WIDTH: usize = 100;

/// One option after the other, and what becomes of it.
fn describe(out: &mut String, row: &Row) {
    let mut names: Vec<String> = Vec::new();
    for name in row.names {
        names.push(match row.value {
            None => (*name).to_owned(),
            Some(value) if value.is_optional => format!("{name}[={}]", value.shown),
            Some(value) => format!("{name}={}", value.shown),
        });
    }
    let (kind, text) = match &row.what {
        Flag(_, text) | Done(_, text) => ("", *text),
        Ignored(text) => ("no effect: ", *text),
        Refused(text) => ("refused: ", *text),
    };
    let names = fill(&names.join(", "), 2);
    let mut lines = fill(&format!("{kind}{text}"), INDENT);
    match names.len() {
        1 if names[0].chars().count() < INDENT => {
            lines[0] = format!("{:INDENT$}{}", names[0], lines[0].trim_start());
        }
        _ => lines.splice(0..0, names).for_each(drop),
    }
    for line in lines {
        let _ = writeln!(out, "{line}");
    }
}

/// Lines of words, indented.
fn fill(text: &str, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines
}

const SIZES: &str = "SIZE is in bytes, or with k, m, g, t, or % of memory.";

/// For the help: what is done.
pub(crate) fn help() -> String {
    let mut out = String::from(
        "Mount options (-o, comma separated, may be repeated; the last of two that conflict counts):\n",
    );
    for group in GROUPS {
        for row in group.rows {
            if matches!(row.what, Flag(..) | Done(..)) {
                describe(&mut out, row);
            }
        }
    }
    let others = "Options of mount(8), of the kernel's ext4 and of other FUSE file systems are known too: \
                  those that would change nothing here have no effect, others are refused. finefs mount \
                  --help-options tells of each.";
    for line in fill(others, 0) {
        let _ = writeln!(out, "{line}");
    }
    out + SIZES
}

/// All options, and what becomes of each.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "Options of finefs mount (-o, comma separated, may be repeated; the last of two that conflict\n\
         counts). With -v it says which have no effect.\n",
    );
    for group in GROUPS {
        let _ = writeln!(out, "\n{}:", group.heading);
        for row in group.rows {
            describe(&mut out, row);
        }
    }
    let _ = writeln!(out, "\n{SIZES}");
    out
}

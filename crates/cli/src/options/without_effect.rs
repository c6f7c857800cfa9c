//! Options of mount(8), of the kernel's file systems and of libfuse that are ignored or refused,
//! each for a reason.
//!
//! # References
//! mount(8), ext4(5), `Documentation/admin-guide/ext4.rst`, mount.fuse3(8).

use super::row::{Row, What, row};

use What::{Ignored, Refused};

const MOUNTS_OWN: &str = "it speaks to mount(8)";
const ALLOCATION: &str = "finefs chooses blocks, and when it writes, in its own way";
const OBSOLETE: &str = "the kernel's ext4 ignores it too by now";
const CACHE: &str =
    "what is mounted changes only through the mount, so the kernel may keep all it knows";
const LIBRARY: &str = "finefs speaks with the kernel itself, without libfuse";
const QUOTA: &str = "only quotas of the feature quota are kept (tune2fs -O quota); leave it out";
const OF_KERNEL: &str = "the kernel tells it of a mount";
const PROPAGATION: &str =
    "mount(8) does that by itself, with no file system's help: mount --bind and the like";

pub(super) static MOUNT: &[Row] = &[
    row(
        &["defaults", "auto", "noauto", "nofail", "_netdev"],
        Ignored(MOUNTS_OWN),
    ),
    row(&["nouser", "users", "owner", "group"], Ignored(MOUNTS_OWN)),
    row(&["user"], Ignored(MOUNTS_OWN)).may_take("NAME", "joe"),
    row(
        &["X-mount.idmap"],
        Refused(
            "owners cannot be mapped by the mount; leave it out, or show all files as one user's \
             by uid= and gid=",
        ),
    )
    .may_take("MAP", "b:1000:0:1"),
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

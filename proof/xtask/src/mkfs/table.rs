//! The command lines that finefs and mke2fs are given alike.

/// What may differ between the two images beside what always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Nothing.
    Nothing,
    /// The block of multiple mount protection: mke2fs writes the host and the hour of the clock.
    MmpBlock,
    /// The journal's extents that moved to a block: mke2fs leaves copies in the inode's unused
    /// entries, and in the superblock's.
    OldExtents,
    /// lost+found and what is counted by it: mke2fs makes it an inline directory first, which
    /// leaves it a block shorter.
    LostAndFound,
}

/// What is done with an image beside comparing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Compare,
    /// The kernel mounts ours if it mounts mke2fs's.
    Mount,
    /// It is filled to the last block, by the kernel and by finefs.
    Fill,
}

/// One command line.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// The program's name.
    pub program: &'static str,
    /// Its switches, but for `-E`.
    pub switches: &'static str,
    /// Words of `-E`.
    pub extended: &'static str,
    /// The image's size in KiB.
    pub kib: u64,
    pub allowed: Allowed,
    pub then: Then,
}

const MIB: u64 = 1 << 10;
const GIB: u64 = 1 << 20;

const fn set(program: &'static str, switches: &'static str, kib: u64, then: Then) -> Set {
    Set {
        program,
        switches,
        extended: "",
        kib,
        allowed: Allowed::Nothing,
        then,
    }
}

const fn ext4(switches: &'static str, kib: u64, then: Then) -> Set {
    set("mkfs.ext4", switches, kib, then)
}

const fn extended(switches: &'static str, extended: &'static str, kib: u64) -> Set {
    Set {
        extended,
        ..set("mkfs.ext4", switches, kib, Then::Mount)
    }
}

const fn allowed(switches: &'static str, kib: u64, allowed: Allowed) -> Set {
    Set {
        allowed,
        ..set("mkfs.ext4", switches, kib, Then::Compare)
    }
}

use Then::{Compare, Fill, Mount};

/// All of them.
pub const SETS: &[Set] = &[
    ext4("", 200 * MIB, Fill),
    ext4("", 20 * GIB, Mount),
    ext4("-O orphan_file,metadata_csum_seed", 200 * MIB, Fill),
    ext4("-O orphan_file -b 2048", 600 * MIB, Mount),
    ext4("-O orphan_file", 9 * GIB + 12_344, Mount),
    ext4("-O ^has_journal", 100 * MIB, Fill),
    ext4("-O ^resize_inode", 200 * MIB, Mount),
    ext4("-b 1024 -O ^flex_bg", 100 * MIB, Fill),
    ext4("-b 1024 -O ^flex_bg,^metadata_csum", 700 * MIB, Mount),
    ext4("-b 1024 -O ^metadata_csum,uninit_bg", 100 * MIB, Fill),
    ext4("-b 1024 -O uninit_bg,^flex_bg", 700 * MIB, Mount),
    ext4(
        "-b 1024 -O ^metadata_csum,uninit_bg,^flex_bg",
        700 * MIB,
        Mount,
    ),
    ext4("-b 1024 -O ^64bit", 700 * MIB, Mount),
    ext4("-b 1024 -O meta_bg,^resize_inode", 100 * MIB, Fill),
    ext4(
        "-b 1024 -O meta_bg,^resize_inode,^flex_bg",
        700 * MIB,
        Mount,
    ),
    ext4(
        "-b 1024 -O meta_bg,^resize_inode,sparse_super2",
        700 * MIB,
        Mount,
    ),
    ext4("-b 1024 -O sparse_super2", 700 * MIB, Mount),
    ext4("-O sparse_super2", 16_385, Mount),
    extended(
        "-O sparse_super2,^resize_inode",
        "num_backup_sb=1",
        700 * MIB,
    ),
    extended(
        "-O sparse_super2,^resize_inode",
        "num_backup_sb=0",
        700 * MIB,
    ),
    ext4("-b 1024 -O ^sparse_super,^resize_inode", 700 * MIB, Mount),
    extended("", "packed_meta_blocks=1", 700 * MIB),
    extended("-O ^flex_bg", "stride=16,stripe_width=64", 700 * MIB),
    extended("-b 1024", "stride=4,root_owner=1000:100", 200 * MIB),
    extended("", "resize=4000000", 200 * MIB),
    extended("", "lazy_itable_init=0,lazy_journal_init=1", 200 * MIB),
    extended("", "test_fs,nodiscard", 200 * MIB),
    ext4("-O fast_commit", 200 * MIB, Mount),
    ext4(
        "-O large_dir,ea_inode,stable_inodes,project",
        200 * MIB,
        Mount,
    ),
    ext4("-O casefold,encrypt,verity", 200 * MIB, Compare),
    ext4("-O quota", 200 * MIB, Fill),
    ext4("-O quota,project -b 1024", 200 * MIB, Mount),
    extended(
        "-O quota -b 1024",
        "quotatype=usr:prj,root_owner=1000:100",
        200 * MIB,
    ),
    ext4("-O quota,orphan_file,bigalloc -b 4096", 200 * MIB, Mount),
    set("mkfs.ext3", "-O quota", 100 * MIB, Fill),
    allowed("-O mmp", 200 * MIB, Allowed::MmpBlock),
    allowed("-O inline_data", 200 * MIB, Allowed::LostAndFound),
    ext4("-O bigalloc", 200 * MIB, Fill),
    ext4("-O bigalloc -b 1024 -C 2048", 700 * MIB, Fill),
    ext4("-O bigalloc,orphan_file -C 16384", 9 * GIB + 12_344, Mount),
    ext4(
        "-O bigalloc,^flex_bg,^has_journal -b 1024",
        700 * MIB,
        Mount,
    ),
    ext4(
        "-O bigalloc,meta_bg,^resize_inode -b 2048 -C 1M",
        2 * GIB,
        Mount,
    ),
    ext4("-O bigalloc,^metadata_csum,uninit_bg", 3 * GIB, Mount),
    ext4("-O ^extent,^64bit", 100 * MIB, Fill),
    ext4(
        "-O ^dir_index,^filetype,^ext_attr,^huge_file,^extra_isize",
        200 * MIB,
        Mount,
    ),
    ext4("-O none", 100 * MIB, Mount),
    ext4("-r 0", 100 * MIB, Mount),
    ext4("-I 128", 100 * MIB, Mount),
    ext4("-I 1024", 200 * MIB, Mount),
    ext4("-i 1024", 200 * MIB, Mount),
    ext4("-i 65536 -m 0", 200 * MIB, Mount),
    ext4("-N 64", 200 * MIB, Mount),
    ext4("-N 848 -O ^flex_bg -b 2048", 3 * GIB + 12_344, Mount),
    ext4(
        "-N 848 -O ^flex_bg,orphan_file,quota,project -b 2048",
        3 * GIB + 12_344,
        Mount,
    ),
    ext4(
        "-N 848 -O orphan_file,quota,project -G 2 -b 2048",
        3 * GIB,
        Mount,
    ),
    ext4("-N 200000 -m 3.7", 200 * MIB, Mount),
    ext4("-g 4096 -b 1024", 200 * MIB, Mount),
    ext4("-g 2048 -G 4 -b 4096", 200 * MIB, Mount),
    ext4("-G 1", 20 * GIB, Mount),
    ext4("-G 64", 20 * GIB, Mount),
    ext4("-b 16384", 300 * MIB, Compare),
    ext4("-b 65536", 300 * MIB, Compare),
    ext4("-J size=20", 200 * MIB, Mount),
    ext4("-T largefile4", 200 * MIB, Mount),
    ext4("-T news -e panic -M /srv", 200 * MIB, Mount),
    ext4("-L sixteen-letters! -e remount-ro", 200 * MIB, Mount),
    set("mke2fs", "-T ext4", 100 * MIB, Mount),
    set("mke2fs", "-T ext4,small", 100 * MIB, Mount),
    ext4("-b -2048", 200 * MIB, Mount),
    set("mkfs.ext3", "", 100 * MIB, Fill),
    set("mkfs.ext3", "-b 1024", 60 * MIB, Mount),
    set("mkfs.ext3", "", 5 * GIB, Mount),
    set("mkfs.ext2", "", 100 * MIB, Fill),
    set("mkfs.ext2", "-b 1024", 2 * GIB, Mount),
    set("mke2fs", "", 60 * MIB, Mount),
    set("mke2fs", "-j", 60 * MIB, Mount),
    set("mke2fs", "-t ext4", 60 * MIB, Mount),
    set(
        "mkfs.ext2",
        "-b 1024 -O meta_bg,^resize_inode,^sparse_super",
        8 * GIB,
        Mount,
    ),
    ext4("", 200, Mount),
    ext4("", 1000, Mount),
    ext4("", 2047, Mount),
    ext4("", 3333, Fill),
    // A last group that is too small, and one that is not.
    ext4("", 8193 + 40, Mount),
    ext4("", 8193 + 700, Mount),
    ext4("", 3 * 8192 + 300, Mount),
    ext4("", 3 * 8192 + 900, Mount),
    ext4("-N 16", 100, Mount),
    allowed("", 130 * GIB, Allowed::OldExtents),
    allowed("-O ^flex_bg", 130 * GIB, Allowed::OldExtents),
    // More than 2^32 blocks, where the directory's file system takes such files.
    allowed("", 20 << 30, Allowed::OldExtents),
];

/// Command lines that both refuse.
pub const REFUSED: &[Set] = &[
    ext4("-O nonsense", 8 * MIB, Compare),
    ext4("-O ^extent", 8 * MIB, Compare),
    ext4("-O meta_bg", 8 * MIB, Compare),
    ext4("-O ^sparse_super", 8 * MIB, Compare),
    ext4("-I 100", 8 * MIB, Compare),
    ext4("-I 2048 -b 1024", 8 * MIB, Compare),
    ext4("-i 512", 8 * MIB, Compare),
    ext4("-i x", 8 * MIB, Compare),
    ext4("-m 60", 8 * MIB, Compare),
    ext4("-J size=100", 64 * MIB, Compare),
    ext4("-J nonsense", 64 * MIB, Compare),
    ext4("-g 100", 64 * MIB, Compare),
    ext4("-G 3", 64 * MIB, Compare),
    ext4("-U nonsense", 64 * MIB, Compare),
    ext4("-N 100000000", 64 * MIB, Compare),
    ext4("-e nonsense", 64 * MIB, Compare),
    ext4("-C 16384", 64 * MIB, Compare),
    ext4("-O bigalloc -C 512", 64 * MIB, Compare),
    ext4("-O bigalloc,^extent,^64bit", 64 * MIB, Compare),
    ext4("-Q", 64 * MIB, Compare),
    ext4("", 20, Compare),
    extended("", "nonsense", 64 * MIB),
    extended("", "stride=x", 64 * MIB),
];

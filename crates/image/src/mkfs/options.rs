//! What may be asked for.

use super::error::{MkfsError, Result};
use finefs_ext_disk::quota::QuotaKind;
use std::path::PathBuf;
use std::str::FromStr;

/// Which file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// ext2: no journal, no extents.
    Ext2,
    /// ext3: ext2 with a journal.
    Ext3,
    /// ext4.
    #[default]
    Ext4,
}

impl FromStr for FsType {
    type Err = MkfsError;

    fn from_str(name: &str) -> Result<FsType> {
        match name {
            "ext2" => Ok(FsType::Ext2),
            "ext3" => Ok(FsType::Ext3),
            "ext4" => Ok(FsType::Ext4),
            _ => Err(MkfsError::value("-t", name, "give ext2, ext3 or ext4")),
        }
    }
}

/// Whose default features ext4 has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Defaults {
    /// Debian's e2fsprogs 1.47: what older kernels and tools read.
    #[default]
    Debian,
    /// e2fsprogs' own of 1.47: `metadata_csum_seed` and `orphan_file` too.
    Upstream,
}

/// What to do when an error is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Go on.
    #[default]
    Continue = 1,
    /// Remount read-only.
    ReadOnly = 2,
    /// Panic (the kernel).
    Panic = 3,
}

impl FromStr for OnError {
    type Err = MkfsError;

    fn from_str(name: &str) -> Result<OnError> {
        match name {
            "continue" => Ok(OnError::Continue),
            "remount-ro" => Ok(OnError::ReadOnly),
            "panic" => Ok(OnError::Panic),
            _ => Err(MkfsError::value(
                "-e",
                name,
                "give continue, remount-ro or panic",
            )),
        }
    }
}

/// What may be asked for. Where a field is `None`, the type and the size decide, by the values
/// of mke2fs.conf(5). The letters are mke2fs's.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-t`: which file system.
    pub fs_type: FsType,
    /// Whose default features.
    pub defaults: Defaults,
    /// `-T`: what it is to be used for, by names of mke2fs.conf(5); empty: by the size.
    pub usage_types: Vec<String>,
    /// `-O`: changes of the features, in order. See [`super::FeatureSet::edit`].
    pub features: Vec<String>,
    /// `-j`: a journal, whatever the type says.
    pub has_journal: bool,
    /// `-b`: bytes of a block.
    pub block_size: Option<u32>,
    /// `-b -SIZE`: bytes of a block at least, where the size decides.
    pub block_size_min: Option<u32>,
    /// `-C`: bytes of a cluster, with `bigalloc`.
    pub cluster_size: Option<u32>,
    /// `-I`: bytes of an inode.
    pub inode_size: Option<u32>,
    /// `-i`: bytes of space for each inode.
    pub bytes_per_inode: Option<u32>,
    /// `-N`: inodes at least.
    pub inodes: Option<u32>,
    /// `-L`: the label, at most 16 bytes.
    pub label: Vec<u8>,
    /// `-M`: where it was mounted last.
    pub last_mounted: Vec<u8>,
    /// `-U`: the UUID.
    pub uuid: Option<[u8; 16]>,
    /// `-E hash_seed=`: the seed of directory hashes.
    pub hash_seed: Option<[u8; 16]>,
    /// `-m`: percents of the blocks that are reserved, 0 to 50.
    pub reserved_percent: f64,
    /// `-J size=`: the journal's size in MiB.
    pub journal_mib: Option<u32>,
    /// `-J device=`: the file or device that holds its journal, which is made before.
    pub journal_device: Option<PathBuf>,
    /// `-J fast_commit_size=`: the fast commit area's size in KiB.
    pub fast_commit_kib: Option<u32>,
    /// `-g`: blocks of a group.
    pub blocks_per_group: Option<u32>,
    /// `-G`: groups of a flex group.
    pub groups_per_flex: Option<u32>,
    /// `-e`: what to do when an error is found.
    pub on_error: OnError,
    /// `-r`: the revision, 0 or 1.
    pub revision: u32,
    /// `-E root_owner=`: owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// `-E root_perms=`: its permission bits.
    pub root_permissions: u16,
    /// `-E stride=`: the stride of a RAID in blocks.
    pub stride: u16,
    /// `-E stripe_width=`: its stripe in blocks.
    pub stripe_width: u32,
    /// `-E num_backup_sb=`: copies of the superblock with `sparse_super2`, 0 to 2.
    pub backup_superblocks: u8,
    /// `-E packed_meta_blocks=`: bitmaps and inode tables at the start.
    pub has_packed_metadata: bool,
    /// `-E resize=`: the size that it may be grown to, in blocks.
    pub resize_blocks: Option<u64>,
    /// The same in bytes, where it was given with a unit.
    pub resize_bytes: Option<u64>,
    /// `-E desc_size=`: bytes of a group descriptor.
    pub desc_size: Option<u32>,
    /// `-E encoding_flags=strict`: names that are no UTF-8 are refused, with `casefold`.
    pub is_encoding_strict: bool,
    /// `-E mmp_update_interval=`: seconds.
    pub mmp_interval: u16,
    /// `-E orphan_file_size=`: bytes.
    pub orphan_file_bytes: Option<u64>,
    /// `-E quotatype=`: whose quota files there are with `quota`; of users and groups without it,
    /// and of projects with `project`.
    pub quota_kinds: Option<Vec<QuotaKind>>,
    /// `-l`: blocks that are not to be used.
    pub bad_blocks: Vec<u64>,
    /// `-c`: read everything first, and leave out what cannot be read.
    pub checks_blocks: bool,
    /// `-z`: the undo file that gets what lay where something is written. There must be none.
    pub undo: Option<PathBuf>,
    /// `-cc`: write everything with patterns first, and leave out what does not keep them. What is
    /// there is lost.
    pub writes_patterns: bool,
    /// `-E lazy_itable_init=`: inode tables may stay as they are, where the format can say so.
    pub is_itable_lazy: bool,
    /// `-E lazy_journal_init=`: the journal may stay as it is.
    pub is_journal_lazy: bool,
    /// `-E nodiscard` clears it: give the storage back first.
    pub discards: bool,
    /// `-E assume_storage_prezeroed=`: what is there reads as zeros.
    pub is_prezeroed: bool,
    /// `-E test_fs`: marks it as one for tests.
    pub is_test: bool,
    /// What UUID, hash seed and, with `time`, all bytes come from; random without it.
    pub seed: Option<String>,
    /// Seconds since 1970 of all times; now without it, or a fixed time with a seed.
    pub time: Option<i64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fs_type: FsType::Ext4,
            defaults: Defaults::Debian,
            usage_types: Vec::new(),
            features: Vec::new(),
            has_journal: false,
            block_size: None,
            block_size_min: None,
            cluster_size: None,
            inode_size: None,
            bytes_per_inode: None,
            inodes: None,
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: None,
            hash_seed: None,
            reserved_percent: 5.0,
            journal_mib: None,
            journal_device: None,
            fast_commit_kib: None,
            blocks_per_group: None,
            groups_per_flex: None,
            on_error: OnError::Continue,
            revision: 1,
            root_owner: (0, 0),
            root_permissions: 0o755,
            stride: 0,
            stripe_width: 0,
            backup_superblocks: 2,
            has_packed_metadata: false,
            resize_blocks: None,
            resize_bytes: None,
            desc_size: None,
            is_encoding_strict: false,
            mmp_interval: 5,
            orphan_file_bytes: None,
            quota_kinds: None,
            bad_blocks: Vec::new(),
            checks_blocks: false,
            writes_patterns: false,
            undo: None,
            is_itable_lazy: true,
            is_journal_lazy: false,
            discards: true,
            is_prezeroed: false,
            is_test: false,
            seed: None,
            time: None,
        }
    }
}

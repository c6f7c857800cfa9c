//! How the names of an encrypted directory are shown without its key: each with its hash, as the
//! kernel computes it when it lists the directory.

use finefs_ext_disk::dirhash::{DirHash, DirHasher, VERSION_SIPHASH};
use finefs_ext_disk::features::Compat;
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::nokey::{self, RawEntry};

use crate::state::ExtState;

/// See the module's head.
#[derive(Clone)]
pub(crate) enum NokeyNames {
    /// Hashes as in an index.
    Hashed(DirHasher),
    /// The entries have hashes with them, made with a key.
    Stored,
    /// No index lists them.
    Plain,
}

impl NokeyNames {
    /// Of a directory whose first block is this, or (`None`) of one that lies in its inode. `None`
    /// where its index has a hash that is unknown.
    pub(crate) fn of<B: AsRef<[u8]>>(
        state: &ExtState,
        inode: &Inode<B>,
        first_block: Option<&[u8]>,
    ) -> Option<NokeyNames> {
        let flags = inode.flags();
        let superblock = state.superblock.lock().clone();
        if flags.contains(InodeFlags::CASEFOLD) {
            return Some(NokeyNames::Stored);
        }
        let is_indexed = flags.contains(InodeFlags::INDEX);
        let blocks = inode.size(&state.inode_rules) / u64::from(state.geometry.block_size);
        let is_listed_by_hash = first_block.is_none() || is_indexed || blocks == 1;
        if !superblock.compat().contains(Compat::DIR_INDEX) || !is_listed_by_hash {
            return Some(NokeyNames::Plain);
        }
        let version = match first_block.filter(|_| is_indexed) {
            None => superblock.def_hash_version(),
            Some(first) => {
                let has_tail = state.dir_rules.has_tail;
                let root = DxBlock::new(first, DxPlace::Root, has_tail);
                root.ok()?.hash_version()
            }
        };
        if version == VERSION_SIPHASH {
            return Some(NokeyNames::Stored);
        }
        let hasher = DirHasher::new(version, &superblock).ok()?;
        Some(NokeyNames::Hashed(hasher))
    }

    /// What stands for a name.
    pub(crate) fn shown(&self, entry: &RawEntry<'_>) -> Vec<u8> {
        let hash = match self {
            NokeyNames::Hashed(hasher) => hasher.hash(entry.name),
            NokeyNames::Stored => entry.stored_hash,
            NokeyNames::Plain => DirHash { major: 0, minor: 0 },
        };
        nokey::shown(hash, entry.name)
    }
}

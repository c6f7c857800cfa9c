//! What finefs can do with each feature of the format. Which ones not together: `unwritable` in
//! [`crate::mount`], and `crate::found`.

use finefs_ext_disk::features::{Compat, FeatureWord, Incompat, RoCompat};

/// How far a feature is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Reads and writes.
    Write,
    /// Reads; an image that has it is mounted read-only.
    Read,
    /// An image that has it is refused.
    None,
}

use Support::{None as Refuse, Read, Write};

const COMPAT: &[(Compat, Support)] = &[
    (Compat::DIR_PREALLOC, Write),
    (Compat::IMAGIC_INODES, Read),
    (Compat::HAS_JOURNAL, Write),
    (Compat::EXT_ATTR, Write),
    (Compat::RESIZE_INODE, Write),
    (Compat::DIR_INDEX, Write),
    (Compat::LAZY_BG, Read),
    (Compat::EXCLUDE_BITMAP, Read),
    (Compat::SPARSE_SUPER2, Write),
    // Its records are looked for at mount; an image that holds none is written without adding any.
    (Compat::FAST_COMMIT, Write),
    (Compat::STABLE_INODES, Write),
    (Compat::ORPHAN_FILE, Write),
];

const INCOMPAT: &[(Incompat, Support)] = &[
    (Incompat::COMPRESSION, Refuse),
    (Incompat::FILETYPE, Write),
    (Incompat::NEEDS_RECOVERY, Write),
    (Incompat::JOURNAL_DEV, Refuse),
    (Incompat::META_BG, Write),
    (Incompat::EXTENTS, Write),
    (Incompat::BIT64, Write),
    (Incompat::MMP, Write),
    (Incompat::FLEX_BG, Write),
    (Incompat::EA_INODE, Write),
    (Incompat::DIRDATA, Refuse),
    (Incompat::CSUM_SEED, Write),
    (Incompat::LARGEDIR, Write),
    (Incompat::INLINE_DATA, Write),
    (Incompat::ENCRYPT, Write),
    (Incompat::CASEFOLD, Write),
];

const RO_COMPAT: &[(RoCompat, Support)] = &[
    (RoCompat::SPARSE_SUPER, Write),
    (RoCompat::LARGE_FILE, Write),
    (RoCompat::HUGE_FILE, Write),
    (RoCompat::GDT_CSUM, Write),
    (RoCompat::DIR_NLINK, Write),
    (RoCompat::EXTRA_ISIZE, Write),
    (RoCompat::QUOTA, Write),
    (RoCompat::BIGALLOC, Write),
    (RoCompat::METADATA_CSUM, Write),
    (RoCompat::REPLICA, Read),
    (RoCompat::READONLY, Read),
    (RoCompat::PROJECT, Write),
    (RoCompat::SHARED_BLOCKS, Read),
    (RoCompat::VERITY, Write),
    (RoCompat::ORPHAN_PRESENT, Write),
];

/// What the features of an image allow, with the names of those that stand in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Features that make the image unreadable.
    pub refused: Vec<String>,
    /// Features that allow reading only.
    pub read_only: Vec<String>,
}

impl Gate {
    /// Looks the features of a superblock up.
    pub fn of(compat: Compat, incompat: Incompat, ro_compat: RoCompat) -> Gate {
        let mut gate = Gate::default();
        // The kernel ignores unknown compatible features and writes; so do we.
        gate.sort_in(compat, COMPAT, Write);
        gate.sort_in(incompat, INCOMPAT, Refuse);
        gate.sort_in(ro_compat, RO_COMPAT, Read);
        gate
    }

    fn sort_in<W>(&mut self, word: W, table: &[(W, Support)], unknown: Support)
    where
        W: FeatureWord + Copy + PartialEq + bitflags::Flags<Bits = u32>,
    {
        for bit in (0..32).map(|shift| W::from_bits_retain(1 << shift)) {
            if !word.contains(bit) {
                continue;
            }
            let known = table.iter().find(|(feature, _)| *feature == bit);
            match known.map_or(unknown, |(_, support)| *support) {
                Write => {}
                Read => self.read_only.extend(bit.feature_names()),
                Refuse => self.refused.extend(bit.feature_names()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_mke2fs_are_written() {
        let gate = Gate::of(
            Compat::HAS_JOURNAL | Compat::EXT_ATTR | Compat::RESIZE_INODE | Compat::DIR_INDEX,
            Incompat::FILETYPE | Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG,
            RoCompat::SPARSE_SUPER | RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE,
        );
        assert_eq!(gate, Gate::default());
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let gate = Gate::of(
            Compat::empty(),
            Incompat::COMPRESSION | Incompat::from_bits_retain(1 << 30),
            RoCompat::REPLICA | RoCompat::from_bits_retain(1 << 29),
        );
        assert_eq!(gate.refused, ["compression", "FEATURE_I30"]);
        assert_eq!(gate.read_only, ["replica", "FEATURE_R29"]);
    }
}

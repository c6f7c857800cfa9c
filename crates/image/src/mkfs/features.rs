//! The features of a file system to be made: defaults, edits by name, and which go together.

use super::error::{MkfsError, Result};
use super::options::{Defaults, FsType};
use finefs_ext_disk::features::{Compat, FeatureWord, Incompat, RoCompat};

/// The three words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

impl FeatureSet {
    /// What a type has where nobody asks for something else.
    pub fn of(fs_type: FsType, defaults: Defaults) -> FeatureSet {
        let mut set = FeatureSet {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        if fs_type != FsType::Ext2 {
            set.compat |= Compat::HAS_JOURNAL;
        }
        if fs_type == FsType::Ext4 {
            set.incompat |= Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64;
            set.ro_compat |= RoCompat::HUGE_FILE
                | RoCompat::METADATA_CSUM
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE;
            if defaults == Defaults::Upstream {
                set.compat |= Compat::ORPHAN_FILE;
                set.incompat |= Incompat::CSUM_SEED;
            }
        }
        set
    }

    /// Does what one word of `-O` says: `NAME` sets, `^NAME` clears, `none` clears all.
    pub fn edit(&mut self, word: &str) -> Result<()> {
        if word == "none" {
            *self = FeatureSet::default();
            return Ok(());
        }
        let (name, is_set) = match word.strip_prefix(['^', '-']) {
            Some(name) => (name, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        if let Some(feature) = Compat::from_feature_name(name) {
            self.compat.set(feature, is_set);
        } else if let Some(feature) = Incompat::from_feature_name(name) {
            self.incompat.set(feature, is_set);
        } else if let Some(feature) = RoCompat::from_feature_name(name) {
            self.ro_compat.set(feature, is_set);
        } else {
            return Err(MkfsError::UnknownFeature(name.to_owned()));
        }
        Ok(())
    }

    /// Whether metadata has crc32c checksums.
    pub fn has_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors have checksums, so that parts may stay uninitialised.
    pub fn has_group_csum(&self) -> bool {
        self.ro_compat
            .intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }

    /// Refuses what cannot be made, and features that do not go together.
    pub fn check(&self) -> Result<()> {
        let known_compat = Compat::HAS_JOURNAL
            | Compat::EXT_ATTR
            | Compat::RESIZE_INODE
            | Compat::DIR_INDEX
            | Compat::SPARSE_SUPER2
            | Compat::FAST_COMMIT
            | Compat::STABLE_INODES
            | Compat::ORPHAN_FILE;
        let known_incompat = Incompat::FILETYPE
            | Incompat::META_BG
            | Incompat::EXTENTS
            | Incompat::BIT64
            | Incompat::MMP
            | Incompat::FLEX_BG
            | Incompat::EA_INODE
            | Incompat::CSUM_SEED
            | Incompat::LARGEDIR
            | Incompat::INLINE_DATA
            | Incompat::ENCRYPT
            | Incompat::CASEFOLD;
        let known_ro = RoCompat::SPARSE_SUPER
            | RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::GDT_CSUM
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::METADATA_CSUM
            | RoCompat::BIGALLOC
            | RoCompat::PROJECT
            | RoCompat::QUOTA
            | RoCompat::VERITY;
        refuse_other(self.compat, known_compat)?;
        refuse_other(self.incompat, known_incompat)?;
        refuse_other(self.ro_compat, known_ro)?;
        match self.conflict() {
            Some(line) => Err(MkfsError::Conflict(line)),
            None => Ok(()),
        }
    }

    fn conflict(&self) -> Option<&'static str> {
        let has_extents = self.incompat.contains(Incompat::EXTENTS);
        if self.incompat.contains(Incompat::META_BG) && self.compat.contains(Compat::RESIZE_INODE) {
            return Some("features meta_bg and resize_inode exclude each other; clear one of them");
        }
        if self.incompat.contains(Incompat::BIT64) && !has_extents {
            return Some("feature 64bit needs extents; take -O extent or -O ^64bit");
        }
        if self.ro_compat.contains(RoCompat::BIGALLOC) && !has_extents {
            return Some("feature bigalloc needs extents; take -O extent or -O ^bigalloc");
        }
        if self.ro_compat.contains(RoCompat::VERITY) && !has_extents {
            return Some("feature verity needs extents; take -O extent or -O ^verity");
        }
        if self.incompat.contains(Incompat::CSUM_SEED) && !self.has_csum() {
            return Some("feature metadata_csum_seed needs metadata_csum; set it or clear both");
        }
        if self.compat.contains(Compat::ORPHAN_FILE) && !self.compat.contains(Compat::HAS_JOURNAL) {
            return Some("feature orphan_file needs has_journal; set it or clear both");
        }
        if self.compat.contains(Compat::FAST_COMMIT) && !self.compat.contains(Compat::HAS_JOURNAL) {
            return Some("feature fast_commit needs has_journal; set it or clear both");
        }
        let has_sparse = self.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || self.compat.contains(Compat::SPARSE_SUPER2);
        if self.compat.contains(Compat::RESIZE_INODE) && !has_sparse {
            return Some("feature resize_inode needs sparse_super; set it or clear both");
        }
        None
    }
}

/// Refuses the first feature that is not among `known`.
fn refuse_other<W: FeatureWord>(word: W, known: W) -> Result<()> {
    let other = W::from_bits_retain(word.bits() & !known.bits());
    let Some(bit) = (0..32)
        .map(|i| 1u32 << i)
        .find(|bit| other.bits() & bit != 0)
    else {
        return Ok(());
    };
    match W::NAMES.iter().find(|(named, _)| *named == bit) {
        Some((_, name)) => Err(MkfsError::CannotMake(name)),
        None => Err(MkfsError::UnknownFeature(
            W::from_bits_retain(bit).feature_names().concat(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(words: &str) -> Result<FeatureSet> {
        let mut set = FeatureSet::of(FsType::Ext4, Defaults::Debian);
        for word in words.split(',') {
            set.edit(word)?;
        }
        set.check().map(|()| set)
    }

    #[test]
    fn names_set_and_clear() {
        let set = edited("^has_journal,meta_bg,^resize_inode").unwrap();
        assert!(!set.compat.contains(Compat::HAS_JOURNAL));
        assert!(set.incompat.contains(Incompat::META_BG));
        let set = edited("none,extents").unwrap();
        assert_eq!(set.incompat, Incompat::EXTENTS);
        assert_eq!(set.ro_compat, RoCompat::empty());
        let set = edited("^metadata_csum,uninit_bg").unwrap();
        assert!(!set.has_csum() && set.has_group_csum());
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (words, part) in [
            ("bigalloc,^extent,^64bit", "bigalloc"),
            ("journal_dev", "journal_dev"),
            ("nonsense", "nonsense"),
            ("^extent", "64bit"),
            ("meta_bg", "meta_bg"),
            ("^sparse_super", "sparse_super"),
        ] {
            let line = edited(words).unwrap_err().to_string();
            assert!(line.contains(part), "{line}");
        }
    }
}

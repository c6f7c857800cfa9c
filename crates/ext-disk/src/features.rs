//! Feature words of the superblock and of the journal, with the names that e2fsprogs prints.
//!
//! A bit without a name prints as `FEATURE_C7`, `FEATURE_I31` or `FEATURE_R12` and parses from it.

use bitflags::bitflags;
use core::fmt;
use core::str::FromStr;

/// A feature word with names.
pub trait FeatureWord: Copy + bitflags::Flags<Bits = u32> {
    /// The letter of unnamed bits: C, I or R.
    const LETTER: char;
    /// Names as e2fsprogs prints them, in ascending order of bits.
    const NAMES: &'static [(u32, &'static str)];
    /// Further names that are understood.
    const ALIASES: &'static [(u32, &'static str)];

    /// The names of the bits set, in ascending order of bits.
    fn feature_names(self) -> Vec<String> {
        (0..32)
            .map(|i| (i, 1u32 << i))
            .filter(|(_, bit)| self.bits() & bit != 0)
            .map(
                |(i, bit)| match Self::NAMES.iter().find(|(b, _)| *b == bit) {
                    Some((_, name)) => (*name).to_owned(),
                    None => format!("FEATURE_{}{i}", Self::LETTER),
                },
            )
            .collect()
    }

    /// The bit that has this name.
    fn from_feature_name(name: &str) -> Option<Self> {
        let listed = Self::NAMES.iter().chain(Self::ALIASES);
        let bit = match listed
            .into_iter()
            .find(|(_, n)| n.eq_ignore_ascii_case(name))
        {
            Some((bit, _)) => *bit,
            None => {
                let rest = name.strip_prefix("FEATURE_")?.strip_prefix(Self::LETTER)?;
                1u32.checked_shl(u32::from_str(rest).ok()?)?
            }
        };
        Some(Self::from_bits_retain(bit))
    }
}

macro_rules! feature_word {
    ($(#[$($doc:tt)*])* $name:ident $letter:literal
     { $( $(#[$($fdoc:tt)*])* $flag:ident = $bit:literal $label:literal; )* }
     aliases { $( $abit:literal $alias:literal; )* }) => {
        bitflags! {
            $(#[$($doc)*])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u32 {
                $( $(#[$($fdoc)*])* const $flag = $bit; )*
                // Bits that have no name here are kept.
                const _ = !0;
            }
        }
        impl FeatureWord for $name {
            const LETTER: char = $letter;
            const NAMES: &'static [(u32, &'static str)] = &[ $( ($bit, $label) ),* ];
            const ALIASES: &'static [(u32, &'static str)] = &[ $( ($abit, $alias) ),* ];
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.feature_names().join(" "))
            }
        }
    };
}

feature_word! {
    /// Features that may be ignored, for reading as for writing (`s_feature_compat`).
    Compat 'C' {
        /// Directory blocks are preallocated (never implemented).
        DIR_PREALLOC = 0x1 "dir_prealloc";
        /// AFS server inodes exist.
        IMAGIC_INODES = 0x2 "imagic_inodes";
        /// There is a journal.
        HAS_JOURNAL = 0x4 "has_journal";
        /// Extended attributes exist.
        EXT_ATTR = 0x8 "ext_attr";
        /// Descriptor blocks are reserved for growth.
        RESIZE_INODE = 0x10 "resize_inode";
        /// Directories may be indexed.
        DIR_INDEX = 0x20 "dir_index";
        /// Groups without initialised bitmaps (not in the kernel).
        LAZY_BG = 0x40 "lazy_bg";
        /// Snapshot exclude bitmap (not in the kernel).
        EXCLUDE_BITMAP = 0x100 "snapshot_bitmap";
        /// Two backup superblocks, at `s_backup_bgs`.
        SPARSE_SUPER2 = 0x200 "sparse_super2";
        /// The journal has a fast commit area.
        FAST_COMMIT = 0x400 "fast_commit";
        /// Inode numbers and the UUID never change.
        STABLE_INODES = 0x800 "stable_inodes";
        /// There is an orphan file.
        ORPHAN_FILE = 0x1000 "orphan_file";
    }
    aliases {}
}

feature_word! {
    /// Features that must be known to read (`s_feature_incompat`).
    Incompat 'I' {
        /// Compressed files.
        COMPRESSION = 0x1 "compression";
        /// Directory entries hold the file type.
        FILETYPE = 0x2 "filetype";
        /// The journal must be replayed.
        NEEDS_RECOVERY = 0x4 "needs_recovery";
        /// This is an external journal, not a file system.
        JOURNAL_DEV = 0x8 "journal_dev";
        /// Group descriptors lie in their meta block groups.
        META_BG = 0x10 "meta_bg";
        /// Files may be mapped by extents.
        EXTENTS = 0x40 "extent";
        /// Block numbers have 64 bits.
        BIT64 = 0x80 "64bit";
        /// Multiple mount protection.
        MMP = 0x100 "mmp";
        /// Metadata of several groups lies together.
        FLEX_BG = 0x200 "flex_bg";
        /// Large attribute values have inodes of their own.
        EA_INODE = 0x400 "ea_inode";
        /// Data in directory entries.
        DIRDATA = 0x1000 "dirdata";
        /// The checksum seed is stored.
        CSUM_SEED = 0x2000 "metadata_csum_seed";
        /// Directories above 2 GiB, and index trees of three levels.
        LARGEDIR = 0x4000 "large_dir";
        /// Small files lie in their inodes.
        INLINE_DATA = 0x8000 "inline_data";
        /// Encrypted files.
        ENCRYPT = 0x1_0000 "encrypt";
        /// Directories that fold case.
        CASEFOLD = 0x2_0000 "casefold";
    }
    aliases { 0x40 "extents"; }
}

feature_word! {
    /// Features that must be known to write (`s_feature_ro_compat`).
    RoCompat 'R' {
        /// Superblock backups only in groups 0, 1 and powers of 3, 5, 7.
        SPARSE_SUPER = 0x1 "sparse_super";
        /// Files above 2 GiB exist.
        LARGE_FILE = 0x2 "large_file";
        /// Files whose block count has 48 bits exist.
        HUGE_FILE = 0x8 "huge_file";
        /// Group descriptors have a crc16 and may be uninitialised.
        GDT_CSUM = 0x10 "uninit_bg";
        /// A directory's link count may stay at 1.
        DIR_NLINK = 0x20 "dir_nlink";
        /// Large inodes hold nanoseconds and creation times.
        EXTRA_ISIZE = 0x40 "extra_isize";
        /// Quota files are metadata.
        QUOTA = 0x100 "quota";
        /// Space is allocated in clusters.
        BIGALLOC = 0x200 "bigalloc";
        /// All metadata has crc32c checksums.
        METADATA_CSUM = 0x400 "metadata_csum";
        /// Replicas (not in the kernel).
        REPLICA = 0x800 "replica";
        /// Never to be written.
        READONLY = 0x1000 "read-only";
        /// Project quota.
        PROJECT = 0x2000 "project";
        /// Files share blocks.
        SHARED_BLOCKS = 0x4000 "shared_blocks";
        /// Verity files exist.
        VERITY = 0x8000 "verity";
        /// The orphan file may hold entries.
        ORPHAN_PRESENT = 0x1_0000 "orphan_present";
    }
    aliases { 0x10 "uninit_groups"; }
}

feature_word! {
    /// Features of the journal that may be ignored.
    JournalCompat 'C' {
        /// A crc32 of the whole transaction in the commit block.
        CHECKSUM = 0x1 "journal_checksum";
    }
    aliases {}
}

feature_word! {
    /// Features of the journal that must be known.
    JournalIncompat 'I' {
        /// Revoke blocks exist.
        REVOKE = 0x1 "journal_incompat_revoke";
        /// Block numbers have 64 bits.
        BIT64 = 0x2 "journal_64bit";
        /// The commit block may be written before the rest is durable.
        ASYNC_COMMIT = 0x4 "journal_async_commit";
        /// crc32c of each block, 16 bits in the tags.
        CSUM_V2 = 0x8 "journal_checksum_v2";
        /// crc32c of each block, 32 bits in the tags.
        CSUM_V3 = 0x10 "journal_checksum_v3";
        /// A fast commit area exists.
        FAST_COMMIT = 0x20 "fast_commit";
    }
    aliases {}
}

feature_word! {
    /// Features of the journal that must be known to write; none is defined.
    JournalRoCompat 'R' {} aliases {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_round_trip<W: FeatureWord + PartialEq + fmt::Debug>() {
        for i in 0..32 {
            let word = W::from_bits_retain(1 << i);
            let names = word.feature_names();
            assert_eq!(names.len(), 1);
            assert_eq!(W::from_feature_name(&names[0]), Some(word));
            assert_eq!(
                W::from_feature_name(&format!("FEATURE_{}{i}", W::LETTER)),
                Some(word)
            );
        }
        assert_eq!(W::from_feature_name("nonsense"), None);
        assert_eq!(
            W::from_feature_name(&format!("FEATURE_{}32", W::LETTER)),
            None
        );
    }

    #[test]
    fn every_bit_has_one_name() {
        names_round_trip::<Compat>();
        names_round_trip::<Incompat>();
        names_round_trip::<RoCompat>();
        names_round_trip::<JournalCompat>();
        names_round_trip::<JournalIncompat>();
        names_round_trip::<JournalRoCompat>();
    }

    #[test]
    fn unknown_bits_are_numbered() {
        assert_eq!(
            Incompat::from_bits_retain(0x8000_0002).to_string(),
            "filetype FEATURE_I31"
        );
        assert_eq!(
            Incompat::from_feature_name("extents"),
            Some(Incompat::EXTENTS)
        );
    }
}

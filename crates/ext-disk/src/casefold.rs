//! Names whatever their case (`casefold`): the form that equal names have in common.
//!
//! That is the text in Unicode 12.1's full case folding and canonical decomposition, without the
//! characters that are ignored by default: what the kernel calls `utf8nfdicf`. Later versions of
//! Unicode never change what they have, but add characters. To 12.1, and so to an image, these are
//! plain: [`NEWER`] lists those that would be anything else, so that the crates' tables may be of
//! any version from 12.1 on. The tests compare with e2fsprogs, which has the kernel's tables.
//!
//! Reference: Linux `Documentation/filesystems/ext4/directory.rst`, `fs/unicode`.

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// The encoding that the superblock names for UTF-8 of Unicode 12.1, the only one there is.
pub const ENCODING_UTF8_12_1: u16 = 1;
/// The flag of the encoding by which names that are not valid in it are refused.
pub const FLAG_STRICT: u16 = 1;

/// Characters that are left out (`Default_Ignorable_Code_Point`).
const IGNORED: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
];

/// Where characters of later versions are that fold, are decomposed or combine.
#[rustfmt::skip]
const NEWER: &[(u32, u32)] = &[
    (0x5c8, 0x5c9), (0x897, 0x89f), (0x8ca, 0x8d2), (0xc3c, 0xc3c), (0x1715, 0x1715),
    (0x1abf, 0x1af0), (0x1c89, 0x1c89), (0x1dfa, 0x1dfa), (0x2c2f, 0x2c2f), (0xa7c0, 0xa7c0),
    (0xa7c7, 0xa7c7), (0xa7c9, 0xa7c9), (0xa7cb, 0xa7cc), (0xa7d0, 0xa7d0), (0xa7d6, 0xa7d6),
    (0xa7d8, 0xa7d8), (0xa7da, 0xa7da), (0xa7dc, 0xa7dc), (0xa7f5, 0xa7f5), (0xa82c, 0xa82c),
    (0x10570, 0x10595), (0x105c9, 0x105c9), (0x105e4, 0x105e4), (0x10d50, 0x10d65),
    (0x10d69, 0x10d6d), (0x10eab, 0x10eac), (0x10ec0, 0x10eff), (0x10f82, 0x10f85),
    (0x11070, 0x11070), (0x11383, 0x11391), (0x113c5, 0x113c8), (0x113ce, 0x113d0),
    (0x11938, 0x11943), (0x11f41, 0x11f42), (0x16121, 0x1612f), (0x16d68, 0x16d6a),
    (0x16ff0, 0x16ff1), (0x1d127, 0x1d128), (0x1d250, 0x1d281), (0x1e08f, 0x1e08f),
    (0x1e2ae, 0x1e2ae), (0x1e4ec, 0x1e4ef), (0x1e5ee, 0x1e5ef), (0x1e6e3, 0x1e6f5),
];

/// The form of a name that equal ones have in common; `None` for what is not UTF-8, which equals
/// itself alone.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    let text = core::str::from_utf8(name).ok()?;
    if text.is_ascii() {
        return Some(text.to_ascii_lowercase().into_bytes());
    }
    let mut chars = Vec::with_capacity(name.len());
    for c in text.chars() {
        expand(c, &mut chars);
    }
    // Marks are ordered between characters that do not combine, those that are left out included.
    for marks in chars.split_mut(|c| combining_class(*c) == 0) {
        marks.sort_by_key(|c| combining_class(*c));
    }
    chars.retain(|c| !is_among(*c, IGNORED));
    Some(chars.into_iter().collect::<String>().into_bytes())
}

/// Folds and decomposes until nothing changes.
fn expand(c: char, into: &mut Vec<char>) {
    if is_among(c, NEWER) {
        into.push(c);
        return;
    }
    let folded: Vec<char> = core::iter::once(c).default_case_fold().collect();
    let mut parts = folded;
    if parts == [c] {
        parts.clear();
        decompose_canonical(c, |part| parts.push(part));
    }
    match parts[..] {
        [only] if only == c => into.push(c),
        _ => parts.into_iter().for_each(|part| expand(part, into)),
    }
}

fn combining_class(c: char) -> u8 {
    match is_among(c, NEWER) {
        true => 0,
        false => canonical_combining_class(c),
    }
}

/// `ranges` are in ascending order.
fn is_among(c: char, ranges: &[(u32, u32)]) -> bool {
    let c = u32::from(c);
    let at = ranges.partition_point(|(_, last)| *last < c);
    ranges.get(at).is_some_and(|(first, _)| *first <= c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_equal() {
        for (one, other) in [
            ("Straße", "STRASSE"),
            ("Ångström", "a\u{30a}NGSTRO\u{308}m"),
            ("soft\u{ad}hyphen", "SOFTHYPHEN"),
            ("\u{1e9b}\u{323}", "s\u{323}\u{307}"),
            ("ΑΣ", "ας"),
            ("각", "\u{1100}\u{1161}\u{11a8}"),
        ] {
            assert_eq!(
                fold(one.as_bytes()),
                fold(other.as_bytes()),
                "{one} {other}"
            );
        }
        // Unicode 14 has a lower case for it.
        assert_eq!(fold("\u{2c2f}".as_bytes()), Some("\u{2c2f}".into()));
        assert_eq!(fold(b"\xff"), None);
        assert_eq!(fold(b"\xed\xa0\x80"), None);
    }

    #[test]
    fn ranges_ascend() {
        for ranges in [IGNORED, NEWER] {
            let ends = ranges.iter().flat_map(|(first, last)| [first, last]);
            assert!(ends.is_sorted());
        }
    }
}

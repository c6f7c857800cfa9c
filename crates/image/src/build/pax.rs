//! What extended headers of archives say: attributes, times, and where the data of a file with
//! holes is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use super::content::Segment;
use super::sparse;
use crate::attributes::Time;
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode;
use tar::{EntryType, Header};

/// Longest extended header that is read, in bytes.
const RECORDS_BYTES_MAX: u64 = 16 << 20;

/// The most bytes of the names of a file's attributes, with a zero byte behind each: listxattr(2)
/// tells no more (`XATTR_LIST_MAX`), so that no file of Linux has more.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// The most bytes of the values of a file's attributes: as many as an extended header has.
const VALUES_BYTES_MAX: usize = RECORDS_BYTES_MAX as usize;

/// The most bytes of attributes that a global header has: those that a block of an image holds.
/// Each entry behind it has a copy of them in memory.
const COMMON_BYTES_MAX: usize = 4 << 10;

const TAR_BLOCK: u64 = 512;

/// The label of a file, as GNU tar writes it: without the zero byte at the end that the attribute
/// has.
const LABEL: &[u8] = b"RHT.security.selinux";

/// The records of one entry that matter here.
#[derive(Default, Debug)]
pub(super) struct Pax {
    pub path: Option<OsString>,
    pub link_path: Option<OsString>,
    /// The same from headers of GNU tar's own, for which the others count.
    pub long_path: Option<OsString>,
    pub long_link_path: Option<OsString>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    /// Bytes of data in the archive.
    pub size: Option<u64>,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// Bytes of the names of attributes, and of values and ACLs.
    name_bytes: usize,
    value_bytes: usize,
    /// The value of [`LABEL`].
    label: Vec<u8>,
    pub modified: Option<Time>,
    /// ACLs as text, with the attribute that they become.
    pub acls: Vec<(&'static str, String)>,
    /// The true name of a file with holes.
    pub sparse_name: Option<OsString>,
    sparse_size: Option<u64>,
    is_sparse_1: bool,
    /// Pairs of offset and length, from the header.
    sparse_map: Vec<u64>,
}

impl Pax {
    /// What the extended headers say that lie from `from` on before the header at `to`.
    ///
    /// The tar crate gives records too, but takes a line end in a value for the end of a record: by
    /// an attribute the owner of a file would say which path it gets.
    ///
    /// `common` is what global headers have said of all that follows them, and gets what those say
    /// that lie there; what is about the data of one file is not taken from them.
    pub fn read(file: &File, from: u64, to: u64, common: &mut Pax) -> Result<Pax, String> {
        let damaged = || "its extended header is damaged".to_owned();
        let mut pax = Pax::default();
        let mut at = from;
        while at < to {
            let mut header = Header::new_old();
            file.read_exact_at(header.as_mut_bytes(), at)
                .map_err(|_| damaged())?;
            if header.as_bytes().iter().all(|byte| *byte == 0) {
                at += TAR_BLOCK;
                continue;
            }
            let size = header.entry_size().map_err(|_| damaged())?;
            at += TAR_BLOCK;
            let kind = header.entry_type();
            let is_pax = kind.is_pax_local_extensions() || kind.is_pax_global_extensions();
            if is_pax || kind.is_gnu_longname() || kind.is_gnu_longlink() {
                if size > RECORDS_BYTES_MAX || at.saturating_add(size) > to {
                    return Err(damaged());
                }
                let mut text = vec![0; size as usize];
                file.read_exact_at(&mut text, at).map_err(|_| damaged())?;
                match kind {
                    EntryType::GNULongName => pax.long_path = Some(without_zeros(text)),
                    EntryType::GNULongLink => pax.long_link_path = Some(without_zeros(text)),
                    EntryType::XGlobalHeader => common.note_common(&text)?,
                    _ => pax.note_all(&text)?,
                }
            }
            at = at.saturating_add(size.next_multiple_of(TAR_BLOCK));
        }
        pax.fall_back(common)?;
        Ok(pax)
    }

    /// Takes from another what this says nothing of.
    fn fall_back(&mut self, common: &Pax) -> Result<(), String> {
        self.uid = self.uid.or(common.uid);
        self.gid = self.gid.or(common.gid);
        self.modified = self.modified.or(common.modified);
        for (name, value) in &common.xattrs {
            self.add(name.clone(), value.clone())?;
        }
        for (name, text) in &common.acls {
            self.add_acl(name, text.clone())?;
        }
        Ok(())
    }

    /// Records of a global header.
    fn note_common(&mut self, records: &[u8]) -> Result<(), String> {
        self.note_all(records)?;
        let bytes = self.name_bytes + self.value_bytes;
        match bytes <= COMMON_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "a global header has {bytes} bytes of attributes; {COMMON_BYTES_MAX} are possible"
            )),
        }
    }

    /// Records: their length, a space, a key, `=`, a value, and a line end.
    fn note_all(&mut self, mut records: &[u8]) -> Result<(), String> {
        let damaged = || "its extended header is damaged".to_owned();
        while records.first().is_some_and(|byte| *byte != 0) {
            let space = records
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or_else(damaged)?;
            let length = std::str::from_utf8(&records[..space]).ok();
            let length: Option<usize> = length.and_then(|text| text.parse().ok());
            let length = length.filter(|it| (space + 2..=records.len()).contains(it));
            let (record, rest) = records.split_at(length.ok_or_else(damaged)?);
            let record = record[space + 1..]
                .strip_suffix(b"\n")
                .ok_or_else(damaged)?;
            let equals = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(damaged)?;
            self.note(&record[..equals], &record[equals + 1..])?;
            records = rest;
        }
        let mut label = std::mem::take(&mut self.label);
        if label.is_empty() {
            return Ok(());
        }
        if label.last() != Some(&0) {
            label.push(0);
        }
        // The attribute itself counts, wherever it stands in the header.
        self.add("security.selinux".into(), label)
    }

    /// Takes note of one record. The error says what is wrong with it.
    fn note(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let text = || String::from_utf8_lossy(value).into_owned();
        let shown = || String::from_utf8_lossy(key).into_owned();
        let number = || {
            text()
                .parse::<u64>()
                .map_err(|_| format!("{}={}: no number", shown(), text()))
        };
        match key {
            b"mtime" => {
                let time = parse_time(&text());
                self.modified = Some(time.ok_or_else(|| format!("mtime={}: no time", text()))?);
            }
            b"size" => self.size = Some(number()?),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"path" => self.path = Some(OsString::from_vec(value.to_vec())),
            b"linkpath" => self.link_path = Some(OsString::from_vec(value.to_vec())),
            b"SCHILY.acl.access" => self.add_acl("system.posix_acl_access", text())?,
            b"SCHILY.acl.default" => self.add_acl("system.posix_acl_default", text())?,
            LABEL => self.label = value.to_vec(),
            b"GNU.sparse.name" => self.sparse_name = Some(OsString::from_vec(value.to_vec())),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse_size = Some(number()?),
            b"GNU.sparse.major" => self.is_sparse_1 = number()? == 1,
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.sparse_map.push(number()?),
            b"GNU.sparse.map" => {
                let numbers = text()
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<Vec<_>, _>>();
                let pairs = numbers
                    .ok()
                    .filter(|numbers| numbers.len().is_multiple_of(2));
                let wrong = || format!("{}: no list of pairs of numbers", shown());
                self.sparse_map = pairs.ok_or_else(wrong)?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add(OsString::from_vec(schily_name(name)), value.to_vec())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let name = percent_decode(name).collect();
                    let value = BASE64.decode(value);
                    let value = value.map_err(|error| format!("{}: {error}", shown()))?;
                    self.add(OsString::from_vec(name), value)?;
                }
            }
        }
        Ok(())
    }

    /// libarchive writes some attributes both ways; the first counts.
    fn add(&mut self, name: OsString, value: Vec<u8>) -> Result<(), String> {
        if let Entry::Vacant(place) = self.xattrs.entry(name) {
            self.name_bytes += place.key().len() + 1;
            self.value_bytes += value.len();
            place.insert(value);
        }
        self.check_bytes()
    }

    /// The first counts that says something.
    fn add_acl(&mut self, name: &'static str, text: String) -> Result<(), String> {
        if !text.is_empty() && !self.acls.iter().any(|(other, _)| *other == name) {
            self.value_bytes += text.len();
            self.acls.push((name, text));
        }
        self.check_bytes()
    }

    /// Refuses more attributes than a file can have.
    fn check_bytes(&self) -> Result<(), String> {
        let (names, values) = (self.name_bytes, self.value_bytes);
        match names <= NAMES_BYTES_MAX && values <= VALUES_BYTES_MAX {
            true => Ok(()),
            false => Err(format!(
                "more attributes than a file can have: {names} bytes of names, {values} of values"
            )),
        }
    }

    /// Where the data of a file with holes is, and its length; `None` for a file that this says
    /// nothing of, whose `stored` bytes lie at `at`.
    pub fn segments(
        &self,
        file: &File,
        at: u64,
        stored: u64,
    ) -> Result<Option<(Vec<Segment>, u64)>, String> {
        let Some(size) = self.sparse_size else {
            return Ok(None);
        };
        let (map, start) = match self.is_sparse_1 {
            true => sparse::read_map(file, at, stored)?,
            false => (self.sparse_map.clone(), at),
        };
        let pairs = map.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let end = at.saturating_add(stored);
        Ok(Some((sparse::place(pairs, start, end, size)?, size)))
    }
}

/// The name of an attribute, in which GNU tar writes two characters so, and no others.
fn schily_name(mut name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    loop {
        let (letter, rest) = match name {
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [letter, rest @ ..] => (*letter, rest),
            [] => return plain,
        };
        plain.push(letter);
        name = rest;
    }
}

/// A name, which zeros may follow.
fn without_zeros(mut name: Vec<u8>) -> OsString {
    while name.pop_if(|byte| *byte == 0).is_some() {}
    OsString::from_vec(name)
}

/// Seconds with a fraction, negative ones too.
fn parse_time(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos: u32 = digits.parse().ok()?;
    let is_negative = whole.starts_with('-');
    Some(match is_negative && nanos > 0 {
        true => Time {
            seconds: seconds.checked_sub(1)?,
            nanos: 1_000_000_000 - nanos,
        },
        false => Time { seconds, nanos },
    })
}

/// Base64 with and without padding: libarchive leaves it out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn xattrs(all: &[(&str, &[u8])]) -> BTreeMap<OsString, Vec<u8>> {
        let all = all.iter();
        all.map(|(name, value)| (name.into(), value.to_vec()))
            .collect()
    }

    #[test]
    fn times_have_fractions_and_signs() {
        let time = |seconds, nanos| Some(Time { seconds, nanos });
        assert_eq!(parse_time("12"), time(12, 0));
        assert_eq!(parse_time("12.5"), time(12, 500_000_000));
        assert_eq!(parse_time("-1.25"), time(-2, 750_000_000));
        assert_eq!(parse_time("-0.25"), time(-1, 750_000_000));
        assert_eq!(parse_time("1.1234567899"), time(1, 123_456_789));
        assert_eq!(parse_time("1.x"), None);
    }

    #[test]
    fn values_may_have_line_ends() {
        let mut pax = Pax::default();
        let records = b"25 SCHILY.xattr.user.a=\n1\n14 path=a\nb/c\n";
        pax.note_all(&records[..]).unwrap_err();
        let records = b"27 SCHILY.xattr.user.a=\n1\n\n14 path=a\nb/c\n";
        pax.note_all(&records[..]).unwrap();
        assert_eq!(pax.xattrs, xattrs(&[("user.a", b"\n1\n")]));
        assert_eq!(pax.path, Some("a\nb/c".into()));
    }

    #[test]
    fn numbers_may_follow_values_with_line_ends() {
        let mut pax = Pax::default();
        let records = b"27 SCHILY.xattr.user.a=\n1\n\n9 uid=70\n9 gid=71\n11 size=12\n";
        pax.note_all(&records[..]).unwrap();
        assert_eq!((pax.uid, pax.gid, pax.size), (Some(70), Some(71), Some(12)));
        assert!(pax.note(b"size", b"-1").is_err());
    }

    #[test]
    fn what_global_headers_say_counts_where_others_are_silent() {
        let mut common = Pax::default();
        common
            .note_all(b"9 uid=70\n9 gid=71\n25 SCHILY.xattr.user.a=1\n")
            .unwrap();
        let mut pax = Pax::default();
        pax.note_all(b"9 gid=72\n25 SCHILY.xattr.user.b=2\n")
            .unwrap();
        pax.fall_back(&common).unwrap();
        assert_eq!(
            (pax.uid, pax.gid, pax.xattrs.len()),
            (Some(70), Some(72), 2)
        );
    }

    #[test]
    fn attributes_of_libarchive_are_decoded() {
        let mut pax = Pax::default();
        pax.note(b"LIBARCHIVE.xattr.user.a%3Db", b"AAECAwQ")
            .unwrap();
        pax.note(b"SCHILY.xattr.user.a%3Db", b"other").unwrap();
        assert_eq!(pax.xattrs, xattrs(&[("user.a=b", &[0, 1, 2, 3, 4])]));
        assert!(pax.note(b"LIBARCHIVE.xattr.user.a", b"*").is_err());
        pax.note(b"SCHILY.xattr.user.\xFF%25%3D%2", b"").unwrap();
        let (name, _) = pax.xattrs.last_key_value().unwrap();
        assert_eq!(name.as_encoded_bytes(), b"user.\xFF%=%2");
        assert!(pax.note(b"GNU.sparse.map", b"0,512,1024").is_err());
    }

    #[test]
    fn labels_are_attributes_unless_those_are_there() {
        let mut pax = Pax::default();
        pax.note_all(b"28 RHT.security.selinux=a:b\n").unwrap();
        assert_eq!(pax.xattrs, xattrs(&[("security.selinux", b"a:b\0")]));
        let records = b"28 RHT.security.selinux=a:b\n38 SCHILY.xattr.security.selinux=c:d\0\n";
        let mut pax = Pax::default();
        pax.note_all(records).unwrap();
        assert_eq!(pax.xattrs, xattrs(&[("security.selinux", b"c:d\0")]));
        // What the entry says counts, also by the other key.
        let mut own = Pax::default();
        own.note_all(b"28 RHT.security.selinux=a:b\n").unwrap();
        own.fall_back(&pax).unwrap();
        assert_eq!(own.xattrs, xattrs(&[("security.selinux", b"a:b\0")]));
    }

    #[test]
    fn more_attributes_than_a_file_can_have_are_refused() {
        let add = |pax: &mut Pax, number: usize, bytes: usize| {
            let key = format!("SCHILY.xattr.user.{number:0>250}");
            pax.note(key.as_bytes(), &vec![0; bytes])
        };
        let mut pax = Pax::default();
        // With "user." and a zero byte 256 bytes each.
        for number in 0..256 {
            add(&mut pax, number, 1000).unwrap();
        }
        add(&mut pax, 255, 1000).unwrap();
        let refused = add(&mut pax, 256, 0).unwrap_err();
        assert!(
            refused.starts_with("more attributes than a file can have"),
            "{refused}"
        );
        let mut pax = Pax::default();
        add(&mut pax, 0, 8 << 20).unwrap();
        pax.note(b"SCHILY.acl.access", &vec![b'u'; 8 << 20])
            .unwrap();
        pax.note(b"SCHILY.acl.access", b"u::rwx").unwrap();
        assert!(add(&mut pax, 1, 1).is_err());
    }

    #[test]
    fn each_entry_has_a_copy_of_global_attributes_which_are_few() {
        let mut common = Pax::default();
        let record = |key: &str, bytes: usize| {
            let rest = format!(" SCHILY.xattr.{key}={}\n", "v".repeat(bytes));
            let length = rest.len() + 4;
            format!("{length}{rest}")
        };
        common
            .note_common(record("user.a", 2000).as_bytes())
            .unwrap();
        common
            .note_common(record("user.b", 2000).as_bytes())
            .unwrap();
        let refused = common.note_common(record("user.c", 2000).as_bytes());
        assert!(refused.unwrap_err().contains("4096 are possible"));
    }
}

//! What the kernel appends to requests that make something: who asks, and security attributes.
//!
//! Behind the names lie records, each with a head of its length in bytes, head and padding
//! included, and its kind. A kind up to [`CONTEXTS_MAX`] is a number of security contexts, each a
//! name and a value that a security module (SELinux, Smack) wants the new inode to have from the
//! start. [`GROUPS`] is a list of groups: the directory's, where the caller is in it by a
//! supplementary group.
//!
//! All records begin at multiples of eight bytes. The request's head tells how long they are
//! together; before protocol 7.38 it did not, and they are not asked for.
//!
//! # References
//! `include/uapi/linux/fuse.h`: `fuse_ext_header`, `fuse_secctx_header`, `fuse_secctx`,
//! `fuse_supp_groups`; `get_create_ext` in Linux's `fs/fuse/dir.c`.

use crate::abi::{ExtensionHeader, InHeader, SecurityContext, opcode};
use crate::request::{Malformed, fields};

/// What lengths are multiples of.
const ALIGNMENT: usize = 8;
/// Kinds up to this are numbers of security contexts.
const CONTEXTS_MAX: u32 = 31;
/// The kind of a list of groups.
const GROUPS: u32 = 32;
/// What the names of security contexts start with.
const PREFIX: &[u8] = b"security.";
/// Longest name, in bytes (XATTR_NAME_MAX).
const NAME_MAX: usize = 255;

/// What was appended to a request; nothing to most.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extension<'a> {
    /// Groups that the caller is in beside the one in the request's head.
    pub groups: Vec<u32>,
    /// Extended attributes for what is made: names that start with `security.`, and values.
    pub labels: Vec<(&'a [u8], &'a [u8])>,
}

/// Takes what was appended off the end of a request.
pub(crate) fn split<'a>(
    header: &InHeader,
    rest: &'a [u8],
) -> Result<(&'a [u8], Extension<'a>), Malformed> {
    let length = usize::from(header.extension_length) * ALIGNMENT;
    if length == 0 || !makes_something(header.opcode) {
        return Ok((rest, Extension::default()));
    }
    let start = rest.len().checked_sub(length).ok_or(Malformed)?;
    let (rest, records) = rest.split_at(start);
    parse(records).map(|extension| (rest, extension))
}

fn makes_something(code: u32) -> bool {
    matches!(
        code,
        opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK | opcode::TMPFILE
    )
}

/// Understands records; those of an unknown kind are passed over.
fn parse(mut records: &[u8]) -> Result<Extension<'_>, Malformed> {
    let mut found = Extension::default();
    while !records.is_empty() {
        let ExtensionHeader { size, kind } = fields(records)?;
        let size = size as usize;
        if !size.is_multiple_of(ALIGNMENT) {
            return Err(Malformed);
        }
        let (record, after) = records.split_at_checked(size).ok_or(Malformed)?;
        let body = record
            .get(size_of::<ExtensionHeader>()..)
            .ok_or(Malformed)?;
        match kind {
            ..=CONTEXTS_MAX => contexts(body, kind, &mut found.labels)?,
            GROUPS => groups(body, &mut found.groups)?,
            _ => {}
        }
        records = after;
    }
    Ok(found)
}

/// Each context is a head, a name up to its NUL, and a value; then padding.
fn contexts<'a>(
    mut body: &'a [u8],
    count: u32,
    found: &mut Vec<(&'a [u8], &'a [u8])>,
) -> Result<(), Malformed> {
    for _ in 0..count {
        let SecurityContext { size, .. } = fields(body)?;
        let text = &body[size_of::<SecurityContext>()..];
        let end = text.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
        let (name, value) = (&text[..end], &text[end + 1..]);
        let is_label = name.starts_with(PREFIX) && name.len() > PREFIX.len();
        if !is_label || name.len() > NAME_MAX {
            return Err(Malformed);
        }
        let value = value.get(..size as usize).ok_or(Malformed)?;
        found.push((name, value));
        let length = size_of::<SecurityContext>() + name.len() + 1 + value.len();
        let padded = length.next_multiple_of(ALIGNMENT);
        body = body.get(padded..).ok_or(Malformed)?;
    }
    Ok(())
}

/// A number of groups, and they; then padding.
fn groups(body: &[u8], found: &mut Vec<u32>) -> Result<(), Malformed> {
    let count: u32 = fields(body)?;
    let list = &body[size_of::<u32>()..];
    let length = (count as usize)
        .checked_mul(size_of::<u32>())
        .ok_or(Malformed)?;
    let list = list.get(..length).ok_or(Malformed)?;
    let each = list.chunks_exact(size_of::<u32>());
    found.extend(each.filter_map(|group| fields::<u32>(group).ok()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// One context, as the kernel writes it.
    fn context(name: &[u8], value: &[u8]) -> Vec<u8> {
        let head = words(&[value.len() as u32, 0]);
        padded([&head[..], name, b"\0", value].concat())
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        [&words(&[8 + body.len() as u32, kind])[..], body].concat()
    }

    fn header(code: u32, extension_bytes: usize) -> InHeader {
        let mut header = InHeader::new_zeroed();
        header.opcode = code;
        header.extension_length = (extension_bytes / 8) as u16;
        header
    }

    const LABEL: &[u8] = b"system_u:object_r:etc_t:s0\0";

    #[test]
    fn labels_and_groups_are_found_behind_the_names() {
        let two = [
            context(b"security.selinux", LABEL),
            context(b"security.x", b""),
        ];
        let records = [
            record(2, &two.concat()),
            record(77, &[1; 16]),
            record(32, &words(&[1, 50])),
            record(0, &[]),
        ]
        .concat();
        let body = [&b"name\0"[..], &records].concat();
        for code in [
            opcode::MKNOD,
            opcode::MKDIR,
            opcode::SYMLINK,
            opcode::TMPFILE,
        ] {
            let (rest, found) = split(&header(code, records.len()), &body).unwrap();
            assert_eq!(rest, b"name\0");
            let labels: [(&[u8], &[u8]); 2] = [(b"security.selinux", LABEL), (b"security.x", b"")];
            assert_eq!(found.labels, labels);
            assert_eq!(found.groups, [50]);
        }
        // Nothing else has records, and what has none is left as it is.
        for header in [
            header(opcode::LOOKUP, records.len()),
            header(opcode::MKDIR, 0),
        ] {
            let (rest, found) = split(&header, &body).unwrap();
            assert_eq!((rest, found), (&body[..], Extension::default()));
        }
    }

    #[test]
    fn what_does_not_fit_is_malformed() {
        let label = context(b"security.selinux", LABEL);
        let bad = [
            // Records shorter than their heads, not aligned, or longer than what is there.
            words(&[0, 1]),
            words(&[4, 1]),
            words(&[12, 0, 0, 0]),
            words(&[16, 0]),
            words(&[u32::MAX, 0]),
            words(&[8]),
            // More contexts than there are, longer values, names without an end or a prefix.
            record(2, &label),
            record(31, &[]),
            record(1, &label[..label.len() - 8]),
            record(1, &[&words(&[3, 0])[..], b"security"].concat()),
            record(1, &[1; 24]),
            record(1, &context(b"security.", b"v")),
            record(1, &context(b"user.x", b"v")),
            record(1, &context(b"", b"v")),
            record(
                1,
                &context(&[&b"security."[..], &[b'x'; 247]].concat(), b"v"),
            ),
            record(
                1,
                &[&words(&[u32::MAX, 0])[..], b"security.x\0\0\0\0\0\0"].concat(),
            ),
            // More groups than there are.
            record(32, &[]),
            record(32, &words(&[2, 50])),
            record(32, &words(&[u32::MAX, 50])),
            record(32, &words(&[0x4000_0000, 50])),
        ];
        for (index, records) in bad.iter().enumerate() {
            assert_eq!(parse(records), Err(Malformed), "{index}: {records:?}");
        }
        let short = split(&header(opcode::MKDIR, 16), b"name\0");
        assert_eq!(short, Err(Malformed));
    }

    /// Every prefix and every changed byte gives an answer.
    #[test]
    fn no_bytes_are_too_odd() {
        let label = context(b"security.selinux", LABEL);
        let records = [record(1, &label), record(32, &words(&[1, 50]))].concat();
        assert!(parse(&records).is_ok());
        for length in 0..records.len() {
            let whole = [0, record(1, &label).len()];
            assert_eq!(parse(&records[..length]).is_ok(), whole.contains(&length));
        }
        for at in 0..records.len() {
            for value in [0, 1, 7, 8, 0x7f, 0x80, 0xff] {
                let mut changed = records.clone();
                changed[at] = value;
                let _ = parse(&changed);
            }
        }
    }
}

//! POSIX ACLs: the compact form in an attribute's value on disk (version 1), and the form that
//! users get and set through the attribute (version 2).
//!
//! Both are a version word and a list of entries. The user's form gives every entry an id, which
//! is all ones where it means nothing; the disk's form leaves it out there.

use crate::bytes::{le16, le32};
use crate::error::{Corrupt, Incompatible, Result};

const DISK_VERSION: u32 = 1;
const USER_VERSION: u32 = 2;
const UNDEFINED_ID: u32 = u32::MAX;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclTag {
    /// The owner.
    UserObj,
    /// A user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group.
    Group(u32),
    /// The limit of all groups and named users.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    fn from_raw(tag: u16, id: u32) -> Option<AclTag> {
        Some(match tag {
            0x01 => AclTag::UserObj,
            0x02 => AclTag::User(id),
            0x04 => AclTag::GroupObj,
            0x08 => AclTag::Group(id),
            0x10 => AclTag::Mask,
            0x20 => AclTag::Other,
            _ => return None,
        })
    }

    fn raw(self) -> (u16, Option<u32>) {
        match self {
            AclTag::UserObj => (0x01, None),
            AclTag::User(id) => (0x02, Some(id)),
            AclTag::GroupObj => (0x04, None),
            AclTag::Group(id) => (0x08, Some(id)),
            AclTag::Mask => (0x10, None),
            AclTag::Other => (0x20, None),
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom it is about.
    pub tag: AclTag,
    /// read 4, write 2, execute 1.
    pub permissions: u16,
}

/// Reads the disk's form.
pub fn parse_disk(value: &[u8]) -> Result<Vec<AclEntry>> {
    parse(value, DISK_VERSION, |tag| {
        if matches!(tag, 0x02 | 0x08) { 8 } else { 4 }
    })
}

/// Reads the user's form.
pub fn parse_user(value: &[u8]) -> Result<Vec<AclEntry>> {
    parse(value, USER_VERSION, |_| 8)
}

fn parse(value: &[u8], version: u32, entry_size: impl Fn(u16) -> usize) -> Result<Vec<AclEntry>> {
    let bad = || Corrupt::Acl(value.len());
    let Some((head, mut rest)) = value.split_at_checked(4) else {
        return Err(bad().into());
    };
    if le32(head, 0) != version {
        return Err(Incompatible::AclVersion(le32(head, 0)).into());
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let tag = le16(rest, 0);
        let (entry, next) = rest.split_at_checked(entry_size(tag)).ok_or_else(bad)?;
        let tag = AclTag::from_raw(tag, le32(entry, 4)).ok_or_else(bad)?;
        entries.push(AclEntry {
            tag,
            permissions: le16(entry, 2),
        });
        rest = next;
    }
    Ok(entries)
}

/// Writes the disk's form.
pub fn encode_disk(entries: &[AclEntry]) -> Vec<u8> {
    encode(entries, DISK_VERSION, |id| id)
}

/// Writes the user's form.
pub fn encode_user(entries: &[AclEntry]) -> Vec<u8> {
    encode(entries, USER_VERSION, |id| Some(id.unwrap_or(UNDEFINED_ID)))
}

fn encode(entries: &[AclEntry], version: u32, id: impl Fn(Option<u32>) -> Option<u32>) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, own_id) = entry.tag.raw();
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&entry.permissions.to_le_bytes());
        if let Some(id) = id(own_id) {
            value.extend_from_slice(&id.to_le_bytes());
        }
    }
    value
}

/// From the disk's form to the user's.
pub fn disk_to_user(value: &[u8]) -> Result<Vec<u8>> {
    Ok(encode_user(&parse_disk(value)?))
}

/// From the user's form to the disk's.
pub fn user_to_disk(value: &[u8]) -> Result<Vec<u8>> {
    Ok(encode_disk(&parse_user(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let entries = [
            AclEntry {
                tag: AclTag::UserObj,
                permissions: 6,
            },
            AclEntry {
                tag: AclTag::User(1000),
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::GroupObj,
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::Mask,
                permissions: 4,
            },
            AclEntry {
                tag: AclTag::Other,
                permissions: 0,
            },
        ];
        let disk = encode_disk(&entries);
        assert_eq!(disk[..8], [1, 0, 0, 0, 1, 0, 6, 0]);
        assert_eq!(disk[8..16], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
        assert_eq!(disk.len(), 4 + 4 * 4 + 8);
        let user = disk_to_user(&disk).expect("disk");
        assert_eq!(user.len(), 4 + 5 * 8);
        assert_eq!(user[4..12], [1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(user_to_disk(&user).expect("user"), disk);
        assert_eq!(parse_disk(&disk).expect("disk"), entries);
    }

    #[test]
    fn malformed() {
        assert!(parse_disk(&[1, 0]).is_err());
        assert!(parse_disk(&[2, 0, 0, 0]).is_err());
        assert!(parse_disk(&[1, 0, 0, 0, 3, 0, 0, 0]).is_err());
        assert!(parse_disk(&[1, 0, 0, 0, 2, 0, 0, 0]).is_err());
        assert!(parse_user(&[2, 0, 0, 0, 1, 0, 0, 0]).is_err());
        assert_eq!(parse_disk(&[1, 0, 0, 0]), Ok(vec![]));
    }
}

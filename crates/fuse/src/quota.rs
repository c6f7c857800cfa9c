//! Quotas of a mount, as whoever uses it may ask for them.
//!
//! FUSE has no quotactl(2). So what an owner has and may have is the value of an extended attribute
//! that every file has and no list shows: `system.finefs.quota.user.1000`, or `group`, `project`.
//! It is there for the superuser, the user and the members of the group; else EPERM, and EOPNOTSUPP
//! where no account is kept. Its numbers are those of [`QuotaAccount`], in their order, between
//! blanks.

use std::path::Path;

use finefs_namespace::{QuotaAccount, QuotaLimits, QuotaOwners};
use rustix::io::{Errno, Result};

const PREFIX: &str = "system.finefs.quota.";
const KINDS: [(&str, QuotaOwners); 3] = [
    ("user", QuotaOwners::Users),
    ("group", QuotaOwners::Groups),
    ("project", QuotaOwners::Projects),
];
/// Of the value: numbers of at most 20 digits.
const BYTES_MAX: usize = FIELDS * 21;
const FIELDS: usize = 10;

/// What an owner has and may have of what is mounted where this file is.
///
/// # Errors
/// EPERM where somebody else may not know, EOPNOTSUPP where no account is kept of such owners,
/// EPROTO of a server of another version.
pub fn quota_of(path: &Path, owners: QuotaOwners, id: u32) -> Result<QuotaAccount> {
    let mut value = [0; BYTES_MAX];
    let length = rustix::fs::getxattr(path, name_of(owners, id), &mut value)?;
    parse_value(&value[..length]).ok_or(Errno::PROTO)
}

fn name_of(owners: QuotaOwners, id: u32) -> String {
    let kind = KINDS.iter().find(|(_, known)| *known == owners);
    format!("{PREFIX}{}.{id}", kind.map_or("", |(kind, _)| kind))
}

/// Whose account an attribute of this name is, if it is one.
pub(crate) fn parse_name(name: &[u8]) -> Option<(QuotaOwners, u32)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    let (kind, id) = name.split_once('.')?;
    let (_, owners) = KINDS.iter().find(|(known, _)| *known == kind)?;
    Some((*owners, id.parse().ok()?))
}

pub(crate) fn value_of(account: &QuotaAccount) -> String {
    let QuotaLimits {
        space_soft_bytes,
        space_hard_bytes,
        inodes_soft,
        inodes_hard,
    } = account.limits;
    let fields: [u64; FIELDS] = [
        account.space_bytes,
        account.inodes,
        space_soft_bytes,
        space_hard_bytes,
        inodes_soft,
        inodes_hard,
        account.space_until_seconds,
        account.inodes_until_seconds,
        account.space_grace_seconds.into(),
        account.inode_grace_seconds.into(),
    ];
    fields.map(|field| field.to_string()).join(" ")
}

fn parse_value(value: &[u8]) -> Option<QuotaAccount> {
    let words = std::str::from_utf8(value).ok()?.split(' ');
    let fields: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    let fields: [u64; FIELDS] = fields?.try_into().ok()?;
    let [
        space_bytes,
        inodes,
        space_soft_bytes,
        space_hard_bytes,
        inodes_soft,
        inodes_hard,
        space_until_seconds,
        inodes_until_seconds,
        space_grace,
        inode_grace,
    ] = fields;
    Some(QuotaAccount {
        space_bytes,
        inodes,
        limits: QuotaLimits {
            space_soft_bytes,
            space_hard_bytes,
            inodes_soft,
            inodes_hard,
        },
        space_until_seconds,
        inodes_until_seconds,
        space_grace_seconds: space_grace.try_into().ok()?,
        inode_grace_seconds: inode_grace.try_into().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_come_back_as_they_were() {
        for (_, owners) in KINDS {
            let name = name_of(owners, 4711);
            assert_eq!(parse_name(name.as_bytes()), Some((owners, 4711)), "{name}");
        }
        for name in [
            "user.x",
            "system.finefs.quota.user",
            "system.finefs.quota.all.1",
        ] {
            assert_eq!(parse_name(name.as_bytes()), None, "{name}");
        }
        let account = QuotaAccount {
            space_bytes: u64::MAX,
            inodes: 2,
            limits: QuotaLimits {
                space_soft_bytes: 3,
                space_hard_bytes: 4,
                inodes_soft: 5,
                inodes_hard: 6,
            },
            space_until_seconds: 7,
            inodes_until_seconds: 8,
            space_grace_seconds: 9,
            inode_grace_seconds: 10,
        };
        assert_eq!(parse_value(value_of(&account).as_bytes()), Some(account));
        assert_eq!(parse_value(b"1 2 3"), None);
    }
}

//! Tests of ACLs as values: what they grant, whether they make sense, how they go with modes.

use super::*;

fn acl(text: &str) -> Acl {
    let permissions = |text: &str| {
        let bit = |letter, bit| if text.contains(letter) { bit } else { 0 };
        bit('r', 4) | bit('w', 2) | bit('x', 1)
    };
    let entries = text.split_whitespace().map(|entry| {
        let parts: Vec<&str> = entry.split(':').collect();
        let (tag, id) = match (parts[0], parts[1].parse().ok()) {
            ("u", None) => (Tag::Owner, NO_ID),
            ("u", Some(id)) => (Tag::User, id),
            ("g", None) => (Tag::OwningGroup, NO_ID),
            ("g", Some(id)) => (Tag::Group, id),
            ("m", _) => (Tag::Mask, NO_ID),
            ("o", _) => (Tag::Other, NO_ID),
            _ => panic!("{entry}"),
        };
        Entry {
            tag,
            permissions: permissions(parts[2]),
            id,
        }
    });
    Acl(entries.collect())
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid,
        groups: groups.to_vec(),
        umask: 0,
        checks: crate::base::types::AccessChecks::Needed,
    }
}

/// The cases of acl(5), "ACCESS CHECK ALGORITHM", for users that are not the owner. The owning
/// group is 50.
#[test]
fn access_is_checked_as_acl_5_says() {
    let named = "u::rwx u:10:rw u:11:x g::r g:60:w g:61:rwx m::rw o::rx";
    let user = |uid| caller(uid, 1, &[]);
    let group = |gid| caller(99, gid, &[]);
    for (list, who, granted, why) in [
        (named, user(10), "rw", "a named user, by the entry"),
        (named, user(11), "", "a named user whom the mask limits"),
        (
            named,
            caller(10, 50, &[61]),
            "rw",
            "a named user, whatever groups it is in",
        ),
        (named, group(50), "r", "the owning group"),
        (named, group(60), "w", "a named group"),
        (named, group(61), "rw", "a named group that the mask limits"),
        (named, caller(99, 1, &[60]), "w", "a supplementary group"),
        (
            named,
            user(99),
            "rx",
            "the others are not limited by the mask",
        ),
        (
            "u::rwx g::r o::rwx",
            group(50),
            "r",
            "no mask: the owning group's entry",
        ),
        ("u::rwx g::r o::rwx", user(99), "rwx", "no mask: others"),
        (
            "u::--- u:10:--- g::rwx m::rwx o::rwx",
            caller(10, 50, &[]),
            "",
            "a named user is no other",
        ),
        (
            "u::--- g::--- g:60:--- m::rwx o::rwx",
            group(60),
            "",
            "a named group is no other",
        ),
        (
            "u::rwx u:10:rwx g::rwx m::--- o::rwx",
            user(10),
            "",
            "an empty mask denies",
        ),
        (
            "u::rwx u:10:rwx g::rwx m::--- o::rwx",
            group(50),
            "",
            "an empty mask denies the group",
        ),
        // One entry has to grant all of it.
        (
            "u::rwx g::r g:60:w m::rwx o::---",
            caller(99, 50, &[60]),
            "r w",
            "two groups, each by itself",
        ),
        (
            "u::rwx g::r g:60:rw m::rwx o::---",
            caller(99, 50, &[60]),
            "rw",
            "the second group's entry grants all",
        ),
    ] {
        let list = acl(list);
        list.check().expect(why);
        // "r w" grants each but not both.
        let sets: Vec<u32> = granted
            .split(' ')
            .map(|set| acl(&format!("o::{set}")).of(Tag::Other).unwrap())
            .collect();
        for mask in 1..=7 {
            let expected = sets.iter().any(|set| mask & !set == 0);
            assert_eq!(list.grants(&who, 50, mask), expected, "{why}: {mask}");
        }
    }
}

#[test]
fn values_are_read_and_written() {
    let list = acl("u::rw- u:1000:r g::r m::r o::");
    let value = list.value();
    assert_eq!(
        value[..12],
        [2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]
    );
    assert_eq!(value[12..20], [2, 0, 4, 0, 0xe8, 3, 0, 0]);
    assert_eq!(Acl::parse(&value), Ok(Some(list)));
    // What stands for an id where none is meant does not count.
    let mut other = value.clone();
    other[8..12].fill(0);
    assert_eq!(Acl::parse(&other).unwrap().unwrap().value(), value);
    assert_eq!(Acl::parse(b""), Ok(None));
    assert_eq!(Acl::parse(&[2, 0, 0, 0]), Ok(None));
}

#[test]
fn what_is_no_value_is_refused() {
    let good = acl("u::rw- u:1000:r g::r m::r o::").value();
    let with = |at: usize, byte: u8| {
        let mut bad = good.to_vec();
        bad[at] = byte;
        Acl::parse(&bad)
    };
    assert_eq!(with(0, 1), Err(Error::NotSupported));
    assert_eq!(with(4, 3), Err(Error::Invalid), "an unknown tag");
    assert_eq!(Acl::parse(&good[..good.len() - 1]), Err(Error::Invalid));
    assert_eq!(Acl::parse(&good[..3]), Err(Error::Invalid));
    let mut nobody = good.to_vec();
    nobody[16..20].fill(0xff);
    assert_eq!(
        Acl::parse(&nobody),
        Err(Error::Invalid),
        "a user without an id"
    );
    let unknown = with(6, 8 | 6).unwrap().unwrap();
    assert_eq!(
        unknown.check(),
        Err(Error::Invalid),
        "an unknown permission"
    );
}

#[test]
fn entries_must_make_sense() {
    for good in [
        "u::rwx g::rx o::",
        "u::rwx g::rx m::r o::",
        "u::rwx u:1:r u:2:r g::rx g:1:r g:2:r m::r o::",
        // Linux allows these two.
        "u::rwx u:2:r u:1:r g::rx m::r o::",
        "u::rwx u:1:r u:1:rw g::rx m::r o::",
    ] {
        assert_eq!(acl(good).check(), Ok(()), "{good}");
    }
    for bad in [
        "u::rwx g::rx",
        "u::rwx o::",
        "g::rx o::",
        "u::rwx u::rwx g::rx o::",
        "u::rwx g::rx g::rx o::",
        "u::rwx g::rx o:: o::",
        "u::rwx g::rx m::r m::r o::",
        "u::rwx u:1:r g::rx o::",
        "u::rwx g::rx g:1:r o::",
        "g::rx u::rwx o::",
        "u::rwx g::rx u:1:r m::r o::",
        "u::rwx g::rx o:: m::r",
    ] {
        assert_eq!(acl(bad).check(), Err(Error::Invalid), "{bad}");
    }
}

#[test]
fn modes_are_the_owner_the_mask_and_the_others() {
    let minimal = acl("u::rwx g::rx o::r");
    assert!(minimal.is_minimal());
    assert_eq!(minimal.mode(), 0o754);
    let extended = acl("u::rw u:1:rwx g::rx m::r o::x");
    assert!(!extended.is_minimal());
    assert_eq!(extended.mode(), 0o641);
    assert!(!acl("u::rw g::r m::r o::").is_minimal());
}

#[test]
fn a_chmod_changes_the_mask_or_else_the_group() {
    let changed = |text| acl(text).with_mode(0o712);
    assert_eq!(
        changed("u::rw u:1:rwx g::rx m::rwx o::r"),
        acl("u::rwx u:1:rwx g::rx m::x o::w")
    );
    assert_eq!(changed("u::rw g::rx o::r"), acl("u::rwx g::x o::w"));
}

#[test]
fn what_is_made_gets_what_both_grant() {
    let default = acl("u::rwx u:1:rwx g::rx m::rwx o::rx");
    let file = default.clone().inherited(0o640);
    assert_eq!(file, acl("u::rw u:1:rwx g::rx m::r o::"));
    assert_eq!(file.mode(), 0o640);
    assert_eq!(default.clone().inherited(0o777), default);
    let minimal = acl("u::rwx g::rx o::").inherited(0o666);
    assert_eq!(minimal.mode(), 0o640);
    assert!(minimal.is_minimal());
}

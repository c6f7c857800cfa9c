//! POSIX access control lists: the value that users set and get, what it grants, and how it goes
//! with a mode.
//!
//! # Rules
//! An *access* ACL says what users may do with an inode, and a directory's *default* ACL is what is
//! made in it begins with. An ACL has an entry for the owner, one for the owning group and one for
//! all others: what a mode says. It may name users and groups beside them, and then has a mask,
//! which limits all that is granted but to the owner and the others. The permission bits of a mode
//! are then those of the owner, the mask and the others. An ACL that says no more than a mode is
//! not kept.
//!
//! # Where Linux is different
//! Linux does not look at an ACL whose mask is empty, so users that it names are then treated as
//! others. Here they are denied, as acl(5) has it.
//!
//! References: POSIX 1003.1e draft 17, 23.1; acl(5); `include/uapi/linux/posix_acl_xattr.h` for the
//! value.

use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::types::Caller;

/// Which ACL of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AclKind {
    Access,
    Default,
}

impl AclKind {
    pub const ALL: [AclKind; 2] = [AclKind::Access, AclKind::Default];

    /// The attribute that it is.
    pub fn name(self) -> &'static [u8] {
        match self {
            AclKind::Access => b"system.posix_acl_access",
            AclKind::Default => b"system.posix_acl_default",
        }
    }

    /// The one that an attribute is.
    pub fn of_name(name: &[u8]) -> Option<AclKind> {
        AclKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The value begins with it, and eight bytes for each entry follow: tag, permissions, id;
/// little-endian.
const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const NO_ID: u32 = u32::MAX;

/// Read, write and execute.
const ALL: u32 = 7;

/// What an entry is about. In the order in which they stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: Tag,
    permissions: u32,
    /// The user or group that it names, if it does.
    id: u32,
}

/// An ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(SmallVec<[Entry; 6]>);

impl Tag {
    fn from_raw(raw: u16) -> Option<Tag> {
        [
            Tag::Owner,
            Tag::User,
            Tag::OwningGroup,
            Tag::Group,
            Tag::Mask,
            Tag::Other,
        ]
        .into_iter()
        .find(|tag| *tag as u16 == raw)
    }

    fn names_somebody(self) -> bool {
        matches!(self, Tag::User | Tag::Group)
    }
}

impl Acl {
    /// Reads a value. `None` for one without entries, which stands for no ACL; EINVAL for what is
    /// no ACL, ENOTSUP for another version. Whether it makes sense, [`Acl::check`] tells.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, entries) = value.split_first_chunk().ok_or(Error::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::NotSupported);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(Error::Invalid);
        }
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let [tag_low, tag_high, low, high, id @ ..] = *bytes;
            let tag = Tag::from_raw(u16::from_le_bytes([tag_low, tag_high]))?;
            let id = u32::from_le_bytes(id);
            (!tag.names_somebody() || id != NO_ID).then_some(Entry {
                tag,
                permissions: u32::from(u16::from_le_bytes([low, high])),
                id: if tag.names_somebody() { id } else { NO_ID },
            })
        };
        let entries: Option<SmallVec<_>> = entries.iter().map(entry).collect();
        let acl = Acl(entries.ok_or(Error::Invalid)?);
        Ok((!acl.0.is_empty()).then_some(acl))
    }

    /// The value.
    pub fn value(&self) -> Box<[u8]> {
        let mut value = Vec::with_capacity(size_of_val(&VERSION) + self.0.len() * ENTRY_BYTES);
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&(entry.permissions as u16).to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value.into()
    }

    /// EINVAL unless it has the entries of a mode once each, all entries in their order, no unknown
    /// permission, and a mask if it names somebody. Several entries for one user or group are
    /// allowed, as in Linux: for users the first counts.
    pub fn check(&self) -> Result<()> {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let has_mode = [Tag::Owner, Tag::OwningGroup, Tag::Other]
            .iter()
            .all(|tag| count(*tag) == 1);
        let names_somebody = self.0.iter().any(|entry| entry.tag.names_somebody());
        let masks = count(Tag::Mask);
        let is_sensible = has_mode
            && (masks == 1 || masks == 0 && !names_somebody)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && self.0.iter().all(|entry| entry.permissions & !ALL == 0);
        if is_sensible {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }

    /// What entries of this kind grant; nothing when there is none.
    fn of(&self, tag: Tag) -> Option<u32> {
        let found = self.0.iter().find(|entry| entry.tag == tag);
        found.map(|entry| entry.permissions)
    }

    fn of_mut(&mut self, tag: Tag) -> Option<&mut u32> {
        let found = self.0.iter_mut().find(|entry| entry.tag == tag);
        found.map(|entry| &mut entry.permissions)
    }

    /// The kind of entry that the group bits of a mode stand for.
    fn group_class(&self) -> Tag {
        match self.of(Tag::Mask) {
            Some(_) => Tag::Mask,
            None => Tag::OwningGroup,
        }
    }

    /// The permission bits of a mode that go with it.
    pub fn mode(&self) -> u32 {
        let of = |tag| self.of(tag).unwrap_or(0) & ALL;
        of(Tag::Owner) << 6 | of(self.group_class()) << 3 | of(Tag::Other)
    }

    /// True when it says no more than its mode.
    pub fn is_minimal(&self) -> bool {
        let is_extra = |entry: &Entry| entry.tag.names_somebody() || entry.tag == Tag::Mask;
        !self.0.iter().any(is_extra)
    }

    /// After a chmod to these permission bits.
    pub fn with_mode(mut self, mode: u32) -> Acl {
        let group_class = self.group_class();
        for (tag, shift) in [(Tag::Owner, 6), (group_class, 3), (Tag::Other, 0)] {
            if let Some(permissions) = self.of_mut(tag) {
                *permissions = mode >> shift & ALL;
            }
        }
        self
    }

    /// Of what is made with these permission bits in a directory that has it as its default ACL:
    /// nobody gets what the bits leave out.
    pub fn inherited(self, mode: u32) -> Acl {
        let granted = self.mode() & mode;
        self.with_mode(granted)
    }

    /// Whether the caller gets every access in `mask` on an inode of this group, which is
    /// another's.
    pub fn grants(&self, caller: &Caller, group: u32, mask: u32) -> bool {
        let grants = |entry: &Entry| mask & !entry.permissions == 0;
        // Read, write and execute must be granted by one entry, not by several together.
        let is_masked_out = || mask & !self.of(Tag::Mask).unwrap_or(ALL) != 0;
        let mut is_in_group = false;
        for entry in &self.0 {
            let is_about_caller = match entry.tag {
                Tag::Owner | Tag::Mask => continue,
                Tag::User if entry.id == caller.uid => return grants(entry) && !is_masked_out(),
                Tag::User => continue,
                Tag::OwningGroup => caller.is_in_group(group),
                Tag::Group => caller.is_in_group(entry.id),
                Tag::Other => return !is_in_group && grants(entry),
            };
            is_in_group |= is_about_caller;
            if is_about_caller && grants(entry) {
                return !is_masked_out();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;

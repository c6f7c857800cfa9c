//! ACLs as acl(5) tells of them, in its order and with nothing clever.

use finefs_namespace::{Caller, Error};

/// The attribute that is an access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that is a default ACL.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Tags of entries.
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// An ACL: tag, permissions and id of each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(pub Vec<(u16, u16, u32)>);

impl Acl {
    /// From an attribute's value; `None` when it has no entries.
    pub fn from_value(value: &[u8]) -> Result<Option<Acl>, Error> {
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() < 4 {
            return Err(Error::Invalid);
        }
        if value[..4] != [2, 0, 0, 0] {
            return Err(Error::NotSupported);
        }
        if value.len() % 8 != 4 {
            return Err(Error::Invalid);
        }
        let mut entries = Vec::new();
        for bytes in value[4..].chunks(8) {
            let tag = u16::from_le_bytes([bytes[0], bytes[1]]);
            let permissions = u16::from_le_bytes([bytes[2], bytes[3]]);
            let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            match tag {
                USER | GROUP if id != u32::MAX => entries.push((tag, permissions, id)),
                USER_OBJ | GROUP_OBJ | MASK | OTHER => entries.push((tag, permissions, u32::MAX)),
                _ => return Err(Error::Invalid),
            }
        }
        Ok((!entries.is_empty()).then_some(Acl(entries)))
    }

    /// An attribute's value.
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// Whether it may be set.
    pub fn is_valid(&self) -> bool {
        let tags: Vec<u16> = self.0.iter().map(|entry| entry.0).collect();
        let mut sorted = tags.clone();
        sorted.sort_unstable();
        let number = |tag| tags.iter().filter(|have| **have == tag).count();
        let names = number(USER) + number(GROUP);
        tags == sorted
            && number(USER_OBJ) == 1
            && number(GROUP_OBJ) == 1
            && number(OTHER) == 1
            && number(MASK) <= 1
            && (names == 0 || number(MASK) == 1)
            && self.0.iter().all(|entry| entry.1 <= 7)
    }

    fn first(&self, tag: u16) -> Option<u16> {
        let entry = self.0.iter().find(|entry| entry.0 == tag);
        entry.map(|entry| entry.1)
    }

    /// True when a mode says as much.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that go with it.
    pub fn mode(&self) -> u32 {
        let group = self.first(MASK).or(self.first(GROUP_OBJ)).unwrap();
        let (owner, other) = (self.first(USER_OBJ).unwrap(), self.first(OTHER).unwrap());
        u32::from(owner) * 64 + u32::from(group) * 8 + u32::from(other)
    }

    /// With other permission bits.
    pub fn with_mode(&self, mode: u32) -> Acl {
        let group = if self.first(MASK).is_some() {
            MASK
        } else {
            GROUP_OBJ
        };
        let entries = self.0.iter().map(|(tag, permissions, id)| {
            let digit = match *tag {
                USER_OBJ => mode / 64 % 8,
                tag if tag == group => mode / 8 % 8,
                OTHER => mode % 8,
                _ => u32::from(*permissions),
            };
            (*tag, digit as u16, *id)
        });
        Acl(entries.collect())
    }

    /// Whether somebody has all of `mask`, as "ACCESS CHECK ALGORITHM" of acl(5) has it.
    pub fn grants(&self, caller: &Caller, (uid, gid): (u32, u32), mask: u32) -> bool {
        let has_all = |permissions: u16| u32::from(permissions) & mask == mask;
        let is_in_mask = self.first(MASK).is_none_or(has_all);
        if caller.uid == uid {
            return has_all(self.first(USER_OBJ).unwrap());
        }
        let mut named = self.0.iter().filter(|entry| entry.0 == USER);
        if let Some(user) = named.find(|entry| entry.2 == caller.uid) {
            return has_all(user.1) && is_in_mask;
        }
        let groups: Vec<u16> = (self.0.iter())
            .filter(|(tag, _, id)| match *tag {
                GROUP_OBJ => caller.is_in_group(gid),
                GROUP => caller.is_in_group(*id),
                _ => false,
            })
            .map(|entry| entry.1)
            .collect();
        if !groups.is_empty() {
            return groups.into_iter().any(has_all) && is_in_mask;
        }
        has_all(self.first(OTHER).unwrap())
    }
}

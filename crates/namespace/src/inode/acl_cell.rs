//! What an inode knows of its ACLs: [`AclMarks`] tell which there are, an [`AclCell`] has one as it
//! is read without a lock.
//!
//! # Invariants
//! The pointer is null or names an ACL that the cell owns. An ACL is destroyed only after it was
//! replaced and all guards of then ended.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::MutexGuard;
use finefs_locks::primitive::atomic::Ordering;

use crate::base::retire::retire;
use crate::inode::Guarded;
use crate::inode::acl::{Acl, AclKind};

/// Which ACLs an inode has. They stand in a word with the permission bits, so that a permission
/// check knows by one look whether those bits tell all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AclMarks(u32);

impl AclMarks {
    /// The store holds attributes that nobody has looked at yet.
    pub const UNKNOWN: AclMarks = AclMarks(1 << 16);
    const FIRST: u32 = 1 << 17;

    /// Of an inode with this access and this default ACL.
    pub fn of(acls: &[Option<Acl>; 2]) -> AclMarks {
        let [access, default] = acls;
        AclMarks(0)
            .with(AclKind::Access, access.is_some())
            .with(AclKind::Default, default.is_some())
    }

    /// From the bits of [`AclMarks::bits`].
    pub fn from_bits(bits: u32) -> AclMarks {
        AclMarks(bits)
    }

    /// Bits above those of a mode.
    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn has(self, kind: AclKind) -> bool {
        self.0 & AclMarks::FIRST << kind as u32 != 0
    }

    /// False when it surely has none.
    pub fn may_have(self, kind: AclKind) -> bool {
        self == AclMarks::UNKNOWN || self.has(kind)
    }

    /// The same, but for one ACL.
    pub fn with(self, kind: AclKind, is_there: bool) -> AclMarks {
        let bit = AclMarks::FIRST << kind as u32;
        AclMarks(self.0 & !bit | if is_there { bit } else { 0 })
    }
}

/// See the module's head.
pub(crate) struct AclCell(Atomic<Acl>);

impl AclCell {
    /// A cell with an ACL, or with none.
    pub fn new(acl: Option<Acl>) -> AclCell {
        AclCell(acl.map_or_else(Atomic::null, Atomic::new))
    }

    /// What is there.
    pub fn get<'g>(&self, guard: &'g Guard) -> Option<&'g Acl> {
        // SAFETY: by the invariant it is null or lives as long as the guard.
        unsafe { self.0.load(Ordering::Acquire, guard).as_ref() }
    }

    /// Puts another there, or none. The evidence is the lock of the inode.
    pub fn set(&self, _evidence: &MutexGuard<'_, Guarded>, acl: Option<Acl>) {
        let guard = &crossbeam_epoch::pin();
        let old = match acl {
            Some(acl) => self.0.swap(Owned::new(acl), Ordering::AcqRel, guard),
            None => self.0.swap(Shared::null(), Ordering::AcqRel, guard),
        };
        if !old.is_null() {
            // SAFETY: the cell no longer names it.
            unsafe { retire(old, guard) };
        }
    }
}

impl Drop for AclCell {
    fn drop(&mut self) {
        // SAFETY: exclusive access.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let acl = self.0.load(Ordering::Relaxed, guard);
        if !acl.is_null() {
            // SAFETY: the cell owns it.
            drop(unsafe { acl.into_owned() });
        }
    }
}

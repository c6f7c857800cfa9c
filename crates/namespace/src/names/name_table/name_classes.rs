//! Names that the store's hash does not tell apart ([`NameClasses`]): all of a class are in one
//! bucket, whose holder counts them.

use crossbeam_epoch::Guard;

use super::chain::{Bucket, Node, walk};
use super::{CHAIN_MAX, HashedName, LockedBucket, NameTable};
use crate::base::store::NameClasses;

/// A chain longer than [`CHAIN_MAX`] makes the table grow if it has more classes than this.
const CLASSES_MAX: u32 = CHAIN_MAX / 2;
/// The bits of a hash that names of one class do not share. No table has so many buckets that they
/// would tell buckets apart.
const IN_CLASS: u64 = (1 << 21) - 1;

/// The hash of a name, of the hashes of its class and its own.
pub(super) fn combined(class: u64, own: u64) -> u64 {
    class & !IN_CLASS | own & IN_CLASS
}

impl NameTable {
    #[inline]
    pub(super) fn classes(&self) -> Option<&'static NameClasses> {
        self.special.get()?.classes
    }

    /// Whether another name of a name's class can be put into its bucket, which the caller holds.
    /// `is_root`: it is the root's table.
    #[inline]
    pub fn has_room(
        &self,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        is_root: bool,
        guard: &Guard,
    ) -> bool {
        let Some(classes) = self.classes() else {
            return true;
        };
        let NameClasses {
            class_of,
            names_max,
            hidden_in_root,
        } = *classes;
        if held.bucket.length() + 1 < names_max {
            return true;
        }
        let class = class_of(name.bytes);
        let hidden = u32::from(is_root && class_of(hidden_in_root) == class);
        let is_alike = |node: &&Node| class_of(&node.name) == class;
        let there = walk(held.bucket.head(guard), guard).filter(is_alike);
        there.count() as u32 + hidden < names_max
    }

    /// Whether a bucket's chain is so long that the table should grow: that does not part the
    /// names of one class.
    pub(super) fn is_long(&self, bucket: &Bucket, guard: &Guard) -> bool {
        if bucket.length() <= CHAIN_MAX || self.classes().is_none() {
            return bucket.length() > CHAIN_MAX;
        }
        let mut classes = 0;
        let mut last = None;
        for node in walk(bucket.head(guard), guard) {
            let class = Some(node.hash() & !IN_CLASS);
            classes += u32::from(class != last);
            last = class;
        }
        classes > CLASSES_MAX
    }
}

//! References that the kernel holds and the namespace does not.
//!
//! READDIRPLUS must give attributes with every entry, and the kernel then holds a reference on
//! each. An entry whose inode cannot be loaded (a damaged image) still has to be listed, so it
//! goes out with made-up attributes that expire at once, and any use of it asks again and gets
//! the error. The reference that the kernel took thereby is noted here and goes from here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use finefs_locks::{LockClass, Mutex};
use finefs_namespace::types::Ino;

/// The references of the strays; nothing is taken while it is held.
static STRAYS: LockClass = LockClass::new("fuse.strays", 3);

/// The strays of a mount; empty on a sound image, which `forget` finds out without a lock.
pub(crate) struct Strays {
    count: AtomicUsize,
    references: Mutex<HashMap<Ino, u64>>,
}

impl Strays {
    /// Notes one reference. Called before the reply that makes the kernel take it.
    pub(crate) fn add(&self, ino: Ino) {
        let mut references = self.references.lock();
        *references.entry(ino).or_insert(0) += 1;
        self.count.store(references.len(), Ordering::Release);
    }

    /// Takes up to `count` references off; gives how many the namespace has to forget itself.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> u64 {
        if self.count.load(Ordering::Acquire) == 0 {
            return count;
        }
        let mut references = self.references.lock();
        let Some(held) = references.get_mut(&ino) else {
            return count;
        };
        let taken = count.min(*held);
        *held -= taken;
        if *held == 0 {
            references.remove(&ino);
        }
        self.count.store(references.len(), Ordering::Release);
        count - taken
    }
}

impl Default for Strays {
    fn default() -> Strays {
        Strays {
            count: AtomicUsize::new(0),
            references: Mutex::new(&STRAYS, HashMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strays_go_first() {
        let strays = Strays::default();
        assert_eq!(strays.forget(Ino(5), 3), 3);
        strays.add(Ino(5));
        strays.add(Ino(5));
        assert_eq!(strays.forget(Ino(6), 1), 1);
        assert_eq!(strays.forget(Ino(5), 1), 0);
        assert_eq!(strays.forget(Ino(5), 3), 2);
        assert_eq!(strays.forget(Ino(5), 1), 1);
    }
}

//! [`OnceBox`]: a place for something that may never be needed; one word until it is.
//!
//! The first thread that needs it makes it. Where several do at the same time one keeps its own and
//! the others take that, so making it must be cheap and change nothing else. For what is loaded,
//! and waited for, there is [`OnceLatch`](finefs_locks::OnceLatch).
//!
//! # Invariants
//! The word is null, or came from `Box::into_raw`; once it is not null it stays as it is until the
//! place is dropped.

use std::marker::PhantomData;

use finefs_locks::primitive::atomic::{AtomicPtr, Ordering};

/// See the module's head.
pub(crate) struct OnceBox<T> {
    place: AtomicPtr<T>,
    owns: PhantomData<*mut T>,
}

// SAFETY: the place owns its T, which may be dropped by another thread than made it.
unsafe impl<T: Send> Send for OnceBox<T> {}
// SAFETY: threads share `&T` (Sync), and one may make the T that another drops (Send).
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

/// An array in its place on the heap, for what is too large for some stacks.
pub(crate) fn boxed_array<T, const N: usize>(make: impl Fn() -> T) -> Box<[T; N]> {
    let all: Box<[T]> = std::iter::repeat_with(make).take(N).collect();
    let Ok(all) = all.try_into() else {
        unreachable!("there are as many")
    };
    all
}

impl<T> OnceBox<T> {
    /// An empty place.
    pub fn new() -> OnceBox<T> {
        OnceBox {
            place: AtomicPtr::new(std::ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// What is there, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        let found = self.place.load(Ordering::Acquire);
        // SAFETY: by the invariant it is null, or a T that lives as long as `self`; it was
        // published with Release.
        unsafe { found.as_ref() }
    }

    /// What is there, made by `make` if it is not.
    #[inline]
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.get_or_make_box(|| Box::new(make()))
    }

    /// The same for what is too large to be moved.
    #[inline]
    pub fn get_or_make_box(&self, make: impl FnOnce() -> Box<T>) -> &T {
        match self.get() {
            Some(found) => found,
            None => self.put(make()),
        }
    }

    /// The same, for a caller that has the place for itself.
    pub fn get_mut_or_make(&mut self, make: impl FnOnce() -> T) -> &mut T {
        self.get_or_make(make);
        // SAFETY: exclusive access, and it was made.
        unsafe { &mut *self.place.load(Ordering::Relaxed) }
    }

    #[cold]
    fn put(&self, made: Box<T>) -> &T {
        let made = Box::into_raw(made);
        let outcome = self.place.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match outcome {
            // SAFETY: the place owns it now.
            Ok(_) => unsafe { &*made },
            Err(found) => {
                // SAFETY: it was never published, so this is its only owner.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as in `get`.
                unsafe { &*found }
            }
        }
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let found = self.place.load(Ordering::Relaxed);
        if !found.is_null() {
            // SAFETY: exclusive access, and by the invariant a box.
            drop(unsafe { Box::from_raw(found) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn all_see_the_one_that_was_made_first_and_all_are_dropped() {
        let counted = Arc::new(());
        for _ in 0..100 {
            let place = OnceBox::new();
            assert!(place.get().is_none());
            let make = || place.get_or_make(|| (Arc::clone(&counted), Box::new(7)));
            let address = || std::ptr::from_ref(make()).addr();
            let (one, other) = std::thread::scope(|scope| {
                let other = scope.spawn(address);
                (address(), other.join().unwrap())
            });
            assert_eq!(one, other);
            assert_eq!(*place.get().unwrap().1, 7);
        }
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

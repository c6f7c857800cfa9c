//! Work that several threads share, piece by piece, as a commit does where it is large.
//!
//! The threads live for one call: a commit that they help takes many milliseconds, and none is
//! there when nothing is committed. The caller works too, so nothing waits for a thread to start.
//! Pieces are given out in order, the results come in any.

use std::num::NonZeroUsize;
#[cfg(not(feature = "shuttle"))]
use std::thread;

use finefs_locks::{Mutex, cpu};

#[cfg(feature = "shuttle")]
use shuttle::thread;

use crate::base::classes;

/// More threads than this add nothing: the device is next.
const THREADS_MAX: usize = 16;

/// A thread is worth its start where it has so much to do.
const ITEMS_PER_THREAD: usize = 2048;

/// How many threads work on a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitThreads {
    /// As many as there are CPUs, where there is enough to do for them.
    #[default]
    AsManyAsPay,
    /// So many, however little there is to do.
    Always(NonZeroUsize),
}

impl CommitThreads {
    /// For one thread, so that nothing depends on which comes first.
    pub const ONE: CommitThreads = CommitThreads::Always(NonZeroUsize::MIN);

    /// How many are to work on so many items: changes of an object, or what costs as much.
    pub fn for_items(self, items: usize) -> usize {
        match self {
            CommitThreads::Always(threads) => threads.get(),
            CommitThreads::AsManyAsPay => (items / ITEMS_PER_THREAD)
                .min(cpu::count())
                .clamp(1, THREADS_MAX),
        }
    }
}

/// Pieces that are left, for all that work on them.
pub struct Pieces<P>(Mutex<std::vec::IntoIter<P>>);

impl<P> Iterator for &Pieces<P> {
    type Item = P;

    fn next(&mut self) -> Option<P> {
        self.0.lock().next()
    }
}

/// Lets up to so many threads, this one among them, work on `pieces` until none is left. Gives what
/// each came to. A panic of one is passed on.
pub fn share<P, R, W>(threads: usize, pieces: Vec<P>, work: W) -> Vec<R>
where
    P: Send,
    R: Send,
    W: Fn(&Pieces<P>) -> R + Sync,
{
    let threads = threads.min(pieces.len());
    let pieces = Pieces(Mutex::new(&classes::PIECES, pieces.into_iter()));
    if threads <= 1 {
        return vec![work(&pieces)];
    }
    thread::scope(|scope| {
        #[cfg(not(feature = "shuttle"))]
        let start = |_| {
            let named = thread::Builder::new().name("finefs-share".into());
            named.spawn_scoped(scope, || work(&pieces)).ok()
        };
        #[cfg(feature = "shuttle")]
        let start = |_| Some(scope.spawn(|| work(&pieces)));
        // Where no thread can be had, fewer do it all.
        let helpers: Vec<_> = (1..threads).filter_map(start).collect();
        let mut results = vec![own_share(&pieces, &work)];
        results.extend(helpers.into_iter().map(|helper| match helper.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        results
    })
}

/// What the calling thread does of it. Never inlined: it is where counts of instructions tell what
/// several threads may do from what one must (`finefs-bench sequential`).
#[inline(never)]
fn own_share<P, R>(pieces: &Pieces<P>, work: impl Fn(&Pieces<P>) -> R) -> R {
    work(pieces)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_worked_on_once() {
        for threads in [1, 3, 100] {
            let pieces: Vec<u64> = (0..1000).collect();
            let sums = share(threads, pieces, |pieces| pieces.sum::<u64>());
            assert_eq!(sums.len(), threads.clamp(1, 1000));
            assert_eq!(sums.iter().sum::<u64>(), 499_500);
        }
    }

    #[test]
    fn threads_come_with_work() {
        let auto = CommitThreads::default();
        assert_eq!(auto.for_items(0), 1);
        assert_eq!(auto.for_items(ITEMS_PER_THREAD), 1);
        assert!(auto.for_items(usize::MAX) <= THREADS_MAX.min(cpu::count()));
        assert_eq!(CommitThreads::ONE.for_items(usize::MAX), 1);
    }

    #[test]
    #[should_panic(expected = "seven")]
    fn a_panic_is_passed_on() {
        share(2, (0..10).collect(), |pieces| {
            pieces.for_each(|piece| assert_ne!(piece, 7, "seven"));
        });
    }
}

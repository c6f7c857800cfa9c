//! Which CPU the thread runs on, as a hint for choosing a shard.
//!
//! The answer may be stale as soon as it is given, since the thread can migrate. So a wrong answer
//! must cost speed only: a user of it records the shard that it chose.
//!
//! | Build | Source |
//! |---|---|
//! | Linux, glibc 2.35 or later | the `cpu_id` that the kernel keeps in the thread's rseq area (`finefs_lockmeter::rseq`) |
//! | other Linux | `sched_getcpu`, which is a vDSO call |
//! | other systems | the thread's slot, a number of its own (`thread_slot`) |
//! | loom | the thread's number |
//! | shuttle | chance, which stands for migration |

#[cfg(not(any(loom, feature = "shuttle")))]
mod node;
#[cfg(not(any(loom, feature = "shuttle")))]
use finefs_lockmeter::rseq;

#[cfg(not(any(loom, feature = "shuttle")))]
pub use node::node_of;

/// All CPUs are of one node.
#[cfg(any(loom, feature = "shuttle"))]
pub fn node_of(_: usize) -> usize {
    0
}

#[cfg(not(any(loom, feature = "shuttle")))]
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of shards worth having: the CPUs that the system may ever have. At least 1, and
/// the same at every call.
///
/// ```
/// let shards: Vec<u64> = vec![0; finefs_locks::cpu::count()];
/// assert!(!shards.is_empty());
/// ```
#[cfg(not(any(loom, feature = "shuttle")))]
#[inline]
pub fn count() -> usize {
    match COUNT.load(Ordering::Relaxed) {
        0 => ask_for_count(),
        count => count,
    }
}

/// 0: not asked yet.
#[cfg(not(any(loom, feature = "shuttle")))]
static COUNT: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(any(loom, feature = "shuttle")))]
#[cold]
fn ask_for_count() -> usize {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let count = usize::try_from(configured).unwrap_or(1).max(1);
    // The first answer stays: it must be the same at every call.
    let first = COUNT.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
    first.map_or_else(|first| first, |_| count)
}

/// The CPU that the thread ran on a moment ago, in `0..count()`.
///
/// ```
/// assert!(finefs_locks::cpu::current() < finefs_locks::cpu::count());
/// ```
#[cfg(not(any(loom, feature = "shuttle")))]
#[inline]
pub fn current() -> usize {
    current_of(count())
}

/// [`current`], for a caller that has `count()` at hand, as the length of its shards.
#[cfg(not(any(loom, feature = "shuttle")))]
#[inline]
pub(crate) fn current_of(count: usize) -> usize {
    let cpu = rseq::current_cpu().unwrap_or_else(getcpu);
    // CPU numbers can have gaps.
    if cpu < count { cpu } else { cpu % count }
}

/// [`current`], which is below `count()`.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn current_of(_: usize) -> usize {
    current()
}

#[cfg(all(not(target_os = "linux"), not(any(loom, feature = "shuttle"))))]
fn getcpu() -> usize {
    crate::thread_slot::current().unwrap_or(0)
}

#[cfg(all(target_os = "linux", not(any(loom, feature = "shuttle"))))]
#[cold]
fn getcpu() -> usize {
    // SAFETY: sched_getcpu has no arguments and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

/// The number of shards worth having.
#[cfg(any(loom, feature = "shuttle"))]
pub fn count() -> usize {
    2
}

/// The shard of the calling thread: its number in the model, so that the choice is the same in
/// every execution.
#[cfg(loom)]
pub fn current() -> usize {
    let id = format!("{:?}", loom::thread::current().id());
    let digits: String = id.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<usize>().unwrap_or(0) % count()
}

/// Any shard.
#[cfg(all(feature = "shuttle", not(loom)))]
pub fn current() -> usize {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..count())
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    #[test]
    fn rseq_agrees_with_getcpu() {
        // Both can be stale: ask until an answer is bracketed by two equal ones.
        for _ in 0..1000 {
            let before = super::getcpu();
            let Some(cpu) = finefs_lockmeter::rseq::current_cpu() else {
                return;
            };
            if before == super::getcpu() {
                assert_eq!(cpu, before);
                return;
            }
        }
        panic!("migrated a thousand times in a row");
    }

    #[test]
    fn current_is_in_range() {
        assert!(super::current() < super::count());
    }
}

//! The range lock allocates nothing, whatever happens to a request.

#![cfg(not(any(loom, feature = "shuttle")))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;
use std::time::Duration;

use finefs_locks::{LockClass, RangeLock};

/// Counts each thread's allocations.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: hands everything on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are what this needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are what this needs.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static CLASS: LockClass = LockClass::new("test.range.alloc", 10);

/// How many wait for a lock of the class.
fn waiters() -> usize {
    let queues = finefs_lockmeter::waiting();
    queues.iter().map(|queue| queue.waiters.len()).sum()
}

/// Fails when a request's node is a new box.
#[test]
fn requests_allocate_nothing() {
    let lock = RangeLock::new(&CLASS);
    let work = |thread: u64, rounds: u64| {
        for round in 0..rounds {
            let start = (round * 7 + thread * 13) % 40;
            let range = start..start + 10;
            let guard = match round % 6 {
                0 => Some(lock.read(range)),
                1 => Some(lock.write(range)),
                2 => lock.try_write(range),
                3 => lock.write_timeout(range, Duration::from_micros(50)),
                4 => Some(lock.append(|| 45)),
                _ => lock.read_timeout(range, Duration::from_micros(50)),
            };
            let Some(mut guard) = guard else { continue };
            if round % 16 == 0 {
                // Others come to wait.
                std::thread::sleep(Duration::from_micros(20));
            }
            guard.shrink(start..start + 5);
            guard.downgrade();
        }
    };
    let (vain, start) = (Barrier::new(5), Barrier::new(4));
    let held = lock.write(0..100);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (work, vain, start, lock) = (&work, &vain, &start, &lock);
            scope.spawn(move || {
                // What the first use of the order checker, the meter, thread-local storage and the
                // mutex needs: in a thread that waits in vain (to write and to read), that waits
                // and is served, and that does not wait.
                let (mutex, condvar) = (parking_lot::Mutex::new(()), parking_lot::Condvar::new());
                condvar.wait_for(&mut mutex.lock(), Duration::from_millis(1));
                assert!(lock.write_timeout(0..1, Duration::from_millis(1)).is_none());
                assert!(lock.read_timeout(0..1, Duration::from_millis(1)).is_none());
                vain.wait();
                drop(lock.write(0..1));
                work(thread, 300);
                start.wait();
                let before = ALLOCATIONS.get();
                work(thread, 3_000);
                assert_eq!(ALLOCATIONS.get() - before, 0);
            });
        }
        vain.wait();
        while waiters() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(held);
    });
}

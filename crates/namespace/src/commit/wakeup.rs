//! A condition variable for one thread that works now and then: it waits until somebody wakes it,
//! time passes, or it shall end. A wake-up that comes while it works is not lost.

use std::time::Duration;

use finefs_locks::{Condvar, Mutex};

use crate::base::classes;

/// Wakes one thread.
pub(crate) struct Wakeup {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_wanted: bool,
    is_over: bool,
}

/// Why a thread wakes.
pub(crate) enum Wake {
    /// The time passed.
    TimedOut,
    /// Somebody woke it.
    Woken,
    /// It shall end.
    Ended,
}

impl Wakeup {
    /// Nobody is woken yet.
    pub fn new() -> Wakeup {
        Wakeup {
            state: Mutex::new(&classes::WAKEUP, State::default()),
            changed: Condvar::new(),
        }
    }

    /// Wakes the thread, or keeps it from waiting the next time.
    pub fn wake(&self) {
        self.state.lock().is_wanted = true;
        self.changed.notify_all();
    }

    /// Tells the thread to end.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until it is woken, but no longer than so long.
    pub fn wait(&self, time: Duration) -> Wake {
        let mut state = self.state.lock();
        if !state.is_wanted && !state.is_over {
            self.changed.wait_timeout(&mut state, time);
        }
        match (state.is_over, std::mem::take(&mut state.is_wanted)) {
            (true, _) => Wake::Ended,
            (_, true) => Wake::Woken,
            _ => Wake::TimedOut,
        }
    }
}

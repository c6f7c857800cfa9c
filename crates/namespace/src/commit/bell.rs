//! What the threads of a namespace wait for: that somebody rings, that time passes, or that all is
//! over.

use std::time::Duration;

use finefs_locks::{Condvar, Mutex};

use crate::base::classes;

/// Wakes one thread.
pub(crate) struct Bell {
    state: Mutex<State>,
    rings: Condvar,
}

#[derive(Default)]
struct State {
    is_wanted: bool,
    is_over: bool,
}

/// Why a thread wakes.
pub(crate) enum Wake {
    /// The time passed.
    Interval,
    /// Somebody rang.
    Ring,
    Over,
}

impl Bell {
    /// Nobody rang yet.
    pub fn new() -> Bell {
        Bell {
            state: Mutex::new(&classes::BELL, State::default()),
            rings: Condvar::new(),
        }
    }

    /// Wakes the thread, or keeps it from waiting the next time.
    pub fn ring(&self) {
        self.state.lock().is_wanted = true;
        self.rings.notify_all();
    }

    /// Tells the thread to end.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.rings.notify_all();
    }

    /// Waits for a ring, or so long.
    pub fn wait(&self, time: Duration) -> Wake {
        let mut state = self.state.lock();
        if !state.is_wanted && !state.is_over {
            self.rings.wait_timeout(&mut state, time);
        }
        match (state.is_over, std::mem::take(&mut state.is_wanted)) {
            (true, _) => Wake::Over,
            (_, true) => Wake::Ring,
            _ => Wake::Interval,
        }
    }
}

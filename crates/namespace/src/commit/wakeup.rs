//! A condition variable for one thread that works now and then: it waits until somebody wakes it,
//! time passes, or it shall end. A wake-up that comes while it works is not lost.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use finefs_locks::{Condvar, Mutex};

use crate::base::classes;
use crate::base::error::{Error, Result};

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

/// So often a thread that nobody wakes looks whether the owner is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Starts a thread that works whenever it is woken, and ends with the volume's owner.
pub(super) fn start_thread<N, V>(
    name: &str,
    owner: &Arc<N>,
    wakeup: &Arc<Wakeup>,
    work: fn(&V),
) -> Result<()>
where
    N: Deref<Target = V> + Send + Sync + 'static,
    V: 'static,
{
    let weak: Weak<N> = Arc::downgrade(owner);
    let wakeup = Arc::clone(wakeup);
    let run = move || {
        loop {
            let wake = wakeup.wait(LOOK_INTERVAL);
            let Some(owner) = weak.upgrade() else {
                return;
            };
            match wake {
                Wake::Woken => work(&owner),
                Wake::TimedOut => {}
                Wake::Ended => return,
            }
        }
    };
    std::thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(|error| Error::io(format_args!("cannot start a thread: {error}")))?;
    Ok(())
}

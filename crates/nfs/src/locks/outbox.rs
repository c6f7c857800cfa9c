//! What is to be told to clients, and the threads that tell it.
//!
//! Each message has a time from which on it is due. One that cannot be delivered comes back later.
//! While a thread talks to a client it has that client for itself: a client that does not answer
//! keeps one thread, and no more, for twice as long as [`PATIENCE`](crate::calls::PATIENCE) says,
//! which is also the longest that the end of the server waits for it; and it is tried again the
//! later, the longer it has not answered.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use finefs_locks::{Condvar, Mutex};

use super::waits::Key;
use crate::classes;

/// Messages beyond this are dropped, but for those of grants, which waits bound.
const MESSAGES_MAX: usize = 16384;
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Something to be told, or looked at.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The wait of this key has ended.
    Ended(Key),
    /// The answer to a call that is answered by a call (`NLM_..._MSG`): a procedure and its
    /// arguments.
    Answer(u32, Vec<u8>),
    /// That the server was started anew; to be tried until then.
    Restarted(Instant),
    /// The grace period is over.
    GraceIsOver,
}

/// A message and to whom.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub client: IpAddr,
    /// The address of this server that the client uses.
    pub server: IpAddr,
    pub message: Message,
    /// How often it was tried.
    pub tries: u32,
}

/// See the module's head.
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    letters: Vec<(Instant, Letter)>,
    /// The clients that a thread talks to.
    busy: HashSet<IpAddr>,
    is_closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            state: Mutex::new(&classes::LOCK_OUTBOX, State::default()),
            changed: Condvar::new(),
        }
    }

    /// Puts a message in, due after `delay`.
    pub(super) fn put(&self, letter: Letter, delay: Duration) {
        let mut state = self.state.lock();
        let is_bounded = !matches!(letter.message, Message::Answer(..));
        if !state.is_closed && (is_bounded || state.letters.len() < MESSAGES_MAX) {
            state.letters.push((Instant::now() + delay, letter));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// One that was tried in vain, later.
    pub(super) fn put_back(&self, mut letter: Letter) {
        let pause = Duration::from_millis(500 << letter.tries.min(8)).min(PAUSE_MAX);
        letter.tries += 1;
        self.put(letter, pause);
    }

    /// Waits for the next that is due; `None` at the end. Its client is busy until
    /// [`Outbox::done`].
    pub(super) fn next(&self) -> Option<Letter> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let now = Instant::now();
            let State { letters, busy, .. } = &mut *state;
            let is_free = |letter: &Letter| !busy.contains(&letter.client);
            let ready = letters.iter().enumerate();
            let ready = ready.filter(|(_, (_, letter))| is_free(letter));
            let first = ready.min_by_key(|(_, (due, _))| *due);
            match first.map(|(at, (due, _))| (at, *due)) {
                Some((at, due)) if due <= now => {
                    let (_, letter) = letters.swap_remove(at);
                    busy.insert(letter.client);
                    return Some(letter);
                }
                Some((_, due)) => {
                    self.changed.wait_timeout(&mut state, due - now);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// The client of a letter can be talked to by others.
    pub(super) fn done(&self, client: IpAddr) {
        self.state.lock().busy.remove(&client);
        self.changed.notify_one();
    }

    /// Ends it.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.letters.clear();
        drop(state);
        self.changed.notify_all();
    }
}

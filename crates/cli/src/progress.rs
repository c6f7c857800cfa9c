//! A sign of life during long work: a spinner with the time, on a terminal, after half a second.

use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(120);

/// In turn, the first character.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
/// To the line's beginning; what follows is cut at the terminal's edge (DECAWM).
const BEGIN: &str = "\r\x1b[?7l";
/// The rest of the line is erased.
const END: &str = "\x1b[K\x1b[?7h";

/// Runs `work`; when it takes long and stderr is a terminal, shows `message` and the time.
pub(crate) fn during<T>(message: &str, work: impl FnOnce() -> T) -> T {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if is_dumb || !stderr().is_terminal() {
        return work();
    }
    let _sign = Sign::start(message.to_owned());
    work()
}

/// The thread that draws. It ends, and its line goes, when this is dropped.
struct Sign {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sign {
    fn start(message: String) -> Sign {
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new()
            .name("progress".into())
            .spawn(move || {
                let mut wait = PATIENCE;
                for sign in SPINNER.iter().cycle() {
                    if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                        break;
                    }
                    wait = TICK;
                    let seconds = start.elapsed().as_secs();
                    show(&format!("{sign} {message} ({seconds}s)"));
                }
                if wait == TICK {
                    show("");
                }
            })
            .ok();
        Sign {
            stop: Some(stop),
            thread,
        }
    }
}

/// A terminal that has gone is no reason to stop the work.
fn show(text: &str) {
    let _ = stderr().write_all(format!("{BEGIN}{text}{END}").as_bytes());
}

impl Drop for Sign {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

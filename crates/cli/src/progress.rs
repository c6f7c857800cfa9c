//! A sign of life during long work: a spinner with the time, on a terminal, after half a second.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(120);

/// Runs `work`; when it takes long and stderr is a terminal, shows `message` and the time.
pub(crate) fn during<T>(message: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
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
                if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let bar = ProgressBar::new_spinner().with_elapsed(start.elapsed());
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                    bar.set_style(style);
                }
                bar.set_message(message);
                bar.enable_steady_tick(TICK);
                let _ = stopped.recv();
                bar.finish_and_clear();
            })
            .ok();
        Sign {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

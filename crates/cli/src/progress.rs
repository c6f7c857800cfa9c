//! A sign of life during long work: a spinner with the time, on a terminal, after half a second.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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
    let _sign = spin(message.to_owned());
    work()
}

fn spin(message: String) -> Companion {
    let start = Instant::now();
    Companion::start(move |end| {
        if end.comes_within(PATIENCE) {
            return;
        }
        let bar = ProgressBar::new_spinner().with_elapsed(start.elapsed());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(message);
        bar.enable_steady_tick(TICK);
        end.wait();
        bar.finish_and_clear();
    })
}

/// Shows how far something is by what `update` makes of a bar again and again: on a terminal, after
/// a second, until this is dropped.
pub(crate) fn bar(mut update: impl FnMut(&ProgressBar) + Send + 'static) -> Option<Companion> {
    const PATIENCE: Duration = Duration::from_secs(1);
    const TICK: Duration = Duration::from_millis(200);
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let start = Instant::now();
    Some(Companion::start(move |end| {
        if end.comes_within(PATIENCE) {
            return;
        }
        let bar = ProgressBar::new(0).with_elapsed(start.elapsed());
        loop {
            update(&bar);
            if end.comes_within(TICK) {
                break;
            }
        }
        bar.finish_and_clear();
    }))
}

/// A thread that lives while something goes on: until this is dropped, which waits for it.
pub(crate) struct Companion {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What tells it that it is to end.
pub(crate) struct End(Receiver<()>);

impl End {
    /// Waits for the end for so long.
    pub(crate) fn comes_within(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    fn wait(&self) {
        let _ = self.0.recv();
    }
}

impl Companion {
    /// Without one, where there can be no thread, nothing is shown.
    pub(crate) fn start(run: impl FnOnce(End) + Send + 'static) -> Companion {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("progress".into());
        Companion {
            stop: Some(stop),
            thread: thread.spawn(move || run(End(stopped))).ok(),
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

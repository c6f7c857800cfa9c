//! A sign of life during long work: a line on the terminal that is written again and again, and
//! cleared at the end.

use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::size::human;

/// How far something is.
pub(crate) struct Step {
    /// What is counted besides bytes, and how much of it is done; may be empty.
    pub message: String,
    /// Bytes that are done.
    pub bytes: u64,
    /// All there are to do; 0 where that is not known.
    pub bytes_all: u64,
}

/// Runs `work`; when it takes more than half a second and stderr is a terminal, shows `message` and
/// the time.
pub(crate) fn during<T>(message: &str, work: impl FnOnce() -> T) -> T {
    const PATIENCE: Duration = Duration::from_millis(500);
    const TURNS: [char; 4] = ['|', '/', '-', '\\'];
    if !stderr().is_terminal() {
        return work();
    }
    let message = message.to_owned();
    let _sign = Companion::start(move |end| {
        let start = Instant::now();
        if end.comes_within(PATIENCE) {
            return;
        }
        let mut turns = TURNS.iter().cycle();
        end.shown_every(Duration::from_millis(120), &mut || {
            let turn = turns.next().unwrap_or(&' ');
            format!("{turn} {message} ({})", clock(start.elapsed()))
        });
    });
    work()
}

/// Shows what `update` gives, on a terminal, after a second, until what this returns is dropped.
pub(crate) fn bar(update: impl FnMut() -> Step + Send + 'static) -> Option<Companion> {
    bar_after(move |_| Some(update))
}

/// The same of what must be prepared first, which is done only where it is shown; nothing is shown
/// if that gives `None`.
pub(crate) fn bar_after<U: FnMut() -> Step>(
    prepare: impl FnOnce(&End) -> Option<U> + Send + 'static,
) -> Option<Companion> {
    const PATIENCE: Duration = Duration::from_secs(1);
    if !stderr().is_terminal() {
        return None;
    }
    let start = Instant::now();
    Some(Companion::start(move |end| {
        if end.comes_within(PATIENCE) {
            return;
        }
        if let Some(mut update) = prepare(&end) {
            end.shown_every(Duration::from_millis(200), &mut || {
                text(&update(), start.elapsed())
            });
        }
    }))
}

/// As `3 of 9 files, 12M of 40M, 6.0M/s, 0:04 left`.
fn text(step: &Step, elapsed: Duration) -> String {
    let mut parts = Vec::new();
    if !step.message.is_empty() {
        parts.push(step.message.clone());
    }
    let rate = (step.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    match (step.bytes, step.bytes_all) {
        (0, 0) => {}
        (done, 0) => parts.extend([human(done), format!("{}/s", human(rate))]),
        (done, all) => {
            parts.push(format!("{} of {}", human(done), human(all)));
            parts.push(format!("{}/s", human(rate)));
            if let Some(seconds) = all.saturating_sub(done).checked_div(rate) {
                parts.push(format!("{} left", clock(Duration::from_secs(seconds))));
            }
        }
    }
    parts.join(", ")
}

/// As `1:02:03`, without hours where there are none.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
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

    /// Until the end, the terminal has a line of what `line` gives, as much as fits.
    fn shown_every(&self, tick: Duration, line: &mut dyn FnMut() -> String) {
        const CLEAR: &str = "\r\x1b[K";
        let columns = rustix::termios::tcgetwinsize(stderr()).map_or(0, |size| size.ws_col);
        let room = usize::from(if columns > 1 { columns - 1 } else { 79 });
        let write = |text: &str| {
            // Without a terminal there is nobody to see it.
            let _ = stderr().write_all(text.as_bytes());
        };
        loop {
            let text: String = line().chars().take(room).collect();
            write(&format!("{CLEAR}{text}"));
            if self.comes_within(tick) {
                break;
            }
        }
        write(CLEAR);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let of = |message: &str, bytes, bytes_all| {
            let message = message.to_owned();
            let step = Step {
                message,
                bytes,
                bytes_all,
            };
            text(&step, Duration::from_secs(2))
        };
        assert_eq!(of("listing, 7 files", 0, 0), "listing, 7 files");
        assert_eq!(of("7 files", 8 << 20, 0), "7 files, 8.0M, 4.0M/s");
        let line = "1 of 2 files, 8.0M of 488M, 4.0M/s, 2:00 left";
        assert_eq!(of("1 of 2 files", 8 << 20, 488 << 20), line);
        assert_eq!(of("", 0, 1 << 20), "0 of 1.0M, 0/s");
        assert_eq!(clock(Duration::from_secs(3_725)), "1:02:05");
    }
}

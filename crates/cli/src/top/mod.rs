//! `finefs top`: the locks of a mounted file system at work, like top(1).
//!
//! | Module | Thing |
//! |---|---|
//! | `screen` | one picture of an interval: rows per class, who waits |
//!
//! What it switches on in the server (all acquisitions, thresholds) it puts back when it ends, also
//! by SIGINT. Of two that run at once the last to end has the last word.

mod screen;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use console::Term;
use finefs_lockmeter::control::{Reply, Request};
use finefs_lockmeter::{Queue, Report, Snapshot};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::channel::Channel;
use crate::umount::find;
use crate::{CliResult, Failure};
use screen::Screen;

/// Show how the locks of a mounted file system are contended and held, and who waits
#[derive(Args)]
pub(crate) struct Top {
    /// The directory that it is mounted at, or the image
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Time between two pictures
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    delay: Duration,
    /// End after so many pictures
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Print pictures below each other, also on a terminal
    #[arg(short, long)]
    batch: bool,
    /// Count all acquisitions while this runs, not only those that had to wait
    #[arg(short, long)]
    full: bool,
    /// With --full, time one in N of the holdings that nobody waited for, at random; 1: all [default: what the
    /// server does, at first 32]
    #[arg(long, value_name = "N", requires = "full", value_parser = clap::value_parser!(u32).range(1..))]
    hold_sampling: Option<u32>,
    /// Show the worst call sites below each class
    #[arg(short, long)]
    sites: bool,
    /// Print what was counted since the server's start as OpenMetrics text, and end
    #[arg(long, conflicts_with_all = ["json", "threshold_us", "waiters", "batch"])]
    openmetrics: bool,
    /// Print one JSON object a picture (or report) and line
    #[arg(long)]
    json: bool,
    /// Instead of pictures, print a backtrace of each wait and hold that took at least so long
    #[arg(long, value_name = "MICROSECONDS")]
    threshold_us: Option<u64>,
    /// Instead of pictures, print the queue of each lock that more than so many threads wait for
    #[arg(long, value_name = "N")]
    waiters: Option<usize>,
}

/// Reads a positive number of seconds, with a fraction if need be.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| *seconds >= 0.1)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a number of seconds, 0.1 or more".to_owned())
}

/// Why it ends.
enum End {
    /// As asked, or by a signal.
    Done,
    /// The server has gone; the reason.
    Gone(String),
    /// Nobody reads any more, or output failed.
    Output(std::io::Error),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Output(error)
    }
}

impl Top {
    pub(crate) fn run(self) -> CliResult<()> {
        let mount = find(&self.target)?;
        let place = mount.path.display().to_string();
        let fail = |reason: String| Failure::new(format!("{place}: {reason}"));
        let channel = Channel::of(&mount).map_err(|error| fail(error.to_string()))?;
        // Caught before anything is switched on.
        let stop = stop_signals().map_err(|error| fail(error.to_string()))?;
        let view = View {
            title: format!("{place} ({})", mount.source.to_string_lossy()),
            options: &self,
            channel: &channel,
            stop,
        };
        let switched = Switched::on(&channel, &self).map_err(fail)?;
        let end = if self.openmetrics {
            view.openmetrics()
        } else if self.is_watching() {
            view.watch()
        } else {
            view.pictures()
        };
        drop(switched);
        match end {
            Ok(()) | Err(End::Done) => Ok(()),
            Err(End::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(End::Output(error)) => Err(Failure::new(format!("standard output: {error}"))),
            Err(End::Gone(reason)) => Err(fail(reason)),
        }
    }

    /// Reports of crossed thresholds are wanted, not pictures.
    fn is_watching(&self) -> bool {
        self.threshold_us.is_some() || self.waiters.is_some()
    }
}

fn stop_signals() -> std::io::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (sender, stop) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if sender.send(()).is_err() {
                    return;
                }
            }
        })?;
    Ok(stop)
}

/// What was switched on in the server, until dropped.
struct Switched<'a> {
    channel: &'a Channel,
    /// How to put back what was there before.
    before: Vec<Request>,
}

impl<'a> Switched<'a> {
    fn on(channel: &'a Channel, options: &Top) -> Result<Switched<'a>, String> {
        let Reply::Settings {
            is_full,
            hold_sampling,
            wait_us,
            hold_us,
            waiters,
        } = channel.meter(Request::Settings)?
        else {
            return Err("its server is of another version".into());
        };
        let mut switched = Switched {
            channel,
            before: Vec::new(),
        };
        if let Some(wanted) = options.hold_sampling {
            let wanted = Request::SetHoldSampling(wanted);
            switched.set(wanted, Request::SetHoldSampling(hold_sampling))?;
        }
        if options.full && !is_full {
            switched.set(Request::SetFull(true), Request::SetFull(false))?;
        }
        if options.is_watching() {
            // What was reported before belongs to nobody.
            channel.meter(Request::Reports)?;
            let wanted = Request::SetThresholds {
                wait_us: options.threshold_us,
                hold_us: options.threshold_us,
                waiters: options.waiters,
            };
            let before = Request::SetThresholds {
                wait_us,
                hold_us,
                waiters,
            };
            switched.set(wanted, before)?;
        }
        Ok(switched)
    }

    fn set(&mut self, wanted: Request, before: Request) -> Result<(), String> {
        self.before.push(before);
        self.channel.meter(wanted).map(drop)
    }
}

impl Drop for Switched<'_> {
    fn drop(&mut self) {
        for request in self.before.drain(..) {
            // A server that has gone has nothing to be put back.
            let _ = self.channel.meter(request);
        }
    }
}

/// What is shown, and where it comes from.
struct View<'a> {
    title: String,
    options: &'a Top,
    channel: &'a Channel,
    stop: Receiver<()>,
}

impl View<'_> {
    fn openmetrics(&self) -> Result<(), End> {
        if let Reply::Text(text) = self.ask(Request::OpenMetrics)? {
            std::io::stdout().write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn pictures(&self) -> Result<(), End> {
        let term = Term::stdout();
        let is_redrawn = term.is_term() && !self.options.batch && !self.options.json;
        let (mut before, mut at) = (self.snapshot()?, Instant::now());
        let mut is_first = true;
        for _ in 0..self.options.iterations.unwrap_or(u64::MAX) {
            self.pause(self.options.delay)?;
            let (now, took) = (self.snapshot()?, at.elapsed());
            at = Instant::now();
            let interval = now.since(&before);
            let waiting = self.waiting()?;
            before = now;
            if self.options.json {
                return_line(&json!({
                    "seconds": took.as_secs_f64(),
                    "locks": interval,
                    "waiting": waiting,
                }))?;
                continue;
            }
            let (rows, columns) = term.size();
            let screen = Screen {
                title: &self.title,
                interval: &interval,
                took,
                waiting: &waiting,
                is_full: self.options.full,
                shows_sites: self.options.sites,
            };
            if is_redrawn {
                term.clear_screen()?;
                let text = screen.fitting(usize::from(rows) - 1, usize::from(columns));
                term.write_str(&text)?;
            } else {
                let gap = if is_first { "" } else { "\n" };
                write!(std::io::stdout(), "{gap}{screen}")?;
            }
            is_first = false;
        }
        Ok(())
    }

    fn watch(&self) -> Result<(), End> {
        if std::io::stderr().is_terminal() {
            crate::say(format_args!("watching {}; end with Ctrl-C", self.title));
        }
        for _ in 0..self.options.iterations.unwrap_or(u64::MAX) {
            let paused = self.pause(self.options.delay);
            for report in self.reports()? {
                if self.options.json {
                    return_line(&report)?;
                } else {
                    writeln!(std::io::stdout(), "{report}")?;
                }
            }
            paused?;
        }
        Ok(())
    }

    /// Waits; ends when a signal came.
    fn pause(&self, time: Duration) -> Result<(), End> {
        match self.stop.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(End::Done),
        }
    }

    fn ask(&self, request: Request) -> Result<Reply, End> {
        self.channel.meter(request).map_err(End::Gone)
    }

    fn snapshot(&self) -> Result<Snapshot, End> {
        match self.ask(Request::Snapshot)? {
            Reply::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(&other)),
        }
    }

    fn waiting(&self) -> Result<Vec<Queue>, End> {
        match self.ask(Request::Waiting)? {
            Reply::Waiting(queues) => Ok(queues),
            other => Err(unexpected(&other)),
        }
    }

    fn reports(&self) -> Result<Vec<Report>, End> {
        match self.ask(Request::Reports)? {
            Reply::Reports(reports) => Ok(reports),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> End {
    End::Gone(format!("its server answered {reply:?}"))
}

fn return_line(value: &impl serde::Serialize) -> Result<(), End> {
    let mut line = serde_json::to_string(value).map_err(std::io::Error::from)?;
    line.push('\n');
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_positive_numbers() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "two", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}

//! `finefs top`: the locks of a mounted file system at work, like top(1).
//!
//! | Module | Thing |
//! |---|---|
//! | `lease` | what is on in the server meanwhile |
//! | `screen` | one picture of an interval as text: rows per class, the waiters |
//! | `live` | the view on a terminal: its loop |
//! | `terminal` | raw mode, keys, styled lines |
//! | `model` | what the view shows, and what keys do to it |
//! | `columns` | the columns of its table |
//! | `draw` | how it is drawn |

mod columns;
mod draw;
mod lease;
mod live;
mod model;
mod screen;
mod terminal;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use finefs_lockmeter::control::{Reply, Request};
use finefs_lockmeter::{Queue, Report, Snapshot, Wanted};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::channel::{Channel, NoAnswer};
use crate::target::Target;
use crate::{CliResult, Failure};
use lease::{Lease, PATIENCE};
use screen::Screen;
use terminal::{Key, Terminal};

/// Show how the locks of a mounted file system are contended and held, and who waits
///
/// On a terminal this is a view with keys, as top(1): q quits, f counts all acquisitions or only
/// those that waited, s or the left and right arrows (also < and >) choose what the table is sorted
/// by, the up and down arrows (also k and j) scroll, space pauses, h shows all keys. With
/// --iterations, --batch or --json, or into a file or pipe, pictures are printed below each other.
/// Several can look at one mount at a time; what they have the server count and report ends with
/// them.
#[derive(Args)]
pub(crate) struct Top {
    /// The directory that it is mounted at, or the image
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Time between two pictures
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    delay: Duration,
    /// Print so many pictures below each other, and end
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Print pictures below each other, also on a terminal
    #[arg(short, long)]
    batch: bool,
    /// Count all acquisitions while this runs, not only those that had to wait
    #[arg(short, long)]
    full: bool,
    /// With --full, time one in N of the holdings that nobody waited for, at random; 1: all
    /// [default: what the server does, at first 32]
    #[arg(long, value_name = "N", requires = "full", value_parser = clap::value_parser!(u32).range(1..))]
    hold_sampling: Option<u32>,
    /// Show the worst call sites below each class
    #[arg(short, long)]
    sites: bool,
    /// Print what was counted since the server's start as OpenMetrics text, and end; with --full,
    /// what is counted in one --delay from now
    #[arg(long, conflicts_with_all = ["json", "threshold_us", "waiters", "batch"])]
    openmetrics: bool,
    /// Print one JSON object a picture (or report) and line
    #[arg(long)]
    json: bool,
    /// Report each wait and hold that took at least so long, with a backtrace: below the table on a
    /// terminal, else instead of pictures
    #[arg(long, value_name = "MICROSECONDS")]
    threshold_us: Option<u64>,
    /// Report the queue of each lock that more than so many threads wait for, likewise
    #[arg(long, value_name = "N")]
    waiters: Option<usize>,
}

/// Longest time between two pictures, in seconds: a day, which no clock is too small for.
const DELAY_MAX: f64 = 86_400.0;

/// Reads a positive number of seconds, with a fraction if need be.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=DELAY_MAX).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("give a number of seconds, 0.1 to {DELAY_MAX}"))
}

/// Why it ends.
enum End {
    /// As asked, or by a signal.
    Done,
    /// The server has gone; the reason.
    Gone(String),
    /// The server does not answer now: it freezes the file system, say. Only the live view ends its
    /// asking so.
    Late,
    /// Nobody reads any more, or output failed.
    Output(std::io::Error),
}

impl From<NoAnswer> for End {
    fn from(reason: NoAnswer) -> End {
        match reason {
            NoAnswer::Late => End::Late,
            NoAnswer::Gone(reason) => End::Gone(reason),
        }
    }
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> End {
        End::Output(error)
    }
}

/// What happens while it waits.
enum Event {
    /// A signal to end.
    Stop,
    Key(Key),
    /// The terminal has another size.
    Resized,
}

impl Top {
    pub(crate) fn run(self) -> CliResult<()> {
        let target = Target::find(&self.target)?;
        let place = target.place();
        let title = match &target {
            Target::Mount(mount) => format!("{place} ({})", mount.source.to_string_lossy()),
            Target::Served(..) => place.clone(),
        };
        let fail = |reason: String| Failure::new(format!("{place}: {reason}"));
        let channel = target.channel().map_err(fail)?;
        // Caught before anything is switched on.
        let (sender, events) = std::sync::mpsc::channel();
        send_signals(sender.clone()).map_err(|error| fail(error.to_string()))?;
        let mut view = View {
            title,
            options: &self,
            channel: &channel,
            lease: Lease::take(&channel, self.wanted()).map_err(|reason| fail(reason.into()))?,
            has_lapsed: false,
            is_live: false,
            events,
        };
        let end = if self.openmetrics {
            view.openmetrics()
        } else if let Some(terminal) = self.terminal() {
            live::run(&mut view, terminal, sender)
        } else if self.is_watching() {
            view.watch()
        } else {
            view.pictures()
        };
        drop(view);
        match end {
            Ok(()) | Err(End::Done) => Ok(()),
            Err(End::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(End::Output(error)) => Err(Failure::new(format!("standard output: {error}"))),
            Err(End::Late) => Err(fail(NoAnswer::Late.into())),
            Err(End::Gone(reason)) => Err(fail(reason)),
        }
    }

    /// Crossed thresholds are to be reported.
    fn is_watching(&self) -> bool {
        self.threshold_us.is_some() || self.waiters.is_some()
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            is_full: self.full,
            hold_sampling: self.hold_sampling,
            wait_us: self.threshold_us,
            hold_us: self.threshold_us,
            waiters: self.waiters,
        }
    }

    /// The terminal for a view with keys, where it is wanted and can be had.
    fn terminal(&self) -> Option<Terminal> {
        let is_printed = self.batch || self.json || self.iterations.is_some();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if is_printed || is_dumb || !std::io::stdout().is_terminal() {
            return None;
        }
        Terminal::enter().ok()
    }
}

fn send_signals(sender: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGWINCH => Event::Resized,
                    _ => Event::Stop,
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// What is shown, and where it comes from.
struct View<'a> {
    title: String,
    options: &'a Top,
    channel: &'a Channel,
    lease: Lease<'a>,
    /// The lease has had a break (this process or the server was stopped, say): what was counted
    /// since is not all.
    has_lapsed: bool,
    /// It tells the user itself that there is no answer, and asks again.
    is_live: bool,
    events: Receiver<Event>,
}

impl View<'_> {
    fn openmetrics(&mut self) -> Result<(), End> {
        let text = if self.options.full {
            let before = self.snapshot()?;
            self.pause(self.options.delay)?;
            let now = self.snapshot()?;
            if std::mem::take(&mut self.has_lapsed) {
                return Err(End::Gone(
                    "all acquisitions were not counted all the time".into(),
                ));
            }
            now.since(&before).to_openmetrics()
        } else {
            match self.ask(Request::OpenMetrics)? {
                Reply::Text(text) => text,
                other => return Err(unexpected(&other)),
            }
        };
        Ok(std::io::stdout().write_all(text.as_bytes())?)
    }

    fn pictures(&mut self) -> Result<(), End> {
        let (mut before, mut at) = (self.snapshot()?, Instant::now());
        let mut shown = 0;
        while self.options.iterations.is_none_or(|most| shown < most) {
            self.pause(self.options.delay)?;
            let (now, took) = (self.snapshot()?, at.elapsed());
            at = Instant::now();
            let interval = now.since(&before);
            let waiting = self.waiting()?;
            before = now;
            if std::mem::take(&mut self.has_lapsed) {
                continue;
            }
            shown += 1;
            if self.options.json {
                return_line(&json!({
                    "seconds": took.as_secs_f64(),
                    "locks": interval,
                    "waiting": waiting,
                }))?;
                continue;
            }
            let screen = Screen {
                title: &self.title,
                interval: &interval,
                took,
                waiting: &waiting,
                is_full: self.options.full,
                shows_sites: self.options.sites,
            };
            let gap = if shown == 1 { "" } else { "\n" };
            write!(std::io::stdout(), "{gap}{screen}")?;
        }
        Ok(())
    }

    fn watch(&mut self) -> Result<(), End> {
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
    fn pause(&mut self, time: Duration) -> Result<(), End> {
        let until = Instant::now() + time;
        while let Some(event) = self.event(until)? {
            if matches!(event, Event::Stop) {
                return Err(End::Done);
            }
        }
        Ok(())
    }

    /// What happens next, if it does by then. Meanwhile the lease is renewed.
    fn event(&mut self, until: Instant) -> Result<Option<Event>, End> {
        loop {
            let wake = until.min(self.lease.due());
            let time = wake.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(time) {
                Ok(event) => return Ok(Some(event)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Some(Event::Stop)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.lease.due() <= Instant::now() {
                match self.lease.renew() {
                    Err(NoAnswer::Late) if !self.is_live => self.has_lapsed = true,
                    renewed => self.has_lapsed |= !renewed?,
                }
            }
            if until <= Instant::now() {
                return Ok(None);
            }
        }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, End> {
        loop {
            match self.channel.meter_within(request.clone(), PATIENCE) {
                Err(NoAnswer::Late) if !self.is_live => {}
                reply => return Ok(reply?),
            }
            self.has_lapsed = true;
            let event = self.events.recv_timeout(Duration::from_secs(1));
            if matches!(event, Ok(Event::Stop)) {
                return Err(End::Done);
            }
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, End> {
        match self.ask(Request::Snapshot)? {
            Reply::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(&other)),
        }
    }

    fn waiting(&mut self) -> Result<Vec<Queue>, End> {
        match self.ask(Request::Waiting)? {
            Reply::Waiting(queues) => Ok(queues),
            other => Err(unexpected(&other)),
        }
    }

    fn reports(&mut self) -> Result<Vec<Report>, End> {
        match self.ask(self.lease.reports())? {
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
        assert_eq!(seconds("86400"), Ok(Duration::from_secs(86_400)));
        for bad in ["0", "-1", "NaN", "inf", "two", "1e19", "1e300"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}

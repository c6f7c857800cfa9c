//! The live view: its loop, and how it enters and leaves the terminal.
//!
//! The terminal is in raw mode and on its alternate screen from [`Terminal::enter`] until the [`Terminal`] is dropped,
//! whatever the reason: a key, a signal (which is an event of the loop), a mount that has gone, an error of the
//! terminal itself. A panic, of any thread, restores it before it prints its message.

use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event;

use super::draw::draw;
use super::model::{Model, Picture, Wish};
use super::{End, Event, View};
use finefs_lockmeter::Snapshot;

/// So long after there was no answer it is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// The terminal while it is ours.
pub(super) struct Terminal(Option<DefaultTerminal>);

impl Terminal {
    pub(super) fn enter() -> io::Result<Terminal> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Terminal(Some(terminal))),
            Err(error) => {
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }

    fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        if let Some(terminal) = &mut self.0 {
            terminal.draw(|frame| draw(frame, model))?;
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The hook has done so before the message, over which a second time might put the cursor.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
        let Some(mut terminal) = self.0.take() else {
            return;
        };
        if terminal.show_cursor().is_err() {
            // It has hung up. Dropped, it would tell so on stderr, which has gone as well.
            std::mem::forget(terminal);
        }
    }
}

/// Sends keys and changes of the size, until nobody listens or the terminal cannot be read any more. Then the view is
/// to end: in raw mode not even Ctrl-C would be a signal.
fn send_input(sender: &Sender<Event>) {
    while let Ok(input) = event::read() {
        let event = match input {
            event::Event::Key(key) => Event::Key(key),
            event::Event::Resize(..) => Event::Resized,
            _ => continue,
        };
        if sender.send(event).is_err() {
            return;
        }
    }
    let _ = sender.send(Event::Stop);
}

/// Counts since then.
struct Interval {
    before: Snapshot,
    begin: Instant,
}

impl Interval {
    fn begin(view: &mut View<'_>) -> Result<Interval, End> {
        Ok(Interval {
            before: view.snapshot()?,
            begin: Instant::now(),
        })
    }
}

/// Shows the view until it is to end.
pub(super) fn run(
    view: &mut View<'_>,
    mut terminal: Terminal,
    sender: Sender<Event>,
) -> Result<(), End> {
    let thread = std::thread::Builder::new().name("input".into());
    thread.spawn(move || send_input(&sender))?;
    let mut model = Model::new(view.title.clone(), view.options.delay);
    model.is_full = view.options.full;
    model.is_watching = view.options.is_watching();
    model.shows_sites = view.options.sites;
    view.is_live = true;
    let mut interval = None;
    loop {
        terminal.draw(&mut model)?;
        match step(view, &mut model, &mut interval) {
            Err(End::Done) => return Ok(()),
            Err(End::Late) => {
                model.is_unanswered = true;
                interval = None;
            }
            stepped => stepped?,
        }
    }
}

/// Waits for what happens next, and does what is to be done then. There is no interval at first, and after a time
/// without answers.
fn step(
    view: &mut View<'_>,
    model: &mut Model,
    interval: &mut Option<Interval>,
) -> Result<(), End> {
    let until = match interval {
        Some(interval) => interval.begin + model.delay,
        None if model.is_unanswered => Instant::now() + RETRY,
        None => Instant::now(),
    };
    match view.event(until)? {
        Some(Event::Stop) => return Err(End::Done),
        Some(Event::Resized) => {}
        Some(Event::Key(key)) => match model.press(key) {
            Wish::Nothing => {}
            Wish::Quit => return Err(End::Done),
            Wish::ToggleFull => {
                model.is_full = !model.is_full;
                let mut wanted = view.lease.wanted();
                wanted.is_full = model.is_full;
                view.lease.change(wanted)?;
                *interval = Some(Interval::begin(view)?);
            }
            Wish::TogglePause => {
                model.is_paused = !model.is_paused;
                *interval = Some(Interval::begin(view)?);
            }
        },
        None => {
            let has_lapsed = std::mem::take(&mut view.has_lapsed);
            let whole = interval
                .as_ref()
                .filter(|_| !model.is_paused && !has_lapsed);
            *interval = Some(match whole {
                Some(interval) => next(view, model, interval)?,
                None => Interval::begin(view)?,
            });
            model.is_unanswered = false;
        }
    }
    Ok(())
}

/// Puts what was counted into the model; the next interval.
fn next(view: &mut View<'_>, model: &mut Model, interval: &Interval) -> Result<Interval, End> {
    let took = interval.begin.elapsed();
    let next = Interval::begin(view)?;
    model.picture = Some(Picture {
        interval: next.before.since(&interval.before),
        took,
        waiting: view.waiting()?,
        is_full: model.is_full,
    });
    if model.is_watching {
        model.add_reports(view.reports()?);
    }
    Ok(next)
}

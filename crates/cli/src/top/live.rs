//! The live view: its loop.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::draw::draw;
use super::model::{Model, Picture, Wish};
use super::terminal::{Keys, Terminal};
use super::{End, Event, View};
use finefs_lockmeter::Snapshot;

/// So long after there was no answer it is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Sends keys until nobody listens or the terminal cannot be read any more. Then the view is to
/// end: in raw mode not even Ctrl-C would be a signal.
fn send_keys(keys: Keys, sender: &Sender<Event>) {
    for key in keys {
        if sender.send(Event::Key(key)).is_err() {
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
    let keys = Keys::new()?;
    thread.spawn(move || send_keys(keys, &sender))?;
    let mut model = Model::new(view.title.clone(), view.options.delay);
    model.is_full = view.options.full;
    model.is_watching = view.options.is_watching();
    model.shows_sites = view.options.sites;
    view.is_live = true;
    let mut interval = None;
    loop {
        let (width, height) = terminal.size();
        terminal.show(&draw(&mut model, width, height))?;
        match step(view, &mut terminal, &mut model, &mut interval) {
            Err(End::Done) => return Ok(()),
            Err(End::Late) => {
                model.is_unanswered = true;
                interval = None;
            }
            stepped => stepped?,
        }
    }
}

/// Waits for what happens next, and does what is to be done then. There is no interval at first,
/// and after a time without answers.
fn step(
    view: &mut View<'_>,
    terminal: &mut Terminal,
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
        Some(Event::Resized) => terminal.forget(),
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

//! What cp and mv share: running a copy with progress, and what could not be done.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use finefs_image::Error;
use finefs_image::copy::{self, Observer, Options, Progress, Task, Totals, measure};
use finefs_image::tree::{Room, SourceDir};

use super::session::{Session, print_line};
use super::{stop, text};
use crate::file_limit::raise_file_limit;
use crate::output::{ask, say};
use crate::progress::{self, Companion, Step};
use crate::{CliResult, Failure};

/// A copy: how, and how it goes.
pub(super) struct Copying {
    options: Options,
    is_verbose: bool,
    progress: Arc<Progress>,
    output_failed: AtomicBool,
}

impl Copying {
    pub fn new(options: Options, is_verbose: bool) -> Copying {
        Copying {
            options,
            is_verbose,
            progress: Arc::new(Progress::default()),
            output_failed: AtomicBool::new(false),
        }
    }

    /// True if everything was copied with all its attributes.
    pub fn is_complete(&self) -> bool {
        self.progress.is_complete()
    }

    /// Copies the tasks; what fails is said, and noted in the session.
    pub fn run(&self, session: &mut Session, tasks: Vec<Task>) -> CliResult<()> {
        let Some(sink) = tasks.first().map(|task| Arc::clone(&task.sink)) else {
            return Ok(());
        };
        let stop = stop::watch_signals()?;
        // Directories on the way to a deep file are open.
        raise_file_limit();
        let sources: Vec<Source> = tasks
            .iter()
            .map(|task| (Arc::clone(&task.source), task.name.clone()))
            .collect();
        let room = sink.room();
        {
            let _link = StopLink::start(stop, Arc::clone(&self.progress));
            let _bar = bar(&self.progress, &sources, &self.options);
            copy::run(tasks, &self.options, self, &self.progress);
        }
        self.tell(session, &sources, room);
        Ok(())
    }

    /// What could not be done, in a line each.
    fn tell(&self, session: &mut Session, sources: &[Source], room: Option<Room>) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if self.progress.is_full.load(Ordering::Relaxed)
            && let Some(room) = room
            && let Some(line) = self.missing(sources, room)
        {
            session.fail(line);
        }
        if count(&self.progress.failures) > 0 {
            session.fail_silently();
        }
        for (number, what) in [
            (
                count(&self.progress.owners_lacking),
                "owners could not be set",
            ),
            (
                count(&self.progress.xattrs_lacking),
                "files lack extended attributes that could not be set",
            ),
            (
                count(&self.progress.nodes_lacking),
                "device nodes and the like could not be made",
            ),
        ] {
            if number > 0 {
                let line = format!("{number} {what}: not permitted here, or not supported");
                session.fail(line);
            }
        }
        let seals = count(&self.progress.seals_lost);
        if seals > 0 {
            say(format!(
                "{seals} files were sealed (fs-verity); their copies are not"
            ));
        }
        if self.progress.stop.load(Ordering::Relaxed) {
            session.fail_with(
                stop::INTERRUPTED,
                "interrupted; what is not whole was removed",
            );
        }
    }

    /// By how much the image was too small from the start, as far as data tells it.
    fn missing(&self, sources: &[Source], room: Room) -> Option<String> {
        let totals = total(sources, &self.options, room.block_bytes, &|| true);
        let files = totals.files.saturating_sub(room.free_inodes);
        if files > 0 {
            return Some(format!("the image lacks {files} inodes"));
        }
        let bytes = totals.block_bytes.saturating_sub(room.free_bytes);
        let shown = text::human(bytes);
        (bytes > 0).then(|| format!("the image lacks at least {shown} ({bytes} bytes)"))
    }
}

/// Why a source of several stays where it is, as cp(1) and mv(1) say it.
pub(super) fn just_made(from: &str, to: &str) -> Error {
    let line = format!("will not overwrite just-created '{to}' with '{from}'");
    Error::new("", line)
}

/// Ends a command that copied.
pub(super) fn end(session: Session, copying: &Copying) -> CliResult<ExitCode> {
    let code = session.end()?;
    match copying.output_failed.load(Ordering::Relaxed) {
        true => Err(Failure::new("standard output cannot be written")),
        false => Ok(code),
    }
}

impl Observer for Copying {
    fn failed(&self, error: &Error) {
        say(error);
    }

    fn may_replace(&self, to: &str) -> bool {
        ask(&format!("overwrite '{to}'?"))
    }

    fn copied(&self, from: &dyn Fn() -> OsString, to: &dyn Fn() -> OsString) {
        let line = || {
            let (from, to) = (from(), to());
            let (from, to) = (from.as_encoded_bytes(), to.as_encoded_bytes());
            [b"'", from, b"' -> '", to, b"'"].concat()
        };
        if self.is_verbose && print_line(&line()).is_err() {
            self.output_failed.store(true, Ordering::Relaxed);
        }
    }
}

/// A source's directory and its name there.
type Source = (Arc<dyn SourceDir>, OsString);

fn total(sources: &[Source], options: &Options, block: u64, go_on: &dyn Fn() -> bool) -> Totals {
    let mut all = Totals::default();
    for (dir, name) in sources {
        let one = measure(dir, name, options, block, go_on);
        all.files += one.files;
        all.bytes += one.bytes;
        all.block_bytes += one.block_bytes;
    }
    all
}

/// Bits that new files lack: this process's on the host; in an image, whose superuser the caller
/// is, always the same.
pub(super) fn umask(is_into_image: bool) -> u32 {
    const OF_IMAGES: u32 = 0o022;
    match is_into_image {
        true => OF_IMAGES,
        false => finefs::process_caller().map_or(OF_IMAGES, |caller| caller.umask),
    }
}

/// Threads if nothing is said.
pub(crate) fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(8))
}

/// Passes a signal's flag on to a copy.
struct StopLink;

impl StopLink {
    fn start(flag: Arc<AtomicBool>, progress: Arc<Progress>) -> Companion {
        const TICK: Duration = Duration::from_millis(20);
        Companion::start(move |end| {
            while !end.comes_within(TICK) {
                if flag.load(Ordering::Relaxed) {
                    progress.stop.store(true, Ordering::Relaxed);
                }
            }
        })
    }
}

/// Shows how far a copy is.
fn bar(progress: &Arc<Progress>, sources: &[Source], options: &Options) -> Option<Companion> {
    let (progress, sources) = (Arc::clone(progress), sources.to_vec());
    let options = options.clone();
    progress::bar_after(move |end| {
        // Counting takes a while too, and is for this line only.
        let is_over = AtomicBool::new(false);
        let totals = total(&sources, &options, 4096, &|| {
            if end.comes_within(Duration::ZERO) {
                is_over.store(true, Ordering::Relaxed);
            }
            !is_over.load(Ordering::Relaxed)
        });
        (!is_over.load(Ordering::Relaxed)).then_some(move || Step {
            message: format!(
                "{} of {} files",
                progress.files.load(Ordering::Relaxed),
                totals.files
            ),
            bytes: progress.bytes.load(Ordering::Relaxed),
            bytes_all: totals.bytes,
        })
    })
}

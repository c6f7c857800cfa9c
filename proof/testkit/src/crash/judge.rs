//! One crash state: recovered, walked, judged by the oracle, and by fsck too.
//!
//! # Steps
//! With a journal, the image is opened, which recovers it, and read. A share of the states goes on:
//! a file and a directory are made on what was recovered, it is closed, and fsck must be content;
//! fsck recovers a copy by its own means, must be content then, and its tree is judged like ours;
//! and the recovery itself crashes, which must change nothing. Without a journal every state is
//! repaired by `e2fsck -fy` first.
//!
//! # Invariants
//! 1. A state is recovered once in a workload, however often the record leads to it; each time it
//!    is judged by what was synced then.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_harness::cleanup::{IN_MEMORY, SHARED_MEMORY};
use finefs_sim::{Epoch, Image, ImageDevice, Limits, Recorded, RecordingDevice, Request};
use tempfile::TempDir;

use super::base::{Base, Opened, open, open_recorded};
use super::fsck;
use super::mix;
use super::oracle::{History, Synced, Window, Wrong};
use super::report::{Kind, Report, Violation};
use super::shared_log;
use super::step::Step;
use super::tree::Tree;

/// How much is tried.
#[derive(Clone, Debug)]
pub struct Effort {
    /// States of each epoch.
    pub limits: Limits,
    /// One of so many states goes through fsck; 0 is none.
    pub fsck_one_in: u64,
    /// One of so many states has its recovery crash; 0 is none.
    pub recovery_one_in: u64,
    /// Epochs of one record that are tried; the others are left out by chance.
    pub epochs: usize,
}

const BEGUN: u64 = 1 << 40;
const FILES: u64 = 1 << 41;
const WHOLE: u64 = 1 << 42;
const COUNT: u64 = BEGUN - 1;

/// The marker that a thread's operation begins, before which there were `count`.
pub fn begun(thread: usize, count: usize) -> u64 {
    (thread as u64) << 48 | BEGUN | count as u64
}

/// Marks that so much of a thread's is synced.
pub fn mark_synced(device: &RecordingDevice, thread: usize, synced: Synced) {
    let of_thread = (thread as u64) << 48;
    device.mark(of_thread | synced.operations as u64);
    device.mark(of_thread | FILES | synced.files as u64);
    device.mark(of_thread | WHOLE | synced.whole as u64);
}

/// What the markers up to a place of the record say, for each thread.
fn windows(requests: &[Request], threads: usize) -> Vec<Window> {
    let mut windows = vec![
        Window {
            synced: 0,
            begun: 0,
            whole: 0,
            files: 0,
        };
        threads
    ];
    for request in requests {
        if let Request::Marker(marker) = request {
            let window = &mut windows[(marker >> 48) as usize];
            let count = (marker & COUNT) as usize;
            match marker & (BEGUN | FILES | WHOLE) {
                0 => window.synced = window.synced.max(count),
                FILES => window.files = window.files.max(count),
                WHOLE => window.whole = window.whole.max(count),
                _ => window.begun = window.begun.max(count + 1),
            }
        }
    }
    windows
}

/// What the recovery of a state gave.
struct Outcome {
    /// Ours, or the reason why there is none.
    tree: Result<Tree, Violation>,
    /// By fsck, where it was asked.
    by_fsck: Option<Result<Tree, Violation>>,
    /// What else was wrong.
    others: Vec<Violation>,
}

/// Judges the states of one record.
pub struct Judge<'a> {
    base: &'a Base,
    effort: Effort,
    seed: u64,
    scratch: TempDir,
    outcomes: HashMap<u64, Outcome>,
    /// What was tried.
    pub report: Report,
}

impl<'a> Judge<'a> {
    /// Ready for a record of a device that began with the base's image.
    pub fn new(base: &'a Base, effort: Effort, seed: u64) -> Result<Judge<'a>, String> {
        Ok(Judge {
            base,
            effort,
            seed,
            scratch: scratch().map_err(|error| error.to_string())?,
            outcomes: HashMap::new(),
            report: Report::default(),
        })
    }

    /// Judges all states of a record against the threads' histories. `name` says what ran.
    pub fn record(&mut self, recorded: &Recorded, histories: &[History], name: &str) {
        self.report.workloads += 1;
        let epochs = recorded.epochs();
        let count = epochs.len() as u64;
        for (number, epoch) in epochs.iter().enumerate() {
            let draw = mix(self.seed ^ mix(number as u64)) % count.max(1);
            if draw >= self.effort.epochs as u64 {
                continue;
            }
            self.report.epochs += 1;
            let windows = windows(&recorded.requests[..epoch.requests.end], histories.len());
            let seed = mix(self.seed ^ number as u64);
            for choice in epoch.choices(&self.effort.limits, seed) {
                self.report.states += 1;
                let image = epoch.image(&choice);
                let wrong = self.state(&image, histories, &windows);
                for mut violation in wrong {
                    violation.text = format!(
                        "{name}\n  epoch {number} of {count}, {}\n  {windows:?}\n  {}",
                        epoch.describe(&choice),
                        violation.text
                    );
                    self.report.violation(violation);
                }
            }
            // What later epochs can have again, they have at once after this one.
            self.outcomes.retain(|_, outcome| outcome.tree.is_ok());
            if self.outcomes.len() > 500 {
                self.outcomes.clear();
            }
        }
    }

    fn state(
        &mut self,
        image: &Image,
        histories: &[History],
        windows: &[Window],
    ) -> Vec<Violation> {
        let key = image.fingerprint();
        let mut wrong = Vec::new();
        if !self.outcomes.contains_key(&key) {
            self.report.distinct += 1;
            let mut outcome = self.recover(image);
            wrong.append(&mut outcome.others);
            self.outcomes.insert(key, outcome);
        }
        let outcome = &self.outcomes[&key];
        let is_journaled = self.base.profile.is_journaled;
        let trees = [
            ("", Some(&outcome.tree)),
            ("by fsck: ", outcome.by_fsck.as_ref()),
        ];
        for (by, tree) in trees {
            match tree {
                None => {}
                Some(Err(violation)) => wrong.push(violation.clone()),
                Some(Ok(tree)) => {
                    for (history, window) in histories.iter().zip(windows) {
                        let verdict = match is_journaled {
                            true => history.judge(tree, *window),
                            false => history.judge_repaired(tree, *window),
                        };
                        let (kind, text) = match verdict {
                            Ok(()) => continue,
                            Err(Wrong::Tree(text)) => (Kind::Tree, text),
                            Err(Wrong::Data(text)) => (Kind::Data, text),
                        };
                        let text = format!("{by}{text}");
                        wrong.push(Violation { kind, text });
                    }
                    if histories.iter().any(|history| history.appended() > 0)
                        && let Err(text) =
                            shared_log::judge(tree, histories, windows, !is_journaled)
                    {
                        wrong.push(Violation {
                            kind: Kind::Data,
                            text: format!("{by}{text}"),
                        });
                    }
                }
            }
        }
        wrong
    }

    /// Chance by the number of the state, not by its bytes: times are among them.
    fn is_one_in(&self, count: u64, salt: u64) -> bool {
        count > 0 && mix(mix(self.report.states) ^ self.seed ^ salt).is_multiple_of(count)
    }

    fn recover(&mut self, image: &Image) -> Outcome {
        let mut outcome = Outcome {
            tree: Err(Violation {
                kind: Kind::Unreadable,
                text: String::new(),
            }),
            by_fsck: None,
            others: Vec::new(),
        };
        let one_in = self.effort.fsck_one_in;
        if !self.base.profile.is_journaled {
            self.report.by_fsck += 1;
            outcome.tree = self.repaired(image);
            return outcome;
        }
        let by_fsck = self.is_one_in(one_in, 1);
        let device = Arc::new(ImageDevice::new(image.clone()));
        let scratch = self.scratch.path();
        outcome.tree = caught(Kind::Unreadable, || {
            let (opened, tree) = read(self.base, device.clone())?;
            if by_fsck && let Err(violation) = use_and_close(self.base, opened, &device, scratch) {
                outcome.others.push(violation);
            }
            Ok(tree)
        });
        if by_fsck {
            self.report.by_fsck += 1;
            outcome.by_fsck = Some(self.repaired(image));
        }
        if let Ok(tree) = &outcome.tree
            && self.is_one_in(self.effort.recovery_one_in, 2)
        {
            let (count, wrong) =
                crash_recovery(self.base, image, tree, &self.effort.limits, self.seed);
            self.report.during_recovery += count;
            outcome.others.extend(wrong);
        }
        outcome
    }

    /// The tree after fsck recovered or repaired a copy.
    fn repaired(&self, image: &Image) -> Result<Tree, Violation> {
        let path = self.scratch.path().join("repaired");
        let fsck = |text: String| Violation {
            kind: Kind::Fsck,
            text,
        };
        std::fs::write(&path, image.to_bytes()).map_err(|error| fsck(error.to_string()))?;
        let profile = &self.base.profile;
        fsck::recover(profile.format, &path, profile.is_journaled).map_err(fsck)?;
        let bytes = std::fs::read(&path).map_err(|error| fsck(error.to_string()))?;
        caught(Kind::Unreadable, || {
            let device = Arc::new(ImageDevice::new(Image::from_bytes(&bytes)));
            read(self.base, device).map(|(_, tree)| tree)
        })
        .map_err(|violation| Violation {
            text: format!("after fsck: {}", violation.text),
            ..violation
        })
    }
}

/// In memory where there is such a place: fsck waits for the disk.
fn scratch() -> std::io::Result<TempDir> {
    let memory = std::env::var_os(IN_MEMORY).unwrap_or_else(|| SHARED_MEMORY.into());
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir())
}

/// Opens and reads everything; what is used and what is free must add up.
fn read(base: &Base, device: Arc<dyn BlockDevice>) -> Result<(Opened, Tree), Violation> {
    let unreadable = |text| Violation {
        kind: Kind::Unreadable,
        text,
    };
    let opened = open(base.profile.format, device).map_err(unreadable)?;
    let tree = Tree::read(&opened).map_err(unreadable)?;
    // Without a journal a repair may have put what it found into lost+found: e2fsck counted it.
    if base.profile.is_journaled
        && let Some(totals) = base.totals
        && tree.totals != totals
    {
        return Err(Violation {
            kind: Kind::Leak,
            text: format!("free and used are {:?}, not {totals:?}", tree.totals),
        });
    }
    Ok((opened, tree))
}

/// Goes on with a recovered image, closes it, and asks fsck.
fn use_and_close(
    base: &Base,
    opened: Opened,
    device: &ImageDevice,
    scratch: &Path,
) -> Result<(), Violation> {
    let name = |last: &str| format!("after the crash {last}");
    let steps = [
        Step::MakeDirectory(name("d")),
        Step::Create(name("f")),
        Step::Write {
            at: name("f"),
            offset: 0,
            length: 20_000,
            fill: 1,
        },
    ];
    let fsck = |text: String| Violation {
        kind: Kind::Fsck,
        text,
    };
    for step in &steps {
        let done = step.on_namespace(&opened.ns);
        done.map_err(|error| fsck(format!("{step:?} on the recovered image: {error}")))?;
    }
    let closed = opened.ns.shut_down();
    closed.map_err(|error| fsck(format!("closing the recovered image: {error}")))?;
    drop(opened);
    let path = scratch.join("recovered");
    std::fs::write(&path, device.to_bytes()).map_err(|error| fsck(error.to_string()))?;
    fsck::expect_clean(base.profile.format, &path).map_err(fsck)
}

/// Crashes in the middle of the recovery; a second one must give the same tree.
fn crash_recovery(
    base: &Base,
    image: &Image,
    tree: &Tree,
    limits: &Limits,
    seed: u64,
) -> (u64, Vec<Violation>) {
    let limits = Limits {
        exhaustive_writes: 3,
        states: 6,
        ..limits.clone()
    };
    let device = Arc::new(RecordingDevice::over(image.clone()));
    let mut wrong = Vec::new();
    let mut count = 0;
    if let Err(violation) = caught(Kind::Recovery, || {
        let opened = open_recorded(base.profile.format, &device).map_err(|text| Violation {
            kind: Kind::Recovery,
            text,
        })?;
        drop(opened);
        Ok(())
    }) {
        return (0, vec![violation]);
    }
    let epochs: Vec<Epoch> = device.take_recorded().epochs();
    for (number, epoch) in epochs.iter().enumerate() {
        for choice in epoch.choices(&limits, seed ^ number as u64) {
            count += 1;
            let image = epoch.image(&choice);
            let again = caught(Kind::Recovery, || {
                read(base, Arc::new(ImageDevice::new(image))).map(|(_, tree)| tree)
            });
            let text = match again {
                Ok(again) if is_alike(&again, tree) => continue,
                Ok(_) => "another tree".to_owned(),
                Err(violation) => violation.text,
            };
            wrong.push(Violation {
                kind: Kind::Recovery,
                text: format!(
                    "crash in epoch {number} of the recovery, {}: {text}",
                    epoch.describe(&choice)
                ),
            });
        }
    }
    (count, wrong)
}

/// The same names, attributes and contents; times and the space used may differ.
fn is_alike(one: &Tree, other: &Tree) -> bool {
    one.names == other.names
        && one.inodes.iter().all(|(ino, found)| {
            other.inodes.get(ino).is_some_and(|other| {
                found.data == other.data
                    && found.xattrs == other.xattrs
                    && found.attributes.size_bytes == other.attributes.size_bytes
                    && found.attributes.permissions == other.attributes.permissions
                    && found.attributes.link_count == other.attributes.link_count
            })
        })
}

/// Runs something; a panic is a violation.
fn caught<T>(kind: Kind, run: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(panic.downcast_ref::<&str>().copied());
        Err(Violation {
            kind,
            text: format!("panic: {}", text.unwrap_or("?")),
        })
    })
}

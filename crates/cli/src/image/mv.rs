//! `finefs mv`

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use finefs_image::address::split_path;
use finefs_image::copy::{Existing, Links, Options, Preserve, Sparse};
use finefs_image::tree::{Follow, SinkDir};
use finefs_image::{Access, Address, Attributes, Error, Operand};

use super::Where;
use super::copying::{self, Copying};
use super::cp::Update;
use super::destination::Destination;
use super::make::place_for;
use super::session::{At, Context, Session, print_line};
use crate::CliResult;
use crate::output::ask;

/// Move or rename files of an image, or move them into one or out of it, as mv(1)
///
/// Within an image a move is one step. Else it is a copy with all attributes; the source is removed
/// when everything has been copied and is on the disk.
#[derive(Args)]
#[command(override_usage = "finefs mv [OPTIONS] SOURCE... DEST\n       \
                            finefs mv [OPTIONS] -t DIR SOURCE...")]
pub(crate) struct Mv {
    /// IMAGE:/PATH, or a path of the host
    #[arg(value_name = "SOURCE", required = true)]
    operands: Vec<OsString>,
    /// Leave files that are there
    #[arg(short, long, overrides_with_all = ["force", "interactive"])]
    no_clobber: bool,
    /// Ask before a file that is there is replaced
    #[arg(short, long, overrides_with_all = ["force", "no_clobber"])]
    interactive: bool,
    /// Replace files that are there, as without it
    #[arg(short, long, overrides_with_all = ["no_clobber", "interactive"])]
    force: bool,
    /// Replace files only by newer ones; or which: all, none, older
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older")]
    update: Option<Update>,
    /// The directory to move into
    #[arg(short, long, value_name = "DIR")]
    target_directory: Option<OsString>,
    /// DEST is the new name, not a directory for it
    #[arg(short = 'T', long, conflicts_with = "target_directory")]
    no_target_directory: bool,
    /// Say what is moved
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    place: Where,
}

impl Mv {
    pub(crate) fn run(mut self, context: &mut Context) -> CliResult<ExitCode> {
        let mut session = Session::new(context, "finefs mv", &self.place);
        let has_directory = self.target_directory.is_some();
        let operands = std::mem::take(&mut self.operands);
        let named = session.sources_and_destination(operands, self.target_directory.take());
        let Some((sources, last)) = named else {
            return session.end();
        };
        let to = session.operand(&last);
        let sources = session.expanded(&sources, Access::Write);
        let sources: Vec<Operand> = sources.iter().map(|text| session.operand(text)).collect();
        // All are opened to be written before anything is done.
        let images = sources
            .iter()
            .chain([&to])
            .filter_map(|operand| match operand {
                Operand::Image(address) => Some(address),
                _ => None,
            });
        let mut count = 0;
        for address in images {
            count += 1;
            if let Err(error) = session.images.open(address, Access::Write) {
                session.fail(error);
                return session.end();
            }
        }
        if count == 0 {
            session.fail("no operand is in an image; write IMAGE:/PATH, or use mv");
            return session.end();
        }
        let mut done = Done::default();
        for source in &sources {
            if done.has_copied(source) {
                done.remove_sources(&mut session);
            }
            let is_several = sources.len() > 1 || has_directory;
            let moved = self.move_one(&mut session, source, &to, is_several, &mut done);
            session.check(moved);
        }
        done.remove_sources(&mut session);
        session.end()
    }

    fn move_one(
        &self,
        session: &mut Session,
        source: &Operand,
        to: &Operand,
        is_several: bool,
        done: &mut Done,
    ) -> finefs_image::Result<()> {
        match (source, to) {
            (Operand::Image(from), Operand::Image(to)) if from.image == to.image => {
                self.rename(session, from, to, is_several, &mut done.made)
            }
            (Operand::Standard, _) | (_, Operand::Standard) => {
                Err(Error::new("-", "cannot be moved"))
            }
            _ => self.copy(session, source, to, is_several, done),
        }
    }

    /// Whether what is there gives way.
    fn may_replace(&self, source: &Attributes, existing: &Attributes, shown: &str) -> bool {
        match self.update {
            _ if self.no_clobber => false,
            Some(Update::None) => false,
            Some(Update::Older) if existing.modified >= source.modified => false,
            _ => !self.interactive || ask(&format!("overwrite '{shown}'?")),
        }
    }

    fn rename(
        &self,
        session: &mut Session,
        from: &Address,
        to: &Address,
        is_several: bool,
        made: &mut Made,
    ) -> finefs_image::Result<()> {
        let fs = session.images.open(from, Access::Write)?;
        let at = |address: &Address| At {
            fs: fs.clone(),
            address: address.clone(),
        };
        let (from, to) = (at(from), at(to));
        let (_, name) = split_path(from.path());
        if name == "." {
            return Err(from.refused("the root, . and .. are not moved"));
        }
        let place = place_for(&to, &name, !self.no_target_directory);
        if is_several && place.path() == to.path() {
            return Err(to.refused("is no directory"));
        }
        let source = from.told(fs.symlink_metadata(from.path()))?;
        let source = Attributes::inside(&source, 0);
        let existing = fs.symlink_metadata(place.path()).ok();
        let existing = existing.map(|found| Attributes::inside(&found, 0));
        if let Some(existing) = &existing {
            if existing.ino == source.ino {
                let line = format!("{} and {} are the same file", from.address, place.address);
                return Err(Error::new("", line));
            }
            match (source.is_directory(), existing.is_directory()) {
                (true, false) => {
                    return Err(place.refused("is no directory, and would be replaced by one"));
                }
                (false, true) => {
                    return Err(place.refused("is a directory, and would be replaced by a file"));
                }
                _ => {}
            }
            if !self.may_replace(&source, existing, &place.address.to_string()) {
                return Ok(());
            }
            made.check(
                existing,
                &from.address.to_string(),
                &place.address.to_string(),
            )?;
        }
        from.told(fs.rename(from.path(), place.path()))?;
        made.0.insert(source.ino);
        if self.verbose {
            let line = format!("renamed '{}' -> '{}'", from.address, place.address);
            print_line(line.as_bytes()).map_err(Error::from)?;
        }
        Ok(())
    }

    /// Copies a source. It is removed when the copy is durable.
    fn copy(
        &self,
        session: &mut Session,
        source: &Operand,
        to: &Operand,
        is_several: bool,
        done: &mut Done,
    ) -> finefs_image::Result<()> {
        let destination = Destination::find(session, to, !self.no_target_directory)?;
        if is_several && !destination.is_directory() {
            return Err(Error::new("", "the destination is no directory"));
        }
        let options = Options {
            is_recursive: true,
            preserve: Preserve::ALL,
            links: Links::Kept,
            sparse: Sparse::Kept,
            existing: Existing::Replaced,
            removes_existing: true,
            replaces_directories: true,
            umask: 0,
            jobs: copying::jobs(),
            ..Options::default()
        };
        let task = destination.task(session, source, &options)?;
        if task.name == "." {
            return Err(Error::new("", "the root, . and .. are not moved"));
        }
        if let Some(existing) = task.sink.find(&task.to)? {
            let source = task.source.attributes(&task.name, Follow::No)?;
            let (from, to) = (task.source.shown(&task.name), task.sink.shown(&task.to));
            if !self.may_replace(&source, &existing, &to) {
                return Ok(());
            }
            done.made.check(&existing, &from, &to)?;
        }
        let copying = Copying::new(options, self.verbose);
        let (sink, name) = (Arc::clone(&task.sink), task.to.clone());
        copying.run(session, vec![task])?;
        match copying.is_complete() {
            true => {
                done.made.0.extend(sink.find(&name)?.map(|found| found.ino));
                done.copied.push(source.clone());
                done.sink = Some(sink);
                Ok(())
            }
            false => Err(Error::new(
                "",
                "the source stays, since not all of it was copied",
            )),
        }
    }
}

/// What a command has done so far.
#[derive(Default)]
struct Done {
    made: Made,
    /// Sources that were copied and are still there.
    copied: Vec<Operand>,
    /// Where they were copied to.
    sink: Option<Arc<dyn SinkDir>>,
}

impl Done {
    /// True for what was copied, and for what lies in that.
    fn has_copied(&self, source: &Operand) -> bool {
        self.copied.iter().any(|copied| match (copied, source) {
            (Operand::Image(copied), Operand::Image(source)) => {
                copied.image == source.image && source.path.starts_with(&copied.path)
            }
            (Operand::Host(copied), Operand::Host(source)) => source.starts_with(copied),
            _ => false,
        })
    }

    /// Removes the sources of all copies, once those are durable; else they stay.
    fn remove_sources(&mut self, session: &mut Session) {
        let copied = std::mem::take(&mut self.copied);
        let Some(sink) = self.sink.take() else {
            return;
        };
        if let Err(error) = sink.sync() {
            let reason = format!("{}; the sources stay", error.reason());
            session.fail(Error::new(error.place(), reason));
            return;
        }
        for source in &copied {
            let removed = remove(session, source);
            session.check(removed);
        }
    }
}

/// The inodes of what a command has moved: two sources with one name do not replace each other.
#[derive(Default)]
struct Made(HashSet<u64>);

impl Made {
    /// Refuses what would replace one of them.
    fn check(&self, existing: &Attributes, from: &str, to: &str) -> finefs_image::Result<()> {
        match !existing.is_directory() && self.0.contains(&existing.ino) {
            true => Err(copying::just_made(from, to)),
            false => Ok(()),
        }
    }
}

fn remove(session: &mut Session, source: &Operand) -> finefs_image::Result<()> {
    let (parent, name) = match source {
        Operand::Image(address) => {
            let (parent, name) = split_path(&address.path);
            (Operand::Image(address.with_path(parent)), name)
        }
        Operand::Host(path) => {
            let (parent, name) = split_path(path);
            (Operand::Host(parent), name)
        }
        Operand::Standard => return Ok(()),
    };
    session
        .images
        .sink_of(&parent)?
        .remove_all(OsStr::new(&name))
}

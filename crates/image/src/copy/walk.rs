//! The thread that walks the sources and makes directories.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use finefs::FileKind;
use rustix::io::Errno;

use super::file::{Work, change_of, follow};
use super::target::{Fresh, Target, temporary};
use super::{Context, Existing, Makes};
use crate::attributes::Attributes;
use crate::error::{Error, Result};
use crate::tree::{Follow, SinkDir, SourceDir, check_plain};

/// One source, and what it becomes.
pub struct Task {
    /// Where it is.
    pub source: Arc<dyn SourceDir>,
    /// Its name there; `.` for the directory itself.
    pub name: OsString,
    /// Where the copy is made.
    pub sink: Arc<dyn SinkDir>,
    /// Its name there; `.` fills the directory itself.
    pub to: OsString,
}

/// A directory of a source that is being walked.
struct Level<'a> {
    source: Arc<dyn SourceDir>,
    names: std::vec::IntoIter<OsString>,
    target: Arc<Target<'a>>,
}

/// Where the first copies of files with several links lie, by the identity of the files.
pub(super) type Firsts = HashMap<(u64, u64), First>;

/// Where the first copy of a file with several links lies.
pub(super) struct First {
    path: PathBuf,
    fresh: Option<Arc<Fresh>>,
}

pub(super) struct Walker<'a> {
    context: Context<'a>,
    workers: Vec<SyncSender<Work<'a>>>,
    /// The worker that is asked next.
    next: usize,
    links: Firsts,
    /// Directories that were made: a source that holds one would have no end.
    made: Vec<(u64, u64)>,
    levels: Vec<Level<'a>>,
    buffer: Vec<u8>,
}

impl<'a> Walker<'a> {
    /// `links` are those of files that were copied before.
    pub fn new(
        context: Context<'a>,
        workers: Vec<SyncSender<Work<'a>>>,
        links: Firsts,
    ) -> Walker<'a> {
        Walker {
            context,
            workers,
            next: 0,
            links,
            made: Vec::new(),
            levels: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the links for a walk to come. The workers end when they have done what they got.
    pub fn run(mut self, tasks: Vec<Task>) -> Firsts {
        for task in tasks {
            let target = Arc::new(Target {
                is_set_group: is_set_group(&*task.sink),
                dir: task.sink,
                change: None,
                fresh: None,
                is_top: false,
                parent: None,
                context: self.context,
            });
            self.try_enter(&task.source, &task.name, target, &task.to, true);
            while let Some(level) = self.levels.last_mut() {
                match level.names.next() {
                    Some(_) if self.context.progress.is_stopped() => drop(self.levels.pop()),
                    Some(name) => {
                        let (source, target) =
                            (Arc::clone(&level.source), Arc::clone(&level.target));
                        self.try_enter(&source, &name, target, &name, false);
                    }
                    None => drop(self.levels.pop()),
                }
            }
        }
        self.links
    }

    fn try_enter(
        &mut self,
        source: &Arc<dyn SourceDir>,
        name: &OsStr,
        target: Arc<Target<'a>>,
        to: &OsStr,
        is_named: bool,
    ) {
        if self.context.progress.is_stopped() {
            return;
        }
        if let Err(error) = self.enter(source, name, target, to, is_named) {
            self.context.fail(&error);
        }
    }

    fn enter(
        &mut self,
        source: &Arc<dyn SourceDir>,
        name: &OsStr,
        target: Arc<Target<'a>>,
        to: &OsStr,
        is_named: bool,
    ) -> Result<()> {
        if !is_named {
            check_plain(&**source, name)?;
        }
        let options = self.context.options;
        let follow = follow(options.links, is_named);
        let attributes = source.attributes(name, follow)?;
        let existing = match target.fresh {
            Some(_) => None,
            None => target.dir.find(to)?,
        };
        if let Some(existing) = &existing {
            if options.makes == Makes::HardLinks && existing.identity() == attributes.identity() {
                return Ok(());
            }
            self.check(
                &attributes,
                existing,
                &source.shown(name),
                &target.dir.shown(to),
            )?;
        }
        if attributes.is_directory() {
            return self.enter_dir((source, name, follow), &attributes, target, to, existing);
        }
        let is_special = !matches!(attributes.kind, FileKind::Regular | FileKind::Symlink);
        if is_special && !options.is_recursive {
            let reason = "is no regular file (-r copies it as what it is)";
            return Err(Error::new(source.shown(name), reason));
        }
        if let Some(found) = &existing
            && (self.stays(found, &attributes) || !self.has_leave(&target, to))
        {
            return Ok(());
        }
        if options.makes != Makes::Copies {
            return self.make_link((source, name, follow), &attributes, &target, to, existing);
        }
        let is_linked = options.preserve.links && attributes.links > 1;
        if is_linked && self.link(&attributes, &target, to, existing.is_some())? {
            self.context.progress.files.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let identity = attributes.identity();
        let path = target.dir.path_of(to);
        let fresh = target.fresh.clone();
        let work = Work {
            source: Arc::clone(source),
            name: name.to_owned(),
            follow,
            attributes,
            target,
            to: to.to_owned(),
            existing,
        };
        if !is_linked {
            self.hand_out(work);
        } else if work.run(&self.context, &mut self.buffer) {
            self.links.insert(identity, First { path, fresh });
        }
        Ok(())
    }

    /// Gives work to a worker that has room, or does it.
    fn hand_out(&mut self, mut work: Work<'a>) {
        for _ in 0..self.workers.len() {
            self.next = (self.next + 1) % self.workers.len();
            match self.workers[self.next].try_send(work) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => work = back,
            }
        }
        work.run(&self.context, &mut self.buffer);
    }

    /// Whether one may take the place of the other.
    fn check(
        &self,
        source: &Attributes,
        existing: &Attributes,
        from: &str,
        to: &str,
    ) -> Result<()> {
        if source.identity() == existing.identity() {
            return Err(Error::new("", format!("{from} and {to} are the same file")));
        }
        match (source.is_directory(), existing.is_directory()) {
            (true, false) => Err(Error::new(
                to,
                "is no directory, and would be replaced by one",
            )),
            (false, true) => Err(Error::new(
                to,
                "is a directory, and would be replaced by a file",
            )),
            _ => Ok(()),
        }
    }

    /// Whether the observer lets a file that is there be replaced, where it is to be asked.
    fn has_leave(&self, target: &Target<'a>, to: &OsStr) -> bool {
        let observer = self.context.observer;
        !self.context.options.asks || observer.may_replace(&target.dir.shown(to))
    }

    fn stays(&self, existing: &Attributes, source: &Attributes) -> bool {
        match self.context.options.existing {
            Existing::Replaced => false,
            Existing::Kept => true,
            Existing::ReplacedIfOlder => existing.modified >= source.modified,
        }
    }

    /// Makes a link to the source instead of a copy.
    fn make_link(
        &self,
        (source, name, follow): (&Arc<dyn SourceDir>, &OsStr, Follow),
        attributes: &Attributes,
        target: &Target<'a>,
        to: &OsStr,
        existing: Option<Attributes>,
    ) -> Result<()> {
        let sink = &*target.dir;
        let device = sink.find(OsStr::new("."))?.map(|found| found.device);
        let original = source.path_in_image(name, follow)?;
        let original = original.filter(|_| device == Some(attributes.device));
        let Some(original) = original else {
            let reason = "lies in another image; links lead to files of their own";
            return Err(Error::new(source.shown(name), reason));
        };
        if existing.is_some() && !self.context.options.replaces_by_links {
            return Err(Error::new(
                sink.shown(to),
                "is there (-f replaces it by the link)",
            ));
        }
        let link = |name: &OsStr| match self.context.options.makes {
            Makes::Symlinks => sink.symlink(name, &original),
            _ => sink.link(&original, name),
        };
        match existing {
            None => link(to)?,
            Some(_) => {
                let beside = temporary(sink, to)?;
                link(&beside)?;
                sink.rename(&beside, to)?;
                sink.remove_all(&beside)?;
            }
        }
        self.context.progress.files.fetch_add(1, Ordering::Relaxed);
        let from = || source.named(name);
        self.context.observer.copied(&from, &|| sink.named(to));
        Ok(())
    }

    /// Links to the first copy of a file, if there is one.
    fn link(
        &self,
        attributes: &Attributes,
        target: &Target<'a>,
        to: &OsStr,
        is_replaced: bool,
    ) -> Result<bool> {
        let Some(first) = self.links.get(&attributes.identity()) else {
            return Ok(false);
        };
        let now = || match &first.fresh {
            Some(fresh) => fresh.now(&first.path),
            None => first.path.clone(),
        };
        let link = |name: &OsStr| match target.dir.link(&now(), name) {
            // It may have got its name in between.
            Err(error) if error.is(Errno::NOENT) => target.dir.link(&now(), name),
            done => done,
        };
        if !is_replaced {
            return link(to).map(|()| true);
        }
        let beside = temporary(&*target.dir, to)?;
        link(&beside)?;
        target.dir.rename(&beside, to)?;
        // rename(2) does nothing if both are links to one file.
        target.dir.remove_all(&beside)?;
        Ok(true)
    }

    fn enter_dir(
        &mut self,
        (source, name, follow): (&Arc<dyn SourceDir>, &OsStr, Follow),
        attributes: &Attributes,
        target: Arc<Target<'a>>,
        to: &OsStr,
        existing: Option<Attributes>,
    ) -> Result<()> {
        if !self.context.options.is_recursive {
            let reason = "is a directory (-r copies it)";
            return Err(Error::new(source.shown(name), reason));
        }
        let is_first = self.levels.is_empty();
        if self.made.contains(&attributes.identity())
            || is_first && lies_in(&*target.dir, attributes)
        {
            return Err(Error::new(
                source.shown(name),
                "would be copied into itself",
            ));
        }
        let opened = source.open_dir(name, follow)?;
        let names = opened.names()?;
        let change = change_of(attributes, &self.context, || source.xattrs(name, follow))?;
        let replaces = self.context.options.replaces_directories;
        if replaces && existing.is_some() {
            target.dir.remove_empty(to)?;
        }
        let inner = match existing {
            Some(_) if !replaces => self.fill(target, to, change)?,
            _ if target.is_set_group && attributes.permissions & 0o7000 == 0 => {
                // As mkdir(2) does, and chmod(2) is not called for what it has done.
                let permissions = change.permissions.map(|it| it | SET_GROUP_ID);
                let change = crate::Change {
                    permissions,
                    ..change
                };
                self.make(target, to, change)?
            }
            _ => self.make(target, to, change)?,
        };
        self.context.progress.files.fetch_add(1, Ordering::Relaxed);
        let shown = &inner.dir;
        self.context
            .observer
            .copied(&|| source.named(name), &|| shown.named(OsStr::new(".")));
        self.levels.push(Level {
            source: opened,
            names: names.into_iter(),
            target: Arc::new(inner),
        });
        Ok(())
    }

    /// A directory that is there; it gets attributes only if they are kept.
    fn fill(
        &mut self,
        parent: Arc<Target<'a>>,
        to: &OsStr,
        change: crate::Change,
    ) -> Result<Target<'a>> {
        let keeps = self.context.options.preserve;
        let is_changed = keeps.mode || keeps.ownership || keeps.timestamps || keeps.xattrs;
        let dir = parent.dir.open_dir(to)?;
        self.remember(&*dir)?;
        Ok(Target {
            is_set_group: is_set_group(&*dir),
            dir,
            change: is_changed.then(|| crate::Change {
                permissions: change.permissions.filter(|_| keeps.mode),
                ..change
            }),
            fresh: None,
            is_top: false,
            parent: Some(parent),
            context: self.context,
        })
    }

    fn make(
        &mut self,
        parent: Arc<Target<'a>>,
        to: &OsStr,
        change: crate::Change,
    ) -> Result<Target<'a>> {
        let (name, fresh) = match &parent.fresh {
            Some(fresh) => (to.to_owned(), Some(Arc::clone(fresh))),
            None if parent.dir.is_append_only()? => (to.to_owned(), None),
            None => {
                let beside = temporary(&*parent.dir, to)?;
                let fresh = Fresh {
                    parent: Arc::clone(&parent.dir),
                    temporary: beside.clone(),
                    name: to.to_owned(),
                    is_renamed: AtomicBool::new(false),
                };
                (beside, Some(Arc::new(fresh)))
            }
        };
        let is_top = parent.fresh.is_none();
        let dir = parent.dir.make_dir(&name, to)?;
        if is_top {
            self.remember(&*dir)?;
            if self.context.options.preserve.mode {
                parent.dir.remove_acls(&name)?;
            }
        }
        Ok(Target {
            dir,
            change: Some(change),
            is_top: is_top && fresh.is_some(),
            fresh,
            is_set_group: parent.is_set_group,
            parent: Some(parent),
            context: self.context,
        })
    }

    /// What is made must not be copied once more.
    fn remember(&mut self, dir: &dyn SinkDir) -> Result<()> {
        if let Some(found) = dir.find(OsStr::new("."))? {
            self.made.push(found.identity());
        }
        Ok(())
    }
}

const SET_GROUP_ID: u32 = 0o2000;

/// Whether a directory gives its group, and this bit, to directories that are made in it.
fn is_set_group(dir: &dyn SinkDir) -> bool {
    let found = dir.find(OsStr::new("."));
    found.is_ok_and(|found| found.is_some_and(|found| found.permissions & SET_GROUP_ID != 0))
}

/// Whether a directory is another one, or lies in it.
fn lies_in(dir: &dyn SinkDir, other: &Attributes) -> bool {
    let mut name = String::from(".");
    let mut below = None;
    // What is so deep that its path is too long is found as it is walked.
    while let Ok(Some(found)) = dir.find(OsStr::new(&name)) {
        if found.identity() == other.identity() {
            return true;
        }
        if below == Some(found.identity()) {
            break;
        }
        below = Some(found.identity());
        name += "/..";
    }
    false
}

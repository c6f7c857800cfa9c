//! Directories as sources, of the host or of images.
//!
//! Threads list directories, each for itself; what they find is put into the manifest by one, in
//! the order of names from the top.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use finefs::FileKind;

use super::Progress;
use super::content::{Content, Data};
use super::manifest::{Attributes, Kind, Manifest, Node, ROOT};
use crate::attributes::Xattr;
use crate::choice::Choice;
use crate::copy::may_be_kept;
use crate::error::{Error, Result};
use crate::host::WorkingDir;
use crate::tree::{Follow, SourceDir, check_plain};

/// Lists a directory of the host with all that is in it, by `jobs` threads.
pub(super) fn add(
    manifest: &mut Manifest,
    path: &Path,
    choice: &Choice,
    (jobs, progress): (usize, &Progress),
) -> Result<()> {
    let top = Place::Host(Arc::from(path));
    add_all(manifest, top, choice, (jobs, progress))
}

/// Lists a directory of an image with all that is in it, by `jobs` threads.
pub(super) fn add_image(
    manifest: &mut Manifest,
    dir: Arc<dyn SourceDir>,
    choice: &Choice,
    (jobs, progress): (usize, &Progress),
) -> Result<()> {
    add_all(manifest, Place::Image(dir), choice, (jobs, progress))
}

/// A directory that is listed. One of the host is opened when its turn comes: there may be more of
/// them than a process may have open.
#[derive(Clone)]
enum Place {
    Host(Arc<Path>),
    Image(Arc<dyn SourceDir>),
}

impl Place {
    /// A directory in this one.
    fn below(&self, name: &OsStr) -> Result<Place> {
        Ok(match self {
            Place::Host(path) => Place::Host(Arc::from(path.join(name))),
            Place::Image(dir) => Place::Image(dir.open_dir(name, Follow::No)?),
        })
    }

    /// How messages name a file in it.
    fn shown(&self, name: &OsStr) -> String {
        match self {
            Place::Host(path) => path.join(name).display().to_string(),
            Place::Image(dir) => dir.shown(name),
        }
    }

    /// The data of a file in it.
    fn data(&self, name: &OsStr) -> Data {
        let name = name.to_owned();
        match self {
            Place::Host(path) => Data::Host {
                directory: Arc::clone(path),
                name,
            },
            Place::Image(dir) => Data::Image {
                directory: Arc::clone(dir),
                name,
            },
        }
    }
}

/// What a directory was found to be.
struct Listed {
    attributes: Attributes,
    entries: Vec<Entry>,
}

/// A file in it.
struct Entry {
    name: OsString,
    node: Node,
    /// Device and inode number.
    identity: (u64, u64),
    has_several_names: bool,
    /// What a directory is opened by.
    place: Option<Place>,
}

/// A directory that a thread is to list, and where the answer goes.
struct Task {
    place: Place,
    /// Where it lies in the image.
    inside: PathBuf,
    answer: Sender<Result<Listed>>,
}

/// A directory that is being listed: where it lies in the image, its node, and the answer.
struct Awaited {
    place: Place,
    inside: PathBuf,
    node: usize,
    answer: Receiver<Result<Listed>>,
}

fn add_all(
    manifest: &mut Manifest,
    top: Place,
    choice: &Choice,
    (jobs, progress): (usize, &Progress),
) -> Result<()> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let start = |_| {
            let (sender, tasks) = channel();
            scope.spawn(|| list_all(tasks, choice, &is_over, progress));
            sender
        };
        let mut scan = Scan {
            manifest,
            links: HashMap::new(),
            workers: (0..jobs.max(1)).map(start).collect(),
            next: 0,
        };
        let outcome = scan.run(top, progress);
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

struct Scan<'a> {
    manifest: &'a mut Manifest,
    /// Files with several names, by device and inode number.
    links: HashMap<(u64, u64), usize>,
    /// By turns.
    workers: Vec<Sender<Task>>,
    next: usize,
}

impl Scan<'_> {
    fn run(&mut self, top: Place, progress: &Progress) -> Result<()> {
        let mut todo = vec![self.ask(top, PathBuf::from("/"), ROOT)?];
        while let Some(awaited) = todo.pop() {
            progress.check()?;
            let listed = awaited.answer.recv().map_err(|_| ended())??;
            if awaited.node == ROOT {
                self.manifest.set_attributes(ROOT, listed.attributes);
            }
            for mut entry in listed.entries {
                let is_of_host = matches!(awaited.place, Place::Host(_));
                if is_of_host && self.manifest.output == Some(entry.identity) {
                    continue;
                }
                let (place, name) = (entry.place.take(), entry.name.clone());
                let node = self.put(entry, &awaited)?;
                if let Some(place) = place {
                    todo.push(self.ask(place, awaited.inside.join(name), node)?);
                }
            }
        }
        Ok(())
    }

    /// Lets a thread list a directory.
    fn ask(&mut self, place: Place, inside: PathBuf, node: usize) -> Result<Awaited> {
        let (answer, receiver) = channel();
        let task = Task {
            place: place.clone(),
            inside: inside.clone(),
            answer,
        };
        self.workers[self.next].send(task).map_err(|_| ended())?;
        self.next = (self.next + 1) % self.workers.len();
        Ok(Awaited {
            place,
            inside,
            node,
            answer: receiver,
        })
    }

    /// Puts a file into the manifest; gives its number.
    fn put(&mut self, entry: Entry, directory: &Awaited) -> Result<usize> {
        let name = &entry.name;
        let shown = || directory.place.shown(name);
        let several = entry.has_several_names.then_some(entry.identity);
        if let Some(first) = several.and_then(|key| self.links.get(&key)).copied() {
            self.manifest.link(directory.node, name, first, &shown)?;
            return Ok(first);
        }
        if matches!(entry.node.kind, Kind::Directory(_)) {
            let (path, parent) = (directory.inside.join(name), directory.node);
            return self
                .manifest
                .put_directory(parent, &path, entry.node, &shown);
        }
        let number = self
            .manifest
            .put(directory.node, name, entry.node, &shown)?;
        if let Some(key) = several {
            self.links.insert(key, number);
        }
        Ok(number)
    }
}

fn ended() -> Error {
    Error::new("", "a thread that lists directories has ended")
}

/// What a thread does: it lists directories until there are no more.
fn list_all(tasks: Receiver<Task>, choice: &Choice, is_over: &AtomicBool, progress: &Progress) {
    let mut working_dir = WorkingDir::of_this_thread();
    for task in tasks {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let listed = list(&task, choice, &mut working_dir);
        if let Ok(listed) = &listed {
            let count = listed.entries.len() as u64;
            progress.listed.fetch_add(count, Ordering::Relaxed);
        }
        // Nobody waits for it after an error.
        let _ = task.answer.send(listed);
    }
}

/// What the choice leaves out is not looked at.
fn list(task: &Task, choice: &Choice, working_dir: &mut WorkingDir) -> Result<Listed> {
    match &task.place {
        Place::Host(path) => {
            let dir = working_dir.open(path)?;
            let names = taken(dir.names()?, task, choice);
            let inside = working_dir.enter(&dir);
            list_with(&dir, &task.place, names, &|name| inside.xattrs(name))
        }
        Place::Image(dir) => {
            let names = taken(dir.names()?, task, choice);
            list_with(&**dir, &task.place, names, &|name| {
                dir.xattrs(name, Follow::No)
            })
        }
    }
}

/// The names of a directory that the choice takes, in their order.
fn taken(mut names: Vec<OsString>, task: &Task, choice: &Choice) -> Vec<OsString> {
    if !choice.excluded.is_empty() {
        names.retain(|name| !choice.excludes_path(&task.inside.join(name)));
    }
    names.sort();
    names
}

type Xattrs<'a> = dyn Fn(&OsStr) -> Result<Vec<Xattr>> + 'a;

fn list_with(
    dir: &dyn SourceDir,
    place: &Place,
    names: Vec<OsString>,
    xattrs: &Xattrs<'_>,
) -> Result<Listed> {
    let itself = OsStr::new(".");
    let found = dir.attributes(itself, Follow::No)?;
    let attributes = attributes(itself, &found, xattrs)?;
    let entries = names
        .into_iter()
        .map(|name| entry(dir, place, name, xattrs))
        .collect::<Result<_>>()?;
    Ok(Listed {
        attributes,
        entries,
    })
}

fn entry(dir: &dyn SourceDir, place: &Place, name: OsString, xattrs: &Xattrs<'_>) -> Result<Entry> {
    check_plain(dir, &name)?;
    let found = dir.attributes(&name, Follow::No)?;
    let kind = match found.kind {
        FileKind::Directory => Kind::Directory(BTreeMap::new()),
        FileKind::Symlink => Kind::Symlink(dir.read_link(&name)?),
        FileKind::Regular => {
            let (data_bytes, pieces) = data_bytes(dir, &name, &found)?;
            Kind::Regular(Content {
                data: place.data(&name),
                size: found.size,
                data_bytes,
                pieces,
            })
        }
        kind => Kind::Node {
            kind,
            rdev: found.rdev,
        },
    };
    let below = found.is_directory().then(|| place.below(&name));
    Ok(Entry {
        node: Node {
            kind,
            attributes: attributes(&name, &found, xattrs)?,
        },
        identity: found.identity(),
        has_several_names: found.links > 1 && !found.is_directory(),
        place: below.transpose()?,
        name,
    })
}

/// What the image keeps of a file's attributes.
fn attributes(
    name: &OsStr,
    found: &crate::attributes::Attributes,
    xattrs: &Xattrs<'_>,
) -> Result<Attributes> {
    let mut xattrs = xattrs(name)?;
    xattrs.retain(|xattr| may_be_kept(&xattr.0));
    Ok(Attributes {
        permissions: found.permissions,
        uid: found.uid,
        gid: found.gid,
        modified: found.modified,
        xattrs,
        is_implied: false,
    })
}

/// Bytes that are no holes, and the parts that they lie in. A file that takes less space than it is
/// long may also be compressed.
fn data_bytes(
    dir: &dyn SourceDir,
    name: &OsStr,
    found: &crate::attributes::Attributes,
) -> Result<(u64, u64)> {
    if found.sectors.saturating_mul(512) >= found.size {
        return Ok((found.size, 1));
    }
    let file = dir.open_file(name, Follow::No)?;
    let (mut sum, mut pieces, mut at) = (0, 0, 0);
    while let Some((start, end)) = file.data_after(at)? {
        sum += end - start;
        pieces += 1;
        at = end;
    }
    Ok((sum.min(found.size), pieces))
}

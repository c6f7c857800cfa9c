//! Puts the files of sources into an image that is there, as tar -x does.
//!
//! A directory joins the one that is there, also where a symbolic link in the image leads to it;
//! other files take the place of what has their name, but not of a directory with files in it.
//!
//! # Invariants
//! 1. Nothing is changed before all sources are listed, every name is known to be free or
//!    replaceable, and there is space for all of it, as far as data tells.
//! 2. A file is made under a name of its own and renamed: it is the old one or the new one, whole.
//!    The journal has both names in one transaction.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs::FileKind;
use rustix::io::Errno;
use serde::Serialize;

use super::content::Content;
use super::fill::{change, write};
use super::limits::Limits;
use super::manifest::{Kind, Manifest, Node};
use super::reading::{Open, Read, with_data};
use super::size::Counter;
use super::{Existing, Progress, Rules, Source, Within, list};
use crate::address::{Access, Address, Images};
use crate::attributes::Attributes;
use crate::beside::identity_of;
use crate::copy::temporary;
use crate::error::{Error, Result};
use crate::inside::ImageDir;
use crate::tree::{Follow, SinkDir, SinkFile, SourceDir};

/// What was put into an image. The names are those of the command's JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Added {
    /// The image, and the directory in it.
    pub image: String,
    /// Files of all kinds, hard links counted once.
    pub files: u64,
    /// Bytes of data, without blocks of zeros.
    pub data_bytes: u64,
    /// Entries that were left out, a line each.
    pub left_out: Vec<String>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// The members of an archive, by the names that they have there.
    #[serde(skip)]
    pub members: Vec<PathBuf>,
}

/// Puts `sources` into the directory at `address`, later ones over earlier ones, with `jobs`
/// threads.
///
/// # Errors
/// What cannot be read, what the image cannot hold or has no space for, by its name. It is
/// unchanged where a source cannot be listed, where a name is in the way, and where there is not
/// enough space; after other errors it has the files that came before.
pub fn onto(
    images: &mut Images,
    address: &Address,
    sources: &[Source],
    rules: &Rules,
    jobs: usize,
    progress: &Progress,
) -> Result<Added> {
    images.hold_to_write(address)?;
    for source in sources {
        if let Source::Image(from) = source
            && images.place_of(from)? == images.place_of(address)?
        {
            let reason = "is the image that is changed; finefs cp copies within one";
            return Err(Error::new(from.image.display().to_string(), reason));
        }
    }
    let directory = images.directory_of(address);
    let within = Within {
        directory: &directory,
        top: &address.path,
        output: identity_of(&crate::address::locate(&address.image)?.0),
    };
    let mut manifest = list(images, sources, &within, (rules, jobs), progress)?;
    if let Some(limits) = Limits::of_image(address, images.offset_bytes())? {
        limits.check_links(&manifest)?;
        limits.leave_out_xattrs(&mut manifest);
    }
    progress.note_all(manifest.totals());
    let top = Arc::new(images.dir(address, Access::Write)?);
    Survey::of(&manifest, &top, rules.existing)?.check(&manifest, &top, address)?;
    let block = top.room().map_or(4096, |room| room.block_bytes as usize);
    let mut layer = Layer {
        manifest: &manifest,
        progress,
        block,
        places: HashMap::new(),
        data_bytes: 0,
        existing: rules.existing,
        made: HashSet::new(),
        left_out: Vec::new(),
    };
    with_data(&manifest, block, jobs, &mut |read| {
        layer.run(Arc::clone(&top), read)
    })?;
    let (data_bytes, left_out) = (layer.data_bytes, layer.left_out);
    Ok(Added {
        image: address.to_string(),
        files: manifest.totals().files,
        data_bytes,
        left_out: [manifest.left_out, left_out].concat(),
        notes: manifest.notes,
        members: manifest.members,
    })
}

/// True where a name is a directory, or a link that leads to one.
fn is_directory(dir: &ImageDir, name: &OsStr, found: &Attributes) -> bool {
    let leads_to_one = || {
        let led_to = dir.attributes(name, Follow::Yes);
        led_to.is_ok_and(|it| it.is_directory())
    };
    found.is_directory() || found.kind == FileKind::Symlink && leads_to_one()
}

/// What is there already, before anything is changed.
#[derive(Default)]
struct Survey {
    new_files: u64,
    new_blocks: u64,
    /// Of files that will be replaced.
    freed_sectors: u64,
    freed_files: u64,
}

impl Survey {
    fn of(manifest: &Manifest, top: &Arc<ImageDir>, existing: Existing) -> Result<Survey> {
        let mut survey = Survey::default();
        let block = top.room().map_or(4096, |room| room.block_bytes);
        // As those are that images have mostly; the rest is for the file system to say.
        let counter = Counter {
            block,
            cluster: block,
            inode_size: 256,
            has_extents: true,
        };
        let mut is_first = manifest.marks();
        let mut open = Open::at(Some(Arc::clone(top)));
        for (path, directory) in manifest.each_directory() {
            let dir = open.enter(&path, |above, name| match above {
                Some(above) => existing_directory(above, name),
                None => Ok(None),
            })?;
            if dir.is_none() {
                survey.new_blocks += counter.directory(manifest.names(directory));
            }
            for (name, number) in manifest.names(directory) {
                let node = &manifest.nodes[*number];
                let is_directory = matches!(node.kind, Kind::Directory(_));
                let stays = match &dir {
                    Some(dir) => survey.look(dir, name, (is_directory, existing))?,
                    None => false,
                };
                if !stays && is_first(*number) {
                    survey.new_files += 1;
                    if !is_directory {
                        survey.new_blocks += counter.file(node);
                    }
                }
            }
        }
        Ok(survey)
    }

    /// Notes what has a name; true if it stays, as a directory does that is joined.
    fn look(
        &mut self,
        dir: &ImageDir,
        name: &OsStr,
        (wants_directory, existing): (bool, Existing),
    ) -> Result<bool> {
        let Some(found) = dir.find(name)? else {
            return Ok(false);
        };
        if !wants_directory && existing != Existing::Replaced {
            return Ok(true);
        }
        if wants_directory && is_directory(dir, name, &found) {
            return Ok(true);
        }
        if existing != Existing::Replaced {
            let reason = "is there, and is no directory";
            return Err(Error::new(SinkDir::shown(dir, name), reason));
        }
        if found.is_directory() {
            let inside = SourceDir::open_dir(dir, name, Follow::No)?;
            if !inside.names()?.is_empty() {
                let reason = "would replace a directory that has files in it";
                return Err(Error::new(SinkDir::shown(dir, name), reason));
            }
        }
        if found.links == 1 || found.is_directory() {
            self.freed_files += 1;
            self.freed_sectors += found.sectors;
        }
        Ok(false)
    }

    fn check(&self, manifest: &Manifest, top: &ImageDir, address: &Address) -> Result<()> {
        let Some(room) = top.room() else {
            return Ok(());
        };
        let refused = |lacking: u64, what: &str| {
            let bytes: u64 = manifest.totals().bytes;
            let reason = format!("the files ({bytes} bytes) do not fit: {lacking} {what}");
            let error = Error::host(address.image.display().to_string(), Errno::NOSPC);
            Err(error.with_reason(reason))
        };
        let needed = self.new_blocks * room.block_bytes;
        let free = room.free_bytes + self.freed_sectors * 512;
        if needed > free {
            return refused(needed - free, "bytes more are needed");
        }
        let free = room.free_inodes + self.freed_files;
        if self.new_files > free {
            return refused(self.new_files - free, "inodes more are needed");
        }
        Ok(())
    }
}

fn existing_directory(above: &Arc<ImageDir>, name: &OsStr) -> Result<Option<Arc<ImageDir>>> {
    match above.find(name)? {
        Some(found) if is_directory(above, name, &found) => Ok(Some(Arc::new(above.enter(name)?))),
        _ => Ok(None),
    }
}

struct Layer<'a> {
    manifest: &'a Manifest,
    progress: &'a Progress,
    block: usize,
    /// Where files with several names were made.
    places: HashMap<usize, PathBuf>,
    data_bytes: u64,
    existing: Existing,
    /// Directories that were made, by their nodes.
    made: HashSet<usize>,
    /// Files that stay as they are, a line each.
    left_out: Vec<String>,
}

impl Layer<'_> {
    fn run(&mut self, top: Arc<ImageDir>, read: &mut Read<'_>) -> Result<()> {
        let linked = self.manifest.linked();
        let mut number = 0;
        let mut open = Open::at(top);
        for (path, directory) in self.manifest.each_directory() {
            let dir = open.enter(&path, |above, name| above.enter(name).map(Arc::new))?;
            for (name, node) in self.manifest.names(directory) {
                self.check()?;
                if self.stays(&dir, name, *node, &mut number, read)? {
                    continue;
                }
                if let Some(first) = self.places.get(node) {
                    place(&dir, name, |beside| dir.link(first, beside))?;
                    continue;
                }
                self.make(&dir, name, *node, &mut number, read)?;
                self.progress.files.fetch_add(1, Ordering::Relaxed);
                if linked[*node] {
                    self.places.insert(*node, dir.path_of(name));
                }
            }
            let node = &self.manifest.nodes[directory];
            let stays = self.existing != Existing::Replaced && !self.made.contains(&directory);
            if !stays && !node.attributes.is_implied {
                attribute(&dir, OsStr::new("."), node)?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match self.progress.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(
                "",
                "interrupted; the image has what came before",
            )),
            false => Ok(()),
        }
    }

    /// Whether something is there that stays; what would have come instead is read past.
    fn stays(
        &mut self,
        dir: &ImageDir,
        name: &OsStr,
        node: usize,
        number: &mut usize,
        read: &mut Read<'_>,
    ) -> Result<bool> {
        let kind = &self.manifest.nodes[node].kind;
        if self.existing == Existing::Replaced
            || matches!(kind, Kind::Directory(_))
            || dir.find(name)?.is_none()
        {
            return Ok(false);
        }
        if self.existing == Existing::KeptAndTold {
            let line = format!("{}: is there already", SinkDir::shown(dir, name));
            self.left_out.push(line);
        }
        if matches!(kind, Kind::Regular(_)) && !self.places.contains_key(&node) {
            read(*number, &mut |_, _| Ok(()))?;
            *number += 1;
            // Further names of it are links to what is there.
            self.places.insert(node, dir.path_of(name));
        }
        Ok(true)
    }

    fn make(
        &mut self,
        dir: &ImageDir,
        name: &OsStr,
        node_number: usize,
        number: &mut usize,
        read: &mut Read<'_>,
    ) -> Result<()> {
        let node = &self.manifest.nodes[node_number];
        match &node.kind {
            Kind::Directory(_) => {
                if directory(dir, name, node)? {
                    self.made.insert(node_number);
                }
                Ok(())
            }
            Kind::Regular(content) => {
                let this = *number;
                *number += 1;
                place(dir, name, |beside| {
                    let file = dir.create(beside)?;
                    self.write(&*file, content, this, read)?;
                    dir.remove_acls(beside)?;
                    file.apply(&change(node)).map(|_| ())
                })
            }
            Kind::Symlink(target) => place(dir, name, |beside| {
                dir.symlink(beside, target)?;
                attribute(dir, beside, node)
            }),
            Kind::Node { kind, rdev } => place(dir, name, |beside| {
                dir.make_node(beside, *kind, *rdev)?;
                attribute(dir, beside, node)
            }),
        }
    }

    fn write(
        &mut self,
        file: &dyn SinkFile,
        content: &Content,
        number: usize,
        read: &mut Read<'_>,
    ) -> Result<()> {
        let (block, progress) = (self.block, self.progress);
        let written = write(file, content, block, &mut |take| {
            read(number, &mut |at, data| {
                self.check()?;
                progress
                    .bytes
                    .fetch_add(data.len() as u64, Ordering::Relaxed);
                take(at, data)
            })
        })?;
        self.data_bytes += written.0;
        Ok(())
    }
}

/// Makes a directory, unless one is there; true if it was made.
fn directory(dir: &ImageDir, name: &OsStr, node: &Node) -> Result<bool> {
    match dir.find(name)? {
        Some(found) if is_directory(dir, name, &found) => return Ok(false),
        Some(_) => dir.remove_all(name)?,
        None => {}
    }
    dir.make_dir(name, name)?;
    attribute(dir, name, node)?;
    Ok(true)
}

/// Makes something under a name of its own, and gives it the name that is wanted.
fn place(dir: &ImageDir, name: &OsStr, make: impl FnOnce(&OsStr) -> Result<()>) -> Result<()> {
    let beside = temporary(dir, name)?;
    let placed = make(&beside).and_then(|()| {
        if dir.find(name)?.is_some_and(|found| found.is_directory()) {
            // Empty, or else the survey had found it.
            dir.remove_empty(name)?;
        }
        dir.rename(&beside, name)?;
        // rename(2) does nothing if both are links to one file.
        dir.remove_all(&beside)
    });
    placed.map_err(|error| {
        let _ = dir.remove_all(&beside);
        match error.place() == SinkDir::shown(dir, &beside) {
            true => error.with_place(SinkDir::shown(dir, name)),
            false => error,
        }
    })
}

/// Sets what the list says, and no ACL that comes from the directory.
fn attribute(dir: &ImageDir, name: &OsStr, node: &Node) -> Result<()> {
    if !matches!(node.kind, Kind::Symlink(_)) {
        dir.remove_acls(name)?;
    }
    dir.apply(name, &change(node)).map(|_| ())
}

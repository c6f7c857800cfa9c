//! Puts all files into a new image.
//!
//! One thread makes everything, in the order of names; others read ahead. The file with number `i`
//! is read by thread `i` modulo their number, and comes through that thread's channel.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use finefs::FileSystem;

use super::Progress;
use super::content::{Content, Reader, Take};
use super::manifest::{Kind, Manifest, Node};
use crate::attributes::Change;
use crate::error::{Error, Result};
use crate::inside::{ImageDir, Source};
use crate::tree::{SinkDir, SinkFile};

/// After so many changes, or bytes of names and attributes, all is put on the image, or else the
/// file system would begin to do so at a time of its own.
const CHANGES_MAX: u64 = 50_000;
const HEAP_BYTES_MAX: usize = 8 << 20;

/// Pieces of data that wait in a channel.
const WAITING_MAX: usize = 16;

/// A regular file: where it is listed, what messages call it, its data.
struct File<'a> {
    place: PathBuf,
    content: &'a Content,
}

/// What comes through a channel.
enum Piece {
    Data(u64, Vec<u8>),
    End(Result<()>),
}

/// Fills it; gives the bytes of data, and those of the blocks that they were written to.
pub(super) fn fill(
    fs: &FileSystem,
    manifest: &Manifest,
    jobs: usize,
    progress: &Progress,
) -> Result<(u64, u64)> {
    let block = fs.statfs().block_size_bytes as usize;
    let files = files(manifest);
    let source = Source {
        fs: fs.clone(),
        shown: "the image".into(),
        device: 0,
    };
    let mut filler = Filler {
        source: Arc::new(source),
        manifest,
        progress,
        block,
        changes: 0,
        heap_bytes: 0,
        data_bytes: 0,
        block_bytes: 0,
        places: HashMap::new(),
    };
    let readers = jobs.saturating_sub(1).min(files.len());
    if readers == 0 {
        let mut reader = Reader::default();
        return filler.run(&mut |number, take| {
            let file = &files[number];
            let shown = || file.place.display().to_string();
            file.content.read(&mut reader, &shown, block, take)
        });
    }
    std::thread::scope(|scope| {
        let mut channels = Vec::with_capacity(readers);
        for first in 0..readers {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let (giver, empty) = channel();
            channels.push((receiver, giver));
            let files = files.iter().skip(first).step_by(readers);
            scope.spawn(move || read_ahead(files, block, &sender, &empty));
        }
        // Ends with an error as soon as there is one; the readers then find no receiver.
        let channels = channels;
        filler.run(&mut |number, take| receive(&channels[number % readers], take))
    })
}

/// The regular files, in the order in which they are made.
fn files(manifest: &Manifest) -> Vec<File<'_>> {
    let mut files = Vec::new();
    let mut is_first = manifest.marks();
    for (path, directory) in manifest.each_directory() {
        for (name, number) in manifest.names(directory) {
            if let Kind::Regular(content) = &manifest.nodes[*number].kind
                && is_first(*number)
            {
                let place = path.join(name);
                files.push(File { place, content });
            }
        }
    }
    files
}

fn read_ahead<'a>(
    files: impl Iterator<Item = &'a File<'a>>,
    block: usize,
    sender: &SyncSender<Piece>,
    empty: &Receiver<Vec<u8>>,
) {
    let gone = || Error::new("", "interrupted");
    let mut reader = Reader::default();
    for file in files {
        let shown = || file.place.display().to_string();
        let read = file
            .content
            .read(&mut reader, &shown, block, &mut |at, data| {
                let mut piece = empty.try_recv().unwrap_or_default();
                piece.clear();
                piece.extend_from_slice(data);
                sender.send(Piece::Data(at, piece)).map_err(|_| gone())
            });
        if sender.send(Piece::End(read)).is_err() {
            return;
        }
    }
}

fn receive(
    (pieces, empty): &(Receiver<Piece>, Sender<Vec<u8>>),
    take: &mut Take<'_>,
) -> Result<()> {
    loop {
        match pieces.recv() {
            Ok(Piece::Data(at, data)) => {
                take(at, &data)?;
                // Where the thread has ended it is not wanted.
                let _ = empty.send(data);
            }
            Ok(Piece::End(result)) => return result,
            Err(_) => return Err(Error::new("", "a thread that reads has ended")),
        }
    }
}

/// Gives the data of a file, by its number, piece by piece.
type Read<'a> = dyn FnMut(usize, &mut Take<'_>) -> Result<()> + 'a;

struct Filler<'a> {
    source: Arc<Source>,
    manifest: &'a Manifest,
    progress: &'a Progress,
    block: usize,
    changes: u64,
    heap_bytes: usize,
    data_bytes: u64,
    block_bytes: u64,
    /// Where files with several names were made.
    places: HashMap<usize, PathBuf>,
}

impl Filler<'_> {
    fn run(&mut self, read: &mut Read<'_>) -> Result<(u64, u64)> {
        let mut number = 0;
        let linked = self.linked();
        let root: Arc<dyn SinkDir> = Arc::new(ImageDir::open(&self.source, Path::new("/"))?);
        // From the root to where it is.
        let mut open = vec![(PathBuf::from("/"), root)];
        for (path, directory) in self.manifest.each_directory() {
            if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
                while open.len() > 1 && open.last().is_some_and(|(path, _)| path != parent) {
                    open.pop();
                }
                let (_, above) = &open[open.len() - 1];
                let dir = above.open_dir(name)?;
                open.push((path.clone(), dir));
            }
            let dir = Arc::clone(&open[open.len() - 1].1);
            for (name, node) in self.manifest.names(directory) {
                self.progress.check()?;
                if let Some(first) = self.places.get(node) {
                    dir.link(first, name)?;
                    self.changes += 1;
                } else {
                    self.make(&*dir, name, &self.manifest.nodes[*node], &mut number, read)?;
                    self.progress.files.fetch_add(1, Ordering::Relaxed);
                    if linked[*node] {
                        self.places.insert(*node, path.join(name));
                    }
                }
                self.heap_bytes += name.len();
                self.sync_sometimes()?;
            }
            self.attribute(&*dir, OsStr::new("."), &self.manifest.nodes[directory])?;
        }
        self.sync(&self.source.fs)?;
        Ok((self.data_bytes, self.block_bytes))
    }

    /// Which nodes have several names.
    fn linked(&self) -> Vec<bool> {
        let mut linked = vec![false; self.manifest.nodes.len()];
        let mut is_first = self.manifest.marks();
        for (_, directory) in self.manifest.each_directory() {
            for number in self.manifest.names(directory).values() {
                linked[*number] |= !is_first(*number);
            }
        }
        linked
    }

    fn make(
        &mut self,
        dir: &dyn SinkDir,
        name: &OsStr,
        node: &Node,
        number: &mut usize,
        read: &mut Read<'_>,
    ) -> Result<()> {
        match &node.kind {
            Kind::Directory(_) => {
                // lost+found is there.
                let is_there = dir.find(name)?.is_some_and(|it| it.is_directory());
                if !is_there {
                    dir.make_dir(name, name)?;
                    self.changes += 2;
                }
                // It gets its attributes when all is in it.
                return Ok(());
            }
            Kind::Regular(content) => {
                let file = dir.create(name)?;
                self.write(&*file, content, *number, read)?;
                *number += 1;
                file.apply(&change(node))?;
                self.count(node);
                return Ok(());
            }
            Kind::Symlink(target) => {
                dir.symlink(name, target)?;
                self.heap_bytes += target.as_os_str().len();
            }
            Kind::Node { kind, rdev } => dir.make_node(name, *kind, *rdev)?,
        }
        self.attribute(dir, name, node)
    }

    fn write(
        &mut self,
        file: &dyn SinkFile,
        content: &Content,
        number: usize,
        read: &mut Read<'_>,
    ) -> Result<()> {
        let mut end = 0;
        let (block, progress) = (self.block as u64, self.progress);
        let (mut bytes, mut blocks) = (0, 0);
        read(number, &mut |at, data| {
            progress.check()?;
            file.write_at(data, at)?;
            end = at + data.len() as u64;
            bytes += data.len() as u64;
            blocks += (data.len() as u64).div_ceil(block);
            progress
                .bytes
                .fetch_add(data.len() as u64, Ordering::Relaxed);
            Ok(())
        })?;
        self.data_bytes += bytes;
        self.block_bytes += blocks * block;
        match end < content.size {
            true => file.set_len(content.size),
            false => Ok(()),
        }
    }

    fn attribute(&mut self, dir: &dyn SinkDir, name: &OsStr, node: &Node) -> Result<()> {
        dir.apply(name, &change(node))?;
        self.count(node);
        Ok(())
    }

    /// Counts what making a file has changed.
    fn count(&mut self, node: &Node) {
        let xattrs = &node.attributes.xattrs;
        self.changes += 6 + xattrs.len() as u64;
        let bytes = |(name, value): &(std::ffi::OsString, Vec<u8>)| name.len() + value.len();
        self.heap_bytes += xattrs.iter().map(bytes).sum::<usize>();
    }

    fn sync_sometimes(&mut self) -> Result<()> {
        if self.changes < CHANGES_MAX && self.heap_bytes < HEAP_BYTES_MAX {
            return Ok(());
        }
        (self.changes, self.heap_bytes) = (0, 0);
        self.sync(&self.source.fs)
    }

    fn sync(&self, fs: &FileSystem) -> Result<()> {
        fs.sync()
            .map_err(|error| Error::inside("the image", &error))
    }
}

fn change(node: &Node) -> Change {
    let it = &node.attributes;
    Change {
        owner: Some((it.uid, it.gid)),
        permissions: Some(it.permissions),
        times: Some((it.modified, it.modified)),
        xattrs: it.xattrs.clone(),
    }
}

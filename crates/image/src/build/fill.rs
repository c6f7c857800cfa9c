//! Puts all files into a new image: one thread makes everything, in the order of names. Where there
//! may be several threads, another one writes the data of files to the image meanwhile, which would
//! wait in memory for the next commit: the same bytes to the same places.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};

use finefs::FileSystem;

use super::Progress;
use super::content::{Content, Take};
use super::manifest::{Kind, Manifest, Node};
use super::reading::{Open, Read, with_data};
use crate::attributes::Change;
use crate::error::{Error, Result};
use crate::inside::{ImageDir, Source};
use crate::tree::{SinkDir, SinkFile};

/// After so many changes, or bytes of names and attributes, all is put on the image, or else the
/// file system would begin to do so at a time of its own.
const CHANGES_MAX: u64 = 50_000;
const HEAP_BYTES_MAX: usize = 8 << 20;

/// After so many bytes of data the thread that writes them is woken.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// Fills it; gives the bytes of data, and those of the blocks that they were written to.
pub(super) fn fill(
    fs: &FileSystem,
    manifest: &Manifest,
    jobs: usize,
    progress: &Progress,
) -> Result<(u64, u64)> {
    let block = fs.statfs().block_size_bytes as usize;
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
        write_back: None,
        woken_at: 0,
        places: HashMap::new(),
    };
    if jobs < 2 {
        return with_data(manifest, block, jobs, &mut |read| filler.run(read));
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        filler.write_back = Some(sender);
        scope.spawn(move || {
            for () in receiver {
                // What could not be written is the next commit's, which tells why.
                let _ = fs.write_back_data();
            }
        });
        // It goes when this is done, and the thread with it.
        let mut filler = filler;
        with_data(manifest, block, jobs, &mut |read| filler.run(read))
    })
}

struct Filler<'a> {
    source: Arc<Source>,
    manifest: &'a Manifest,
    progress: &'a Progress,
    block: usize,
    changes: u64,
    heap_bytes: usize,
    data_bytes: u64,
    block_bytes: u64,
    /// Wakes the thread that writes data, if there is one, and at how many bytes it did.
    write_back: Option<SyncSender<()>>,
    woken_at: u64,
    /// Where files with several names were made.
    places: HashMap<usize, PathBuf>,
}

impl Filler<'_> {
    fn run(&mut self, read: &mut Read<'_>) -> Result<(u64, u64)> {
        let mut number = 0;
        let linked = self.manifest.linked();
        let root: Arc<dyn SinkDir> = Arc::new(ImageDir::open(&self.source, Path::new("/"))?);
        let mut open = Open::at(root);
        for (path, directory) in self.manifest.each_directory() {
            let dir = open.enter(&path, |above, name| above.open_dir(name))?;
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
                let progress = self.progress;
                let written = write(&*file, content, self.block, &mut |take| {
                    read(*number, &mut |at, data| {
                        progress.note(data.len() as u64)?;
                        take(at, data)
                    })
                })?;
                self.data_bytes += written.0;
                self.block_bytes += written.1;
                self.wake_write_back();
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

    fn wake_write_back(&mut self) {
        if let Some(thread) = &self.write_back
            && self.block_bytes - self.woken_at >= WRITE_BACK_BYTES
        {
            self.woken_at = self.block_bytes;
            // One that is at it takes the rest the next time.
            let _ = thread.try_send(());
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

/// Writes the data that `read` gives; gives its bytes, and those of the blocks that it takes.
pub(super) fn write(
    file: &dyn SinkFile,
    content: &Content,
    block: usize,
    read: &mut dyn FnMut(&mut Take<'_>) -> Result<()>,
) -> Result<(u64, u64)> {
    let (mut end, mut bytes, mut blocks) = (0, 0, 0);
    read(&mut |at, data| {
        file.write_at(data, at)?;
        let length = data.len() as u64;
        end = at + length;
        bytes += length;
        blocks += length.div_ceil(block as u64);
        Ok(())
    })?;
    if end < content.size {
        file.set_len(content.size)?;
    }
    Ok((bytes, blocks * block as u64))
}

/// What a file gets besides its data.
pub(super) fn change(node: &Node) -> Change {
    let it = &node.attributes;
    Change {
        owner: Some((it.uid, it.gid)),
        permissions: Some(it.permissions),
        times: Some((it.modified, it.modified)),
        xattrs: it.xattrs.clone(),
    }
}

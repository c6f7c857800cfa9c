//! The data of all files, in the order in which they are made, read ahead by threads; and the
//! directories that they are made in.
//!
//! The file with number `i` is read by thread `i` modulo their number, and comes through that
//! thread's channel. What small files have comes many at a time: to wake a thread for each would
//! cost as much as to make the file.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::content::{Content, Reader, Take};
use super::manifest::{Kind, Manifest};
use crate::error::{Error, Result};

/// Batches that wait in a channel.
const WAITING_MAX: usize = 8;

/// A batch is sent when it has so many bytes, or so many pieces.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_PIECES: usize = 128;

/// A regular file: the directory where it is listed, its name there, its data.
struct File<'a> {
    directory: Arc<Path>,
    name: &'a OsStr,
    content: &'a Content,
}

impl File<'_> {
    /// What messages call it.
    fn shown(&self) -> String {
        self.directory.join(self.name).display().to_string()
    }
}

/// Data of a file, which goes to this place and has so many bytes; or its end.
enum Piece {
    Data(u64, usize),
    End(Result<()>),
}

/// What comes through a channel: pieces, and their bytes one behind the other.
#[derive(Default)]
struct Batch {
    pieces: VecDeque<Piece>,
    bytes: Vec<u8>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.pieces.len() >= BATCH_PIECES
    }
}

/// Gives the data of a file, by its number, piece by piece.
pub(super) type Read<'a> = dyn FnMut(usize, &mut Take<'_>) -> Result<()> + 'a;

/// Does `work`, which takes the data of all files in their order, with `jobs` threads in all.
pub(super) fn with_data<T>(
    manifest: &Manifest,
    block: usize,
    jobs: usize,
    work: &mut dyn FnMut(&mut Read<'_>) -> Result<T>,
) -> Result<T> {
    let files = files(manifest);
    let readers = jobs.saturating_sub(1).min(files.len());
    if readers == 0 {
        let mut reader = Reader::default();
        return work(&mut |number, take| {
            let file = &files[number];
            let shown = || file.shown();
            file.content.read(&mut reader, &shown, block, take)
        });
    }
    std::thread::scope(|scope| {
        let mut channels = Vec::with_capacity(readers);
        for first in 0..readers {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let (giver, empty) = channel();
            channels.push(Incoming {
                batches: receiver,
                giver,
                batch: Batch::default(),
                taken_bytes: 0,
            });
            let files = files.iter().skip(first).step_by(readers);
            let outgoing = Outgoing {
                batch: Batch::default(),
                sender,
                empty,
            };
            scope.spawn(move || outgoing.read_ahead(files, block));
        }
        // Ends with an error as soon as there is one; the readers then find no receiver.
        let mut channels = channels;
        work(&mut |number, take| channels[number % readers].receive(take))
    })
}

/// The regular files, in the order in which they are made.
fn files(manifest: &Manifest) -> Vec<File<'_>> {
    let mut files = Vec::new();
    let mut is_first = manifest.marks();
    for (path, directory) in manifest.each_directory() {
        let path: Arc<Path> = Arc::from(path);
        for (name, number) in manifest.names(directory) {
            if let Kind::Regular(content) = &manifest.nodes[*number].kind
                && is_first(*number)
            {
                files.push(File {
                    directory: Arc::clone(&path),
                    name,
                    content,
                });
            }
        }
    }
    files
}

/// The directories from the top to where a walk by [`Manifest::each_directory`] is.
pub(super) struct Open<T>(Vec<T>);

impl<T: Clone> Open<T> {
    pub fn at(top: T) -> Open<T> {
        Open(vec![top])
    }

    /// The directory that the walk has come to, which `open` gives by the one above and a name.
    pub fn enter(&mut self, path: &Path, open: impl FnOnce(&T, &OsStr) -> Result<T>) -> Result<T> {
        let depth = path.components().count() - 1;
        if let Some(name) = path.file_name() {
            self.0.truncate(depth);
            let dir = open(&self.0[depth - 1], name)?;
            self.0.push(dir);
        }
        Ok(self.0[depth].clone())
    }
}

/// The end of a channel that reads.
struct Outgoing {
    /// What is sent next.
    batch: Batch,
    sender: SyncSender<Batch>,
    /// Batches to use again.
    empty: Receiver<Batch>,
}

impl Outgoing {
    /// Reads until nobody takes it.
    fn read_ahead<'a>(mut self, files: impl Iterator<Item = &'a File<'a>>, block: usize) {
        let mut reader = Reader::default();
        for file in files {
            let shown = || file.shown();
            let read = file
                .content
                .read(&mut reader, &shown, block, &mut |at, data| {
                    self.batch.bytes.extend_from_slice(data);
                    self.add(Piece::Data(at, data.len()))
                });
            if self.add(Piece::End(read)).is_err() {
                return;
            }
        }
        let _ = self.send();
    }

    fn add(&mut self, piece: Piece) -> Result<()> {
        self.batch.pieces.push_back(piece);
        match self.batch.is_full() {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn send(&mut self) -> Result<()> {
        let next = self.empty.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        let gone = |_| Error::new("", "interrupted");
        self.sender.send(batch).map_err(gone)
    }
}

/// The end of a channel that takes.
struct Incoming {
    batches: Receiver<Batch>,
    /// For batches that were taken.
    giver: Sender<Batch>,
    batch: Batch,
    /// Bytes of the batch that were taken.
    taken_bytes: usize,
}

impl Incoming {
    /// Gives the rest of a file.
    fn receive(&mut self, take: &mut Take<'_>) -> Result<()> {
        loop {
            match self.batch.pieces.pop_front() {
                Some(Piece::Data(at, length)) => {
                    let end = self.taken_bytes + length;
                    take(at, &self.batch.bytes[self.taken_bytes..end])?;
                    self.taken_bytes = end;
                }
                Some(Piece::End(result)) => return result,
                None => self.next()?,
            }
        }
    }

    fn next(&mut self) -> Result<()> {
        let ended = |_| Error::new("", "a thread that reads has ended");
        let next = self.batches.recv().map_err(ended)?;
        let mut empty = std::mem::replace(&mut self.batch, next);
        self.taken_bytes = 0;
        empty.bytes.clear();
        // Where the thread has ended it is not wanted.
        let _ = self.giver.send(empty);
        Ok(())
    }
}

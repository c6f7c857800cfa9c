//! The data of all files, in the order in which they are made, read ahead by threads.
//!
//! The file with number `i` is read by thread `i` modulo their number, and comes through that
//! thread's channel.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::content::{Content, Reader, Take};
use super::manifest::{Kind, Manifest};
use crate::error::{Error, Result};

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
        work(&mut |number, take| receive(&channels[number % readers], take))
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

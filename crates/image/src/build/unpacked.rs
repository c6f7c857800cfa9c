//! Archives as files that can be read anywhere: what is compressed, or comes through a pipe, is
//! unpacked into a file without a name.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{channel, sync_channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Progress;
use crate::error::{Error, Result};
use crate::packing::Packing;
/// Bytes that are unpacked at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks in all: one that is filled, one that is written, and those that wait.
const CHUNKS: usize = 4;

/// What messages call standard input.
pub(super) const INPUT: &str = "standard input";

/// An archive of the host, or of standard input without a path, and what messages call it; one that
/// is compressed is unpacked into a file in `directory`.
pub(super) fn open(
    path: Option<&Path>,
    directory: &Path,
    progress: &Progress,
) -> Result<(Arc<File>, String)> {
    let shown = path.map_or(INPUT.to_owned(), |path| path.display().to_string());
    let file = match path {
        Some(path) => open_path(path, &shown, directory, progress)?,
        None => open_input(directory, progress)?,
    };
    Ok((file, shown))
}

/// Opens a file that is read once. The open does not wait for who writes to a pipe.
fn open_at_once(path: &Path) -> std::io::Result<(File, bool)> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    let file = options.read(true).custom_flags(nonblocking).open(path)?;
    let is_seekable = file.metadata()?.is_file();
    Ok((file, is_seekable))
}

/// Reads a file from its beginning to its end; a pipe until somebody wants it to stop.
pub(super) fn reader<'a>(
    path: &Path,
    progress: &'a Progress,
) -> std::io::Result<Box<dyn Read + 'a>> {
    let (file, is_seekable) = open_at_once(path)?;
    Ok(match is_seekable {
        true => Box::new(file),
        false => Box::new(Patient { file, progress }),
    })
}

fn open_path(path: &Path, shown: &str, directory: &Path, progress: &Progress) -> Result<Arc<File>> {
    let failed = |error| Error::host(shown, error);
    let (mut file, is_seekable) = open_at_once(path).map_err(failed)?;
    let mut magic = [0; 6];
    let is_plain = is_seekable && {
        let count = file.read_at(&mut magic, 0).map_err(failed)?;
        Packing::of_start(&magic[..count]) == Packing::None
    };
    match is_plain {
        true => Ok(Arc::new(file)),
        false if is_seekable => unpack(&mut file, shown, directory, progress),
        false => unpack(&mut Patient { file, progress }, shown, directory, progress),
    }
}

/// Unpacks standard input.
fn open_input(directory: &Path, progress: &Progress) -> Result<Arc<File>> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(|error| Error::host(INPUT, error))?;
    let file = File::from(input);
    unpack(&mut Patient { file, progress }, INPUT, directory, progress)
}

/// A pipe or terminal, from which nothing may come for a long time.
struct Patient<'a> {
    file: File,
    progress: &'a Progress,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        /// Somebody who wants it to stop waits no longer.
        const LOOK_NANOS: i64 = 100_000_000;
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_NANOS,
        };
        loop {
            let mut waits = [PollFd::new(&self.file, PollFlags::IN)];
            let found = poll(&mut waits, Some(&wait));
            if self.progress.stop.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("interrupted"));
            }
            match found {
                Ok(0) | Err(Errno::INTR) => {}
                _ => match self.file.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    done => return done,
                },
            }
        }
    }
}

/// Unpacks what may be compressed into a file without a name in `directory`.
pub(super) fn unpack(
    from: &mut dyn Read,
    shown: &str,
    directory: &Path,
    progress: &Progress,
) -> Result<Arc<File>> {
    unpack_noting(from, shown, directory, progress, &mut |_| ())
}

/// The same; `note` is given all that is unpacked, in order.
pub(super) fn unpack_noting(
    from: &mut dyn Read,
    shown: &str,
    directory: &Path,
    progress: &Progress,
    note: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<Arc<File>> {
    let failed = |error| Error::host(shown, error);
    let mut magic = Vec::new();
    let begun = Read::take(&mut *from, 6).read_to_end(&mut magic);
    progress.check()?;
    begun.map_err(failed)?;
    let whole = magic.as_slice().chain(from);
    let mut unpacked = Packing::of_start(&magic).reader(whole).map_err(failed)?;
    let in_directory = |error| Error::host(directory.display().to_string(), error);
    let file = tempfile::tempfile_in(directory).map_err(in_directory)?;
    let written = std::thread::scope(|scope| {
        // The chunks go to a thread that writes them, and come back to be filled again.
        let (chunks, filled) = sync_channel::<Vec<u8>>(CHUNKS - 2);
        let (emptied, empty) = channel();
        for _ in 0..CHUNKS {
            let _ = emptied.send(vec![0; CHUNK_BYTES]);
        }
        let writer = scope.spawn(|| {
            let (mut filled, emptied) = (filled.into_iter(), emptied);
            filled.try_fold(0, |at, chunk| {
                file.write_all_at(&chunk, at)?;
                note(&chunk);
                let end = at + chunk.len() as u64;
                let _ = emptied.send(chunk);
                Ok(end)
            })
        });
        // Where the writer has ended it tells why.
        while let Ok(mut chunk) = empty.recv() {
            chunk.resize(CHUNK_BYTES, 0);
            let count = fill(&mut *unpacked, &mut chunk, shown, progress)?;
            chunk.truncate(count);
            if count == 0 || chunks.send(chunk).is_err() {
                break;
            }
        }
        drop(chunks);
        let written = writer.join().unwrap_or_else(|panic| resume_unwind(panic));
        written.map_err(in_directory)
    });
    written.map(|_: u64| Arc::new(file))
}

/// Fills a buffer, but for the last one; tells how far.
fn fill(
    unpacked: &mut dyn Read,
    buffer: &mut [u8],
    shown: &str,
    progress: &Progress,
) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        progress.check()?;
        match unpacked.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                progress.check()?;
                return Err(Error::new(shown, format!("cannot be unpacked: {error}")));
            }
        }
    }
    Ok(done)
}

//! Reading and writing as PostMark does it, in pieces: through the buffer that the C library's
//! stdio would give the file, or each piece by a call of its own.
//!
//! glibc asks for the file's attributes at the first transfer and takes a buffer of its
//! `st_blksize`, at most 8 KiB. Pieces are copied to and from the buffer, which goes to the file
//! when it is full.

use crate::targets::{Errno, File, Result};

const BUFFER_MAX: usize = 8192;

fn buffer_bytes<F: File>(file: &F) -> Result<usize> {
    Ok((file.stat()?.block_bytes as usize).clamp(1, BUFFER_MAX))
}

/// Reads the file from its start until `into` is full or the file ends: the number of bytes.
pub(super) fn read<F: File>(file: &F, into: &mut [u8], piece: usize) -> Result<usize> {
    let size = buffer_bytes(file)?;
    let mut buffer = [0; BUFFER_MAX];
    let mut done = 0;
    while done < into.len() {
        let count = file.read_at(&mut buffer[..size], done as u64)?;
        let wanted = count.min(into.len() - done);
        let pieces = into[done..done + wanted].chunks_mut(piece);
        for (to, from) in pieces.zip(buffer[..wanted].chunks(piece)) {
            to.copy_from_slice(from);
        }
        done += wanted;
        if count == 0 {
            break;
        }
    }
    Ok(done)
}

/// The same, each piece by a read of its own.
pub(super) fn read_pieces<F: File>(file: &F, into: &mut [u8], piece: usize) -> Result<usize> {
    let mut done = 0;
    for to in into.chunks_mut(piece) {
        let count = file.read_at(to, done as u64)?;
        done += count;
        if count < to.len() {
            break;
        }
    }
    Ok(done)
}

/// Where data goes.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// To the start of a new file.
    Start,
    /// To the end of a file that was opened for appending.
    End,
}

/// Writes `data`.
pub(super) fn write<F: File>(file: &F, data: &[u8], place: Place, piece: usize) -> Result<()> {
    let size = buffer_bytes(file)?;
    let mut buffer = [0; BUFFER_MAX];
    for (number, part) in data.chunks(size).enumerate() {
        for (to, from) in buffer.chunks_mut(piece).zip(part.chunks(piece)) {
            to[..from.len()].copy_from_slice(from);
        }
        put(file, &buffer[..part.len()], place, number * size)?;
    }
    Ok(())
}

/// The same, each piece by a write of its own.
pub(super) fn write_pieces<F: File>(
    file: &F,
    data: &[u8],
    place: Place,
    piece: usize,
) -> Result<()> {
    let mut parts = data.chunks(piece).enumerate();
    parts.try_for_each(|(number, part)| put(file, part, place, number * piece))
}

fn put<F: File>(file: &F, data: &[u8], place: Place, offset: usize) -> Result<()> {
    let count = match place {
        Place::Start => file.write_at(data, offset as u64)?,
        Place::End => file.append(data)?,
    };
    if count < data.len() {
        return Err(Errno::NOSPC);
    }
    Ok(())
}

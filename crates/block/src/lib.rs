//! Block devices: where the bytes of an image lie.
//!
//! # Purpose
//! One small trait, [`BlockDevice`], and what implements it. The stores above know nothing of
//! files, partitions or lying test devices.
//!
//! | Module | Thing |
//! |---|---|
//! | [`file`] | a regular file or a block device of the kernel, guarded against double use |
//! | [`memory`] | bytes in memory, sparse |
//! | [`partition`] | a part of another device |
//! | `claim` | what keeps others from an open image, and what a server tells them |
//! | `in_use` | whether the kernel or a server of finefs uses an image |
//! | `bounds` | the checks of bounds and access that every device makes first |
//! | `loss` | whether a flush failed |
//! | `patience` | waiting for a server that is about to end |
//! | `allocated` | which parts of a sparse file surely have storage |
//!
//! # Invariants
//! 1. Requests past a device's end fail and change nothing. Only `set_len_bytes` moves the end.
//! 2. A read-only device fails every write with `ReadOnlyFilesystem`.
//! 3. Requests are atomic against nothing: whoever issues overlapping requests orders them.
//! 4. What was written before a `flush` that succeeded survives a power loss. After one that failed
//!    none succeeds.
//!
//! # Locking
//! The trait takes `&self` everywhere and implementations are `Sync`. Locks here are leaves: no
//! code of another crate runs under them.

mod allocated;
pub mod bounds;
mod claim;
pub mod file;
mod in_use;
mod loss;
pub mod memory;
pub mod partition;
mod patience;

use std::io;

pub use claim::Claim;
pub use file::{Access, FileDevice, OpenError, OpenErrorKind};
pub use loss::Loss;
pub use patience::Patience;

/// True for an error that says that the storage below the device is full, or a quota of it used up.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
pub use memory::MemoryDevice;
pub use partition::PartitionDevice;

/// The logical sector size of most devices.
pub const SECTOR_BYTES: u32 = 512;

/// One of several writes that may be on their way at once.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// Where it starts.
    pub offset_bytes: u64,
    /// What is written, one part behind the other.
    pub parts: Vec<&'a [u8]>,
}

impl<'a> Write<'a> {
    /// A write of one part.
    pub fn new(offset_bytes: u64, data: &'a [u8]) -> Write<'a> {
        Write {
            offset_bytes,
            parts: vec![data],
        }
    }

    /// The length of all parts.
    pub fn length_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// What is known of the bytes from some offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Of so many.
    pub length_bytes: u64,
    /// They read as zeros. False where nothing is known.
    pub is_zero: bool,
}

/// A fixed-size array of bytes with reads, writes and a barrier. See the crate's invariants.
pub trait BlockDevice: Send + Sync {
    /// Size in bytes.
    fn len_bytes(&self) -> u64;

    /// True when every write is refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buffer` from `offset_bytes` on; fails with `UnexpectedEof` past the end.
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Bytes that cost hardly more to read in one request than a block does: who reads a table
    /// takes neighbours along. 0 where that does not pay.
    fn read_ahead_bytes(&self) -> u32 {
        0
    }

    /// Writes all of `data` at `offset_bytes`; fails with `UnexpectedEof` past the end, and always
    /// where a device does not say how.
    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let _ = (offset_bytes, data);
        Err(bounds::read_only())
    }

    /// Writes all parts, one behind the other, from `offset_bytes` on: one request, as `write_at`
    /// of what they come to.
    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        match parts {
            [part] => self.write_at(offset_bytes, part),
            _ => self.write_at(offset_bytes, &parts.concat()),
        }
    }

    /// Writes all of these, which do not overlap, in any order and where it pays all at once. After
    /// an error some may have been written.
    fn write_many(&self, writes: &[Write<'_>]) -> io::Result<()> {
        for write in writes {
            self.write_parts_at(write.offset_bytes, &write.parts)?;
        }
        Ok(())
    }

    /// [`BlockDevice::write_many`] that returns when these writes are durable. Of earlier ones it
    /// says nothing, unlike a flush.
    fn write_durably(&self, writes: &[Write<'_>]) -> io::Result<()> {
        self.write_many(writes)?;
        self.flush()
    }

    /// What is known of the bytes from `offset_bytes` on: of at most `length_bytes`, at least one
    /// where that is not 0. What reads as zeros need not be read by who copies the device.
    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        Ok(Extent {
            length_bytes,
            is_zero: false,
        })
    }

    /// Makes `length_bytes` from `offset_bytes` on read as zeros; fails as
    /// [`BlockDevice::write_at`] does.
    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let _ = (offset_bytes, length_bytes);
        Err(bounds::read_only())
    }

    /// Gives back the storage below `length_bytes` from `offset_bytes` on. True when they read as
    /// zeros then; false, and nothing has changed, where there is no such thing.
    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        let _ = (offset_bytes, length_bytes);
        Ok(false)
    }

    /// Returns when all that was written before is durable.
    fn flush(&self) -> io::Result<()>;

    /// Takes what storage the bytes need below the device (a sparse file's blocks), so that writing
    /// them later does not fail for lack of it. Changes no byte. `StorageFull` or `QuotaExceeded`
    /// when there is none; where storage cannot be taken beforehand it succeeds all the same.
    fn reserve_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let _ = (offset_bytes, length_bytes);
        Ok(())
    }

    /// [`BlockDevice::reserve_at`] for who will soon want storage for what lies around, too: may
    /// take storage for more than these bytes, so that it is asked for rarely.
    fn reserve_around_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.reserve_at(offset_bytes, length_bytes)
    }

    /// What this host remembers of a range is read anew the next time, where it shares the storage
    /// with others.
    fn forget_cached_at(&self, offset_bytes: u64, length_bytes: u64) {
        let _ = (offset_bytes, length_bytes);
    }

    /// Makes the device longer, by zeros, or cuts it off: for who has it alone. `Unsupported` where
    /// its length is given.
    fn set_len_bytes(&self, length_bytes: u64) -> io::Result<()> {
        let _ = length_bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The logical sector size in bytes: the unit of a partition table. What is no device of its
    /// own, as a file, has 512.
    fn sector_bytes(&self) -> u32 {
        SECTOR_BYTES
    }

    /// Names the device for messages.
    fn describe(&self) -> String;
}

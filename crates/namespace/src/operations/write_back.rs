//! What a kernel's page cache writes out: data that callers stored into its pages, and were told
//! that it was done.

use crate::access::access_time::AtimeUpdate;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::{Ino, Timestamp};
use crate::inode::{Core, Stamped};
use crate::namespace::Namespace;
use crate::schemes::Call;

/// Whether data that is written sets the times of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataTimes {
    /// It does, as write(2).
    Set,
    /// They stay: who cached the data knows when it was stored, and sets them itself.
    Kept,
}

impl DataTimes {
    pub(crate) fn of(self, core: &Core, now: Timestamp) -> Stamped<'_> {
        match self {
            DataTimes::Set => core.modified(now),
            DataTimes::Kept => core.untimed(),
        }
    }
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Caller,
    /// A cache, of what callers were let store into it.
    Cache(DataTimes),
}

impl Origin {
    pub(crate) fn times(self) -> DataTimes {
        match self {
            Origin::Caller => DataTimes::Set,
            Origin::Cache(times) => times,
        }
    }
}

impl Namespace {
    /// As [`Namespace::write`], for pages that a cache writes out: the process that stored into
    /// them was told that it was done. So with ENOSPC or EDQUOT all blocks are written that there
    /// is space for, foremost those that have storage. Blocks that read as their data already lack
    /// nothing. EPERM where they would change what the file's flags protect: a front end has such
    /// pages written out before it sets these flags.
    pub fn write_back(
        &self,
        ino: Ino,
        offset_bytes: u64,
        data: &[u8],
        times: DataTimes,
    ) -> Result<usize> {
        self.check_stored(ino, offset_bytes, data)?;
        let origin = Origin::Cache(times);
        let outcome = self.write_from(ino, offset_bytes, data, origin);
        if !matches!(outcome, Err(Error::NoSpace | Error::QuotaExceeded)) {
            return outcome;
        }
        let block_bytes = self.block_bytes();
        let (mut done, mut is_complete) = (0, true);
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let length = (data.len() - done).min((block_bytes - at % block_bytes) as usize);
            let piece = &data[done..done + length];
            match self.write_once(ino, at, piece, origin) {
                Ok(_) => {}
                Err(Error::NoSpace | Error::QuotaExceeded) => {
                    is_complete &= self.reads_as(ino, at, piece)?
                }
                Err(error) => return Err(error),
            }
            done += length;
        }
        match is_complete {
            true => Ok(data.len()),
            false => outcome,
        }
    }

    /// EPERM where the flags of a file forbid what was stored into its pages.
    fn check_stored(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<()> {
        const ALL: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::VERITY);
        let (flags, size_bytes) = {
            let operation = self.begin(Call::Data)?;
            let inode = self.inode(ino, &operation.guard)?;
            (inode.flags(), inode.size_bytes())
        };
        let is_kept = match flags {
            flags if flags.intersects(ALL) => self.reads_as(ino, offset_bytes, data)?,
            // A page that ends behind the file's end holds that end, too. What reads as zero may be
            // what was appended and comes after what was appended behind it.
            flags if flags.contains(FileFlags::APPEND_ONLY) => {
                let before_end = size_bytes.saturating_sub(offset_bytes);
                let before_end = usize::try_from(before_end).unwrap_or(usize::MAX);
                let data = &data[..data.len().min(before_end)];
                let found = self.found_data(ino, offset_bytes, data.len())?;
                let mut bytes = found.iter().zip(data);
                found.len() == data.len() && bytes.all(|(was, is)| *was == 0 || was == is)
            }
            _ => return Ok(()),
        };
        match is_kept {
            true => Ok(()),
            false => Err(Error::NotPermitted),
        }
    }

    fn reads_as(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<bool> {
        Ok(self.found_data(ino, offset_bytes, data.len())? == data)
    }

    /// What is read there, shorter at the file's end.
    fn found_data(&self, ino: Ino, offset_bytes: u64, length: usize) -> Result<Vec<u8>> {
        let mut found = vec![0; length];
        let length = self.read_with_atime(ino, offset_bytes, &mut found, AtimeUpdate::Never)?;
        found.truncate(length);
        Ok(found)
    }
}

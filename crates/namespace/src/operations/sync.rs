//! sync(2) and fsync(2): everything, or a file, is durable when they return.

use crossbeam_epoch::Guard;

use crate::base::error::{Error, Result};
use crate::base::store::BlockRun;
use crate::base::types::{BlockNo, Ino};
use crate::inode::{FileBody, Inode};
use crate::namespace::Namespace;
use crate::schemes::Call;

impl Namespace {
    /// Makes everything that was done before durable. EIO, once, when data of some file could not
    /// be written and no sync has told that yet.
    pub fn sync(&self) -> Result<()> {
        if self.options.is_read_only {
            return Ok(());
        }
        self.commit()?;
        match self.write_errors.take_unseen() {
            true => Err(lost_data()),
            false => Ok(()),
        }
    }

    /// Lets the file data that waits in memory go to the device, without a commit: what the next
    /// one would have to write is less. What cannot be written stays for it. Other threads can go
    /// on meanwhile.
    pub fn write_back_data(&self) -> Result<()> {
        if self.options.is_read_only {
            return Ok(());
        }
        let all = BlockRun {
            start: BlockNo(0),
            length: u64::MAX,
        };
        self.store.write_data(&[all])?;
        self.store.flush()
    }

    /// Makes an inode's data durable, and its attributes or as many of them as it takes to read the
    /// data (fsync, fdatasync). Costs nothing when nothing changed, and no commit where data was
    /// overwritten and no times changed that count. EIO, once, when data of the file could not be
    /// written and no sync of it has told that yet; [`OpenFile::sync`] tells it to every open file
    /// of the inode.
    ///
    /// [`OpenFile::sync`]: crate::OpenFile::sync
    pub fn sync_file(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.sync_inode(ino, scope, |file| file.write_errors.take_unseen())
    }

    /// As [`Namespace::sync_file`]; `is_lossy` says whether to tell that data was lost.
    pub(crate) fn sync_inode(
        &self,
        ino: Ino,
        scope: SyncScope,
        is_lossy: impl FnOnce(&FileBody) -> bool,
    ) -> Result<()> {
        let (wanted, overwritten, is_lossy) = {
            let operation = self.begin(Call::SyncFile)?;
            let inode = self.inode(ino, &operation.guard)?;
            let wanted = match scope {
                SyncScope::Data => inode.changed_generation(),
                SyncScope::All => self.generation_of_all(inode),
            };
            let overwritten = self.write_overwritten(inode, &operation.guard);
            (wanted, overwritten, inode.file().is_ok_and(is_lossy))
        };
        let flush = match overwritten {
            // What is on a device that failed nobody knows.
            Err(error) if self.health.failure().is_none() => {
                return self.note_failed_sync(error);
            }
            overwritten => overwritten?,
        };
        self.sync_generation(wanted)?;
        self.flush(flush)?;
        if is_lossy { Err(lost_data()) } else { Ok(()) }
    }

    /// The generation that must be durable before all of an inode is. Times that were set in one
    /// tick of the clock with others are not in the log themselves.
    fn generation_of_all(&self, inode: &Inode) -> u64 {
        if self.keeps_log && !self.log.is_dirty(inode) && inode.times() != inode.committed().times {
            self.log_touch(inode);
        }
        inode.dirty_generation()
    }

    /// Brings data of a file to the device that was overwritten and is not durable; gives the flush
    /// after which it is.
    fn write_overwritten(&self, inode: &Inode, guard: &Guard) -> Result<u64> {
        let contents = inode.file().ok().and_then(FileBody::used_contents);
        let extents = contents.and_then(|contents| Some((contents, contents.extents.get()?)));
        let Some((contents, extents)) = extents.filter(|_| self.keeps_log) else {
            return Ok(0);
        };
        contents
            .unsynced
            .write_out(self.log.data_committed(), |blocks| {
                if let Some(error) = self.health.failure() {
                    return Err(error.clone());
                }
                let runs = extents.runs(blocks.start, blocks.end, guard);
                self.scheme.device(|| self.store.write_data(&runs))?;
                Ok(self.committer.flushes.next())
            })
    }

    /// Returns when an inode whose newest change is of generation `dirty` is durable. Where there
    /// is no log, none is ever dirty.
    pub(crate) fn sync_generation(&self, dirty: u64) -> Result<()> {
        if dirty <= self.log.committed() {
            return match self.health.failure() {
                Some(error) if dirty != 0 => Err(error.clone()),
                _ => Ok(()),
            };
        }
        self.commit_generation(dirty)
    }
}

/// What a sync makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncScope {
    /// All of a file (fsync).
    All,
    /// Its data, and what it takes to read that (fdatasync).
    Data,
}

/// What a sync says when data could not be written earlier.
pub(crate) fn lost_data() -> Error {
    Error::io("data could not be written earlier")
}

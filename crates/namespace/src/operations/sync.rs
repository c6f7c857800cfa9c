//! sync(2) and fsync(2): everything, or a file, is durable when they return.

use crate::base::error::{Error, Result};
use crate::base::types::Ino;
use crate::data::write_errors::WriteErrors;
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

    /// Makes an inode's data and attributes durable (fsync, and fdatasync, which here differs in
    /// nothing: one commit writes both). Costs nothing when nothing changed. EIO, once, when data
    /// of the file could not be written and no sync of it has told that yet; [`OpenFile::sync`]
    /// tells it to everybody who has the file open.
    ///
    /// [`OpenFile::sync`]: crate::OpenFile::sync
    pub fn sync_file(&self, ino: Ino) -> Result<()> {
        let (dirty, is_lossy) = {
            let operation = self.begin(Call::SyncFile)?;
            let inode = self.inode(ino, &operation.guard)?;
            let errors = inode.file().ok().map(|file| &file.write_errors);
            (
                inode.dirty_generation(),
                errors.is_some_and(WriteErrors::take_unseen),
            )
        };
        self.sync_generation(dirty)?;
        if is_lossy { Err(lost_data()) } else { Ok(()) }
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

/// What a sync says when data could not be written earlier.
pub(crate) fn lost_data() -> Error {
    Error::io("data could not be written earlier")
}

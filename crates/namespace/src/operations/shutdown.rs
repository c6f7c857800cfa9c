//! The end of a namespace.

use crate::base::error::{Error, Result};
use crate::base::types::Ino;
use crate::commit::volume::Volume;
use crate::namespace::Namespace;

impl Namespace {
    /// Ends the namespace: what has neither name nor user is freed, everything is committed and
    /// the store is closed. Later operations fail with EIO. May be called again, by any thread:
    /// each call returns when that is done, with what it came to.
    ///
    /// EIO in a process that was forked since; nothing is written then.
    pub fn shut_down(&self) -> Result<()> {
        self.check_process()?;
        self.committer.end.get_or_init(|| self.end()).clone()
    }

    /// Whether this process was forked from the one that opened it: it has a copy, of which nothing
    /// comes to the store, and none of the threads.
    pub fn is_inherited(&self) -> bool {
        Volume::is_inherited(self)
    }

    fn end(&self) -> Result<()> {
        {
            let _gate = self.gate.write();
            self.committer.close();
        }
        self.end_file_locks(&Namespace::shut_down_error());
        match self.thaw() {
            // Not frozen.
            Ok(()) | Err(Error::Invalid) => {}
            Err(error) => return Err(error),
        }
        if self.options.is_read_only {
            return self.close_store();
        }
        self.drop_all_references();
        self.commit()?;
        self.close_store()
    }

    fn drop_all_references(&self) {
        let guard = &crossbeam_epoch::pin();
        self.inodes.for_each_from(Ino(0), guard, |inode| {
            if inode.loaded().is_some() && self.inodes.drop_references(inode) {
                self.free_unlinked(inode, guard);
            }
            true
        });
    }
}

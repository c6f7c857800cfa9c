//! What chattr(1) sets (FS_IOC_SETFLAGS).

use crate::access::permission::check_owner;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::{Caller, Ino};
use crate::commit::oplog::Record;
use crate::inode::{Ownership, Time};
use crate::namespace::Namespace;
use crate::schemes::Call;

impl Namespace {
    /// Sets the flags of an inode to what `change` makes of those that it has, in one step. Those
    /// that tell of the format ([`FileFlags::SETTABLE`] are the others) stay, whatever it makes.
    ///
    /// EPERM unless the caller owns the inode, and is the superuser where
    /// [`FileFlags::PRIVILEGED`] ones change; EOPNOTSUPP for flags that inodes of this kind cannot
    /// have, and for new ones that tell how data are mapped or journaled.
    pub fn set_flags(
        &self,
        caller: &Caller,
        ino: Ino,
        change: impl FnOnce(FileFlags) -> FileFlags,
    ) -> Result<()> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        check_owner(caller, inode)?;
        let lock = inode.lock();
        let before = inode.ownership();
        let flags = change(before.flags);
        if (flags ^ before.flags).intersects(FileFlags::PRIVILEGED) && caller.uid != 0 {
            return Err(Error::NotPermitted);
        }
        let converting = FileFlags::EXTENTS | FileFlags::JOURNAL_DATA;
        let settable = flags & FileFlags::SETTABLE;
        if (flags - before.flags).intersects(converting)
            || !FileFlags::of_kind(inode.kind).contains(settable)
        {
            return Err(Error::NotSupported);
        }
        let to = Ownership {
            flags: settable | (before.flags - FileFlags::SETTABLE),
            ..before
        };
        let record = || Record::Owned {
            ino,
            sequence: inode.next_sequence(),
            to,
        };
        self.log_group(|| [record()], 0, &[inode]);
        inode.set_ownership(&lock, to);
        inode.set_time(Time::Changed, self.now());
        Ok(())
    }
}

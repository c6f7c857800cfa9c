//! The access time: which reads are noted in it.
//!
//! A read of a file, a directory or a symbolic link writes nothing but this one time. The usual
//! policy notes the first read after a change and one a day, so that what is read often is hardly
//! ever written. As in Linux, a read at the end of a file is one too, and one of no bytes is none,
//! and following a link on a path in process reads it. (In a mount the kernel keeps what links say,
//! and asks once.)

use crate::base::file_flags::FileFlags;
use crate::base::types::{FileKind, Timestamp};
use crate::commit::options::AtimePolicy;
use crate::inode::{Inode, Time};
use crate::namespace::Namespace;

/// Whether a read is noted in the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtimeUpdate {
    /// As the namespace's policy says.
    ByPolicy,
    /// Not at all: the file was opened so (O_NOATIME), which its opener may
    /// ([`OpenHow::atime`](crate::OpenHow::atime)).
    Never,
}

impl Namespace {
    /// Notes that an inode was read. Somebody has a reference on it.
    pub(crate) fn note_access(&self, inode: &Inode, atime: AtimeUpdate) {
        if let Some(now) = self.due_access(inode, atime) {
            self.log_times(inode.timed(Time::Accessed, now));
        }
    }

    /// The same where nobody may have a reference: nothing is logged of what has gone.
    pub(crate) fn note_passing_access(&self, inode: &Inode) {
        let atime = AtimeUpdate::ByPolicy;
        if self.due_access(inode, atime).is_some() {
            // With its lock held it does not go.
            let _lock = inode.lock();
            if !inode.is_gone() {
                self.note_access(inode, atime);
            }
        }
    }

    /// The time that a read now is to be noted with, if it is: not where nothing may change.
    fn due_access(&self, inode: &Inode, atime: AtimeUpdate) -> Option<Timestamp> {
        const DAY_SECONDS: i64 = 24 * 60 * 60;
        let policy = self.options.atime;
        if atime == AtimeUpdate::Never
            || self.options.is_read_only
            || policy == AtimePolicy::Noatime
        {
            return None;
        }
        if !self.options.notes_directories && inode.kind == FileKind::Directory {
            return None;
        }
        if inode.flags().contains(FileFlags::NO_ATIME) {
            return None;
        }
        let now = self.now();
        let accessed = inode.time(Time::Accessed);
        let is_due = policy == AtimePolicy::Strict
            || accessed <= inode.time(Time::Modified)
            || accessed <= inode.time(Time::Changed)
            || now.seconds() - accessed.seconds() >= DAY_SECONDS;
        let may_note = || !self.freeze.refuses() && self.health.may_change().is_ok();
        (is_due && accessed != now && may_note()).then_some(now)
    }
}

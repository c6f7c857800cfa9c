//! What concerns the file system as a whole: its label, quotas, and its free space.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{ID_MAX, QuotaAccount, QuotaChange, QuotaOwners};
use crate::base::types::{Caller, Ino, StatFs};
use crate::commit::oplog::Record;
use crate::namespace::Namespace;
use crate::schemes::Call;

impl Namespace {
    /// The label, without NUL bytes; empty where there is none.
    pub fn label(&self) -> Vec<u8> {
        self.store.label()
    }

    /// The program that checks such an image, for messages.
    pub fn checker(&self) -> &'static str {
        self.store.checker()
    }

    /// Sets the label, durably. EPERM but for the superuser, EINVAL for one that is longer than the
    /// format has room for, or that holds a NUL byte.
    pub fn set_label(&self, caller: &Caller, label: &[u8]) -> Result<()> {
        check_superuser(caller)?;
        {
            let operation = self.begin_change(Call::SetAttributes)?;
            if label.contains(&0) {
                return Err(Error::Invalid);
            }
            let root = self.inode(self.root(), &operation.guard)?;
            self.store.set_label(label)?;
            // It goes out with a commit, and there is one where there is something to commit.
            self.log_touch(root);
        }
        self.commit_log()
    }

    /// Sets limits or grace times of quotas, durably. EPERM but for the superuser, EOPNOTSUPP where
    /// no account is kept of such owners, EINVAL for an owner beyond [`ID_MAX`].
    pub fn set_quota(
        &self,
        caller: &Caller,
        owners: QuotaOwners,
        change: &QuotaChange,
    ) -> Result<()> {
        check_superuser(caller)?;
        if matches!(change, QuotaChange::Limits { id, .. } if *id > ID_MAX) {
            return Err(Error::Invalid);
        }
        self.with_space(|| {
            let operation = self.begin_change(Call::SetAttributes)?;
            let root = self.inode(self.root(), &operation.guard)?;
            let generation = || self.log.current();
            self.note_load(self.store.set_quota(owners, change, &generation))?;
            self.log_group(|| [Record::touched(root)], 0, &[root.untimed()]);
            Ok(())
        })?;
        self.commit_log()
    }

    /// What an owner has and may have, as the last commit left it (quotactl(2), Q_GETQUOTA). EPERM
    /// but for the superuser, the user, and members of the group, of which `is_in_group` knows;
    /// EOPNOTSUPP where no account is kept of such owners.
    pub fn quota(
        &self,
        caller: &Caller,
        (owners, id): (QuotaOwners, u32),
        is_in_group: impl Fn(u32) -> bool,
    ) -> Result<QuotaAccount> {
        let may_know = caller.uid == 0
            || match owners {
                QuotaOwners::Users => caller.uid == id,
                QuotaOwners::Groups => is_in_group(id),
                QuotaOwners::Projects => false,
            };
        match may_know {
            true => self.store.quota(owners, id),
            false => Err(Error::NotPermitted),
        }
    }

    /// [`Namespace::statfs`] as a directory shows it that gives what is made in it a project: of a
    /// project with limits, what it may have and what is left of that (Linux
    /// `ext4_statfs_project`).
    pub fn statfs_at(&self, ino: Ino) -> Result<StatFs> {
        let whole = self.statfs();
        let attributes = self.attributes(ino)?;
        if !attributes.flags.contains(FileFlags::PROJECT_INHERIT) {
            return Ok(whole);
        }
        let allowed = self
            .store
            .allowance(QuotaOwners::Projects, attributes.project);
        let mut shown = whole;
        if let Some(space) = allowed.space_bytes {
            let block_bytes = u64::from(whole.block_size_bytes).max(1);
            let rest = space.rest() / block_bytes;
            shown.blocks = whole.blocks.min(space.limit / block_bytes);
            shown.blocks_free = whole.blocks_free.min(rest);
            shown.blocks_available = whole.blocks_available.min(rest);
        }
        if let Some(inodes) = allowed.inodes {
            shown.inodes = whole.inodes.min(inodes.limit);
            shown.inodes_free = whole.inodes_free.min(inodes.rest());
        }
        Ok(shown)
    }

    /// Gives back the storage below free blocks that lie within a range of bytes of the file
    /// system, in runs of at least `run_min_bytes` (FITRIM); tells how many bytes they were. What
    /// was removed before the call counts as free. EPERM but for the superuser, EOPNOTSUPP where
    /// nothing can be given back, and EINVAL for a range that begins beyond the end or is shorter
    /// than a block.
    pub fn trim(&self, caller: &Caller, range: Range<u64>, run_min_bytes: u64) -> Result<u64> {
        check_superuser(caller)?;
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        let block_bytes = u64::from(self.geometry.block_size_bytes);
        if range.end.saturating_sub(range.start) < block_bytes {
            return Err(Error::Invalid);
        }
        self.commit_log()?;
        let blocks = range.start.div_ceil(block_bytes)..range.end / block_bytes;
        let run_min = run_min_bytes.div_ceil(block_bytes).max(1);
        let (mut at, mut trimmed) = (blocks.start, 0);
        // Others change and freeze the file system meanwhile.
        while at < blocks.end {
            let _operation = self.begin_change(Call::Data)?;
            let Some((next, freed)) = self.store.trim(at..blocks.end, run_min)? else {
                match at == blocks.start {
                    true => return Err(Error::Invalid),
                    false => break,
                }
            };
            at = next;
            trimmed += freed;
        }
        Ok(trimmed.saturating_mul(block_bytes))
    }
}

/// EPERM but for the superuser.
fn check_superuser(caller: &Caller) -> Result<()> {
    match caller.uid {
        0 => Ok(()),
        _ => Err(Error::NotPermitted),
    }
}

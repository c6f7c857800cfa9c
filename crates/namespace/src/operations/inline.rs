//! Files whose content lies in the inode (inline_data).
//!
//! Every change of such a file holds its data from the first byte on. It either replaces the
//! content, which needs no space of the store (but a block for extended attributes that lose their
//! place in the inode), or moves the content to a block first and then goes on as for any other
//! file. So a change that finds no space has changed nothing that anybody can see, and no commit
//! has to find a block for a content that has outgrown its inode.
//!
//! # References
//! Linux `fs/ext4/inline.c`.

use crossbeam_epoch::Guard;

use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{Extent, ExtentState, MapChange, Plan};
use crate::base::types::LogicalBlock;
use crate::commit::oplog::Record;
use crate::data::inline_data::InlineData;
use crate::inode::{Core, Guarded, Ownership};
use crate::namespace::Namespace;
use crate::operations::data::File;
use crate::operations::mapping::mapped;
use crate::operations::pending::Pending;
use crate::operations::write_back::DataTimes;

impl Namespace {
    /// Writes to a file whose content lies in its inode; false where it does not fit there with
    /// that, or where it lies in blocks. The data is held from the first byte on.
    pub(crate) fn write_inline(
        &self,
        file: &File<'_>,
        offset_bytes: u64,
        data: &[u8],
        times: DataTimes,
    ) -> Result<bool> {
        let end = offset_bytes + data.len() as u64;
        self.change_inline(file, end, times, |content| {
            let (start, end) = (offset_bytes as usize, end as usize);
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(data);
        })
    }

    /// Makes a range read as zeros, and the file reach to its end; false as of
    /// [`Namespace::write_inline`]. The data is held from the first byte on.
    pub(crate) fn zero_inline(&self, file: &File<'_>, (from, to): (u64, u64)) -> Result<bool> {
        self.change_inline(file, to, DataTimes::Set, |content| {
            let (from, to) = (from as usize, to as usize);
            content.resize(content.len().max(to), 0);
            content[from..to].fill(0);
        })
    }

    /// Sets the size of a file whose content lies in its inode; false where it would not fit there,
    /// or where it lies in blocks. The data is held from the first byte on.
    pub(crate) fn truncate_inline(&self, file: &File<'_>, size_bytes: u64) -> Result<bool> {
        self.change_inline(file, size_bytes, DataTimes::Set, |content| {
            content.resize(size_bytes as usize, 0);
        })
    }

    /// Changes the content, which then reaches to `end` at least unless it is cut there.
    fn change_inline(
        &self,
        file: &File<'_>,
        end: u64,
        times: DataTimes,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool> {
        let inode = file.inode;
        let Some(inline) = file.body.inline() else {
            return Ok(false);
        };
        if end > u64::from(self.geometry.inline_max_bytes) {
            return Ok(false);
        }
        let Some(content) = inline.content() else {
            return Ok(false);
        };
        let length_before = content.len();
        let mut content = content.into_vec();
        change(&mut content);
        let grows = content.len() > length_before;
        // Extended attributes that lose their place in the inode go to a block.
        let plan = (grows && !inode.never_had_xattrs()).then_some(Plan::Xattr);
        let reservation = self.reserve(plan.as_slice())?;
        let values = match plan {
            Some(_) => Some(self.values(inode)?),
            None => None,
        };
        let lock = inode.lock();
        if grows {
            if values.is_none() && !inode.never_had_xattrs() {
                // They came in between, for which nothing is reserved.
                return Ok(false);
            }
            let values = values.map(|values| values.read());
            let views: Vec<(&[u8], &[u8])> = (values.iter())
                .flat_map(|values| values.iter().map(|(name, value)| (&**name, &**value)))
                .collect();
            let size = Some(content.len() as u64);
            match self.store.check_xattrs(inode.ino, size, &views) {
                Err(Error::NoSpace) => return Ok(false),
                outcome => _ = outcome?,
            }
        }
        let size_bytes = content.len() as u64;
        let group = || {
            let content = Record::Inline {
                ino: inode.ino,
                sequence: inode.next_sequence(),
                content: Some(content.as_slice().into()),
            };
            let sized = (size_bytes != length_before as u64).then(|| Record::Sized {
                ino: inode.ino,
                sequence: inode.next_sequence(),
                size_bytes,
            });
            [content].into_iter().chain(sized)
        };
        let touched = [times.of(inode, self.now())];
        self.log_group(group, reservation.take(), &touched);
        inline.set(content.into_boxed_slice());
        inode.set_size(&lock, size_bytes);
        show_place(inode, &lock, FileFlags::INLINE_DATA, FileFlags::EXTENTS);
        Ok(true)
    }

    /// Moves the content to a block, if it lies in the inode. The data is held from the first byte
    /// on.
    pub(crate) fn move_out(&self, file: &File<'_>, guard: &Guard) -> Result<()> {
        let inode = file.inode;
        let Some((inline, content)) = file.body.inline().and_then(with_content) else {
            return Ok(());
        };
        let mut pending = Pending::new(self);
        if !content.is_empty() {
            let state = ExtentState::Written;
            pending.fill_hole(file.place(), LogicalBlock(0), 1, state, guard)?;
        }
        let reservation = pending.reserve(0, 0)?;
        let holds_data = |extent: &&Extent| extent.state == ExtentState::Written;
        for extent in pending.extents.iter().filter(holds_data) {
            let written = self.write_blank(file, extent, 0, &content);
            self.note_write(file, written)?;
        }
        let lock = inode.lock();
        let group = || {
            let left = Record::Inline {
                ino: inode.ino,
                sequence: inode.next_sequence(),
                content: None,
            };
            let maps = pending.extents.iter().map(|extent| MapChange::Map(*extent));
            [left]
                .into_iter()
                .chain(maps.map(|change| mapped(inode, change)))
        };
        self.log_group(group, reservation.take(), &[inode.untimed()]);
        for extent in std::mem::take(&mut pending.extents) {
            file.extents.insert(extent, guard);
            inode.add_sectors(self.sectors_of(extent.length));
        }
        let mapped_by = match self.geometry.has_unwritten {
            true => FileFlags::EXTENTS,
            false => FileFlags::empty(),
        };
        show_place(inode, &lock, mapped_by, FileFlags::INLINE_DATA);
        inline.leave();
        Ok(())
    }

    /// The room in the inode that extended attributes of an inode may have to share: `None` where
    /// they have all of it.
    pub(crate) fn inline_bytes(&self, inode: &Core) -> Option<u64> {
        if self.geometry.inline_max_bytes == 0 {
            return None;
        }
        match inode.file() {
            Ok(file) => file
                .inline()
                .and_then(InlineData::content)
                .map(|c| c.len() as u64),
            // The names of a directory may come to take all that there is before they go to blocks.
            Err(Error::IsADirectory) => Some(u64::from(self.geometry.inline_max_bytes)),
            Err(_) => None,
        }
    }
}

fn with_content(inline: &InlineData) -> Option<(&InlineData, Box<[u8]>)> {
    inline.content().map(|content| (inline, content))
}

/// What the flags of an inode tell of where its content lies.
fn show_place(
    inode: &Core,
    lock: &finefs_locks::MutexGuard<'_, Guarded>,
    there: FileFlags,
    not_there: FileFlags,
) {
    let before = inode.ownership();
    let flags = (before.flags - not_there) | there;
    if flags != before.flags {
        inode.set_ownership(lock, Ownership { flags, ..before });
    }
}

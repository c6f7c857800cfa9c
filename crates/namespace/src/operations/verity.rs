//! Sealed files: how they are sealed, and what they are known by.
//!
//! # Protocol of sealing
//! As a write behind the end of the file (see `data`): all data is locked, blocks behind the end
//! are freed, what seals the file is computed and written into new ones, and one log group maps
//! them and sets the flag. So a commit brings a file that is sealed or one that is not. The size
//! stays; data changes no more from then on.
//!
//! # References
//! Linux `Documentation/filesystems/fsverity.rst`.

use crossbeam_epoch::Guard;

use crate::access::permission::{check_mutable, check_owner};
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{Extent, ExtentState, MapChange};
use crate::base::types::{Caller, FileKind, Ino, LogicalBlock, SealParameters, VerityDigest};
use crate::commit::oplog::Record;
use crate::data::extent_map::ExtentMap;
use crate::inode::{Inode, Ownership};
use crate::namespace::Namespace;
use crate::operations::data::File;
use crate::operations::defragment::extents_in;
use crate::operations::mapping::mapped;
use crate::operations::pending::Pending;
use crate::operations::sync::SyncScope;
use crate::schemes::Call;

impl Namespace {
    /// What fs-verity knows a sealed file by. ENODATA for any other.
    pub fn verity_digest(&self, ino: Ino) -> Result<VerityDigest> {
        let operation = self.begin(Call::Data)?;
        let guard = &operation.guard;
        if !(self.inode(ino, guard)?.flags()).contains(FileFlags::VERITY) {
            return Err(Error::NoAttribute);
        }
        let file = self.file(ino, guard)?;
        // The blocks may be moved.
        let data = &file.body.contents().data;
        let _range = data.read(&self.scheme, 0..u64::MAX);
        let last = extents_in(file.extents, LogicalBlock(0)..LogicalBlock::MAX, guard).pop();
        let end_bytes = last.map_or(0, |last| last.end().offset_bytes(self.block_bytes()));
        let read = |at, bytes: &mut [u8]| self.read_mapped((ino, file.extents), at, bytes, guard);
        self.note_load(self.store.verity_digest(ino, end_bytes, &read))
    }

    /// Seals a file: its data can be read, and not changed any more. Durable when it returns.
    ///
    /// EPERM but for the owner and the superuser, EISDIR and EINVAL for what is no file, EEXIST for
    /// one that is sealed, EOPNOTSUPP where files cannot be sealed, or this one, which is mapped as
    /// ext2 did it.
    pub fn seal(&self, caller: &Caller, ino: Ino, parameters: &SealParameters<'_>) -> Result<()> {
        self.with_space(|| {
            let operation = self.begin_change(Call::Data)?;
            let guard = &operation.guard;
            let inode = self.inode(ino, guard)?;
            check_sealable(caller, inode)?;
            let file = self.file(ino, guard)?;
            let end = self.form_of(inode).size_max_bytes;
            let _range = self.lock_write(&file, (0, end), false, guard);
            self.move_out(&file, guard)?;
            // It may have been sealed meanwhile.
            check_sealable(caller, inode)?;
            if !inode.flags().contains(FileFlags::EXTENTS) {
                return Err(Error::NotSupported);
            }
            self.seal_locked(&file, parameters, guard)
        })?;
        self.sync_file(ino, SyncScope::All)
    }

    /// Whether a sealed file has these bytes there. Under its range lock.
    pub(crate) fn holds(
        &self,
        file: &File<'_>,
        (offset_bytes, data): (u64, &[u8]),
        guard: &Guard,
    ) -> Result<bool> {
        if offset_bytes + data.len() as u64 > file.inode.size_bytes() {
            return Ok(false);
        }
        let mut found = vec![0; data.len()];
        self.read_mapped(
            (file.inode.ino, file.extents),
            offset_bytes,
            &mut found,
            guard,
        )?;
        Ok(found == data)
    }

    fn seal_locked(
        &self,
        file: &File<'_>,
        parameters: &SealParameters<'_>,
        guard: &Guard,
    ) -> Result<()> {
        let (inode, block_bytes) = (file.inode, self.block_bytes());
        let size_bytes = inode.size_bytes();
        let read =
            |at, bytes: &mut [u8]| self.read_mapped((inode.ino, file.extents), at, bytes, guard);
        let made = self.store.seal(size_bytes, parameters, &read);
        let (place, bytes) = self.note_load(made)?;
        let behind = LogicalBlock::not_before(size_bytes, block_bytes);
        if file.extents.next_mapped(behind, guard).is_some() {
            let end = ExtentMap::END.offset_bytes(block_bytes);
            self.punch(file, (behind.offset_bytes(block_bytes), end), guard)?;
        }
        let first = LogicalBlock::of_byte(place, block_bytes);
        let last = first + bytes.len() as u64 / block_bytes;
        self.end_of(inode, place, bytes.len() as u64)?;
        let mut pending = Pending::new(self);
        let mut block = first;
        while block < last {
            let wanted = last - block;
            let written = ExtentState::Written;
            let extent = pending.fill_hole(file.place(), block, wanted, written, guard)?;
            block = extent.end();
        }
        let hole = pending.hole_before(file.extents, guard);
        let reservation = self.reserve_mapping(pending.extents.len(), hole, 0)?;
        let is_written = |extent: &&Extent| extent.state == ExtentState::Written;
        for extent in pending.extents.iter().filter(is_written) {
            let from = ((extent.logical - first) * block_bytes) as usize;
            let piece = &bytes[from..from + (extent.length * block_bytes) as usize];
            self.note_write(file, self.write_blank(file, extent, 0, piece))?;
        }
        // What was overwritten goes out before any commit seals the file: a crash between the two
        // would leave data that is not what was sealed, for good.
        let data = file.extents.runs(LogicalBlock(0), behind, guard);
        self.note_write(file, self.store.write_data(&data))?;
        let lock = inode.lock();
        let before = inode.ownership();
        let to = Ownership {
            flags: before.flags | FileFlags::VERITY,
            ..before
        };
        let group = || {
            let maps = pending.extents.iter().map(|extent| MapChange::Map(*extent));
            let maps: Vec<Record> = maps.map(|change| mapped(inode, change)).collect();
            let sealed = Record::Owned {
                ino: inode.ino,
                sequence: inode.next_sequence(),
                to,
            };
            maps.into_iter().chain([sealed])
        };
        self.log_group(group, reservation.take(), &[inode.changed(self.now())]);
        for extent in std::mem::take(&mut pending.extents) {
            let is_held = file.extents.insert(extent, guard);
            debug_assert!(is_held, "end_of has looked");
            inode.add_sectors(self.sectors_of(extent.length));
        }
        inode.set_ownership(&lock, to);
        Ok(())
    }
}

/// Whether somebody may seal a file at all.
fn check_sealable(caller: &Caller, inode: &Inode) -> Result<()> {
    check_owner(caller, inode)?;
    check_mutable(inode)?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::Invalid),
    }
    match inode.flags().contains(FileFlags::VERITY) {
        true => Err(Error::Exists),
        false => Ok(()),
    }
}

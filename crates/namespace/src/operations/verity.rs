//! Sealed files: what they are known by.
//!
//! # References
//! Linux `Documentation/filesystems/fsverity.rst`.

use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::{Ino, VerityDigest};
use crate::namespace::Namespace;
use crate::operations::defragment::extents_in;
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
        let last = extents_in(file.extents, 0..u64::MAX, guard).pop();
        let end_bytes = last.map_or(0, |last| last.end() * self.block_bytes());
        let read = |at, bytes: &mut [u8]| self.read_mapped((ino, file.extents), at, bytes, guard);
        self.note_load(self.store.verity_digest(ino, end_bytes, &read))
    }
}

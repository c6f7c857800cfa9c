//! What a kernel's page cache writes out: data that callers stored into its pages, and were told
//! that it was done.

use crate::access::access_time::AtimeUpdate;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::Ino;
use crate::namespace::Namespace;
use crate::operations::data::Origin;
use crate::schemes::Call;

impl Namespace {
    /// As [`Namespace::write`], for pages that a cache writes out: whoever stored into them was
    /// told that it was done. So with ENOSPC all blocks are written that there is space for,
    /// foremost those that have storage. Blocks that read as their data already lack nothing. EPERM
    /// where they would change what the file's flags protect: a front end has such pages written
    /// out before it sets these flags.
    pub fn write_back(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        self.check_stored(ino, offset_bytes, data)?;
        let outcome = self.write_from(ino, offset_bytes, data, Origin::Cache);
        if !matches!(outcome, Err(Error::NoSpace)) {
            return outcome;
        }
        let block_bytes = self.block_bytes();
        let (mut done, mut is_complete) = (0, true);
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let length = (data.len() - done).min((block_bytes - at % block_bytes) as usize);
            let piece = &data[done..done + length];
            match self.write_once(ino, at, piece, Origin::Cache) {
                Ok(_) => {}
                Err(Error::NoSpace) => is_complete &= self.reads_as(ino, at, piece)?,
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
        let protected_bytes = match flags {
            flags if flags.intersects(ALL) => data.len(),
            // A page that ends behind the file's end holds that end, too.
            flags if flags.contains(FileFlags::APPEND_ONLY) => {
                let before_end = size_bytes.saturating_sub(offset_bytes);
                data.len()
                    .min(usize::try_from(before_end).unwrap_or(usize::MAX))
            }
            _ => return Ok(()),
        };
        match self.reads_as(ino, offset_bytes, &data[..protected_bytes])? {
            true => Ok(()),
            false => Err(Error::NotPermitted),
        }
    }

    fn reads_as(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<bool> {
        let mut found = vec![0; data.len()];
        let length = self.read_with_atime(ino, offset_bytes, &mut found, AtimeUpdate::Never)?;
        Ok(length == data.len() && found == data)
    }
}

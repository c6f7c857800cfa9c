//! Small objects as a whole.

use finefs_namespace::{BlockNo, Error, Result};
use finefs_reiser_disk::ObjectKey;

use super::{inode, map, tail};
use crate::state::Mounted;

/// All bytes of a small object: the target of a symbolic link, the value of an attribute.
pub(crate) fn whole(mounted: &Mounted, object: ObjectKey, length_max: usize) -> Result<Vec<u8>> {
    let size = inode::stat(mounted, object)?.size;
    let length = usize::try_from(size)
        .ok()
        .filter(|&length| length <= length_max);
    let Some(length) = length else {
        return Err(Error::corrupt(format_args!(
            "inode {}: {size} bytes, where {length_max} are the most",
            object.object_id
        )));
    };
    // Its packed blocks are found by its number.
    mounted.objects.note_read(object);
    let block_size = mounted.tree.buffers.block_size_bytes();
    let mut content = vec![0; length];
    for extent in map::of_object(mounted, object)? {
        for number in 0..extent.length {
            let start = usize::try_from(extent.logical.0 + number).unwrap_or(usize::MAX);
            let start = start.saturating_mul(block_size);
            let Some(rest) = content.get_mut(start..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let part = rest.len().min(block_size);
            tail::read(
                mounted,
                BlockNo(extent.physical.0 + number),
                0,
                &mut rest[..part],
            )?;
        }
    }
    Ok(content)
}

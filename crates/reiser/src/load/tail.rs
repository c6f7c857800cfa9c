//! The bytes of files that are in the tree: tails, and small files.
//!
//! A block of such bytes has a number behind all blocks of devices, made of its inode and its place
//! in the file. Reading it reads direct items.

use std::ops::ControlFlow;

use finefs_namespace::{BlockNo, Ino, LogicalBlock, Result};
use finefs_reiser_disk::{ItemKind, ObjectKey};

use super::items_around;
use crate::state::Mounted;

/// Bits of the place in the file: tails end files of a few blocks, or of 4 GiB in old formats.
const PLACE_BITS: u32 = 31;

/// The number of a file's block that is in the tree; `None` where the file is too long for one.
pub(crate) fn block(object: ObjectKey, logical: LogicalBlock) -> Option<BlockNo> {
    let has_room = logical.0 < 1 << PLACE_BITS;
    let number = BlockNo::PACKED | u64::from(object.object_id) << PLACE_BITS | logical.0;
    has_room.then_some(BlockNo(number))
}

/// Reads file data, from the device or from the tree.
pub(crate) fn read(
    mounted: &Mounted,
    block: BlockNo,
    offset_bytes: u64,
    buffer: &mut [u8],
) -> Result<()> {
    if let Some(outcome) = read_tail(mounted, block, offset_bytes, buffer) {
        return outcome;
    }
    let overlay = mounted.tree.buffers.overlay();
    mounted.data.read(overlay, block, offset_bytes, buffer)
}

/// Fills a buffer from a block on that is in the tree; `None` if this one is on the device.
fn read_tail(
    mounted: &Mounted,
    block: BlockNo,
    offset_bytes: u64,
    buffer: &mut [u8],
) -> Option<Result<()>> {
    if !block.is_packed() {
        return None;
    }
    let object_id = block.0 >> PLACE_BITS & u64::from(u32::MAX);
    let logical = LogicalBlock(block.0 & ((1 << PLACE_BITS) - 1));
    let block_size = mounted.tree.buffers.block_size_bytes() as u64;
    let object = mounted.objects.find(Ino(object_id));
    Some(object.and_then(|object| {
        let start = logical.offset_bytes(block_size) + offset_bytes;
        bytes(mounted, object, start, buffer)
    }))
}

/// Fills a buffer with bytes of direct items; what no item has reads as zeros.
fn bytes(mounted: &Mounted, object: ObjectKey, start: u64, buffer: &mut [u8]) -> Result<()> {
    buffer.fill(0);
    let end = start + buffer.len() as u64;
    items_around(
        &mounted.tree,
        object,
        start + 1,
        &mut |head, body, place| {
            match head.key.kind {
                ItemKind::Direct => {}
                ItemKind::StatData | ItemKind::Indirect => return Ok(ControlFlow::Continue(())),
                _ => return Err(place.corrupt("not an item of a file")),
            }
            let item_start = head.key.offset.saturating_sub(1);
            if item_start >= end {
                return Ok(ControlFlow::Break(()));
            }
            let item_end = item_start + body.len() as u64;
            let (from, to) = (item_start.max(start), item_end.min(end));
            if from < to {
                let part = &body[(from - item_start) as usize..(to - item_start) as usize];
                buffer[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
            }
            Ok(ControlFlow::Continue(()))
        },
    )
}

//! Where the blocks of a file are: in blocks of the device (indirect items), or in the tree (direct
//! items).

use std::ops::ControlFlow;

use finefs_namespace::{BlockNo, Error, Extent, ExtentState, Ino, LogicalBlock, Result};
use finefs_reiser_disk::node::ItemHead;
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::{ItemKind, ObjectKey, indirect};

use super::{inode, items_of, tail};
use crate::state::Mounted;
use crate::tree::Place;

/// The most blocks of a file.
pub(crate) const BLOCKS_MAX: u64 = u32::MAX as u64;

/// Loads the mapping of a regular file.
pub(crate) fn load(mounted: &Mounted, ino: Ino) -> Result<Vec<Extent>> {
    let object = mounted.objects.find(ino)?;
    match inode::stat(mounted, object)?.kind {
        FileKind::Regular => of_object(mounted, object),
        _ => Err(Error::Invalid),
    }
}

/// The mapping of any object that holds bytes: extents in ascending order.
pub(crate) fn of_object(mounted: &Mounted, object: ObjectKey) -> Result<Vec<Extent>> {
    let mut map = Map {
        mounted,
        object,
        extents: Vec::new(),
        next: LogicalBlock(0),
    };
    items_of(&mounted.tree, object, 1, &mut |head, body, place| {
        match head.key.kind {
            ItemKind::Indirect => map.indirect(head, body, place)?,
            ItemKind::Direct => map.direct(head, place)?,
            _ => return Err(place.corrupt("not an item of a file")),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(map.extents)
}

struct Map<'a> {
    mounted: &'a Mounted,
    object: ObjectKey,
    extents: Vec<Extent>,
    /// The first block of the file that no item was about yet.
    next: LogicalBlock,
}

impl Map<'_> {
    fn block_size(&self) -> u64 {
        self.mounted.tree.buffers.block_size_bytes() as u64
    }

    fn indirect(&mut self, head: &ItemHead, body: &[u8], place: Place) -> Result<()> {
        let start = head.key.offset - 1;
        let mut logical = LogicalBlock::of_byte(start, self.block_size());
        if !start.is_multiple_of(self.block_size()) || logical < self.next {
            return Err(place.corrupt(format_args!("indirect item {}", head.key)));
        }
        if logical.0 + u64::from(head.length) > BLOCKS_MAX {
            return Err(place.corrupt(format_args!("indirect item {}", head.key)));
        }
        for block in indirect::pointers(body).map_err(|error| place.damaged(&error))? {
            if block != 0 {
                if !self.mounted.tree.may_hold(block) {
                    return Err(place.corrupt(format_args!("data in block {block}")));
                }
                self.push(logical, u64::from(block));
            }
            logical += 1;
        }
        self.next = logical;
        Ok(())
    }

    fn direct(&mut self, head: &ItemHead, place: Place) -> Result<()> {
        let start = head.key.offset - 1;
        let end = start + u64::from(head.length);
        let blocks = start / self.block_size()..end.div_ceil(self.block_size());
        for logical in blocks.map(LogicalBlock) {
            // A block's bytes may be in several items.
            if logical >= self.next {
                let Some(block) = tail::block(self.object, logical) else {
                    return Err(place.corrupt(format_args!("direct item {}", head.key)));
                };
                self.push(logical, block.0);
                self.next = logical + 1;
            }
        }
        Ok(())
    }

    fn push(&mut self, logical: LogicalBlock, physical: u64) {
        if let Some(last) = self.extents.last_mut()
            && last.end() == logical
            && last.physical.0 + last.length == physical
        {
            last.length += 1;
            return;
        }
        self.extents.push(Extent {
            logical,
            physical: BlockNo(physical),
            length: 1,
            state: ExtentState::Written,
        });
    }
}

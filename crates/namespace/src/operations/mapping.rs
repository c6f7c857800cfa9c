//! Changes of a file's mapping, and what is logged of them.

use std::ops::Range;

use crossbeam_epoch::Guard;

use crate::base::store::{BlockRun, ExtentState, MapChange};
use crate::base::types::LogicalBlock;
use crate::commit::oplog::Record;
use crate::data::extent_map::{ExtentMap, Found};
use crate::inode::Inode;

/// Mapped blocks of a file that come to hold data, or to read as zeros.
pub(crate) struct Conversion {
    pub from: LogicalBlock,
    pub to: LogicalBlock,
    pub state: ExtentState,
}

impl Conversion {
    pub fn change(&self) -> MapChange {
        MapChange::Convert {
            logical: self.from,
            length: self.to - self.from,
            to: self.state,
        }
    }
}

/// The written blocks of a range, to become unwritten.
pub(crate) fn written_ranges(
    extents: &ExtentMap,
    blocks: &Range<LogicalBlock>,
    guard: &Guard,
) -> Vec<Conversion> {
    let mut found: Vec<Conversion> = Vec::new();
    let mut at = blocks.start;
    while at < blocks.end
        && let Some(next) = extents.next_mapped(at, guard)
        && next < blocks.end
        && let Found::Mapped(extent) = extents.find(next, guard)
    {
        at = extent.end();
        if extent.state == ExtentState::Unwritten {
            continue;
        }
        let end = at.min(blocks.end);
        match found.last_mut() {
            Some(last) if last.to == next => last.to = end,
            _ => found.push(Conversion {
                from: next,
                to: end,
                state: ExtentState::Unwritten,
            }),
        }
    }
    found
}

/// What is logged of conversions.
pub(crate) fn records_of(inode: &Inode, converted: &[Conversion]) -> Vec<Record> {
    let records = converted.iter().map(|range| mapped(inode, range.change()));
    records.collect()
}

/// A change of the mapping that frees nothing.
pub(crate) fn mapped(inode: &Inode, change: MapChange) -> Record {
    Record::Mapped {
        ino: inode.ino,
        sequence: inode.next_sequence(),
        change,
        freed_blocks: 0,
    }
}

/// A range leaves the mapping, where these blocks are.
pub(crate) fn unmapped(
    inode: &Inode,
    logical: LogicalBlock,
    length: u64,
    blocks: &[BlockRun],
) -> Record {
    Record::Mapped {
        ino: inode.ino,
        sequence: inode.next_sequence(),
        change: MapChange::Unmap { logical, length },
        freed_blocks: blocks.iter().map(|run| run.length).sum(),
    }
}

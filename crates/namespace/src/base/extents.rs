//! Runs of blocks: of the store, and of files, and how the mapping of a file changes.

use crate::base::types::{BlockNo, Ino, LogicalBlock};

/// Whether an extent's blocks hold data or read as zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentState {
    /// The blocks hold the file's data.
    Written,
    /// The blocks are allocated and read as zeros.
    Unwritten,
}

/// A run of blocks of a file: `length` blocks from `logical` on lie at `physical` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First block within the file.
    pub logical: LogicalBlock,
    /// First block in the store.
    pub physical: BlockNo,
    /// Number of blocks, at least 1.
    pub length: u64,
    /// Written or not.
    pub state: ExtentState,
}

impl Extent {
    /// The first logical block after the extent.
    pub fn end(&self) -> LogicalBlock {
        self.logical + self.length
    }

    /// Where a block of the file lies, or would lie if the extent went on up to there.
    pub fn place_of(&self, block: LogicalBlock) -> BlockNo {
        BlockNo(self.physical.0 + (block - self.logical))
    }

    /// The part of it within `from..to`, which it must touch.
    pub fn part(&self, from: LogicalBlock, to: LogicalBlock) -> Extent {
        let start = self.logical.max(from);
        Extent {
            logical: start,
            physical: self.place_of(start),
            length: self.end().min(to) - start,
            state: self.state,
        }
    }
}

/// Where a file goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The block behind the one before.
    pub block: BlockNo,
    /// Where in the file that is: it has about as many blocks already.
    pub logical: LogicalBlock,
}

/// A run of blocks in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRun {
    /// First block.
    pub start: BlockNo,
    /// Number of blocks, at least 1.
    pub length: u64,
}

/// Which part of a file it is that lies at some blocks: for a store that keeps contents in another
/// form than they are read in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentPlace {
    /// The file.
    pub ino: Ino,
    /// The block within the file that the first of the blocks holds.
    pub logical: LogicalBlock,
}

/// One change of a file's mapping. The changes of a file are applied in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapChange {
    /// A hole gets newly allocated blocks.
    Map(Extent),
    /// Unwritten blocks now hold data, or blocks that hold data now read as zeros; where they lie
    /// stays. None of the range is a hole.
    Convert {
        /// First block within the file.
        logical: LogicalBlock,
        /// Number of blocks.
        length: u64,
        /// What they become.
        to: ExtentState,
    },
    /// Blocks of the range, where any are mapped, are freed. `length` may be "to the end"
    /// (`LogicalBlock::MAX - logical`).
    Unmap {
        /// First block within the file.
        logical: LogicalBlock,
        /// Number of blocks.
        length: u64,
    },
}

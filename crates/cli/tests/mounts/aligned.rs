//! Memory for direct I/O, at a multiple of a page's size.

use std::ops::Range;

const ALIGNMENT: usize = 4096;

pub struct Aligned {
    space: Vec<u8>,
    range: Range<usize>,
}

impl Aligned {
    /// Zeros.
    pub fn new(length: usize) -> Aligned {
        let space = vec![0; length + ALIGNMENT];
        let start = space.as_ptr().align_offset(ALIGNMENT);
        let range = start..start + length;
        Aligned { space, range }
    }

    pub fn holding(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned::new(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    pub fn bytes(&self) -> &[u8] {
        &self.space[self.range.clone()]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.space[self.range.clone()]
    }
}

//! Indirect items: block numbers of a file, 0 for a hole.

use crate::bytes::le32;
use crate::error::{Corrupt, Result};

/// Bytes of a block number.
pub const POINTER_SIZE: usize = 4;

/// The block numbers of an item's body, in order.
pub fn pointers(body: &[u8]) -> Result<impl Iterator<Item = u32> + '_> {
    if body.is_empty() || !body.len().is_multiple_of(POINTER_SIZE) {
        return Err(Corrupt::IndirectLength(body.len()).into());
    }
    Ok(body.chunks_exact(POINTER_SIZE).map(|chunk| le32(chunk, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let found: Vec<u32> = pointers(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
            .expect("whole")
            .collect();
        assert_eq!(found, [1, 0, 256]);
        assert!(pointers(&[1, 0]).is_err() && pointers(&[]).is_err());
    }
}

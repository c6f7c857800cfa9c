//! Contents of encrypted files: they are encrypted on their way to the blocks, and decrypted on the
//! way back. What is cached and written out is encrypted.
//!
//! Blocks are encrypted whole. Who writes has the file's range locked, rounded out to blocks: so a
//! part of a block can be read, changed and written back.

use finefs_buffers::DataMode;
use finefs_namespace::{BlockNo, BlockRun, ContentPlace, Result};

use crate::crypt::ContentCipher;
use crate::state::ExtState;

/// So much is encrypted at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A file's content at some blocks.
pub(crate) struct Sealed<'a> {
    state: &'a ExtState,
    cipher: &'a ContentCipher,
    /// The file's byte at the start of the blocks.
    start: u64,
    block: BlockNo,
}

impl<'a> Sealed<'a> {
    pub fn new(
        state: &'a ExtState,
        cipher: &'a ContentCipher,
        place: ContentPlace,
        block: BlockNo,
    ) -> Sealed<'a> {
        Sealed {
            state,
            cipher,
            start: place.logical.offset_bytes(state.geometry.block_size.into()),
            block,
        }
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.state.geometry.block_size)
    }

    /// Reads whole blocks, from byte `at` of them on.
    fn read_blocks(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        let overlay = self.state.buffers.overlay();
        self.state.data.read(overlay, self.block, at, blocks)?;
        self.cipher.decrypt(self.start + at, blocks);
        Ok(())
    }

    /// Writes whole blocks.
    fn write_blocks(&self, at: u64, blocks: &mut [u8]) -> Result<()> {
        self.cipher.encrypt(self.start + at, blocks);
        let data = &self.state.data;
        data.write(self.block, at, blocks, DataMode::Ordered)
    }

    /// Reads from byte `offset_bytes` on.
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let block_bytes = self.block_bytes();
        let mut done = 0;
        while done < buffer.len() {
            let at = offset_bytes + done as u64;
            let within = (at % block_bytes) as usize;
            let left = buffer.len() - done;
            let whole = left - left % block_bytes as usize;
            if within == 0 && whole > 0 {
                self.read_blocks(at, &mut buffer[done..done + whole])?;
                done += whole;
                continue;
            }
            let mut block = vec![0; block_bytes as usize];
            self.read_blocks(at - within as u64, &mut block)?;
            let length = left.min(block.len() - within);
            buffer[done..done + length].copy_from_slice(&block[within..within + length]);
            done += length;
        }
        Ok(())
    }

    /// Writes from byte `offset_bytes` on. What is left of the first and last block stays, or
    /// becomes zeros where the blocks are blank.
    pub fn write(&self, offset_bytes: u64, data: &[u8], is_blank: bool) -> Result<()> {
        let block_bytes = self.block_bytes();
        let mut done = 0;
        let mut piece = Vec::new();
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let within = at % block_bytes;
            let length = (data.len() - done).min(PIECE_BYTES - within as usize);
            let (first, end) = (at - within, at + length as u64);
            piece.clear();
            piece.resize((end.next_multiple_of(block_bytes) - first) as usize, 0);
            if !is_blank {
                self.read_ends(first, at..end, &mut piece)?;
            }
            piece[within as usize..within as usize + length]
                .copy_from_slice(&data[done..done + length]);
            self.write_blocks(first, &mut piece)?;
            done += length;
        }
        Ok(())
    }

    /// Reads the first and the last of some blocks, where what is written does not cover them.
    fn read_ends(
        &self,
        first: u64,
        written: std::ops::Range<u64>,
        blocks: &mut [u8],
    ) -> Result<()> {
        let block_bytes = self.block_bytes();
        let last = (written.end - 1) / block_bytes * block_bytes;
        let is_cut = [
            written.start != first,
            !written.end.is_multiple_of(block_bytes),
        ];
        if is_cut[0] || is_cut[1] && last == first {
            self.read_blocks(first, &mut blocks[..block_bytes as usize])?;
        }
        if is_cut[1] && last != first {
            let from = (last - first) as usize;
            self.read_blocks(last, &mut blocks[from..])?;
        }
        Ok(())
    }

    /// Makes all of a run of blocks read as zeros.
    pub fn write_zeros(&self, run: BlockRun) -> Result<()> {
        let length_bytes = run.length * self.block_bytes();
        let mut at = 0;
        while at < length_bytes {
            let piece_bytes = (length_bytes - at).min(PIECE_BYTES as u64);
            self.write_blocks(at, &mut vec![0; piece_bytes as usize])?;
            at += piece_bytes;
        }
        Ok(())
    }
}

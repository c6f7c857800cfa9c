//! A device that shows another and keeps what is written to it in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::Overlay;
use finefs_locks::LockClass;

use crate::sync::Mutex;

/// What was written to a shadow.
pub static SHADOW: LockClass = LockClass::new("ext.shadow", 83);

/// See the module's head. Locking: `ext.shadow` is a leaf, and only one thread takes it.
pub(super) struct Shadow {
    device: Arc<dyn BlockDevice>,
    overlay: Overlay,
    block_bytes: u64,
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Shadow {
    /// Shows `device` with `overlay` in place of what it holds.
    pub fn new(device: Arc<dyn BlockDevice>, overlay: Overlay, block_bytes: u32) -> Shadow {
        Shadow {
            device,
            overlay,
            block_bytes: u64::from(block_bytes),
            written: Mutex::new(&SHADOW, BTreeMap::new()),
        }
    }

    /// The blocks that were written.
    pub fn changes(&self) -> BTreeMap<u64, Arc<[u8]>> {
        let written = self.written.lock();
        let changes = written.iter();
        changes
            .map(|(block, data)| (*block, data.as_slice().into()))
            .collect()
    }

    /// The parts of a range that lie in one block each: block, place in it, place in the range.
    fn parts(
        &self,
        offset: u64,
        length: usize,
    ) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let block_bytes = self.block_bytes;
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = (at % block_bytes) as usize;
            let here = (length - done).min(block_bytes as usize - within);
            let part = (at / block_bytes, within, done, here);
            done += here;
            (here > 0).then_some(part)
        })
    }
}

impl BlockDevice for Shadow {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.overlay.read_at(&*self.device, offset_bytes, buffer)?;
        let written = self.written.lock();
        for (block, within, start, length) in self.parts(offset_bytes, buffer.len()) {
            if let Some(data) = written.get(&block) {
                buffer[start..start + length].copy_from_slice(&data[within..within + length]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        for (block, within, start, length) in self.parts(offset_bytes, data.len()) {
            let mut whole = vec![0; self.block_bytes as usize];
            if length < whole.len() {
                self.read_at(block * self.block_bytes, &mut whole)?;
            }
            whole[within..within + length].copy_from_slice(&data[start..start + length]);
            self.written.lock().insert(block, whole);
        }
        Ok(())
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.write_at(offset_bytes, &vec![0; length_bytes as usize])
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

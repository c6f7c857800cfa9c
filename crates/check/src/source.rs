//! The bytes of the file system, as they are after the journal's replay.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::Overlay;

/// See the module's head.
pub(crate) struct Source {
    pub device: Arc<dyn BlockDevice>,
    pub overlay: Overlay,
}

impl Source {
    /// Fills `buffer` from `offset_bytes` on.
    pub fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.overlay.read_at(&*self.device, offset_bytes, buffer)
    }
}

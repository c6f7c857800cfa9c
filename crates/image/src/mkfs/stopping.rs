//! The wish that the making of a file system stop: a plan that ends early, and a device on which
//! nothing goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs_block::BlockDevice;

use super::error::{MkfsError, Result};

/// Set once somebody wants it to stop.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(pub Arc<AtomicBool>);

impl Stop {
    fn going(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// The error that ends a plan.
    pub fn check(&self) -> Result<()> {
        self.going().map_err(|error| MkfsError::Io {
            place: "the plan".to_owned(),
            action: "made",
            error,
        })
    }
}

/// What making a file system asks of a device, as long as `stop` is not set; then errors of the
/// kind [`io::ErrorKind::Interrupted`], which a device itself does not give.
pub(super) struct Stopping<D> {
    pub device: D,
    pub stop: Stop,
}

impl<D> Stopping<D> {
    fn going(&self) -> io::Result<&D> {
        self.stop.going().map(|()| &self.device)
    }
}

impl<D: BlockDevice> BlockDevice for Stopping<D> {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.going()?.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.going()?.write_at(offset_bytes, data)
    }

    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.going()?.write_parts_at(offset_bytes, parts)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.going()?.write_zeros_at(offset_bytes, length_bytes)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        self.going()?.discard_at(offset_bytes, length_bytes)
    }

    fn forget_cached_at(&self, offset_bytes: u64, length_bytes: u64) {
        self.device.forget_cached_at(offset_bytes, length_bytes);
    }

    fn flush(&self) -> io::Result<()> {
        self.going()?.flush()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::Build;
    use super::super::groups::TableState;
    use super::*;

    #[test]
    fn a_plan_ends_when_it_is_to_stop() {
        let is_stopped = |error: &MkfsError| {
            let kind = io::ErrorKind::Interrupted;
            matches!(error, MkfsError::Io { error, .. } if error.kind() == kind)
        };
        let stop = Stop::default();
        let mut build = Build::new(&Default::default(), 64 << 20, &stop).unwrap();
        stop.0.store(true, Ordering::Relaxed);
        let ended = build.finish(TableState { is_zeroed: true });
        assert!(is_stopped(&ended.unwrap_err()));
        for features in ["", "^flex_bg"] {
            let options = super::super::Options {
                features: features.split_terminator(' ').map(str::to_owned).collect(),
                ..Default::default()
            };
            let ended = Build::new(&options, 64 << 20, &stop).err();
            assert!(is_stopped(&ended.unwrap()));
        }
    }
}

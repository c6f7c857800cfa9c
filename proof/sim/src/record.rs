//! A device that records every request that changes it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use finefs_locks::{LockClass, Mutex};

use super::image::{Image, ImageDevice};
use finefs_block::{BlockDevice, bounds};

/// What a [`RecordingDevice`] saw and holds.
pub static RECORD: LockClass = LockClass::new("sim.record", 96);

/// One request that changes the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Data was written.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Vec<u8>,
    },
    /// Zeros were written.
    WriteZeros {
        /// Where.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Everything before is durable.
    Flush,
    /// Everything before in these bytes is: one of several disks in one record was flushed.
    FlushPart(Range<u64>),
    /// Something happened above that the test wants to find in the record: an operation began, a
    /// sync returned. Changes nothing.
    Marker(u64),
}

impl Request {
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Request::Write { offset_bytes, data } => image.write(*offset_bytes, data),
            Request::WriteZeros {
                offset_bytes,
                length_bytes,
            } => image.write(*offset_bytes, &vec![0; *length_bytes as usize]),
            Request::Flush | Request::FlushPart(_) | Request::Marker(_) => {}
        }
    }
}

/// What a [`RecordingDevice`] saw, with what the device held at first.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What it held at first.
    pub base: Image,
    /// The requests in the order in which they were answered.
    pub requests: Vec<Request>,
}

impl Recorded {
    /// The bytes of the device after the first `count` requests.
    pub fn image_after(&self, count: usize) -> ImageDevice {
        let mut image = self.base.clone();
        for request in &self.requests[..count.min(self.requests.len())] {
            request.apply(&mut image);
        }
        ImageDevice::new(image)
    }
}

/// A device in memory that records every request that changes it. Each takes effect and is recorded
/// in one step, so the record's order is the order of the effects also under concurrent requests.
pub struct RecordingDevice {
    length_bytes: u64,
    state: Mutex<Held>,
}

struct Held {
    image: Image,
    recorded: Recorded,
}

impl RecordingDevice {
    /// Starts with `base`.
    pub fn new(base: Vec<u8>) -> RecordingDevice {
        RecordingDevice::over(Image::from_bytes(&base))
    }

    /// Starts with `base`.
    pub fn over(base: Image) -> RecordingDevice {
        RecordingDevice {
            length_bytes: base.len_bytes(),
            state: Mutex::new(
                &RECORD,
                Held {
                    image: base.clone(),
                    recorded: Recorded {
                        base,
                        requests: Vec::new(),
                    },
                },
            ),
        }
    }

    /// Puts a marker into the record.
    pub fn mark(&self, marker: u64) {
        self.answer(Request::Marker(marker));
    }

    /// A copy of the record so far.
    pub fn recorded(&self) -> Recorded {
        self.state.lock().recorded.clone()
    }

    /// The record so far; a new one begins with what the device holds now.
    pub fn take_recorded(&self) -> Recorded {
        let mut held = self.state.lock();
        let next = Recorded {
            base: held.image.clone(),
            requests: Vec::new(),
        };
        std::mem::replace(&mut held.recorded, next)
    }

    /// What the device holds now.
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// The number of requests recorded so far.
    pub fn request_count(&self) -> usize {
        self.state.lock().recorded.requests.len()
    }

    fn answer(&self, request: Request) {
        let held = &mut *self.state.lock();
        request.apply(&mut held.image);
        held.recorded.requests.push(request);
    }
}

/// A part of a recording device, as a disk of its own: a flush concerns no other part.
pub struct RecordingPart {
    device: Arc<RecordingDevice>,
    range: Range<u64>,
}

impl RecordingPart {
    /// These bytes of a device.
    pub fn new(device: Arc<RecordingDevice>, range: Range<u64>) -> RecordingPart {
        assert!(range.end <= device.length_bytes);
        RecordingPart { device, range }
    }

    fn check(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<u64> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        Ok(self.range.start + offset_bytes)
    }
}

impl BlockDevice for RecordingPart {
    fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        let at = self.check(offset_bytes, buffer.len() as u64)?;
        self.device.read_at(at, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        let at = self.check(offset_bytes, data.len() as u64)?;
        self.device.write_at(at, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let at = self.check(offset_bytes, length_bytes)?;
        self.device.write_zeros_at(at, length_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.answer(Request::FlushPart(self.range.clone()));
        Ok(())
    }

    fn describe(&self) -> String {
        format!("bytes {:?} of a recording device", self.range)
    }
}

impl BlockDevice for RecordingDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, buffer.len() as u64)?;
        self.state.lock().image.read(offset_bytes, buffer);
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, data.len() as u64)?;
        self.answer(Request::Write {
            offset_bytes,
            data: data.to_vec(),
        });
        Ok(())
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.length_bytes, offset_bytes, length_bytes)?;
        self.answer(Request::WriteZeros {
            offset_bytes,
            length_bytes,
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.answer(Request::Flush);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("recording device ({} bytes)", self.length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_rebuilds_every_moment() {
        let device = RecordingDevice::new(vec![1; 1024]);
        device.write_at(0, &[2; 512]).unwrap();
        device.flush().unwrap();
        device.mark(9);
        device.write_zeros_at(256, 512).unwrap();
        let recorded = device.recorded();
        assert_eq!(recorded.requests.len(), 4);
        assert_eq!(
            recorded.requests[1..3],
            [Request::Flush, Request::Marker(9)]
        );
        assert_eq!(recorded.image_after(0).to_bytes(), vec![1; 1024]);
        assert_eq!(recorded.image_after(3).to_bytes()[..512], [2; 512]);
        assert_eq!(recorded.image_after(4).to_bytes()[256..768], [0; 512]);
        assert_eq!(recorded.image_after(4).to_bytes()[768..], [1; 256]);
        assert_eq!(device.take_recorded().requests.len(), 4);
        assert_eq!(device.request_count(), 0);
        let after = recorded.image_after(4).to_bytes();
        assert!(device.recorded().base.to_bytes() == after);
    }
}

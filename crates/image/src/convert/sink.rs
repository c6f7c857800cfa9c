//! What is written: files of each format, or an export of a server.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use finefs_block::{Access, BlockDevice, FileDevice, Patience};
use finefs_disk::{Format, android, qcow2, vhd, vmdk};

use crate::beside::Beside;
use crate::error::{Error, Result};

/// The unit of a disk of VHD and VMDK.
const SECTOR_BYTES: u64 = 512;

/// Takes a disk from its start to its end.
pub(super) struct Sink {
    place: PathBuf,
    kind: Kind,
    length_bytes: u64,
    /// Files that get their places at the end, in this order.
    files: Vec<Beside>,
}

enum Kind {
    /// A new raw file, with a footer or a descriptor beside it in the end.
    Raw(File, Format),
    Qcow2(qcow2::Qcow2Device),
    Android(AndroidWriter),
    Device(DeviceWriter),
}

/// A device that is there, which is written over.
struct DeviceWriter {
    device: Arc<dyn BlockDevice>,
    /// The start of the disk, which is written last. Before that the device has zeros there, so
    /// that nothing takes it for the old disk or for the new one.
    head: Vec<u8>,
    /// What was there is overwritten in part.
    is_begun: bool,
}

/// Partition tables and superblocks lie before this; that of reiserfs at 64 KiB.
const HEAD_BYTES: u64 = 128 << 10;

/// A sparse image in the making.
struct AndroidWriter {
    file: io::BufWriter<File>,
    blocks: u32,
    chunks: u32,
    /// Blocks of the chunk that is being gathered.
    gathered: u64,
    /// Its data; empty where it is zeros.
    data: Vec<u8>,
}

/// A chunk of data is not longer than this: it is gathered in memory.
const CHUNK_BYTES: usize = 8 << 20;

impl Sink {
    /// For a disk of so many bytes at this place.
    pub fn create(
        place: &Path,
        format: Format,
        length_bytes: u64,
        may_replace: bool,
    ) -> Result<Sink> {
        let shown = place.display().to_string();
        let refused = |reason: String| Err(Error::new(shown.clone(), reason));
        if finefs_disk::is_url(place.as_os_str()) {
            if format != Format::Raw || !may_replace {
                return refused(
                    "is on a server: only raw, over what is there (--force)".to_owned(),
                );
            }
            return device(place, length_bytes);
        }
        match (place.symlink_metadata().is_ok(), place.is_file()) {
            (true, false) => return refused("is there already, and is no regular file".into()),
            (true, true) if !may_replace => {
                return refused("is there already (--force replaces it)".into());
            }
            _ => {}
        }
        let beside = Beside::new(place)?;
        let failed = |error: io::Error| Error::host(shown.clone(), error);
        let length_bytes = match format {
            Format::Vhd | Format::Vmdk => length_bytes.next_multiple_of(SECTOR_BYTES),
            Format::AndroidSparse => length_bytes.next_multiple_of(android::BLOCK_BYTES.into()),
            _ => length_bytes,
        };
        let mut files = vec![beside];
        let kind = match format {
            Format::Raw | Format::Vhd => {
                Kind::Raw(create(files[0].path()).map_err(failed)?, format)
            }
            Format::Vmdk => {
                let flat = vmdk::flat_path(place);
                if !may_replace && flat.symlink_metadata().is_ok() {
                    return refused(format!("{} is there already", flat.display()));
                }
                files.insert(0, Beside::new(&flat)?);
                Kind::Raw(create(files[0].path()).map_err(failed)?, format)
            }
            Format::Qcow2 => {
                drop(create(files[0].path()).map_err(failed)?);
                let file = FileDevice::open(files[0].path(), Access::ReadWrite);
                let file = file.map_err(|error| Error::new("", error.to_string()))?;
                Kind::Qcow2(qcow2::create(Arc::new(file), length_bytes).map_err(failed)?)
            }
            Format::AndroidSparse => {
                let file = create(files[0].path()).map_err(failed)?;
                Kind::Android(AndroidWriter::new(file, length_bytes).map_err(failed)?)
            }
            other => return refused(format!("finefs does not write the format {other}")),
        };
        if let Kind::Raw(file, _) = &kind {
            file.set_len(length_bytes).map_err(failed)?;
        }
        Ok(Sink {
            place: place.to_owned(),
            kind,
            length_bytes,
            files,
        })
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::host(self.place.display().to_string(), error)
    }

    /// Bytes of the disk, which come in order, without gaps.
    pub fn data(&mut self, at: u64, data: &[u8]) -> Result<()> {
        let outcome = match &mut self.kind {
            Kind::Raw(file, _) => file.write_all_at(data, at),
            Kind::Qcow2(device) => device.write_at(at, data),
            Kind::Device(writer) => writer.data(at, data),
            Kind::Android(writer) => writer.data(data),
        };
        outcome.map_err(|error| self.failed(error))
    }

    /// Zeros of the disk.
    pub fn zeros(&mut self, at: u64, length_bytes: u64) -> Result<()> {
        let outcome = match &mut self.kind {
            // A new one has nothing but zeros.
            Kind::Raw(..) | Kind::Qcow2(_) => Ok(()),
            Kind::Device(writer) => writer.zeros(at, length_bytes),
            Kind::Android(writer) => writer.zeros(length_bytes),
        };
        outcome.map_err(|error| self.failed(error))
    }

    /// Why it was not made, when somebody has asked for the end.
    pub fn interrupted(&self) -> Error {
        match self.is_begun_in_place() {
            true => Error::new(self.place.display().to_string(), "interrupted"),
            false => Error::new("", "interrupted; nothing was made"),
        }
    }

    /// What failed, and what that leaves.
    pub fn explained(&self, error: Error) -> Error {
        if !self.is_begun_in_place() {
            return error;
        }
        let place = self.place.display().to_string();
        let what = match error.place() == place {
            true => "what was there".to_owned(),
            false => format!("what was at {place}"),
        };
        let reason = format!("{}; {what} is overwritten in part", error.reason());
        error.with_reason(reason)
    }

    fn is_begun_in_place(&self) -> bool {
        matches!(&self.kind, Kind::Device(writer) if writer.is_begun)
    }

    /// Ends it, and puts it to its place; gives the bytes of the disk.
    pub fn finish(mut self) -> Result<u64> {
        let completed = self.complete().map_err(|error| self.failed(error));
        completed.map_err(|error| self.explained(error))?;
        let Sink { kind, files, .. } = self;
        // Ends the handles.
        drop(kind);
        for file in files {
            file.finish()?;
        }
        Ok(self.length_bytes)
    }

    fn complete(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Raw(file, Format::Vhd) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let seconds = now.unwrap_or_default().as_secs() as i64;
                let mut uuid = [0; 16];
                random(&mut uuid)?;
                let footer = vhd::footer(self.length_bytes, seconds, uuid);
                file.write_all_at(&footer, self.length_bytes)
            }
            Kind::Raw(_, Format::Vmdk) => {
                let flat = vmdk::flat_path(&self.place);
                let name = flat.file_name().unwrap_or_default().to_string_lossy();
                let mut id = [0; 4];
                random(&mut id)?;
                let id = u32::from_le_bytes(id) >> 1;
                let text = vmdk::descriptor(self.length_bytes, &name, id);
                std::fs::write(self.files[1].path(), text)
            }
            Kind::Raw(..) => Ok(()),
            Kind::Qcow2(device) => device.flush(),
            Kind::Device(writer) => writer.complete(),
            Kind::Android(writer) => writer.complete(),
        }
    }
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let length = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())?;
    match length == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::other("too little random data")),
    }
}

/// A file, which a killed process of this number may have left.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

/// An export of a server that is large enough.
fn device(place: &Path, length_bytes: u64) -> Result<Sink> {
    let options = finefs_disk::Options {
        access: Access::ReadWrite,
        has_barriers: true,
        patience: Patience {
            limit: Duration::ZERO,
            tell: |_| {},
        },
        format: Some(Format::Raw),
    };
    let opened = finefs_disk::open(place, &options);
    let device = opened
        .map_err(|error| Error::new("", error.to_string()))?
        .device;
    if device.len_bytes() < length_bytes {
        let reason = format!(
            "has {} bytes, and {length_bytes} are needed",
            device.len_bytes()
        );
        return Err(Error::new(place.display().to_string(), reason));
    }
    Ok(Sink {
        place: place.to_owned(),
        length_bytes: device.len_bytes(),
        kind: Kind::Device(DeviceWriter::new(device, length_bytes)),
        files: Vec::new(),
    })
}

impl DeviceWriter {
    /// For a disk of so many bytes at the start of a device.
    fn new(device: Arc<dyn BlockDevice>, length_bytes: u64) -> DeviceWriter {
        DeviceWriter {
            device,
            head: vec![0; length_bytes.min(HEAD_BYTES) as usize],
            is_begun: false,
        }
    }

    /// Takes away the start of what is there, before anything behind it changes.
    fn begin(&mut self) -> io::Result<()> {
        if self.is_begun {
            return Ok(());
        }
        self.is_begun = true;
        self.device.write_zeros_at(0, self.head.len() as u64)?;
        self.device.flush()
    }

    fn data(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        self.begin()?;
        let rest = self.head.get_mut(at as usize..).unwrap_or_default();
        let kept = rest.len().min(data.len());
        rest[..kept].copy_from_slice(&data[..kept]);
        match kept < data.len() {
            true => self.device.write_at(at + kept as u64, &data[kept..]),
            false => Ok(()),
        }
    }

    fn zeros(&mut self, at: u64, length_bytes: u64) -> io::Result<()> {
        self.begin()?;
        let from = at.max(self.head.len() as u64);
        match (at + length_bytes).saturating_sub(from) {
            0 => Ok(()),
            length_bytes => self.device.write_zeros_at(from, length_bytes),
        }
    }

    fn complete(&mut self) -> io::Result<()> {
        if self.is_begun {
            self.device.flush()?;
            self.device.write_at(0, &self.head)?;
        }
        self.device.flush()
    }
}

impl AndroidWriter {
    fn new(file: File, length_bytes: u64) -> io::Result<AndroidWriter> {
        let blocks = u32::try_from(length_bytes / u64::from(android::BLOCK_BYTES));
        let blocks = blocks.map_err(|_| {
            io::Error::other("a disk of this size is larger than an Android sparse image can be")
        })?;
        let mut file = io::BufWriter::new(file);
        // Written again when the number of chunks is known.
        file.write_all(&android::header(blocks, 0))?;
        Ok(AndroidWriter {
            file,
            blocks,
            chunks: 0,
            gathered: 0,
            data: Vec::new(),
        })
    }

    fn data(&mut self, data: &[u8]) -> io::Result<()> {
        if self.gathered > 0 || self.data.len() + data.len() > CHUNK_BYTES {
            self.put()?;
        }
        self.data.extend_from_slice(data);
        Ok(())
    }

    /// Only the last bytes of a disk are no whole blocks.
    fn zeros(&mut self, length_bytes: u64) -> io::Result<()> {
        if !self.data.is_empty() {
            self.put()?;
        }
        self.gathered += length_bytes;
        Ok(())
    }

    /// Puts the chunk that was gathered.
    fn put(&mut self) -> io::Result<()> {
        let block = android::BLOCK_BYTES as usize;
        if self.data.is_empty() && self.gathered == 0 {
            return Ok(());
        }
        if self.data.is_empty() {
            let blocks = self.gathered.div_ceil(block as u64) as u32;
            self.file.write_all(&android::zeros_chunk(blocks))?;
        } else {
            let whole = self.data.len().next_multiple_of(block);
            self.data.resize(whole, 0);
            let blocks = (whole / block) as u32;
            self.file.write_all(&android::data_header(blocks))?;
            self.file.write_all(&self.data)?;
        }
        self.gathered = 0;
        self.data.clear();
        self.chunks += 1;
        Ok(())
    }

    fn complete(&mut self) -> io::Result<()> {
        self.put()?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file
            .write_all(&android::header(self.blocks, self.chunks))?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    const DISK_BYTES: u64 = 1 << 20;

    fn sink(device: &Arc<MemoryDevice>) -> Sink {
        let device: Arc<dyn BlockDevice> = Arc::clone(device) as _;
        Sink {
            place: "nbd://host".into(),
            kind: Kind::Device(DeviceWriter::new(device, DISK_BYTES)),
            length_bytes: DISK_BYTES,
            files: Vec::new(),
        }
    }

    fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
        let mut bytes = vec![0; device.len_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// What ends before the end leaves neither the old disk nor the new one.
    #[test]
    fn the_start_of_a_device_is_written_last() {
        let head = HEAD_BYTES as usize;
        let device = Arc::new(MemoryDevice::from_bytes(&vec![9; 2 * DISK_BYTES as usize]));
        let mut sink = sink(&device);
        assert_eq!(
            sink.interrupted().to_string(),
            "interrupted; nothing was made"
        );
        let part = vec![1; 100_000];
        for at in [0, 100_000] {
            sink.data(at, &part).unwrap();
        }
        sink.zeros(200_000, DISK_BYTES - 200_000).unwrap();
        let so_far = bytes_of(&device);
        assert!(so_far[..head].iter().all(|byte| *byte == 0));
        assert!(so_far[head..200_000].iter().all(|byte| *byte == 1));
        assert_eq!(
            sink.explained(sink.interrupted()).to_string(),
            "nbd://host: interrupted; what was there is overwritten in part"
        );
        assert_eq!(
            sink.explained(Error::new("file", "I/O error")).to_string(),
            "file: I/O error; what was at nbd://host is overwritten in part"
        );
        sink.finish().unwrap();
        let mut wanted = vec![1; 200_000];
        wanted.resize(DISK_BYTES as usize, 0);
        wanted.resize(2 * DISK_BYTES as usize, 9);
        assert!(bytes_of(&device) == wanted);
    }

    #[test]
    fn zeros_may_reach_over_the_start_of_a_device() {
        let device = Arc::new(MemoryDevice::from_bytes(&vec![9; DISK_BYTES as usize]));
        let mut sink = sink(&device);
        sink.zeros(0, DISK_BYTES - 10).unwrap();
        sink.data(DISK_BYTES - 10, &[1; 10]).unwrap();
        sink.finish().unwrap();
        let mut wanted = vec![0; DISK_BYTES as usize - 10];
        wanted.extend([1; 10]);
        assert!(bytes_of(&device) == wanted);
    }
}

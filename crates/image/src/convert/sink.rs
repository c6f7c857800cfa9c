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
    /// What is there is written over.
    Device(Arc<dyn BlockDevice>),
}

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
            Kind::Device(device) => device.write_at(at, data),
            Kind::Android(writer) => writer.data(data),
        };
        outcome.map_err(|error| self.failed(error))
    }

    /// Zeros of the disk.
    pub fn zeros(&mut self, at: u64, length_bytes: u64) -> Result<()> {
        let outcome = match &mut self.kind {
            // A new one has nothing but zeros.
            Kind::Raw(..) | Kind::Qcow2(_) => Ok(()),
            Kind::Device(device) => device.write_zeros_at(at, length_bytes),
            Kind::Android(writer) => writer.zeros(length_bytes),
        };
        outcome.map_err(|error| self.failed(error))
    }

    /// Ends it, and puts it to its place; gives the bytes of the disk.
    pub fn finish(mut self) -> Result<u64> {
        self.complete().map_err(|error| self.failed(error))?;
        // Also ends the handles.
        self.kind = Kind::Device(Arc::new(finefs_block::MemoryDevice::new(0)));
        for file in std::mem::take(&mut self.files) {
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
            Kind::Device(device) => device.flush(),
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
        kind: Kind::Device(device),
        files: Vec::new(),
    })
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

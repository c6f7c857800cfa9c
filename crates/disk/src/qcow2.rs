//! QEMU's copy-on-write images, through crate imago.
//!
//! # Locking
//! `disk.qcow2`: reads and writes share it; giving back clusters and a new length have it alone: no
//! data may be under way to a cluster that goes. It is held over I/O. Below it are locks of imago.

mod truncation;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_block::{BlockDevice, Extent, FileDevice, Loss, bounds};
use finefs_locks::{LockClass, RwLock};
use imago::format::PreallocateMode;
use imago::format::drivers::FormatDriverInstance;
use imago::qcow2::Qcow2;
use imago::storage::StorageOpenOptions;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, Mapping};

/// An open qcow2 image.
pub static QCOW2: LockClass = LockClass::new("disk.qcow2", 92).held_over_io();

type Storage = imago::file::File;

/// A qcow2 image.
pub struct Qcow2Device {
    image: RwLock<FormatAccess<Storage>>,
    /// Keeps the claim.
    file: Arc<FileDevice>,
    /// The same file, to ask for its length.
    bytes: File,
    length_bytes: AtomicU64,
    /// The file's, as it is on the disk for sure.
    durable_bytes: AtomicU64,
    has_barriers: bool,
    loss: Loss,
}

fn storage(file: File, path: &Path, is_writable: bool) -> io::Result<Storage> {
    let options = StorageOpenOptions::new().write(is_writable).filename(path);
    Storage::from_open_file(file, options)
}

/// What an image may have that imago does not know: its bit of the incompatible features of the
/// header, and what makes an image without it.
const UNKNOWN: [(u64, &str); 4] = [
    (
        1 << 0,
        "that was not closed (marked as dirty); put its counts right: qemu-img check -r all",
    ),
    (
        1 << 1,
        "that is marked as corrupt; repair it: qemu-img check -r all",
    ),
    (
        1 << 3,
        "compressed by zstd, which finefs does not read in it; make one without: qemu-img convert \
         -O qcow2, or serve it: qemu-nbd",
    ),
    (
        1 << 4,
        "with extended L2 entries, which finefs does not read; make one without: qemu-img convert \
         -O qcow2, or serve it: qemu-nbd",
    ),
];

/// Refuses what imago does not know.
fn check_features(file: &FileDevice) -> io::Result<()> {
    let mut header = [0; 80];
    if file.read_at(0, &mut header).is_err() {
        // Too short: imago says so.
        return Ok(());
    }
    let (version, features) = (&header[4..8], &header[72..80]);
    let version = version
        .iter()
        .fold(0, |all, byte| all << 8 | u32::from(*byte));
    let features = features
        .iter()
        .fold(0, |all, byte| all << 8 | u64::from(*byte));
    let found = UNKNOWN.iter().find(|(bit, _)| features & bit != 0);
    match found.filter(|_| version >= 3) {
        Some((_, what)) => Err(io::Error::other(format!("is a qcow2 image {what}"))),
        None => Ok(()),
    }
}

/// Opens the image that is in a file. One that needs another file is refused.
pub fn open(file: Arc<FileDevice>, has_barriers: bool) -> io::Result<Qcow2Device> {
    check_features(&file)?;
    let is_writable = !file.is_read_only();
    let storage = storage(file.file()?, file.path(), is_writable)?;
    let mut image = Qcow2::<Storage>::open_image(storage, is_writable).map_err(plain)?;
    if let Some(backing) = image.implicit_backing_file() {
        return Err(io::Error::other(format!(
            "is a qcow2 image over {backing:?}, a file that it names and finefs does not open; \
             make one of both: qemu-img convert -O qcow2, or serve it: qemu-nbd"
        )));
    }
    if image.requires_external_data_file() {
        return Err(io::Error::other(
            "is a qcow2 image with its data in another file, which finefs does not open; make one \
             of both: qemu-img convert -O qcow2, or serve it: qemu-nbd",
        ));
    }
    image.set_backing(None);
    image.set_data_file(None);
    image
        .open_implicit_dependencies_gated(DenyImplicitOpenGate::default())
        .map_err(plain)?;
    check_length(&file)?;
    Qcow2Device::new(image, file, has_barriers)
}

/// Refuses an image whose file was cut short.
fn check_length(file: &FileDevice) -> io::Result<()> {
    let mut bytes = file.file()?;
    let length = bytes.seek(SeekFrom::End(0))?;
    let Some(missing) = truncation::missing(&bytes, length)? else {
        return Ok(());
    };
    Err(io::Error::other(format!(
        "is a truncated qcow2 image: its file has {length} bytes and should have {}; {} of its \
         clusters are missing, from byte {} of the disk on; get the whole image, or have them read \
         as zeros: truncate -s {0} FILE",
        missing.needed_bytes, missing.clusters, missing.first_bytes,
    )))
}

/// Makes an empty image of this size in a file that is there, and empty. Nothing is durable before
/// it is flushed.
pub fn create(file: Arc<FileDevice>, length_bytes: u64) -> io::Result<Qcow2Device> {
    let storage = storage(file.file()?, file.path(), true)?;
    let image = Qcow2::<Storage>::create_builder(storage)
        .size(length_bytes)
        .create_open(DenyImplicitOpenGate::default(), |image| {
            use imago::FormatDriverBuilder;
            Ok(Qcow2::builder(image)
                .backing(None)
                .data_file(None)
                .write(true))
        })
        .map_err(plain)?;
    Qcow2Device::new(image, file, true)
}

/// An error of the format, not of the system.
fn plain(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::other(format!("is a qcow2 image that cannot be used: {error}")),
    }
}

impl Qcow2Device {
    fn new(
        image: Qcow2<Storage>,
        file: Arc<FileDevice>,
        has_barriers: bool,
    ) -> io::Result<Qcow2Device> {
        Ok(Qcow2Device {
            bytes: file.file()?,
            length_bytes: AtomicU64::new(image.size()),
            image: RwLock::new(&QCOW2, FormatAccess::new(image)),
            durable_bytes: AtomicU64::new(0),
            file,
            has_barriers,
            loss: Loss::default(),
        })
    }

    fn check_write(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        if self.file.is_read_only() {
            return Err(bounds::read_only());
        }
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)
    }
}

impl BlockDevice for Qcow2Device {
    fn len_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.file.is_read_only()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, buffer.len() as u64)?;
        self.image.read().read(buffer, offset_bytes)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.check_write(offset_bytes, data.len() as u64)?;
        self.image.read().write(data, offset_bytes)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.check_write(offset_bytes, length_bytes)?;
        self.image.read().write_zeroes(offset_bytes, length_bytes)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        self.check_write(offset_bytes, length_bytes)?;
        let mut image = self.image.write();
        match image.discard_to_zero(offset_bytes, length_bytes) {
            // Of the second version.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        let image = self.image.read();
        let (mapping, length) = image.get_mapping(offset_bytes, length_bytes)?;
        Ok(Extent {
            is_zero: matches!(mapping, Mapping::Zero { .. }),
            length_bytes: length.clamp(length_bytes.min(1), length_bytes),
        })
    }

    fn flush(&self) -> io::Result<()> {
        if self.file.is_read_only() {
            return Ok(());
        }
        let image = self.image.read();
        if !self.has_barriers {
            return image.flush();
        }
        self.loss.flush(|| {
            // The tables come after the data: else a power loss could leave tables that name
            // clusters past the end of the file, which is then taken for truncated.
            let length = self.bytes.metadata()?.len();
            if length > self.durable_bytes.load(Ordering::Relaxed) {
                image.sync()?;
                self.durable_bytes.fetch_max(length, Ordering::Relaxed);
            }
            image.flush()?;
            image.sync()
        })
    }

    fn set_len_bytes(&self, length_bytes: u64) -> io::Result<()> {
        if self.file.is_read_only() {
            return Err(bounds::read_only());
        }
        let mut image = self.image.write();
        image.resize(length_bytes, PreallocateMode::None)?;
        self.length_bytes.store(length_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn describe(&self) -> String {
        self.file.describe()
    }
}

//! Opening images.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use finefs_block::{Access, BlockDevice, Claim, PartitionDevice, Patience};
use finefs_ext::{
    BulkLoad, Encryption, EncryptionChoice, ExtOptions, ExtStore, MasterKey, OnError, QuotaKind,
};
use finefs_namespace::{CommitThreads, Namespace, Options, Store, Timestamp};
use finefs_reiser::{ReiserOptions, ReiserStore};

use crate::cache_size::Shares;
use crate::error::Result;
use crate::image_error::ImageError;
use crate::shared_options::shared_options;

/// How to open an image.
///
/// ```no_run
/// use finefs::ImageOptions;
///
/// // The second partition of a disk image, left as it is.
/// let fs = ImageOptions::new().read_only(true).offset_bytes(257 << 20).open("disk.img")?;
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImageOptions {
    offset_bytes: u64,
    size_limit_bytes: Option<u64>,
    is_read_only: bool,
    skips_recovery: bool,
    lacks_barriers: bool,
    discards: bool,
    mount_point: Option<PathBuf>,
    journal: Option<PathBuf>,
    keys: Vec<MasterKey>,
    encryption: EncryptionChoice,
    limits: Vec<QuotaKind>,
    on_error: Option<OnError>,
    patience: Option<Patience>,
    cache_bytes: Option<u64>,
    data_cache_bytes: Option<u64>,
    bulk_load: Option<BulkLoad>,
    namespace: Options,
}

/// Longer than anything is filled.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A server that is about to end is waited for so long, without a word.
const PATIENCE: Patience = Patience {
    limit: Duration::from_secs(60),
    tell: |_| {},
};

impl ImageOptions {
    /// To read and write, the whole file, a commit every 5 s, relatime.
    pub fn new() -> ImageOptions {
        ImageOptions::default()
    }

    /// Nothing is written; a dirty journal is replayed in memory.
    pub fn read_only(mut self, is_read_only: bool) -> ImageOptions {
        self.is_read_only = is_read_only;
        self
    }

    /// Without recovery the journal is left alone: the image is shown as its blocks lie, without
    /// what its journal alone holds, and nothing is written.
    pub fn recovery(mut self, recovers: bool) -> ImageOptions {
        self.skips_recovery = !recovers;
        self
    }

    /// Where in the image the file system starts.
    pub fn offset_bytes(mut self, offset_bytes: u64) -> ImageOptions {
        self.offset_bytes = offset_bytes;
        self
    }

    /// At most so many bytes of the image, from there on, are looked at.
    pub fn size_limit_bytes(mut self, limit_bytes: Option<u64>) -> ImageOptions {
        self.size_limit_bytes = limit_bytes;
        self
    }

    /// Without barriers nobody waits for the disk: faster, and a power loss may damage the image.
    pub fn barriers(mut self, has_barriers: bool) -> ImageOptions {
        self.lacks_barriers = !has_barriers;
        self
    }

    /// Whether storage below what is removed is given back, after the commit: the file becomes
    /// sparse there, the device is told. What was removed before any commit knew it is left to
    /// [`FileSystem::trim`](crate::FileSystem::trim).
    pub fn discard(mut self, discards: bool) -> ImageOptions {
        self.discards = discards;
        self
    }

    /// Longest time between a change and its commit; 5 s at first, and for zero, as with ext4's
    /// `commit=0`.
    pub fn commit_interval(mut self, interval: Duration) -> ImageOptions {
        self.namespace.commit_interval = match interval.is_zero() {
            true => Options::default().commit_interval,
            false => interval.min(NEVER),
        };
        self
    }

    /// What to call when nothing was committed for that interval and nothing waits to be, once
    /// until something is.
    pub fn when_quiet(mut self, action: fn()) -> ImageOptions {
        self.namespace.when_quiet = Some(action);
        self
    }

    /// Memory for what the image holds, in bytes, above which what was not used lately leaves it:
    /// inodes, names, mappings, blocks of metadata, data that was written; also of files that are
    /// open. What waits for a commit stays, and has a commit made when there is too much of it. At
    /// first an eighth of the machine's memory (of the control group's, in a container), and at
    /// least 64 MiB. A directory that is used is in memory whole, unless it is large and has an
    /// index.
    pub fn cache(mut self, size_bytes: u64) -> ImageOptions {
        self.cache_bytes = Some(size_bytes);
        self
    }

    /// How many threads work on a commit: as many as there are CPUs at first, where there is enough
    /// to do for them.
    pub fn commit_threads(mut self, threads: CommitThreads) -> ImageOptions {
        self.namespace.commit_threads = threads;
        self
    }

    /// Memory that the cache of file data takes at most, in bytes. At first three eighths of
    /// [`ImageOptions::cache`], at most 1 GiB. What is written stays there, dirty (half of it at
    /// most, about) until the next commit, and then clean until the memory is wanted for something
    /// else, or nothing uses it for some seconds.
    pub fn data_cache_max(mut self, size_bytes: u64) -> ImageOptions {
        self.data_cache_bytes = Some(size_bytes);
        self
    }

    /// The image has just been made and is being filled, and is of no use before that has come to
    /// its end: nothing goes through its journal. All times that nobody sets are this one, and one
    /// thread that does the same makes the same image each time, if it syncs at least once in
    /// 100,000 changes: nothing is committed by itself.
    pub fn bulk_load(mut self, seconds: u64) -> ImageOptions {
        self.bulk_load = Some(BulkLoad { seconds });
        self.namespace.commit_interval = NEVER;
        self.namespace.fixed_time = Some(Timestamp::new(seconds as i64, 0));
        self
    }

    /// What to do when it turns out to be damaged; what its superblock says where this is `None`.
    pub fn on_error(mut self, on_error: Option<OnError>) -> ImageOptions {
        self.on_error = on_error;
        self
    }

    /// How long to wait where `finefs mount` had the image and still writes it out after its
    /// unmount, and what to call with the image's path when that takes longer than a second. At
    /// first a minute, and nothing.
    pub fn wait_for_server(mut self, limit: Duration, tell: fn(&Path)) -> ImageOptions {
        self.patience = Some(Patience { limit, tell });
        self
    }

    /// Whose limits are enforced where the image keeps quotas: of these kinds. At first nobody's,
    /// as with the kernel's ext4; account is kept all the same.
    ///
    /// ```
    /// use finefs::{ImageOptions, QuotaKind};
    ///
    /// let options = ImageOptions::new().quota_limits([QuotaKind::User, QuotaKind::Group]);
    /// ```
    pub fn quota_limits(mut self, kinds: impl IntoIterator<Item = QuotaKind>) -> ImageOptions {
        self.limits = kinds.into_iter().collect();
        self
    }

    /// The image or device that the journal of the image lies on, where that is another.
    pub fn journal(mut self, path: impl Into<PathBuf>) -> ImageOptions {
        self.journal = Some(path.into());
        self
    }

    /// One more key of encrypted files (ext4's `encrypt`, fscrypt policies of version 2). What
    /// nobody gave the key of is shown as the kernel shows it then. A directory that
    /// [`FileFlags::ENCRYPTED`](crate::FileFlags::ENCRYPTED) is given gets the first one.
    pub fn key(mut self, key: MasterKey) -> ImageOptions {
        self.keys.push(key);
        self
    }

    /// The ciphers of directories that are given
    /// [`FileFlags::ENCRYPTED`](crate::FileFlags::ENCRYPTED); what is encrypted keeps its own.
    pub fn encryption(mut self, encryption: Encryption) -> ImageOptions {
        self.encryption = EncryptionChoice::default();
        self.encryption.set(encryption);
        self
    }

    /// The same, as it is chosen at that moment.
    #[doc(hidden)]
    pub fn encryption_by(mut self, choice: EncryptionChoice) -> ImageOptions {
        self.encryption = choice;
        self
    }

    /// Where it will be mounted, which is noted in the image.
    pub fn mount_point(mut self, path: impl Into<PathBuf>) -> ImageOptions {
        self.mount_point = Some(path.into());
        self
    }
}

shared_options!(ImageOptions);

/// An open image.
pub struct Image {
    /// Its files. To end: [`Namespace::shut_down`], whose result says whether all is on the image.
    pub namespace: Arc<Namespace>,
    /// What the user should know, a line each: why it is read-only, what is damaged.
    pub notes: Vec<String>,
    /// What its owner wants to be done about damage: a program to which [`Namespace::on_stop`]
    /// tells of it is asked to end at once by [`OnError::Panic`]. The rest the namespace does by
    /// itself.
    pub on_error: OnError,
    /// What keeps others from it.
    pub claim: Option<Claim>,
    /// The same of the device that its journal lies on, where that is another.
    pub journal_claim: Option<Claim>,
}

/// Opens the image that `path` names (a file, a block device, the URL of an NBD export) for a front
/// end that works with inode numbers; else see
/// [`ImageOptions::open`].
pub fn open_image(path: &Path, options: ImageOptions) -> Result<Image> {
    let opened = finefs_disk::open(
        path,
        &finefs_disk::Options {
            access: access_of(&options),
            has_barriers: !options.lacks_barriers,
            patience: options.patience.unwrap_or(PATIENCE),
            format: None,
        },
    );
    let opened = opened.map_err(ImageError::Device)?;
    open_on(opened.device, opened.claim, options)
}

fn access_of(options: &ImageOptions) -> Access {
    match options.is_read_only || options.skips_recovery {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    }
}

/// A disk that is open, so that one program can have several file systems of it open.
pub struct Disk {
    device: Arc<dyn BlockDevice>,
    claim: Option<Claim>,
}

impl Disk {
    /// Opens it, and keeps others from it until this is dropped and the file systems are closed.
    pub fn open(path: &Path, access: Access) -> Result<Disk> {
        Disk::open_as(path, access, true)
    }

    /// The same to write it, but what is written to a regular file need not be durable: as after
    /// cp(1), who needs that syncs the file.
    pub fn open_without_barriers(path: &Path) -> Result<Disk> {
        Disk::open_as(path, Access::ReadWrite, !path.is_file())
    }

    fn open_as(path: &Path, access: Access, has_barriers: bool) -> Result<Disk> {
        let options = finefs_disk::Options {
            access,
            has_barriers,
            patience: PATIENCE,
            format: None,
        };
        let opened = finefs_disk::open(path, &options).map_err(ImageError::Device)?;
        Ok(Disk {
            device: opened.device,
            claim: opened.claim,
        })
    }

    /// What is open already, from which nothing keeps others.
    pub fn of(device: Arc<dyn BlockDevice>) -> Disk {
        let claim = None;
        Disk { device, claim }
    }

    /// What keeps others from it.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// All of its bytes.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// One of its file systems, which must not lap over another; they are only read if the disk is.
    pub fn file_system(&self, options: ImageOptions) -> Result<Image> {
        let options = ImageOptions {
            is_read_only: options.is_read_only || self.device.is_read_only(),
            ..options
        };
        open_on(Arc::clone(&self.device), None, options)
    }

    /// Lets others have it.
    pub fn release(&self) {
        self.claim.iter().for_each(Claim::release);
    }
}

fn open_on(
    device: Arc<dyn BlockDevice>,
    claim: Option<Claim>,
    options: ImageOptions,
) -> Result<Image> {
    let access = access_of(&options);
    let limit_bytes = options.size_limit_bytes;
    let device = part_of(device, options.offset_bytes, limit_bytes)?;
    let (journal, journal_claim) = match &options.journal {
        Some(path) => open_claimed(path, access, 0).map(|(device, claim)| (Some(device), claim))?,
        None => (None, None),
    };
    let image = device.describe();
    let mut namespace_options = options.namespace.clone();
    namespace_options.is_read_only |= access == Access::ReadOnly;
    let shares = Shares::new(options.cache_bytes, options.data_cache_bytes);
    namespace_options.cache_bytes = shares.inodes;
    let Opened {
        store,
        notes,
        on_error,
    } = open_store(device, journal, options, shares)?;
    let namespace = Namespace::new(store, namespace_options)
        .map_err(|error| ImageError::Namespace { image, error })?;
    Ok(Image {
        namespace,
        notes,
        on_error,
        claim,
        journal_claim,
    })
}

/// A store, what the user should know, and what is done about damage.
struct Opened {
    store: Arc<dyn Store>,
    notes: Vec<String>,
    on_error: OnError,
}

/// The store for what is on the device, by its magic number.
fn open_store(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    options: ImageOptions,
    shares: Shares,
) -> std::result::Result<Opened, ImageError> {
    if format_of(&*device) == Some(Format::Reiserfs) {
        let store = ReiserStore::open(
            device,
            &ReiserOptions {
                is_read_only: options.is_read_only,
                skips_recovery: options.skips_recovery,
                data_cache_bytes: Some(shares.data),
                journal,
            },
        )
        .map_err(ImageError::Reiserfs)?;
        return Ok(Opened {
            notes: store.notes(),
            store: Arc::new(store),
            on_error: OnError::ReadOnly,
        });
    }
    let store = ExtStore::open(
        device,
        &ExtOptions {
            is_read_only: options.is_read_only,
            skips_recovery: options.skips_recovery,
            mount_point: options
                .mount_point
                .map(|path| path.into_os_string().into_vec()),
            on_error: options.on_error,
            data_cache_bytes: shares.data,
            buffer_bytes: shares.buffers,
            discards: options.discards,
            bulk_load: options.bulk_load,
            journal,
            keys: options.keys,
            encryption: options.encryption,
            limits: options.limits,
        },
    )
    .map_err(ImageError::Content)?;
    Ok(Opened {
        notes: store.notes(),
        on_error: store.on_error(),
        store: Arc::new(store),
    })
}

/// What is on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    /// reiserfs 3.5 or 3.6.
    Reiserfs,
}

/// Tells by magic numbers what is on a device; `None` for nothing that is known. mkreiserfs clears
/// the place where ext has its own, but mke2fs not the one where reiserfs has.
pub fn format_of(device: &dyn BlockDevice) -> Option<Format> {
    match (
        finefs_ext::is_ext(device),
        finefs_reiser::is_reiserfs(device),
    ) {
        (true, _) => Some(Format::Ext),
        (false, true) => Some(Format::Reiserfs),
        (false, false) => None,
    }
}

/// How long the file system on a device is, where the device is shorter.
pub fn length_of_truncated(device: &dyn BlockDevice) -> Option<u64> {
    match format_of(device)? {
        Format::Ext => finefs_ext::length_of_truncated(device),
        Format::Reiserfs => finefs_reiser::length_of_truncated(device),
    }
}

/// The device at `path`, or the part of it from `offset_bytes` on.
pub fn open_device(path: &Path, access: Access, offset_bytes: u64) -> Result<Arc<dyn BlockDevice>> {
    open_claimed(path, access, offset_bytes).map(|(device, _)| device)
}

/// The same with what keeps others from it.
fn open_claimed(
    path: &Path,
    access: Access,
    offset_bytes: u64,
) -> Result<(Arc<dyn BlockDevice>, Option<Claim>)> {
    let opened = finefs_disk::open(
        path,
        &finefs_disk::Options {
            access,
            has_barriers: true,
            patience: Patience {
                limit: Duration::ZERO,
                ..PATIENCE
            },
            format: None,
        },
    );
    let opened = opened.map_err(ImageError::Device)?;
    Ok((part_of(opened.device, offset_bytes, None)?, opened.claim))
}

fn part_of(
    device: Arc<dyn BlockDevice>,
    offset_bytes: u64,
    limit_bytes: Option<u64>,
) -> std::result::Result<Arc<dyn BlockDevice>, ImageError> {
    if offset_bytes == 0 && limit_bytes.is_none() {
        return Ok(device);
    }
    let there = device.len_bytes().saturating_sub(offset_bytes);
    let length = limit_bytes.map(|limit| limit.min(there));
    let outside = ImageError::Offset {
        image: device.describe(),
        offset_bytes,
        length_bytes: device.len_bytes(),
    };
    match PartitionDevice::new(device, offset_bytes, length) {
        Ok(part) => Ok(Arc::new(part)),
        Err(_) => Err(outside),
    }
}

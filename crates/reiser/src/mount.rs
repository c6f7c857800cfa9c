//! From a device to a mounted file system.
//!
//! 1. The superblock: whether there is one, whether the image is whole.
//! 2. The journal: what a replay would give is put to its place, or, where nothing is written,
//!    shown in place of what the device holds.
//! 3. The superblock again, as the replay leaves it; the root directory.
//! 4. To write: bitmaps and numbers of objects must be sound; the superblock notes the mount; what
//!    save-links say is done.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use finefs_block::BlockDevice;
use finefs_buffers::alloc::{Allocator, GroupCounts, Layout};
use finefs_buffers::{BufferCache, CLEAN_LIMIT_BYTES, FileData, Overlay};
use finefs_namespace::Error;
use finefs_reiser_disk::bitmap::Bitmaps;
use finefs_reiser_disk::object_ids::ObjectIds;
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::superblock::{self, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use finefs_reiser_disk::{KeyVersion, ObjectKey, key};

use crate::apply::save_links::{self, SaveLink};
use crate::apply::{self, Commit};
use crate::error::{MountError, MountErrorKind, detail, detail_of};
use crate::journal;
use crate::journal::writer::{JournalWriter, LogEnd};
use crate::load::{inode, xattr};
use crate::numbers::Numbers;
use crate::objects::Objects;
use crate::state::{Mounted, Postponed, Writer, Writing};
use crate::tree::{Root, Tree};
use crate::{ReiserOptions, space};

/// For file data, where nobody says.
const DATA_CACHE_BYTES: u64 = 64 << 20;

/// Where the superblock is, in bytes, if there is one.
pub(crate) fn superblock_offset(device: &dyn BlockDevice) -> Option<u64> {
    SUPERBLOCK_OFFSETS.into_iter().find(|&offset| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(offset, &mut bytes).is_ok() && superblock::is_superblock(&bytes)
    })
}

/// True when there is a superblock of reiserfs.
pub fn is_reiserfs(device: &dyn BlockDevice) -> bool {
    superblock_offset(device).is_some()
}

/// How long the file system on a device is, where the device is shorter.
pub fn length_of_truncated(device: &dyn BlockDevice) -> Option<u64> {
    let offset = superblock_offset(device)?;
    match read_superblock(device, &Overlay::default(), offset) {
        Err(MountErrorKind::Truncated {
            file_system_bytes, ..
        }) => Some(file_system_bytes),
        _ => None,
    }
}

/// Whether the file system on `image` says that its journal lies on another device.
pub fn has_external_journal(image: &dyn BlockDevice) -> bool {
    superblock_of(image).is_some_and(|superblock| superblock.journal().is_external)
}

/// Whether `journal` says that it is that of the file system on `image`.
pub fn is_journal_of(journal: &dyn BlockDevice, image: &dyn BlockDevice) -> bool {
    superblock_of(image).is_some_and(|it| journal::external::check(journal, &it).is_ok())
}

fn superblock_of(image: &dyn BlockDevice) -> Option<Superblock> {
    let offset = superblock_offset(image)?;
    read_superblock(image, &Overlay::default(), offset).ok()
}

/// Reads the superblock and checks it.
pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    overlay: &Overlay,
    offset: u64,
) -> std::result::Result<Superblock, MountErrorKind> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    overlay
        .read_at(device, offset, &mut bytes)
        .map_err(|error| MountErrorKind::Io(format!("reading the superblock: {error}")))?;
    let damaged = |error| MountErrorKind::Superblock(detail_of(&error));
    let superblock = Superblock::parse(&bytes).map_err(damaged)?;
    superblock.validate().map_err(damaged)?;
    let file_system_bytes =
        u64::from(superblock.block_count()) * u64::from(superblock.block_size());
    if file_system_bytes > device.len_bytes() {
        return Err(MountErrorKind::Truncated {
            file_system_bytes,
            device_bytes: device.len_bytes(),
        });
    }
    Ok(superblock)
}

/// Mounts, to write if that is wanted and possible. See the module's head.
pub(crate) fn mount(
    device: Arc<dyn BlockDevice>,
    options: &ReiserOptions,
) -> std::result::Result<Mounted, MountError> {
    let name = device.describe();
    let cannot = match &options.journal {
        _ if device.is_read_only() => Some("the device is read-only"),
        Some(journal) if journal.is_read_only() => Some("the journal's device is read-only"),
        _ => None,
    };
    let options = &ReiserOptions {
        is_read_only: options.is_read_only || options.skips_recovery,
        ..options.clone()
    };
    let opened = match cannot.filter(|_| !options.is_read_only) {
        None => open(device, options),
        Some(why) => {
            let options = ReiserOptions {
                is_read_only: true,
                ..options.clone()
            };
            open(device, &options).map(|mut mounted| {
                mounted.notes.insert(0, only_read(why));
                mounted
            })
        }
    };
    opened.map_err(|kind| MountError { device: name, kind })
}

fn only_read(why: &str) -> String {
    format!("mounted read-only: {why}")
}

fn open(
    device: Arc<dyn BlockDevice>,
    options: &ReiserOptions,
) -> std::result::Result<Mounted, MountErrorKind> {
    let offset = superblock_offset(&*device).ok_or(MountErrorKind::NotReiserfs)?;
    let before = read_superblock(&*device, &Overlay::default(), offset)?;
    let mut notes = Vec::new();
    let log = match options.skips_recovery {
        true => {
            notes.extend(unrecovered(&before));
            None
        }
        false => log_device(&device, &before, options)?,
    };
    let (overlay, log_end) = match &log {
        Some(log) => settle_log(&device, log, offset, &before, options, &mut notes)?,
        None => (Overlay::default(), None),
    };
    let superblock = read_superblock(&*device, &overlay, offset)?;
    if superblock.check_state() != 0 {
        notes.push("reiserfsck has found errors in it; run reiserfsck".to_owned());
    }
    let why = why_not_written(&superblock, log.is_some());
    let is_written = !options.is_read_only && why.is_none();
    let mut mounted = assemble(device, superblock, offset, overlay, options, is_written);
    check_root(&mounted)?;
    match xattr::roots(&mounted) {
        Ok((_, xattrs)) => mounted.xattrs = xattrs,
        Err(error) => notes.push(format!(
            "extended attributes cannot be read ({}); run reiserfsck",
            detail(&error)
        )),
    }
    let begun = match (log, log_end, why) {
        _ if options.is_read_only => Ok(()),
        (_, _, Some(why)) => Err(why.to_owned()),
        (Some(log), Some(end), None) => begin_writing(&mut mounted, log, end),
        (_, _, None) => Ok(()),
    };
    if let Err(why) = begun {
        mounted.writing = None;
        notes.insert(0, only_read(&why));
    }
    mounted.notes = notes;
    Ok(mounted)
}

/// What is to be known of an image whose journal is left alone.
fn unrecovered(superblock: &Superblock) -> Option<String> {
    let is_unclean = !superblock.is_clean();
    is_unclean.then(|| "the journal is not replayed: what it alone holds is missing".to_owned())
}

/// What the log lies on; `None` where that was not given and need not be replayed.
fn log_device(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &ReiserOptions,
) -> std::result::Result<Option<Arc<dyn BlockDevice>>, MountErrorKind> {
    match &options.journal {
        // A journal elsewhere is not for an image that has its own.
        _ if !superblock.journal().is_external => Ok(Some(device.clone())),
        Some(journal) => {
            journal::external::check(&**journal, superblock)?;
            Ok(Some(journal.clone()))
        }
        None if superblock.is_clean() => Ok(None),
        None => Err(MountErrorKind::ExternalJournal),
    }
}

/// Puts what the log holds to its place, and gives where the log goes on; or, where nothing is
/// written, what shows it.
fn settle_log(
    device: &Arc<dyn BlockDevice>,
    log: &Arc<dyn BlockDevice>,
    offset: u64,
    before: &Superblock,
    options: &ReiserOptions,
    notes: &mut Vec<String>,
) -> std::result::Result<(Overlay, Option<LogEnd>), MountErrorKind> {
    let replay = journal::replay(&**log, before)?;
    let overlay = replay.overlay(log, before.block_size());
    let after = read_superblock(&**device, &overlay, offset)?;
    let is_written = !options.is_read_only && why_not_written(&after, true).is_none();
    if replay.transactions > 0 {
        notes.push(told(replay.transactions, is_written));
    }
    if !is_written {
        return Ok((overlay, None));
    }
    replay.carry_out(&**device, &**log, before.block_size())?;
    Ok((Overlay::default(), Some(replay.end)))
}

/// What was replayed, for the user.
fn told(transactions: u32, is_written: bool) -> String {
    let count = match transactions {
        1 => "1 transaction of the journal".to_owned(),
        n => format!("{n} transactions of the journal"),
    };
    match (is_written, transactions) {
        (true, 1) => format!("{count} was replayed"),
        (true, _) => format!("{count} were replayed"),
        (false, 1) => format!("{count} is shown as replayed"),
        (false, _) => format!("{count} are shown as replayed"),
    }
}

/// Why a file system whose superblock says this is not written; `None` if it may be. `has_log`: it
/// is known what the log lies on.
fn why_not_written(superblock: &Superblock, has_log: bool) -> Option<&'static str> {
    match superblock {
        _ if !has_log => Some(
            "the journal lies on another device; give it (mount -o journal_path=FILE, other \
                 commands --journal FILE)",
        ),
        it if it.check_state() != 0 => Some("there are errors"),
        it if it.hash().is_none() => Some("the superblock does not name the hash of names"),
        _ => None,
    }
}

/// The file system without its writing side.
fn assemble(
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    offset: u64,
    overlay: Overlay,
    options: &ReiserOptions,
    is_written: bool,
) -> Mounted {
    let (block_count, block_size) = (superblock.block_count(), superblock.block_size());
    let root = Root {
        block: superblock.root_block(),
        levels: superblock.levels(),
    };
    let size_bytes = u64::from(block_count) * u64::from(block_size);
    // What is only read does not come in, and no more than there is.
    let cache_bytes = match is_written {
        true => (options.data_cache_bytes.unwrap_or(DATA_CACHE_BYTES)).min(size_bytes),
        false => 0,
    };
    Mounted {
        superblock_at: (offset % u64::from(block_size)) as usize,
        tree: Tree::new(
            BufferCache::with(device.clone(), block_size, overlay, CLEAN_LIMIT_BYTES),
            root,
            Bitmaps::new(block_count, block_size, offset),
            superblock.journal(),
        ),
        data: FileData::new(device.clone(), block_size, size_bytes, cache_bytes),
        hash: superblock.hash(),
        has_attributes: superblock.has_attributes(),
        device,
        superblock,
        objects: Objects::new(),
        xattrs: None,
        xattr_directories: AtomicU64::new(1),
        notes: Vec::new(),
        writing: None,
    }
}

/// What a file system that is written begins with.
struct Prepared {
    layout: Layout,
    counts: Vec<GroupCounts>,
    numbers: ObjectIds,
    links: Vec<SaveLink>,
    /// The hidden directory of the root, and that of attributes.
    private: Option<ObjectKey>,
    xattrs: Option<ObjectKey>,
    xattr_directories: u64,
}

fn found(error: Error) -> String {
    format!("{}; run reiserfsck", detail(&error))
}

/// Looks whether the file system can be written: its bitmaps and the map of numbers must be sound.
fn prepare(mounted: &Mounted) -> std::result::Result<Prepared, String> {
    let superblock = &mounted.superblock;
    let (private, xattrs) = xattr::roots(mounted).map_err(found)?;
    let xattr_directories = xattr::count(mounted).map_err(found)?;
    let (layout, counts) = space::layout(&mounted.tree, superblock).map_err(found)?;
    let free: u64 = counts
        .iter()
        .map(|count| u64::from(count.free_blocks))
        .sum();
    if free != u64::from(superblock.free_blocks()) {
        return Err(format!(
            "{free} blocks are free in the bitmaps, {} by the superblock; run reiserfsck",
            superblock.free_blocks()
        ));
    }
    let block = mounted
        .tree
        .buffers
        .read(u64::from(mounted.superblock_block()));
    let block = block.map_err(found)?;
    let map = block.get(mounted.superblock_at + superblock.object_ids_offset()..);
    let (words, words_max) = superblock.object_ids();
    let map = map.unwrap_or_default();
    let numbers = ObjectIds::parse(map, words)
        .map_err(|error| format!("{}; run reiserfsck", detail_of(&error)))?;
    if words > words_max || 4 * usize::from(words_max) > map.len() {
        return Err("the map of object numbers does not fit; run reiserfsck".to_owned());
    }
    Ok(Prepared {
        layout,
        counts,
        numbers,
        links: save_links::find(mounted).map_err(found)?,
        private,
        xattrs,
        xattr_directories,
    })
}

/// Why an image would not be written; nothing is.
pub(crate) fn why_read_only(
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> std::result::Result<Option<String>, MountError> {
    let is_given = journal.is_some();
    let options = ReiserOptions {
        is_read_only: true,
        journal,
        ..ReiserOptions::default()
    };
    let mounted = mount(device, &options)?;
    let superblock = &mounted.superblock;
    match why_not_written(superblock, is_given || !superblock.journal().is_external) {
        Some(why) => Ok(Some(why.to_owned())),
        None => Ok(prepare(&mounted).err()),
    }
}

/// Makes the file system one that is written. What an earlier mount left to be done is done.
fn begin_writing(
    mounted: &mut Mounted,
    log: Arc<dyn BlockDevice>,
    end: LogEnd,
) -> std::result::Result<(), String> {
    let Prepared {
        layout,
        counts,
        numbers,
        links,
        private,
        xattrs,
        xattr_directories,
    } = prepare(mounted)?;
    mounted.xattr_directories = AtomicU64::new(xattr_directories);
    let mut superblock = mounted.superblock.clone();
    superblock.count_mount();
    let is_external = superblock.journal().is_external;
    let main = is_external.then(|| mounted.device.clone());
    let writer = Writer {
        journal: JournalWriter::open(log, main, &superblock, end).map_err(found)?,
        numbers: numbers.clone(),
        superblock,
        orphans: HashSet::new(),
        postponed: Postponed::default(),
    };
    let generation = writer.superblock.inode_generation();
    mounted.writing = Some(Writing::new(
        Allocator::new(layout, &counts),
        Numbers::new(numbers, generation),
        writer,
    ));
    begin(mounted, &links).map_err(found)?;
    if xattrs.is_none() && mounted.superblock.version() == KeyVersion::V3_6 {
        mounted.xattrs = match make_xattr_root(mounted, private) {
            Ok(made) => Some(made),
            // There are no attributes then.
            Err(Error::NoSpace) => None,
            Err(error) => return Err(found(error)),
        };
    }
    Ok(())
}

/// Notes the mount, and does what save-links say.
fn begin(mounted: &Mounted, links: &[SaveLink]) -> Result<(), Error> {
    let writing = mounted.writing()?;
    let mut writer = writing.take_writer()?;
    apply::mark_mounted(mounted, &mut writer)?;
    if !links.is_empty() {
        Commit::new(mounted, writing, &mut writer, 0).carry_out(links)?;
    }
    writing.put_writer(writer);
    Ok(())
}

/// Makes the hidden directories of attributes, where there is room for them.
fn make_xattr_root(mounted: &Mounted, private: Option<ObjectKey>) -> Result<ObjectKey, Error> {
    const BLOCKS: u64 = 16;
    let writing = mounted.writing()?;
    if !writing.allocator.reserve(mounted, BLOCKS) {
        return Err(Error::NoSpace);
    }
    let mut writer = writing.take_writer()?;
    let made = Commit::new(mounted, writing, &mut writer, BLOCKS).make_xattr_root(private);
    writing.put_writer(writer);
    made
}

fn check_root(mounted: &Mounted) -> std::result::Result<(), MountErrorKind> {
    let wrong = match inode::stat(mounted, key::ROOT) {
        Ok(stat) if stat.kind == FileKind::Directory => return Ok(()),
        Ok(_) => "the root is no directory".to_owned(),
        Err(Error::Io(what)) => return Err(MountErrorKind::Io(what.into_owned())),
        Err(Error::Stale) => "there is no root directory".to_owned(),
        Err(error) => detail(&error),
    };
    Err(MountErrorKind::Damaged(wrong))
}

//! Multiple mount protection: a block says who has the file system in use, on whatever host.
//!
//! A mount that writes looks at the block first. Unless it says that nobody has the file system,
//! the mount waits for longer than whoever has it may leave the block as it is; if it changes, it
//! is in use. Then the mount writes a number of its own, waits again, and has it if the number is
//! still there. From then on a thread writes the next number every few seconds; if it finds that
//! somebody else has written, nothing more is written. A clean end says that nobody has it.
//!
//! A program that changes a file system without mounting it, as a repair does, takes the same steps
//! ([`MmpCheck`]), but ends them with the sequence of e2fsck. It needs no thread: nobody takes over
//! what that stands for, however long it is there. What keeps it there after an interruption is
//! taken away by `tune2fs -f -E clear_mmp` alone. A damaged block stops a mount; here it is watched
//! as one in use is, and written anew.
//!
//! # Locking
//! None: the thread and the mount share atomics. While the file system is frozen the thread writes
//! nothing.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/mmp.rst`, `fs/ext4/mmp.c`; e2fsprogs `lib/ext2fs/mmp.c`.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::mmp::{self, MmpBlock};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_namespace::{Error, Timestamp};

use crate::error::{MountError, MountErrorKind, disk_detail};

/// Seconds that a mount waits for at least, in the kernel too.
const CHECK_SECONDS_MIN: u16 = 5;
const CHECK_SECONDS_MAX: u16 = 300;

/// What the thread shall do.
const RUNNING: u8 = 0;
const PAUSED: u8 = 1;
const STOPPED: u8 = 2;

/// The right to write, as long as it is held. Dropping it frees the file system.
pub(crate) struct Mmp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    place: Place,
    /// What this mount has written last.
    sequence: AtomicU32,
    orders: AtomicU8,
    is_writing: AtomicBool,
    is_lost: AtomicBool,
}

impl Shared {
    /// Whether the block is this mount's still.
    fn look(&self) -> finefs_namespace::Result<()> {
        let kind = match self.place.read() {
            Ok(block) if block.sequence() == self.sequence.load(Ordering::SeqCst) => return Ok(()),
            Ok(block) => in_use(&block),
            Err(kind) => kind,
        };
        let device = self.place.device.describe();
        Err(Error::io(MountError { device, kind }))
    }
}

/// Where the block lies, and how it is written.
#[derive(Clone)]
struct Place {
    device: Arc<dyn BlockDevice>,
    offset_bytes: u64,
    seed: Option<FsSeed>,
    /// A second; less in tests.
    second: Duration,
}

impl Place {
    /// That which a superblock names; `None` where it cannot be.
    fn of(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        block_size: u32,
        second: Duration,
    ) -> Option<Place> {
        let number = superblock.mmp_block();
        let first = u64::from(superblock.first_data_block());
        let is_inside = number > first && number < superblock.blocks_count();
        let offset_bytes = number.checked_mul(u64::from(block_size))?;
        is_inside.then(|| Place {
            device: device.clone(),
            offset_bytes,
            seed: superblock.has_metadata_csum().then(|| superblock.seed()),
            second,
        })
    }

    /// That of the file system on a device, with its superblock; `None` where it has no multiple
    /// mount protection, or where its superblock is damaged or names a block that cannot be, which
    /// is a check's to say.
    fn on(
        device: &Arc<dyn BlockDevice>,
        second: Duration,
    ) -> Result<Option<(Superblock, Place)>, MountErrorKind> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if device.len_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Ok(None);
        }
        device
            .read_at(SUPERBLOCK_OFFSET, &mut bytes)
            .map_err(|error| MountErrorKind::Io(format!("reading the superblock: {error}")))?;
        let Ok(superblock) = Superblock::parse(&bytes) else {
            return Ok(None);
        };
        let Some(block_size) = superblock.block_size() else {
            return Ok(None);
        };
        let has_it = superblock.incompat().contains(Incompat::MMP);
        let is_on_device = |place: &Place| {
            let end = place.offset_bytes.checked_add(mmp::SIZE as u64);
            end.is_some_and(|end| end <= device.len_bytes())
        };
        let place = Place::of(device, &superblock, block_size, second);
        let place = place.filter(|place| has_it && is_on_device(place));
        Ok(place.map(|place| (superblock, place)))
    }

    fn raw(&self) -> Result<[u8; mmp::SIZE], MountErrorKind> {
        let mut bytes = [0; mmp::SIZE];
        // What this host remembers may be old.
        self.device
            .forget_cached_at(self.offset_bytes, mmp::SIZE as u64);
        self.device
            .read_at(self.offset_bytes, &mut bytes)
            .map_err(|error| MountErrorKind::Io(format!("reading the MMP block: {error}")))?;
        Ok(bytes)
    }

    fn parse(&self, bytes: &[u8; mmp::SIZE]) -> Result<MmpBlock, MountErrorKind> {
        let wrong = |error| MountErrorKind::Damaged(format!("MMP block: {}", disk_detail(&error)));
        let block = MmpBlock::parse(bytes).map_err(wrong)?;
        if let Some(seed) = self.seed {
            let mut right = block.clone();
            right.update_checksum(seed);
            if right.checksum() != block.checksum() {
                let what = "MMP block: its checksum is wrong";
                return Err(MountErrorKind::Damaged(what.to_owned()));
            }
        }
        Ok(block)
    }

    fn read(&self) -> Result<MmpBlock, MountErrorKind> {
        self.parse(&self.raw()?)
    }

    fn write(&self, block: &mut MmpBlock) -> std::io::Result<()> {
        block.set_time(Timestamp::now().seconds().max(0) as u64);
        if let Some(seed) = self.seed {
            block.update_checksum(seed);
        }
        self.device.write_at(self.offset_bytes, block.as_bytes())?;
        self.device.flush()
    }

    fn seconds(&self, count: u16) -> Duration {
        self.second * u32::from(count)
    }

    /// Waits; fails if somebody has written the block meanwhile.
    fn watch(&self, before: &[u8; mmp::SIZE], wait: Duration) -> Result<(), MountErrorKind> {
        std::thread::sleep(wait);
        let now = self.raw()?;
        if now == *before {
            return Ok(());
        }
        Err(match self.parse(&now) {
            Ok(block) => in_use(&block),
            Err(_) => MountErrorKind::InUse(format!("is in use by another host: {IN_USE_ADVICE}")),
        })
    }

    /// Writes a number of this host's own, and waits until nobody has written another over it.
    fn take(
        &self,
        block: &mut MmpBlock,
        check_seconds: u16,
        wait: Duration,
    ) -> Result<(), MountErrorKind> {
        block.set_sequence(random_sequence());
        block.set_check_interval(check_seconds);
        block.set_node_name(rustix::system::uname().nodename().to_bytes());
        block.set_device_name(self.device.describe().as_bytes());
        self.write(block).map_err(failed)?;
        self.watch(block.as_bytes(), wait)
    }
}

fn failed(error: std::io::Error) -> MountErrorKind {
    MountErrorKind::Io(format!("writing the MMP block: {error}"))
}

/// How often whoever has the file system writes the block, and when it is late; in seconds.
struct Intervals {
    update: u16,
    check: u16,
}

impl Intervals {
    fn of(superblock: &Superblock, found: &MmpBlock) -> Intervals {
        let update = match superblock.mmp_interval() {
            0 => mmp::INTERVAL_DEFAULT,
            seconds => seconds.min(CHECK_SECONDS_MAX),
        };
        let check = update
            .max(CHECK_SECONDS_MIN)
            .max(found.check_interval().min(CHECK_SECONDS_MAX));
        Intervals { update, check }
    }

    /// How long to watch the block.
    fn wait(&self) -> u16 {
        (2 * self.check + 1).min(self.check + 60)
    }
}

/// What a program holds while it changes a file system that it does not mount: the sequence of
/// e2fsck keeps mounts and other such programs away. Dropping it frees the file system.
pub struct MmpCheck {
    place: Place,
    damage: Option<String>,
}

/// What becomes of a file system whose block says that it is being checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfChecked {
    /// It is left to whoever checks it.
    Refused,
    /// It is taken over: the check was interrupted.
    TakenOver,
}

impl MmpCheck {
    /// Waits until it is sure that nobody else has the file system on a device, and keeps others
    /// away from it. `None`: the file system has no multiple mount protection, or a superblock in
    /// which that is damaged.
    ///
    /// # Errors
    /// Somebody has it; the block cannot be read or written; it is damaged, and so is the
    /// superblock that names it.
    pub fn acquire(
        device: &Arc<dyn BlockDevice>,
        if_checked: IfChecked,
    ) -> Result<Option<MmpCheck>, MountError> {
        MmpCheck::acquire_with(device, if_checked, Duration::from_secs(1)).map_err(|kind| {
            MountError {
                device: device.describe(),
                kind,
            }
        })
    }

    fn acquire_with(
        device: &Arc<dyn BlockDevice>,
        if_checked: IfChecked,
        second: Duration,
    ) -> Result<Option<MmpCheck>, MountErrorKind> {
        let Some((superblock, place)) = Place::on(device, second)? else {
            return Ok(None);
        };
        let raw = place.raw()?;
        let (mut block, damage) = match place.parse(&raw) {
            Ok(block) => (block, None),
            // A damaged superblock may name a block of somebody's data.
            Err(MountErrorKind::Damaged(what)) if superblock.verify_checksum().is_ok() => {
                (MmpBlock::clean(0, 0), Some(what))
            }
            Err(error) => return Err(error),
        };
        let intervals = Intervals::of(&superblock, &block);
        let wait = place.seconds(intervals.wait());
        let seems_free = match block.sequence() {
            _ if damage.is_some() => false,
            mmp::SEQUENCE_CLEAN => true,
            mmp::SEQUENCE_FSCK if if_checked == IfChecked::TakenOver => true,
            mmp::SEQUENCE_FSCK => return Err(in_use(&block)),
            _ => false,
        };
        let (name, seconds) = (device.describe(), intervals.wait());
        if seems_free {
            let why = "another host would show by then that it uses it (mmp)";
            log::warn!("{name}: waiting for {seconds} s: {why}");
        } else {
            let why = "it may be in use elsewhere (mmp)";
            log::warn!("{name}: waiting for {} s: {why}", 2 * seconds);
            place.watch(&raw, wait)?;
        }
        place.take(&mut block, intervals.check, wait)?;
        block.set_sequence(mmp::SEQUENCE_FSCK);
        place.write(&mut block).map_err(failed)?;
        Ok(Some(MmpCheck { place, damage }))
    }

    /// What was wrong with the block, which was written anew.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Says that nobody has the file system any more, if that is so.
    fn free(&self) -> Result<(), MountErrorKind> {
        // A resize may have moved the block, an undo may have taken it away.
        let Some((_, place)) = Place::on(&self.place.device, self.place.second)? else {
            return Ok(());
        };
        match place.read() {
            Ok(mut block) if block.sequence() == mmp::SEQUENCE_FSCK => {
                block.set_sequence(mmp::SEQUENCE_CLEAN);
                place.write(&mut block).map_err(failed)
            }
            Err(error @ MountErrorKind::Io(_)) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for MmpCheck {
    fn drop(&mut self) {
        if let Err(kind) = self.free() {
            let device = self.place.device.describe();
            let error = MountError { device, kind };
            log::error!(
                "{error}; the MMP block may still say that it is checked: {CHECKED_ADVICE}"
            );
        }
    }
}

/// What the block says to somebody who only looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MmpState {
    /// Nobody has the file system.
    Free,
    /// It is being checked or changed, by whom these words say.
    Checked(String),
    /// It is mounted, or was when its host crashed.
    Mounted(String),
    /// This is wrong with the block.
    Damaged(String),
}

impl MmpState {
    /// That of the file system on a device; `None` where it has no multiple mount protection, or a
    /// superblock in which that is damaged.
    ///
    /// # Errors
    /// Superblock or block cannot be read.
    pub fn of(device: &Arc<dyn BlockDevice>) -> Result<Option<MmpState>, MountError> {
        let state = || {
            let Some((_, place)) = Place::on(device, Duration::ZERO)? else {
                return Ok(None);
            };
            let block = match place.read() {
                Ok(block) => block,
                Err(MountErrorKind::Damaged(what)) => return Ok(Some(MmpState::Damaged(what))),
                Err(error) => return Err(error),
            };
            Ok(Some(match block.sequence() {
                mmp::SEQUENCE_CLEAN => MmpState::Free,
                mmp::SEQUENCE_FSCK => MmpState::Checked(said_by(&block)),
                _ => MmpState::Mounted(said_by(&block)),
            }))
        };
        state().map_err(|kind| MountError {
            device: device.describe(),
            kind,
        })
    }
}

impl Mmp {
    /// Waits until it is sure that nobody else has the file system, and keeps others away from it.
    pub(crate) fn acquire(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        block_size: u32,
    ) -> Result<Mmp, MountErrorKind> {
        let second = Duration::from_secs(1);
        Mmp::acquire_with(device, superblock, block_size, second)
    }

    pub(crate) fn acquire_with(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        block_size: u32,
        second: Duration,
    ) -> Result<Mmp, MountErrorKind> {
        let place = Place::of(device, superblock, block_size, second).ok_or_else(|| {
            let number = superblock.mmp_block();
            MountErrorKind::Damaged(format!("MMP block {number}: outside the file system"))
        })?;
        let raw = place.raw()?;
        let mut block = place.parse(&raw)?;
        let intervals = Intervals::of(superblock, &block);
        let wait = place.seconds(intervals.wait());
        match block.sequence() {
            mmp::SEQUENCE_CLEAN => {}
            mmp::SEQUENCE_FSCK => return Err(in_use(&block)),
            _ => {
                log::warn!(
                    "{}: waiting for {} s: it may be in use elsewhere",
                    device.describe(),
                    wait.as_secs()
                );
                place.watch(&raw, wait)?;
            }
        }
        place.take(&mut block, intervals.check, wait)?;
        Mmp::start(place, block, intervals.update).map_err(failed)
    }

    /// Starts the thread of a mount that has it.
    fn start(place: Place, block: MmpBlock, update_seconds: u16) -> std::io::Result<Mmp> {
        let shared = Arc::new(Shared {
            place,
            sequence: AtomicU32::new(block.sequence()),
            orders: AtomicU8::new(RUNNING),
            is_writing: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("mmp".to_owned())
            .spawn(move || keep(&for_thread, block, update_seconds))?;
        Ok(Mmp {
            shared,
            thread: Some(thread),
        })
    }

    /// Somebody else writes the file system: this mount must not.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.is_lost.load(Ordering::Acquire)
    }

    /// Nothing is written after this, before [`Mmp::resume`].
    pub(crate) fn pause(&self) {
        self.shared.orders.store(PAUSED, Ordering::SeqCst);
        while self.shared.is_writing.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends [`Mmp::pause`], if nobody else has taken the file system over meanwhile.
    pub(crate) fn resume(&self) -> finefs_namespace::Result<()> {
        let was_paused = self.shared.orders.load(Ordering::SeqCst) == PAUSED;
        if was_paused && let Err(error) = self.shared.look() {
            self.shared.is_lost.store(true, Ordering::Release);
            return Err(error);
        }
        self.shared.orders.store(RUNNING, Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// Says that nobody has the file system any more. Waits until that is durable.
    pub(crate) fn release(&self) {
        self.shared.orders.store(STOPPED, Ordering::SeqCst);
        self.wake();
        while self
            .thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Mmp {
    fn drop(&mut self) {
        self.release();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes the next number every so often, until it is told to stop; then that nobody has it.
fn keep(shared: &Shared, mut block: MmpBlock, update_seconds: u16) {
    let place = &shared.place;
    let name = place.device.describe();
    let mut written = Instant::now();
    loop {
        let due = written + place.seconds(update_seconds);
        let orders = shared.orders.load(Ordering::SeqCst);
        let now = Instant::now();
        if shared.is_lost.load(Ordering::Acquire) {
            return;
        }
        if orders == PAUSED {
            std::thread::park();
            continue;
        }
        if orders == RUNNING && now < due {
            std::thread::park_timeout(due - now);
            continue;
        }
        shared.is_writing.store(true, Ordering::SeqCst);
        if shared.orders.load(Ordering::SeqCst) == PAUSED {
            shared.is_writing.store(false, Ordering::SeqCst);
            continue;
        }
        // Whoever waited for as long as this took may have taken it over.
        let is_late = now.duration_since(written) > place.seconds(block.check_interval());
        let is_ours = !is_late || shared.look().is_ok();
        let next = match orders {
            STOPPED => mmp::SEQUENCE_CLEAN,
            _ => block.sequence() % mmp::SEQUENCE_MAX + 1,
        };
        block.set_sequence(next);
        let outcome = if is_ours {
            shared.sequence.store(next, Ordering::SeqCst);
            place.write(&mut block)
        } else {
            Ok(())
        };
        shared.is_writing.store(false, Ordering::SeqCst);
        if !is_ours {
            log::error!("{name}: another host has mounted it; nothing more is written");
            shared.is_lost.store(true, Ordering::Release);
            return;
        }
        if let Err(error) = outcome {
            log::error!("{name}: writing the MMP block: {error}");
        }
        if orders == STOPPED {
            return;
        }
        let took = now.elapsed().as_secs().saturating_mul(2);
        let check = u16::try_from(took).unwrap_or(CHECK_SECONDS_MAX);
        block.set_check_interval(check.clamp(CHECK_SECONDS_MIN, CHECK_SECONDS_MAX));
        written = now;
    }
}

const IN_USE_ADVICE: &str =
    "unmount it there, or, after a crash, wait until nothing updates its MMP block any more";
const CHECKED_ADVICE: &str = "where that was interrupted, tune2fs -f -E clear_mmp frees it, and \
                              finefs undo --force does not ask";

/// Who has written the block last, and for what.
fn said_by(block: &MmpBlock) -> String {
    let text = |raw: &[u8]| {
        let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
        String::from_utf8_lossy(&raw[..end]).into_owned()
    };
    let how = match block.sequence() {
        mmp::SEQUENCE_FSCK => "is being checked",
        _ => "is in use",
    };
    let host = text(&block.node_name_raw());
    format!(
        "{how} by host {host} (as {})",
        text(&block.device_name_raw())
    )
}

fn in_use(block: &MmpBlock) -> MountErrorKind {
    let advice = match block.sequence() {
        mmp::SEQUENCE_FSCK => CHECKED_ADVICE,
        _ => IN_USE_ADVICE,
    };
    MountErrorKind::InUse(format!("{}: {advice}", said_by(block)))
}

fn random_sequence() -> u32 {
    let random = std::collections::hash_map::RandomState::new();
    (random.build_hasher().finish() % u64::from(mmp::SEQUENCE_MAX)) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_block::MemoryDevice;

    const SECOND: Duration = Duration::from_millis(4);

    fn image() -> (Arc<dyn BlockDevice>, Superblock) {
        let mut superblock = Superblock::parse(&sound_superblock()).expect("it is one");
        superblock.set_blocks_count(8);
        superblock.set_mmp_block(3);
        superblock.set_mmp_interval(5);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8192));
        let block = MmpBlock::clean(0, 5);
        device.write_at(3072, block.as_bytes()).expect("room");
        (device, superblock)
    }

    fn sound_superblock() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
        bytes
    }

    fn sequence(device: &Arc<dyn BlockDevice>) -> u32 {
        let mut bytes = [0; mmp::SIZE];
        device.read_at(3072, &mut bytes).expect("it can be read");
        MmpBlock::parse(&bytes).expect("it is one").sequence()
    }

    fn acquire(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
    ) -> Result<Mmp, MountErrorKind> {
        Mmp::acquire_with(device, superblock, 1024, SECOND)
    }

    #[test]
    fn one_mount_at_a_time() {
        let (device, superblock) = image();
        let held = acquire(&device, &superblock).expect("nobody has it");
        let first = sequence(&device);
        assert!(first <= mmp::SEQUENCE_MAX);
        let refused = acquire(&device, &superblock).err();
        assert!(
            matches!(refused, Some(MountErrorKind::InUse(_))),
            "{refused:?}"
        );
        assert_ne!(sequence(&device), first, "it is kept alive");
        held.pause();
        let paused = sequence(&device);
        std::thread::sleep(SECOND * 20);
        assert_eq!(sequence(&device), paused);
        held.resume().expect("it is its own still");
        drop(held);
        assert_eq!(sequence(&device), mmp::SEQUENCE_CLEAN);
        drop(acquire(&device, &superblock).expect("it was freed"));
    }

    #[test]
    fn what_a_crash_left_is_taken_over_and_what_is_checked_is_not() {
        let (device, superblock) = image();
        let mut block = MmpBlock::clean(0, 5);
        block.set_sequence(77);
        device.write_at(3072, block.as_bytes()).expect("room");
        drop(acquire(&device, &superblock).expect("nobody writes it"));
        block.set_sequence(mmp::SEQUENCE_FSCK);
        device.write_at(3072, block.as_bytes()).expect("room");
        let refused = acquire(&device, &superblock).err();
        assert!(
            matches!(refused, Some(MountErrorKind::InUse(_))),
            "{refused:?}"
        );
        assert_eq!(sequence(&device), mmp::SEQUENCE_FSCK);
    }

    #[test]
    fn a_mount_that_was_overtaken_stops() {
        let (device, superblock) = image();
        let held = acquire(&device, &superblock).expect("nobody has it");
        held.pause();
        std::thread::sleep(SECOND * 8);
        let mut block = MmpBlock::clean(0, 5);
        block.set_sequence(123);
        device.write_at(3072, block.as_bytes()).expect("room");
        // As a host that slept.
        held.shared.orders.store(RUNNING, Ordering::SeqCst);
        held.wake();
        let start = Instant::now();
        while !held.is_lost() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(SECOND);
        }
        drop(held);
        assert_eq!(sequence(&device), 123, "it is the other's");
    }

    /// A superblock that names the block, on the device.
    fn checkable() -> Arc<dyn BlockDevice> {
        let (device, mut superblock) = image();
        superblock.set_incompat(Incompat::MMP);
        device
            .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
            .expect("room");
        device
    }

    fn check(device: &Arc<dyn BlockDevice>) -> Result<Option<MmpCheck>, MountErrorKind> {
        MmpCheck::acquire_with(device, IfChecked::Refused, SECOND)
    }

    #[test]
    fn a_check_keeps_mounts_and_checks_away() {
        let device = checkable();
        let (_, superblock) = image();
        let held = check(&device).expect("nobody has it").expect("has mmp");
        assert_eq!(held.damage(), None);
        assert_eq!(sequence(&device), mmp::SEQUENCE_FSCK);
        for refused in [
            acquire(&device, &superblock).err(),
            check(&device).map(|_| ()).err(),
        ] {
            let Some(MountErrorKind::InUse(said)) = &refused else {
                panic!("{refused:?}");
            };
            assert!(said.contains("is being checked by host"), "{said}");
        }
        let state = MmpState::of(&device).expect("it can be read");
        assert!(matches!(state, Some(MmpState::Checked(_))), "{state:?}");
        // What an interruption left.
        std::mem::forget(held);
        let held = MmpCheck::acquire_with(&device, IfChecked::TakenOver, SECOND);
        drop(held.expect("it is taken over"));
        assert_eq!(sequence(&device), mmp::SEQUENCE_CLEAN);
        let held = acquire(&device, &superblock).expect("it was freed");
        let refused = check(&device).map(|_| ()).err();
        assert!(
            matches!(refused, Some(MountErrorKind::InUse(_))),
            "{refused:?}"
        );
        drop(held);
        drop(check(&device).expect("it was unmounted"));
        assert_eq!(sequence(&device), mmp::SEQUENCE_CLEAN);
    }

    #[test]
    fn a_check_takes_over_what_is_damaged_and_what_a_crash_left() {
        let device = checkable();
        let mut block = MmpBlock::clean(0, 5);
        block.set_sequence(77);
        device.write_at(3072, block.as_bytes()).expect("room");
        drop(check(&device).expect("nobody writes it"));
        assert_eq!(sequence(&device), mmp::SEQUENCE_CLEAN);
        device.write_at(3072, &[7; mmp::SIZE]).expect("room");
        let state = MmpState::of(&device).expect("it can be read");
        assert!(matches!(state, Some(MmpState::Damaged(_))), "{state:?}");
        let held = check(&device).expect("nobody writes it").expect("has mmp");
        assert!(held.damage().is_some_and(|what| what.contains("MMP block")));
        drop(held);
        assert_eq!(sequence(&device), mmp::SEQUENCE_CLEAN);
        // Somebody who has it writes it whole, whatever was in it.
        device.write_at(3072, &[7; mmp::SIZE]).expect("room");
        let refused = std::thread::scope(|scope| {
            let asked = scope.spawn(|| check(&device).map(|_| ()).err());
            while !asked.is_finished() {
                std::thread::sleep(SECOND);
                block.set_sequence(block.sequence() + 1);
                device.write_at(3072, block.as_bytes()).expect("room");
            }
            asked.join().expect("no panic")
        });
        assert!(
            matches!(refused, Some(MountErrorKind::InUse(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn without_a_sound_superblock_nothing_is_taken() {
        let device = checkable();
        let write = |change: fn(&mut Superblock)| {
            let (_, mut superblock) = image();
            superblock.set_incompat(Incompat::MMP);
            change(&mut superblock);
            device
                .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
                .expect("room");
        };
        let before = sequence(&device);
        write(|superblock| superblock.set_incompat(Incompat::empty()));
        assert!(check(&device).expect("no mmp").is_none());
        let cannot_be: [fn(&mut Superblock); 3] = [
            |superblock| superblock.set_mmp_block(0),
            |superblock| superblock.set_mmp_block(8),
            |superblock| superblock.set_mmp_block(u64::MAX),
        ];
        for change in cannot_be {
            write(change);
            assert!(check(&device).expect("no such block").is_none());
        }
        assert_eq!(sequence(&device), before);
    }
}

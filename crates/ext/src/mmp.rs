//! Multiple mount protection: a block says who has the file system in use, on whatever host.
//!
//! A mount that writes looks at the block first. Unless it says that nobody has the file system,
//! the mount waits for longer than whoever has it may leave the block as it is; if it changes, it
//! is in use. Then the mount writes a number of its own, waits again, and has it if the number is
//! still there. From then on a thread writes the next number every few seconds; if it finds that
//! somebody else has written, nothing more is written. A clean end says that nobody has it.
//!
//! # Locking
//! None: the thread and the mount share atomics. While the file system is frozen the thread writes
//! nothing.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/mmp.rst`, `fs/ext4/mmp.c`.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::mmp::{self, MmpBlock};
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::Timestamp;

use crate::error::{MountErrorKind, disk_detail};

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
    orders: AtomicU8,
    is_writing: AtomicBool,
    is_lost: AtomicBool,
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
    fn read(&self) -> Result<MmpBlock, MountErrorKind> {
        let mut bytes = [0; mmp::SIZE];
        // What this host remembers may be old.
        self.device
            .forget_cached_at(self.offset_bytes, mmp::SIZE as u64);
        self.device
            .read_at(self.offset_bytes, &mut bytes)
            .map_err(|error| MountErrorKind::Io(format!("reading the MMP block: {error}")))?;
        let wrong = |error| MountErrorKind::Damaged(format!("MMP block: {}", disk_detail(&error)));
        let block = MmpBlock::parse(&bytes).map_err(wrong)?;
        if let Some(seed) = self.seed {
            let mut right = block.clone();
            right.update_checksum(seed);
            if right.checksum() != block.checksum() {
                let what =
                    "MMP block: its checksum is wrong; tune2fs -f -E clear_mmp writes it anew";
                return Err(MountErrorKind::Damaged(what.to_owned()));
            }
        }
        Ok(block)
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

    fn acquire_with(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        block_size: u32,
        second: Duration,
    ) -> Result<Mmp, MountErrorKind> {
        let number = superblock.mmp_block();
        if number == 0 || number >= superblock.blocks_count() {
            return Err(MountErrorKind::Damaged(format!(
                "MMP block {number}: outside the file system"
            )));
        }
        let place = Place {
            device: device.clone(),
            offset_bytes: number * u64::from(block_size),
            seed: superblock.has_metadata_csum().then(|| superblock.seed()),
            second,
        };
        let update_seconds = match superblock.mmp_interval() {
            0 => mmp::INTERVAL_DEFAULT,
            seconds => seconds.min(CHECK_SECONDS_MAX),
        };
        let found = place.read()?;
        let check_seconds = update_seconds
            .max(CHECK_SECONDS_MIN)
            .max(found.check_interval().min(CHECK_SECONDS_MAX));
        let wait = place.seconds((2 * check_seconds + 1).min(check_seconds + 60));
        match found.sequence() {
            mmp::SEQUENCE_CLEAN => {}
            mmp::SEQUENCE_FSCK => return Err(in_use(&found, "is being checked")),
            _ => {
                log::warn!(
                    "{}: waiting for {} s: it may be in use elsewhere",
                    device.describe(),
                    wait.as_secs()
                );
                std::thread::sleep(wait);
                let now = place.read()?;
                if now.sequence() != found.sequence() {
                    return Err(in_use(&now, "is in use"));
                }
            }
        }
        let mut block = found;
        block.set_sequence(random_sequence());
        block.set_check_interval(check_seconds);
        block.set_node_name(rustix::system::uname().nodename().to_bytes());
        block.set_device_name(device.describe().as_bytes());
        let failed = |error| MountErrorKind::Io(format!("writing the MMP block: {error}"));
        place.write(&mut block).map_err(failed)?;
        std::thread::sleep(wait);
        let now = place.read()?;
        if now.sequence() != block.sequence() {
            return Err(in_use(&now, "is in use"));
        }
        Mmp::start(place, block, update_seconds).map_err(failed)
    }

    /// Starts the thread of a mount that has it.
    fn start(place: Place, block: MmpBlock, update_seconds: u16) -> std::io::Result<Mmp> {
        let shared = Arc::new(Shared {
            place,
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

    /// Ends [`Mmp::pause`].
    pub(crate) fn resume(&self) {
        self.shared.orders.store(RUNNING, Ordering::SeqCst);
        self.wake();
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
        let is_ours = !is_late
            || place
                .read()
                .is_ok_and(|found| found.sequence() == block.sequence());
        let next = match orders {
            STOPPED => mmp::SEQUENCE_CLEAN,
            _ => block.sequence() % mmp::SEQUENCE_MAX + 1,
        };
        block.set_sequence(next);
        let outcome = if is_ours {
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

fn in_use(block: &MmpBlock, how: &str) -> MountErrorKind {
    let text = |raw: &[u8]| {
        let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
        String::from_utf8_lossy(&raw[..end]).into_owned()
    };
    MountErrorKind::InUse(format!(
        "{how} by host {} (as {})",
        text(&block.node_name_raw()),
        text(&block.device_name_raw())
    ))
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
        held.resume();
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
        held.resume();
        let start = Instant::now();
        while !held.is_lost() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(SECOND);
        }
        drop(held);
        assert_eq!(sequence(&device), 123, "it is the other's");
    }
}

//! A modelled device: reads and writes of data take time, and only so many a second are done.
//!
//! # The model
//! A request that comes at `t` gets the device's channel as soon as that is free, at `s >= t`, and
//! keeps it for `interval`; its data is there at `s + latency`. So a single requester is served
//! once in `latency`, many together once in `interval`, as on a device that works on several
//! requests at a time but transfers the data of one. The requester sleeps meanwhile, which is what
//! a thread does that waits for a device, and holds the locks that it has. What a sleep takes
//! longer here than was asked for is measured beforehand and taken off the latency: the wake-up is
//! part of the time that a real device seems to take.
//!
//! [`OnDevice`] puts it before a store. It is for data only: what a file system keeps in memory
//! anyway, its metadata, costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use finefs::front_end::namespace::{
    Batch, BlockNo, BlockRun, Captured, Charge, Committed, DirectoryImage, Extent, FileKind,
    Geometry, Goal, Ino, InodeImage, Plan, Result, StatFs, Store,
};

use finefs_workloads::now_ns;

/// Sleeps to measure how long they take.
const SLEEPS: usize = 21;
const SLEEP: Duration = Duration::from_micros(100);

/// How much longer than asked for a sleep takes: the median.
fn oversleep() -> Duration {
    let mut times: Vec<Duration> = (0..SLEEPS)
        .map(|_| {
            let began = Instant::now();
            std::thread::sleep(SLEEP);
            began.elapsed().saturating_sub(SLEEP)
        })
        .collect();
    times.sort_unstable();
    times[SLEEPS / 2]
}

/// How long a device takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Device {
    /// From a request to its end when nobody else asks.
    pub latency: Duration,
    /// Between the ends of two requests when many ask. At most the latency.
    pub interval: Duration,
}

/// When the channel is free, nanoseconds of the monotonic clock.
#[derive(Default)]
struct Channel(AtomicU64);

impl Channel {
    /// Gives the channel to a request that comes at `now_ns`; says when it gets it.
    fn take(&self, now_ns: u64, interval_ns: u64) -> u64 {
        let next = |free_ns: u64| Some(free_ns.max(now_ns) + interval_ns);
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.unwrap_or(0).max(now_ns)
    }
}

/// A store whose data lies on a [`Device`].
pub(super) struct OnDevice<S> {
    store: S,
    device: Device,
    channel: Channel,
    #[cfg(test)]
    present: tests::Present,
}

impl<S> OnDevice<S> {
    pub fn new(store: S, device: Device) -> OnDevice<S> {
        let latency = device.latency.saturating_sub(oversleep());
        OnDevice {
            store,
            device: Device {
                latency: latency.max(device.interval),
                ..device
            },
            channel: Channel::default(),
            #[cfg(test)]
            present: tests::Present::default(),
        }
    }

    /// Returns when the device has done a request.
    fn wait(&self) {
        #[cfg(test)]
        let _present = self.present.enter();
        let now_ns = now_ns();
        let start_ns = self
            .channel
            .take(now_ns, self.device.interval.as_nanos() as u64);
        let end_ns = start_ns + self.device.latency.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(end_ns - now_ns));
    }
}

impl<S: Store> Store for OnDevice<S> {
    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.wait();
        self.store.read(block, offset_bytes, buffer)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.wait();
        self.store.write(block, offset_bytes, data)
    }

    fn geometry(&self) -> &Geometry {
        self.store.geometry()
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        self.store.load_inode(ino)
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        self.store.load_directory(ino)
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        self.store.load_extents(ino)
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.store.load_symlink(ino)
    }

    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.store.load_xattrs(ino)
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.store.write_zeros(run)
    }

    fn allocate_inode(&self, parent: Ino, kind: FileKind) -> Result<(Ino, u32)> {
        self.store.allocate_inode(parent, kind)
    }

    fn release_inode(&self, ino: Ino, kind: FileKind) {
        self.store.release_inode(ino, kind);
    }

    fn allocate_blocks(&self, ino: Ino, goal: Option<Goal>, count: u64) -> Result<BlockRun> {
        self.store.allocate_blocks(ino, goal, count)
    }

    fn release_blocks(&self, run: BlockRun) {
        self.store.release_blocks(run);
    }

    fn reserve(&self, plans: &[Plan]) -> Result<u64> {
        self.store.reserve(plans)
    }

    fn unreserve(&self, blocks: u64) {
        self.store.unreserve(blocks);
    }

    fn check_xattrs(
        &self,
        ino: Ino,
        inline_bytes: Option<u64>,
        xattrs: &[(&[u8], &[u8])],
    ) -> Result<Charge> {
        self.store.check_xattrs(ino, inline_bytes, xattrs)
    }

    fn commit(&self, batch: Batch, captured: &Captured<'_>) -> Result<Committed> {
        self.store.commit(batch, captured)
    }

    fn statfs(&self) -> StatFs {
        self.store.statfs()
    }

    fn freeze(&self) -> Result<()> {
        self.store.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.store.thaw()
    }

    fn describe(&self) -> String {
        self.store.describe()
    }

    fn can_reload(&self) -> bool {
        self.store.can_reload()
    }

    fn close(&self) -> Result<()> {
        self.store.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs::front_end::namespace::{MemoryStore, Namespace, Options};
    use finefs::{Caller, LockingScheme};
    use std::sync::Arc;

    /// Requests that are at a device now, and the most that were.
    #[derive(Default)]
    pub struct Present {
        now: AtomicU64,
        most: AtomicU64,
    }

    impl Present {
        pub fn enter(&self) -> Leave<'_> {
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            Leave(self)
        }

        fn most(&self) -> u64 {
            self.most.load(Ordering::Relaxed)
        }
    }

    pub struct Leave<'a>(&'a Present);

    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.now.fetch_sub(1, Ordering::Relaxed);
        }
    }

    const READERS: u64 = 4;

    /// Four threads read blocks of one file under `scheme` until `is_enough`, told how many reads
    /// there were, says so. Gives the most requests that were at the device at a time.
    fn most_present(scheme: LockingScheme, is_enough: impl Fn(u64, u64) -> bool + Sync) -> u64 {
        let device = Device {
            latency: Duration::from_micros(500),
            interval: Duration::from_micros(1),
        };
        let memory = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        let store = Arc::new(OnDevice::new(memory, device));
        let options = Options {
            locking: scheme,
            ..Options::default()
        };
        let space = Namespace::new(store.clone(), options).unwrap();
        let root = Caller::root();
        let file = space.create_file(&root, space.root(), b"f", 0o644).unwrap();
        space
            .write(file.ino, 0, &[1; 4096 * READERS as usize])
            .unwrap();
        let reads = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (space, reads, store, is_enough) = (&space, &reads, &store, &is_enough);
                scope.spawn(move || {
                    while !is_enough(reads.fetch_add(1, Ordering::Relaxed), store.present.most()) {
                        space.read(file.ino, reader * 4096, &mut [0; 4096]).unwrap();
                    }
                });
            }
        });
        let most = store.present.most();
        space.shut_down().unwrap();
        most
    }

    #[test]
    fn locks_are_held_while_the_device_works() {
        let mutex = most_present(LockingScheme::WholeFileMutex, |reads, _| reads > 100);
        assert_eq!(mutex, 1);
        // However long it takes until two meet: with the mutex they never would.
        let range = most_present(LockingScheme::Fine, |_, most| most > 1);
        assert!(range > 1);
    }

    #[test]
    fn the_channel_is_for_one_request_at_a_time() {
        let channel = Channel::default();
        // At once, since nobody else asks; then after each other; then at once again.
        let starts = [1_000, 1_000, 1_050, 9_000].map(|now_ns| channel.take(now_ns, 100));
        assert_eq!(starts, [1_000, 1_100, 1_200, 9_000]);
    }
}

//! Files by their paths, as a kernel's NFS client has them: names and attributes are remembered,
//! and a lock of other times stands around each file operation if that is asked for.
//!
//! What an open asks the server:
//!
//! | | what is remembered | each open |
//! |---|---|---|
//! | `nocto` | is believed for [`BELIEVED`] | nothing |
//! | close-to-open | is asked for again | LOOKUP, ACCESS, GETATTR |
//!
//! # Locking
//! Without a lock around them, file operations write nothing that two threads share: each thread
//! has a connection of its own, and what is remembered lies in places that are written once and
//! then only marked. A lock around them is released while a call waits for its reply, as the kernel
//! releases the big lock of a task that sleeps.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use finefs_locks::{BigLock, BigLockKind, LockClass};
use finefs_workloads::targets::{
    Appends, Entry, Errno, File, FileType, LockMode, OFlags, Result, Stat, Target,
};

use crate::connection::{Connection, Handle, attributes, made, procedure, write};
use crate::wire::{Arguments, Items, NFS, NLM, Program};

/// How long attributes are believed with `nocto`: the kernel's longest time (acregmax).
const BELIEVED: Duration = Duration::from_secs(60);
/// Names that are remembered, and how many places are looked at for one.
const PLACES: usize = 8192;
const PROBES: usize = 16;
/// Threads that have a connection of their own.
const CONNECTIONS: usize = 64;
/// How soon a lock that somebody has is asked for again.
const LOCK_PAUSE: Duration = Duration::from_micros(200);

const SET_ATTRIBUTES: u32 = 2;
const REMOVE_DIR: u32 = 13;
const READ_DIR: u32 = 16;
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;
const DENIED: u32 = 1;
/// `fattr3`
const ATTRIBUTES: usize = 84;

static BIG: LockClass = LockClass::new("nfs_client.big", 3);
static SPINNING: BigLock = BigLock::new(&BIG, BigLockKind::Spinning);
static SLEEPING: BigLock = BigLock::new(&BIG, BigLockKind::Sleeping);

/// What an open believes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// What others closed before is seen.
    CloseToOpen,
    /// What is remembered (`nocto`).
    Remembered,
}

/// A mounted export: see the module's head.
pub struct Files(&'static Mounted);

struct Mounted {
    address: SocketAddr,
    root: Handle,
    consistency: Consistency,
    big_lock: Option<&'static BigLock>,
    began: Instant,
    names: Box<[OnceLock<Known>]>,
    connections: Box<[Mutex<Option<Connection>>]>,
    /// The owners of locks, one for each open file.
    owners: AtomicU32,
}

/// A name that is remembered.
struct Known {
    path: String,
    handle: Handle,
    is_gone: AtomicBool,
    /// Milliseconds after the beginning until which its attributes are believed.
    believed_ms: AtomicU64,
}

/// An open file.
pub struct OpenFile {
    mounted: &'static Mounted,
    handle: Handle,
    owner: OnceLock<u32>,
}

impl Files {
    /// Mounts the only export of a server. It is never unmounted as a whole: what is remembered
    /// stays in memory until the process ends, so that open files need not count who uses it.
    pub fn mount(
        address: SocketAddr,
        consistency: Consistency,
        big_lock: Option<BigLockKind>,
    ) -> io::Result<Files> {
        let root = Connection::new(address)?.mount("/")?;
        let mounted = Mounted {
            address,
            root,
            consistency,
            big_lock: big_lock.map(|kind| match kind {
                BigLockKind::Spinning => &SPINNING,
                BigLockKind::Sleeping => &SLEEPING,
            }),
            began: Instant::now(),
            names: (0..PLACES).map(|_| OnceLock::new()).collect(),
            connections: (0..CONNECTIONS).map(|_| Mutex::new(None)).collect(),
            owners: AtomicU32::new(1),
        };
        Ok(Files(Box::leak(Box::new(mounted))))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for connection in &self.0.connections {
            // One whose thread panicked stays.
            if let Ok(mut connection) = connection.lock() {
                *connection = None;
            }
        }
    }
}

/// The number of the calling thread, among those that use clients.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        let number = own
            .get()
            .unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        own.set(Some(number));
        number
    })
}

/// The error that a call ended with. The connection says the status in words.
fn errno(error: &io::Error) -> Errno {
    let text = error.to_string();
    let status = text.rsplit(": ").next().and_then(|word| word.parse().ok());
    match status {
        // Up to 70 they are those of Linux and BSD alike, but for these.
        Some(63) => Errno::NAMETOOLONG,
        Some(66) => Errno::NOTEMPTY,
        Some(70) => Errno::STALE,
        Some(status @ 1..=31) => Errno::from_raw_os_error(status),
        _ => Errno::IO,
    }
}

impl Mounted {
    /// Runs a file operation under the lock of other times, if there is one.
    fn operation<R>(&self, operation: impl FnOnce() -> R) -> R {
        let _guard = self.big_lock.map(BigLock::lock);
        operation()
    }

    /// Calls the server; a lock around the operation is free meanwhile.
    fn call(&self, program: Program, procedure: u32, arguments: &Arguments) -> Result<Vec<u8>> {
        let call = || -> io::Result<Vec<u8>> {
            let place = &self.connections[thread_number() % CONNECTIONS];
            let mut place = place
                .lock()
                .map_err(|_| io::Error::other("a thread panicked"))?;
            let connection = match &mut *place {
                Some(connection) => connection,
                none => none.insert(Connection::new(self.address)?),
            };
            connection.call(program, procedure, arguments)
        };
        let answer = match self.big_lock {
            Some(lock) => lock.sleep(call).value,
            None => call(),
        };
        answer.map_err(|error| errno(&error))
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// The places where a name may be remembered.
    fn places(&self, path: &str) -> impl Iterator<Item = &OnceLock<Known>> {
        // FNV-1a
        let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let first = (hash >> 20) as usize;
        (0..PROBES).map(move |step| &self.names[(first + step) % PLACES])
    }

    fn known(&self, path: &str) -> Option<&Known> {
        let there = self.places(path).map_while(OnceLock::get);
        let mut there = there.filter(|known| !known.is_gone.load(Ordering::Acquire));
        there.find(|known| known.path == path)
    }

    /// Remembers a name; where there is no place for it, it is asked for again.
    fn remember(&self, path: &str, handle: &Handle) {
        let believed = self.now_ms() + BELIEVED.as_millis() as u64;
        if let Some(known) = self.known(path).filter(|known| known.handle == *handle) {
            return known.believed_ms.store(believed, Ordering::Relaxed);
        }
        self.forget(path);
        for place in self.places(path) {
            let is_set = place.set(Known {
                path: path.to_owned(),
                handle: handle.clone(),
                is_gone: AtomicBool::new(false),
                believed_ms: AtomicU64::new(believed),
            });
            if is_set.is_ok() {
                return;
            }
        }
    }

    fn forget(&self, path: &str) {
        while let Some(known) = self.known(path) {
            known.is_gone.store(true, Ordering::Release);
        }
    }

    /// The handle of a path. What is remembered is believed but for the last name, if the caller
    /// wants to know that from the server.
    fn handle(&self, path: &str, is_asked: bool) -> Result<Handle> {
        if path.is_empty() || path == "." {
            return Ok(self.root.clone());
        }
        if let Some(known) = self.known(path).filter(|_| !is_asked) {
            return Ok(known.handle.clone());
        }
        let (dir, name) = self.parent(path)?;
        let arguments = Arguments::new().opaque(&dir).opaque(name.as_bytes());
        let found = self.call(NFS, procedure::LOOKUP, &arguments)?;
        let handle = Items(&found).opaque().map_err(|_| Errno::IO)?.to_vec();
        self.remember(path, &handle);
        Ok(handle)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Handle, &'p str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.handle(dir, false)?, name))
    }

    /// CREATE and MKDIR.
    fn make(&self, path: &str, procedure: u32, how: Option<u32>) -> Result<Handle> {
        let (dir, name) = self.parent(path)?;
        let mut arguments = Arguments::new().opaque(&dir).opaque(name.as_bytes());
        let mode = match how {
            Some(how) => {
                arguments = arguments.word(how);
                0o644
            }
            None => 0o755,
        };
        arguments.0.extend(attributes(Some(mode)).0);
        let result = self.call(NFS, procedure, &arguments)?;
        let handle = made(&mut Items(&result)).map_err(|_| Errno::IO)?;
        self.remember(path, &handle);
        Ok(handle)
    }

    fn remove(&self, path: &str, procedure: u32) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let arguments = Arguments::new().opaque(&dir).opaque(name.as_bytes());
        self.forget(path);
        self.call(NFS, procedure, &arguments).map(drop)
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<Handle> {
        if flags.contains(OFlags::CREATE) {
            // GUARDED, UNCHECKED
            let how = u32::from(flags.contains(OFlags::EXCL));
            return self.make(path, procedure::CREATE, Some(how));
        }
        let is_believed = |known: &&Known| {
            self.consistency == Consistency::Remembered
                && self.now_ms() < known.believed_ms.load(Ordering::Relaxed)
        };
        if let Some(known) = self.known(path).filter(is_believed) {
            return Ok(known.handle.clone());
        }
        let handle = self.handle(path, true)?;
        // To read.
        let access = Arguments::new().opaque(&handle).word(1);
        self.call(NFS, procedure::ACCESS, &access)?;
        let attributes = Arguments::new().opaque(&handle);
        self.call(NFS, procedure::GETATTR, &attributes)?;
        Ok(handle)
    }

    fn stat(&self, handle: &[u8]) -> Result<Stat> {
        let result = self.call(NFS, procedure::GETATTR, &Arguments::new().opaque(handle))?;
        stat(&result).ok_or(Errno::IO)
    }
}

/// `fattr3`
fn stat(bytes: &[u8]) -> Option<Stat> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        word.try_into().ok().map(u32::from_be_bytes)
    };
    let long = |at: usize| Some(u64::from(word(at)?) << 32 | u64::from(word(at + 4)?));
    Some(Stat {
        ino: long(52)?,
        kind: match word(0)? {
            1 => FileType::RegularFile,
            2 => FileType::Directory,
            5 => FileType::Symlink,
            _ => FileType::Unknown,
        },
        size_bytes: long(20)?,
        link_count: word(8)?.into(),
        block_bytes: 1 << 20,
        accessed_s: word(60)?.into(),
        modified_s: word(68)?.into(),
    })
}

impl Target for Files {
    type File = OpenFile;

    fn describe(&self) -> String {
        format!("NFS at {}", self.0.address)
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OpenFile> {
        let mounted = self.0;
        let handle = mounted.operation(|| mounted.open(path, flags))?;
        Ok(OpenFile {
            mounted,
            handle,
            owner: OnceLock::new(),
        })
    }

    fn open_appends(&self, _: &str, _: u32) -> Result<Box<dyn Appends>> {
        Err(Errno::NOSYS)
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let made = self
            .0
            .operation(|| self.0.make(path, procedure::MKDIR, None));
        made.map(drop)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.0.operation(|| self.0.remove(path, REMOVE_DIR))
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.0.operation(|| self.0.remove(path, procedure::REMOVE))
    }

    fn rename(&self, _: &str, _: &str) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn hard_link(&self, _: &str, _: &str) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn symlink(&self, _: &str, _: &str) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        self.0.operation(|| {
            let handle = self.0.handle(path, false)?;
            self.0.stat(&handle)
        })
    }

    fn set_times(&self, _: &str, _: i64, _: i64) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn free_blocks(&self) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// READDIR, as far as one reply goes: a directory of a load. What an entry is, is asked of it.
    fn read_dir(
        &self,
        path: &str,
        mut sink: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let listed = self.0.operation(|| {
            let handle = self.0.handle(path, false)?;
            let arguments = Arguments::new().opaque(&handle).long(0).long(0);
            self.0.call(NFS, READ_DIR, &arguments.word(1 << 20))
        })?;
        let names = names(&listed).ok_or(Errno::IO)?;
        for name in names {
            let text = String::from_utf8_lossy(&name).into_owned();
            let stat = Target::stat(self, &format!("{path}/{text}"))?;
            let entry = Entry {
                name: &name,
                ino: stat.ino,
                kind: stat.kind,
            };
            if sink(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The names in the reply to READDIR, behind its status; `None` where there are more.
fn names(reply: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Items(reply);
    if items.word().ok()? == 1 {
        items.0 = items.0.get(ATTRIBUTES..)?;
    }
    // The verifier.
    items.0 = items.0.get(8..)?;
    let mut names = Vec::new();
    while items.word().ok()? == 1 {
        // The inode number.
        items.0 = items.0.get(8..)?;
        let name = items.opaque().ok()?;
        // The cookie.
        items.0 = items.0.get(8..)?;
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    (items.word().ok()? == 1).then_some(names)
}

impl OpenFile {
    /// The file's lock owner: one for each open file.
    fn owner(&self) -> u32 {
        *self
            .owner
            .get_or_init(|| self.mounted.owners.fetch_add(1, Ordering::Relaxed))
    }

    fn change_lock(&self, procedure: u32, head: Arguments, range: &Range<u64>) -> Result<u32> {
        let owner = self.owner();
        let lock = head.opaque(b"finefs-bench").opaque(&self.handle);
        let lock = lock.opaque(&owner.to_be_bytes()).word(owner);
        let lock = lock.long(range.start).long(range.end - range.start);
        let arguments = match procedure {
            LOCK => lock.word(0).word(1),
            _ => lock,
        };
        let mounted = self.mounted;
        // The cookie of no bytes stands where others have their status.
        let answer = mounted.operation(|| mounted.call(NLM, procedure, &arguments))?;
        Items(&answer).word().map_err(|_| Errno::IO)
    }
}

impl File for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let arguments = Arguments::new().opaque(&self.handle).long(offset_bytes);
        let arguments = arguments.word(buffer.len() as u32);
        let mounted = self.mounted;
        let reply = mounted.operation(|| mounted.call(NFS, procedure::READ, &arguments))?;
        let mut items = Items(&reply);
        if items.word().map_err(|_| Errno::IO)? == 1 {
            items.0 = items.0.get(ATTRIBUTES..).ok_or(Errno::IO)?;
        }
        // The count, and whether that is the end.
        items.0 = items.0.get(8..).ok_or(Errno::IO)?;
        let data = items.opaque().map_err(|_| Errno::IO)?;
        let there = buffer.get_mut(..data.len()).ok_or(Errno::IO)?;
        there.copy_from_slice(data);
        Ok(data.len())
    }

    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize> {
        let arguments = write(&self.handle, offset_bytes, data);
        let mounted = self.mounted;
        mounted.operation(|| mounted.call(NFS, procedure::WRITE, &arguments))?;
        Ok(data.len())
    }

    fn append(&self, _: &[u8]) -> Result<usize> {
        Err(Errno::NOSYS)
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        // The size alone, and no guard.
        let arguments = Arguments::new().opaque(&self.handle);
        let arguments = arguments.word(0).word(0).word(0).word(1).long(size_bytes);
        let arguments = arguments.word(0).word(0).word(0);
        let mounted = self.mounted;
        let set = mounted.operation(|| mounted.call(NFS, SET_ATTRIBUTES, &arguments));
        set.map(drop)
    }

    fn stat(&self) -> Result<Stat> {
        self.mounted.operation(|| self.mounted.stat(&self.handle))
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, range: Range<u64>, mode: LockMode, waits: bool) -> Result<()> {
        loop {
            let head = Arguments::new().opaque(b"").word(0);
            let head = head.word(u32::from(mode == LockMode::Exclusive));
            match self.change_lock(LOCK, head, &range)? {
                0 => return Ok(()),
                DENIED if waits => std::thread::sleep(LOCK_PAUSE),
                DENIED => return Err(Errno::AGAIN),
                _ => return Err(Errno::NOLCK),
            }
        }
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        let head = Arguments::new().opaque(b"");
        match self.change_lock(UNLOCK, head, &range)? {
            0 => Ok(()),
            _ => Err(Errno::NOLCK),
        }
    }
}

impl Drop for OpenFile {
    /// Nothing is asked of the server: it was opened for reading, or written through.
    fn drop(&mut self) {
        self.mounted.operation(|| ());
    }
}

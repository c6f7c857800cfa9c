//! Connections with many calls under way, and their rate.
//!
//! Each connection has a thread, which sends the next call of a slot as soon as the one before was
//! answered, all that are ready in one write. What a slot asks depends on the [`Load`].

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::connection::{Connection, Handle, attributes, made, procedure, write};
use crate::wire::{Arguments, Items, NFS, NLM, Program, Records, put_call, result};

/// The file that is read.
const FILE_BYTES: u64 = 16 << 20;
/// Procedures of the lock manager.
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;
/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The slot of a call stands in the low bits of its transaction id.
const SLOT_BITS: u32 = 12;
/// What a new file gets.
const WRITTEN: [u8; 4096] = [0x3c; 4096];

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// GETATTR of one file of the connection.
    Attributes,
    /// LOOKUP of one name in the connection's directory.
    Lookup,
    /// CREATE, WRITE of 4 KiB (unstable) and REMOVE, counted as one.
    Files,
    /// READ of 4 KiB.
    ReadSmall,
    /// READ of 1 MiB.
    ReadLarge,
    /// LOCK and UNLOCK of a range of the slot's own, counted as one.
    Locks,
}

impl Load {
    /// All of them.
    pub const ALL: [Load; 6] = [
        Load::Attributes,
        Load::Lookup,
        Load::Files,
        Load::ReadSmall,
        Load::ReadLarge,
        Load::Locks,
    ];

    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Attributes => "GETATTR",
            Load::Lookup => "LOOKUP",
            Load::Files => "CREATE+WRITE+REMOVE",
            Load::ReadSmall => "READ 4 KiB",
            Load::ReadLarge => "READ 1 MiB",
            Load::Locks => "LOCK+UNLOCK",
        }
    }

    /// Calls that make one operation.
    fn steps(self) -> u32 {
        match self {
            Load::Files => 3,
            Load::Locks => 2,
            _ => 1,
        }
    }

    fn program(self) -> Program {
        match self {
            Load::Locks => NLM,
            _ => NFS,
        }
    }
}

/// Whom and how much.
#[derive(Clone, Debug)]
pub struct Target {
    /// NFS and MOUNT.
    pub nfs: SocketAddr,
    /// MOUNT, where it has a port of its own.
    pub mount: SocketAddr,
    /// The lock manager.
    pub locks: SocketAddr,
    /// The export.
    pub path: String,
}

/// A server with a directory and a file for each connection, which all loads use.
pub struct Prepared {
    target: Target,
    places: Vec<Place>,
}

struct Place {
    dir: Handle,
    file: Handle,
}

impl Prepared {
    /// Makes what up to `connections` need. What others have made there stays.
    pub fn new(target: Target, connections: usize) -> io::Result<Prepared> {
        let root = Connection::new(target.mount)?.mount(&target.path)?;
        let mut setup = Connection::new(target.nfs)?;
        let unique = since_epoch_ns();
        let places = (0..connections).map(|number| {
            let dir = setup.make_directory(&root, &format!("load-{unique}-{number}"))?;
            let file = setup.make_file(&dir, "file", FILE_BYTES)?;
            Ok(Place { dir, file })
        });
        let places: Vec<Place> = places.collect::<io::Result<_>>()?;
        if let Some(first) = places.first() {
            hold_lock(&target, &first.file)?;
        }
        Ok(Prepared { target, places })
    }
}

/// Takes a lock that nobody else wants and keeps it, so that this machine is a client with locks
/// all the time: else nfs-ganesha has it monitored anew for each lock.
fn hold_lock(target: &Target, file: &[u8]) -> io::Result<()> {
    let arguments = lock_arguments(("load", u32::MAX), file, (1 << 40, 1), true);
    let result = Connection::new(target.locks)?.call(NLM, LOCK, &arguments)?;
    match Items(&result).word()? {
        0 => Ok(()),
        status => Err(io::Error::other(format!("LOCK: the server says {status}"))),
    }
}

/// The arguments of LOCK (exclusive, not waiting) or UNLOCK.
fn lock_arguments(
    (name, svid): (&str, u32),
    file: &[u8],
    (start, length): (u64, u64),
    is_lock: bool,
) -> Arguments {
    let head = Arguments::new().opaque(b"");
    let head = match is_lock {
        // It does not wait, and is exclusive.
        true => head.word(0).word(1),
        false => head,
    };
    let lock = head.opaque(name.as_bytes()).opaque(file);
    let lock = lock.opaque(&svid.to_be_bytes()).word(svid);
    let lock = lock.long(start).long(length);
    match is_lock {
        // No reclaim; the state of the client's monitor.
        true => lock.word(0).word(1),
        false => lock,
    }
}

fn since_epoch_ns() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

/// Operations a second, of `connections` with `depth` calls under way each, over `time`.
pub fn rate(
    prepared: &Prepared,
    load: Load,
    (connections, depth): (usize, usize),
    time: Duration,
) -> io::Result<f64> {
    let at = match load {
        Load::Locks => prepared.target.locks,
        _ => prepared.target.nfs,
    };
    let first_xid = since_epoch_ns() as u32;
    let mut workers = Vec::new();
    for (number, place) in prepared.places.iter().take(connections).enumerate() {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        workers.push(Worker {
            load,
            stream,
            dir: place.dir.clone(),
            file: place.file.clone(),
            number,
            xid: first_xid.wrapping_add(number as u32) << SLOT_BITS,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            out: Vec::new(),
        });
    }
    if workers.len() < connections {
        return Err(io::Error::other("it is prepared for fewer connections"));
    }
    let (stop, start) = (AtomicBool::new(false), Barrier::new(connections + 1));
    std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(|| worker.run(&start, &stop)))
            .collect();
        start.wait();
        let begun = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed().as_secs_f64();
        let mut done = 0;
        for worker in running {
            done += worker
                .join()
                .map_err(|_| io::Error::other("a thread panicked"))??;
        }
        Ok(done as f64 / took)
    })
}

/// A call under way.
#[derive(Default)]
struct Slot {
    step: u32,
    count: u64,
    /// What was created.
    made: Handle,
}

struct Worker {
    load: Load,
    stream: TcpStream,
    dir: Handle,
    file: Handle,
    number: usize,
    xid: u32,
    slots: Vec<Slot>,
    out: Vec<u8>,
}

impl Worker {
    /// Asks until `stop`; gives the operations that were done by then.
    fn run(mut self, start: &Barrier, stop: &AtomicBool) -> io::Result<u64> {
        let mut records = Records::default();
        start.wait();
        for slot in 0..self.slots.len() {
            self.ask(slot);
        }
        let (mut done, mut under_way) = (0, self.slots.len());
        while under_way > 0 {
            if !self.out.is_empty() {
                self.stream.write_all(&self.out)?;
                self.out.clear();
            }
            if !records.read(&mut self.stream)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let is_over = stop.load(Ordering::Relaxed);
            while let Some(record) = records.take()? {
                let (xid, items) = result(record)?;
                let slot = (xid & ((1 << SLOT_BITS) - 1)) as usize;
                let is_operation = self.answered(slot, items)?;
                if is_operation && is_over {
                    under_way -= 1;
                    continue;
                }
                done += u64::from(is_operation);
                self.ask(slot);
            }
        }
        Ok(done)
    }

    /// A slot's call was answered; true when that was the last of an operation.
    fn answered(&mut self, at: usize, mut items: Items<'_>) -> io::Result<bool> {
        if self.load == Load::Locks {
            // The cookie.
            items.opaque()?;
        }
        let status = items.word()?;
        if status != 0 {
            let what = format!("{}: the server says {status}", self.load.name());
            return Err(io::Error::other(what));
        }
        let slot = self.slots.get_mut(at);
        let slot = slot.ok_or_else(|| io::Error::other("a reply to no call"))?;
        if self.load == Load::Files && slot.step == 0 {
            slot.made = made(&mut items)?;
        }
        slot.step = (slot.step + 1) % self.load.steps();
        slot.count += u64::from(slot.step == 0);
        Ok(slot.step == 0)
    }

    /// Puts a slot's next call into the buffer.
    fn ask(&mut self, at: usize) {
        let slot = &self.slots[at];
        let read = |length: u32| {
            let blocks = FILE_BYTES / u64::from(length);
            // Spread, so that it is not always the same.
            let block = (slot.count * 7 + at as u64) % blocks;
            let arguments = Arguments::new().opaque(&self.file);
            arguments.long(block * u64::from(length)).word(length)
        };
        let name = || format!("{}-{at}", self.number);
        let in_dir = || Arguments::new().opaque(&self.dir).opaque(name().as_bytes());
        let (procedure, arguments) = match (self.load, slot.step) {
            (Load::Attributes, _) => (procedure::GETATTR, Arguments::new().opaque(&self.file)),
            (Load::Lookup, _) => {
                let arguments = Arguments::new().opaque(&self.dir).opaque(b"file");
                (procedure::LOOKUP, arguments)
            }
            (Load::Files, 0) => {
                // GUARDED
                let mut arguments = in_dir().word(1);
                arguments.0.extend(attributes(Some(0o644)).0);
                (procedure::CREATE, arguments)
            }
            (Load::Files, 1) => (procedure::WRITE, write(&slot.made, 0, &WRITTEN)),
            (Load::Files, _) => (procedure::REMOVE, in_dir()),
            (Load::ReadSmall, _) => (procedure::READ, read(4096)),
            (Load::ReadLarge, _) => (procedure::READ, read(1 << 20)),
            (Load::Locks, step) => self.lock(at, step == 0),
        };
        self.xid = self.xid.wrapping_add(1 << SLOT_BITS);
        let xid = self.xid | at as u32;
        put_call(
            &mut self.out,
            xid,
            self.load.program(),
            procedure,
            &arguments.0,
        );
    }

    /// LOCK or UNLOCK of the slot's range.
    fn lock(&self, at: usize, is_lock: bool) -> (u32, Arguments) {
        let name = format!("load-{}", self.number);
        let range = (at as u64 * 100, 100);
        let arguments = lock_arguments((&name, at as u32), &self.file, range, is_lock);
        (if is_lock { LOCK } else { UNLOCK }, arguments)
    }
}

//! An NBD server over a device, in this process, which can lie, stall and hang up, and serve
//! requests in another order than they come in, and which dies and comes back.
//!
//! # References
//! The NBD protocol, `doc/proto.md` of the project NetworkBlockDevice.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use finefs_block::BlockDevice;

/// The export takes flushes.
pub const FLUSH: u16 = 1 << 2;
/// The export takes writes that are durable when they are answered.
pub const FUA: u16 = 1 << 3;
/// The export writes zeros by itself.
pub const ZEROES: u16 = 1 << 6;
/// A flush on one connection counts for all.
pub const MULTI: u16 = 1 << 8;

/// What the server does wrong, from the request of this number on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Nothing.
    None,
    /// Greets as another protocol would.
    NoGreeting,
    /// Greets as servers did before 2011.
    OldGreeting,
    /// An option's reply is said to be longer than memory.
    HugeOptionReply,
    /// The export is larger than a signed number of 64 bits.
    NegativeSize,
    /// Block sizes that are no powers of two.
    BlockSizes,
    /// Knows no export of that name.
    NoSuchExport,
    /// Closes the connection.
    HangUp,
    /// Closes it when it shall flush.
    HangUpOnFlush,
    /// Answers no more.
    Silence,
    /// Answers a byte at a time, each half a second.
    Dribble,
    /// Replies begin with another number.
    ReplyMagic,
    /// Replies to what nobody asked.
    Cookie,
    /// Gives half of what was asked for.
    ShortData,
    /// Gives what lies beside it.
    DataOutside,
    /// A part of a reply is said to be longer than what was asked for.
    LongChunk,
    /// Refuses with this error number.
    Error(u32),
}

/// What the server can do, and does.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What it does wrong.
    pub lie: Lie,
    /// From the request of this number on.
    pub from: u64,
    /// It takes structured replies.
    pub is_structured: bool,
    /// The export's flags.
    pub flags: u16,
    /// The smallest block that can be asked for, in bytes.
    pub block_min: u32,
    /// The longest request in bytes.
    pub request_max: u32,
    /// Each request takes so long.
    pub delay: Duration,
    /// Requests of a connection are served at once, in any order.
    pub reorders: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            lie: Lie::None,
            from: 0,
            is_structured: true,
            flags: 1 | FLUSH | FUA | ZEROES,
            block_min: 1,
            request_max: 32 << 20,
            delay: Duration::ZERO,
            reorders: false,
        }
    }
}

/// How often there were requests of a kind with such flags.
type Counts = HashMap<(u16, u16), u64>;

/// A server of one export. Connections live on without it.
pub struct NbdServer {
    dir: tempfile::TempDir,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` while the server is dead.
    device: Mutex<Option<Arc<dyn BlockDevice>>>,
    /// Of all clients, until they end.
    streams: Mutex<HashMap<u64, UnixStream>>,
    setup: Setup,
    counts: Mutex<Counts>,
    connections: AtomicU64,
    requests: AtomicU64,
    is_over: AtomicBool,
}

struct Connection {
    stream: UnixStream,
    device: Arc<dyn BlockDevice>,
    /// Held for one reply.
    replies: Arc<Mutex<UnixStream>>,
    shared: Arc<Shared>,
}

/// What a client asks for.
struct Request {
    flags: u16,
    kind: u16,
    cookie: [u8; 8],
    offset: u64,
    length: u32,
    payload: Vec<u8>,
}

impl NbdServer {
    /// Starts to listen.
    pub fn start(device: Arc<dyn BlockDevice>, setup: Setup) -> io::Result<NbdServer> {
        let dir = tempfile::tempdir()?;
        let listener = UnixListener::bind(dir.path().join("s"))?;
        let shared = Arc::new(Shared {
            device: Mutex::new(Some(device)),
            streams: Mutex::default(),
            setup,
            counts: Mutex::default(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let server = NbdServer {
            dir,
            shared: Arc::clone(&shared),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                let (Ok(replies), Ok(to_end)) = (stream.try_clone(), stream.try_clone()) else {
                    return;
                };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                let Some(device) = shared.enter(number, to_end) else {
                    continue;
                };
                let mut connection = Connection {
                    stream,
                    replies: Arc::new(Mutex::new(replies)),
                    device,
                    shared: Arc::clone(&shared),
                };
                // Ends with the client.
                std::thread::spawn(move || {
                    let served = connection.serve();
                    connection.shared.streams().remove(&number);
                    served
                });
            }
        });
        Ok(server)
    }

    /// Dies: serves nobody, and when it returns nothing is done on the device any more.
    pub fn die(&self) {
        *lock(&self.shared.device) = None;
        while !self.shared.streams().is_empty() {
            for stream in self.shared.streams().values() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Serves again, what is on this device.
    pub fn come_back(&self, device: Arc<dyn BlockDevice>) {
        *lock(&self.shared.device) = Some(device);
    }

    /// What a client calls it; it waits for each reply so long.
    pub fn url(&self, timeout_s: u64) -> OsString {
        let socket = self.dir.path().join("s");
        format!(
            "nbd+unix:///e?socket={}&timeout={timeout_s}",
            socket.display()
        )
        .into()
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many requests of this kind there were.
    pub fn count(&self, kind: u16) -> u64 {
        let counts = self.shared.counts();
        let of_kind = counts.iter().filter(|((it, _), _)| *it == kind);
        of_kind.map(|(_, count)| count).sum()
    }

    /// How many requests of this kind with just these flags there were.
    pub fn count_with(&self, kind: u16, flags: u16) -> u64 {
        self.shared
            .counts()
            .get(&(kind, flags))
            .copied()
            .unwrap_or(0)
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that listens.
        let _ = UnixStream::connect(self.dir.path().join("s"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        lock(&self.counts)
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, HashMap<u64, UnixStream>> {
        lock(&self.streams)
    }

    /// What this client is served, unless the server is dead.
    fn enter(&self, number: u64, stream: UnixStream) -> Option<Arc<dyn BlockDevice>> {
        let device = lock(&self.device);
        if device.is_some() {
            self.streams().insert(number, stream);
        }
        device.clone()
    }
}

/// Does what is asked, and gives the data that was read, or an error number.
fn perform(device: &dyn BlockDevice, request: &Request) -> Result<Vec<u8>, u32> {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO) as u32;
    let mut data = Vec::new();
    match request.kind {
        0 => {
            data.resize(request.length as usize, 0);
            device.read_at(request.offset, &mut data)
        }
        1 => device.write_at(request.offset, &request.payload),
        3 => device.flush(),
        6 => device.write_zeros_at(request.offset, u64::from(request.length)),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
    .map_err(number)?;
    let is_to_be_durable = request.flags & 1 != 0;
    if is_to_be_durable && matches!(request.kind, 1 | 6) {
        device.flush().map_err(number)?;
    }
    Ok(data)
}

impl Connection {
    fn get<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn serve(&mut self) -> io::Result<()> {
        if self.shared.setup.lie == Lie::NoGreeting {
            return self.stream.write_all(&[b'x'; 64]);
        }
        self.stream.write_all(b"NBDMAGIC")?;
        if self.shared.setup.lie == Lie::OldGreeting {
            self.stream
                .write_all(&0x0000_4202_8186_1253_u64.to_be_bytes())?;
            return self.stream.write_all(&[0; 140]);
        }
        self.stream.write_all(b"IHAVEOPT\x00\x03")?;
        self.get::<4>()?;
        loop {
            self.get::<8>()?;
            let option = u32::from_be_bytes(self.get()?);
            let length = u32::from_be_bytes(self.get()?);
            let mut data = vec![0; length as usize];
            self.stream.read_exact(&mut data)?;
            match option {
                8 if self.shared.setup.is_structured => self.option_reply(option, 1, &[])?,
                10 => {
                    let context = [&7_u32.to_be_bytes()[..], b"base:allocation"].concat();
                    self.option_reply(option, 4, &context)?;
                    self.option_reply(option, 1, &[])?;
                }
                7 => {
                    if self.go()? {
                        break;
                    }
                }
                _ => self.option_reply(option, 1 << 31 | 1, &[])?,
            }
        }
        while self.request()? {}
        Ok(())
    }

    fn option_reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let length = match self.shared.setup.lie {
            Lie::HugeOptionReply => u32::MAX,
            _ => data.len() as u32,
        };
        let magic = 0x0003_e889_0455_65a9_u64;
        let parts: [&[u8]; 5] = [
            &magic.to_be_bytes(),
            &option.to_be_bytes(),
            &kind.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ];
        self.stream.write_all(&parts.concat())
    }

    fn go(&mut self) -> io::Result<bool> {
        if self.shared.setup.lie == Lie::NoSuchExport {
            self.option_reply(7, 1 << 31 | 6, b"who?")?;
            return Ok(false);
        }
        let size = match self.shared.setup.lie {
            Lie::NegativeSize => u64::MAX,
            _ => self.device.len_bytes(),
        };
        let flags = self.shared.setup.flags;
        let parts: [&[u8]; 3] = [&[0, 0], &size.to_be_bytes(), &flags.to_be_bytes()];
        self.option_reply(7, 3, &parts.concat())?;
        let min = match self.shared.setup.lie {
            Lie::BlockSizes => 3,
            _ => self.shared.setup.block_min,
        };
        let max = self.shared.setup.request_max;
        let sizes = [min, min.max(4096), max].map(u32::to_be_bytes).concat();
        self.option_reply(7, 3, &[&[0, 3], &sizes[..]].concat())?;
        self.option_reply(7, 1, &[])?;
        Ok(true)
    }

    /// False at the end.
    fn request(&mut self) -> io::Result<bool> {
        let magic = u32::from_be_bytes(self.get()?);
        assert_eq!(magic, 0x2560_9513);
        let flags = u16::from_be_bytes(self.get()?);
        let kind = u16::from_be_bytes(self.get()?);
        let cookie = self.get()?;
        let offset = u64::from_be_bytes(self.get()?);
        let length = u32::from_be_bytes(self.get()?);
        if kind == 2 {
            return Ok(false);
        }
        let mut payload = vec![0; if kind == 1 { length as usize } else { 0 }];
        self.stream.read_exact(&mut payload)?;
        let shared = Arc::clone(&self.shared);
        *shared.counts().entry((kind, flags)).or_default() += 1;
        let setup = &shared.setup;
        assert!(offset.is_multiple_of(u64::from(setup.block_min)));
        assert!(length.is_multiple_of(setup.block_min));
        assert!(kind > 1 || length <= setup.request_max);
        let request = Request {
            flags,
            kind,
            cookie,
            offset,
            length,
            payload,
        };
        let number = shared.requests.fetch_add(1, Ordering::SeqCst);
        let replies = Arc::clone(&self.replies);
        let device = Arc::clone(&self.device);
        if setup.reorders {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                // Later ones overtake some of the earlier ones.
                std::thread::sleep(Duration::from_micros(number * 7919 % 5 * 20));
                answer(&shared, &*device, &request, number, &replies)
            });
        } else {
            answer(&shared, &*device, &request, number, &replies)?;
        }
        Ok(true)
    }
}

/// Serves a request and replies.
fn answer(
    shared: &Shared,
    device: &dyn BlockDevice,
    request: &Request,
    number: u64,
    replies: &Mutex<UnixStream>,
) -> io::Result<()> {
    std::thread::sleep(shared.setup.delay);
    let lie = match number >= shared.setup.from {
        true => shared.setup.lie,
        false => Lie::None,
    };
    let outcome = perform(device, request);
    let mut stream = lock(replies);
    let reply = match lie {
        Lie::HangUp => return stream.shutdown(std::net::Shutdown::Both),
        Lie::HangUpOnFlush if request.kind == 3 => {
            return stream.shutdown(std::net::Shutdown::Both);
        }
        Lie::Silence => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        _ => reply(request, outcome, lie, shared.setup.is_structured),
    };
    if lie == Lie::Dribble {
        for byte in reply {
            stream.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(500));
        }
        return Ok(());
    }
    stream.write_all(&reply)
}

fn reply(request: &Request, outcome: Result<Vec<u8>, u32>, lie: Lie, structured: bool) -> Vec<u8> {
    let mut at = request.offset;
    let mut cookie = request.cookie;
    let (mut data, mut error) = match outcome {
        Ok(data) => (data, 0),
        Err(error) => (Vec::new(), error),
    };
    match lie {
        Lie::Cookie => cookie[0] ^= 1,
        Lie::ShortData => data.truncate(data.len() / 2),
        Lie::DataOutside => at += 1,
        Lie::Error(number) => error = number,
        _ => {}
    }
    let mut reply = Vec::new();
    if request.kind == 0 && error == 0 && structured {
        let length = match lie {
            Lie::LongChunk => u32::MAX,
            _ => data.len() as u32 + 8,
        };
        reply.extend(0x668e_33ef_u32.to_be_bytes());
        reply.extend([0, 1, 0, 1]);
        reply.extend(cookie);
        reply.extend(length.to_be_bytes());
        reply.extend(at.to_be_bytes());
    } else {
        reply.extend(0x6744_6698_u32.to_be_bytes());
        reply.extend(error.to_be_bytes());
        reply.extend(cookie);
    }
    if error == 0 {
        reply.append(&mut data);
    }
    if lie == Lie::ReplyMagic {
        reply[0] ^= 1;
    }
    reply
}

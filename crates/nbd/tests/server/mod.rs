//! An NBD server for tests, in this process, which can lie, stall and hang up.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Flags of the export.
pub const FLUSH: u16 = 1 << 2;
pub const FUA: u16 = 1 << 3;
pub const ZEROES: u16 = 1 << 6;
pub const MULTI: u16 = 1 << 8;

/// What the server does wrong, from the request of this number on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    None,
    NoGreeting,
    OldGreeting,
    HugeOptionReply,
    NegativeSize,
    BlockSizes,
    NoSuchExport,
    HangUp,
    Silence,
    /// Answers a byte at a time, each half a second.
    Dribble,
    ReplyMagic,
    Cookie,
    ShortData,
    DataOutside,
    LongChunk,
    Error(u32),
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub lie: Lie,
    pub from: u64,
    pub is_structured: bool,
    pub flags: u16,
    pub block_min: u32,
    pub request_max: u32,
    pub delay: Duration,
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
        }
    }
}

pub struct Server {
    dir: tempfile::TempDir,
    pub bytes: Arc<Mutex<Vec<u8>>>,
    /// Requests by kind and flags.
    pub counts: Arc<Mutex<HashMap<(u16, u16), u64>>>,
    pub connections: Arc<AtomicU64>,
}

struct Connection {
    stream: UnixStream,
    setup: Setup,
    bytes: Arc<Mutex<Vec<u8>>>,
    counts: Arc<Mutex<HashMap<(u16, u16), u64>>>,
    requests: Arc<AtomicU64>,
}

impl Server {
    pub fn start(length: usize, setup: Setup) -> Server {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let server = Server {
            dir,
            bytes: Arc::new(Mutex::new(vec![0; length])),
            counts: Arc::default(),
            connections: Arc::default(),
        };
        let (bytes, counts) = (Arc::clone(&server.bytes), Arc::clone(&server.counts));
        let (connections, requests) = (Arc::clone(&server.connections), Arc::default());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                connections.fetch_add(1, Ordering::SeqCst);
                let mut connection = Connection {
                    stream,
                    setup: setup.clone(),
                    bytes: Arc::clone(&bytes),
                    counts: Arc::clone(&counts),
                    requests: Arc::clone(&requests),
                };
                // Ends with the client.
                std::thread::spawn(move || connection.serve());
            }
        });
        server
    }

    pub fn url(&self, timeout_s: u64) -> OsString {
        let socket = self.dir.path().join("s");
        format!(
            "nbd+unix:///e?socket={}&timeout={timeout_s}",
            socket.display()
        )
        .into()
    }

    pub fn count(&self, kind: u16) -> u64 {
        let counts = self.counts.lock().unwrap();
        let of_kind = counts.iter().filter(|((it, _), _)| *it == kind);
        of_kind.map(|(_, count)| count).sum()
    }
}

impl Connection {
    fn get<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn serve(&mut self) -> io::Result<()> {
        if self.setup.lie == Lie::NoGreeting {
            return self.stream.write_all(&[b'x'; 64]);
        }
        self.stream.write_all(b"NBDMAGIC")?;
        if self.setup.lie == Lie::OldGreeting {
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
                8 if self.setup.is_structured => self.option_reply(option, 1, &[])?,
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
        let length = match self.setup.lie {
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
        if self.setup.lie == Lie::NoSuchExport {
            self.option_reply(7, 1 << 31 | 6, b"who?")?;
            return Ok(false);
        }
        let size = match self.setup.lie {
            Lie::NegativeSize => u64::MAX,
            _ => self.bytes.lock().unwrap().len() as u64,
        };
        let flags = self.setup.flags;
        let parts: [&[u8]; 3] = [&[0, 0], &size.to_be_bytes(), &flags.to_be_bytes()];
        self.option_reply(7, 3, &parts.concat())?;
        let min = match self.setup.lie {
            Lie::BlockSizes => 3,
            _ => self.setup.block_min,
        };
        let max = self.setup.request_max;
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
        let cookie: [u8; 8] = self.get()?;
        let offset = u64::from_be_bytes(self.get()?) as usize;
        let length = u32::from_be_bytes(self.get()?) as usize;
        if kind == 2 {
            return Ok(false);
        }
        let mut payload = vec![0; if kind == 1 { length } else { 0 }];
        self.stream.read_exact(&mut payload)?;
        *self
            .counts
            .lock()
            .unwrap()
            .entry((kind, flags))
            .or_default() += 1;
        assert!(offset.is_multiple_of(self.setup.block_min as usize));
        assert!(length.is_multiple_of(self.setup.block_min as usize));
        assert!(kind > 1 || length <= self.setup.request_max as usize);
        std::thread::sleep(self.setup.delay);
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let lie = match number >= self.setup.from {
            true => self.setup.lie,
            false => Lie::None,
        };
        let mut data = Vec::new();
        {
            let mut bytes = self.bytes.lock().unwrap();
            let range = offset..offset + length;
            match kind {
                0 => data.extend_from_slice(&bytes[range]),
                1 => bytes[range].copy_from_slice(&payload),
                6 => bytes[range].fill(0),
                _ => {}
            }
        }
        self.reply(kind, cookie, offset, data, lie)?;
        Ok(true)
    }

    fn reply(
        &mut self,
        kind: u16,
        mut cookie: [u8; 8],
        offset: usize,
        mut data: Vec<u8>,
        lie: Lie,
    ) -> io::Result<()> {
        let mut at = offset as u64;
        let mut error = 0;
        match lie {
            Lie::HangUp => return Err(io::ErrorKind::BrokenPipe.into()),
            Lie::Silence => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
            Lie::Cookie => cookie[0] ^= 1,
            Lie::ShortData => data.truncate(data.len() / 2),
            Lie::DataOutside => at += 1,
            Lie::Error(number) => error = number,
            _ => {}
        }
        let mut reply = Vec::new();
        if kind == 0 && error == 0 && self.setup.is_structured {
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
        if lie == Lie::Dribble {
            for byte in reply {
                self.stream.write_all(&[byte])?;
                std::thread::sleep(Duration::from_millis(500));
            }
            return Ok(());
        }
        self.stream.write_all(&reply)
    }
}

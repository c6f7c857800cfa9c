//! Connections that are lost (`reconnect-delay=`): a server that comes back is used again, whatever
//! it has lost of what was not flushed, and one that does not, or is another, fails the device.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use finefs_block::{BlockDevice, Write};
use finefs_nbd::{NbdDevice, NbdUri};
use finefs_sim::crash::{Choice, Part};
use finefs_sim::nbd::{FLUSH, FUA, Lie, MULTI, NbdServer, Setup, ZEROES};
use finefs_sim::record::RecordingDevice;
use finefs_sim::{Image, ImageDevice};

fn device(length: usize) -> Arc<RecordingDevice> {
    Arc::new(RecordingDevice::new(vec![0; length]))
}

fn open(server: &NbdServer, delay_s: u64) -> io::Result<NbdDevice> {
    let mut url = server.url(2);
    url.push(OsString::from(format!("&reconnect-delay={delay_s}")));
    NbdDevice::open(&NbdUri::parse(&url).unwrap(), false)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// What a crash leaves of the device: of what was written since the last flush any part.
fn after_crash(device: &RecordingDevice, random: &mut Random) -> Arc<RecordingDevice> {
    let epochs = device.recorded().epochs();
    let last = epochs.last().unwrap();
    let mut choice = Choice::default();
    for index in 0..last.writes() {
        match random.below(3) {
            0 => choice.0.push((index, Part::Whole)),
            1 => choice.0.push((index, Part::Sectors(vec![0]))),
            _ => {}
        }
    }
    Arc::new(RecordingDevice::over(last.image(&choice)))
}

/// One thread's work on its part of the device, beside an array.
struct Worker {
    start: usize,
    model: Vec<u8>,
    random: Random,
}

impl Worker {
    fn new(number: usize, length: usize) -> Worker {
        Worker {
            start: number * length,
            model: vec![0; length],
            random: Random(number as u64 + 11),
        }
    }

    fn step(&mut self, device: &NbdDevice, round: usize) {
        let at = self.random.below(self.model.len());
        let length = 1 + self.random.below((self.model.len() - at).min(40_000));
        let (range, place) = (at..at + length, (self.start + at) as u64);
        match self.random.below(10) {
            0 => {
                device.write_zeros_at(place, length as u64).unwrap();
                self.model[range].fill(0);
            }
            1..4 => {
                let mut buffer = vec![1; length];
                device.read_at(place, &mut buffer).unwrap();
                assert!(buffer == self.model[range], "round {round}");
            }
            4 => device.flush().unwrap(),
            kind => {
                let data: Vec<u8> = (0..length).map(|byte| (byte * 3 + round) as u8).collect();
                match kind {
                    5 => device.write_durably(&[Write::new(place, &data)]).unwrap(),
                    _ => device.write_at(place, &data).unwrap(),
                }
                self.model[range].copy_from_slice(&data);
            }
        }
    }
}

/// Four threads, and a server that crashes under them again and again.
fn crash_under_load(setup: Setup, seed: u64) {
    const LENGTH: usize = 256 << 10;
    const THREADS: usize = 4;
    let mut held = device(LENGTH * THREADS);
    let server = NbdServer::start(held.clone(), setup).unwrap();
    let client = open(&server, 30).unwrap();
    let mut random = Random(seed);
    let is_over = AtomicBool::new(false);
    let models = std::thread::scope(|scope| {
        let work = |number| {
            let mut worker = Worker::new(number, LENGTH);
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) {
                worker.step(&client, round);
                round += 1;
            }
            worker.model
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for _ in 0..25 {
            std::thread::sleep(Duration::from_millis(random.below(40) as u64));
            server.die();
            held = after_crash(&held, &mut random);
            server.come_back(held.clone());
        }
        is_over.store(true, Ordering::SeqCst);
        let models = threads.into_iter().map(|thread| thread.join().unwrap());
        models.collect::<Vec<_>>()
    });
    client.flush().unwrap();
    // The worst: nothing is left of what was not flushed.
    server.die();
    let epochs = held.recorded().epochs();
    let left = epochs.last().unwrap().image(&Choice::default());
    assert!(left.to_bytes() == models.concat());
}

#[test]
fn nothing_is_lost_with_the_server() {
    crash_under_load(Setup::default(), 1);
}

#[test]
fn nothing_is_lost_on_several_connections() {
    let setup = Setup {
        flags: 1 | FLUSH | FUA | ZEROES | MULTI,
        ..Setup::default()
    };
    crash_under_load(setup, 2);
}

#[test]
fn nothing_is_lost_of_blocks_written_in_part() {
    let setup = Setup {
        block_min: 4096,
        request_max: 8192,
        flags: 1 | FLUSH,
        ..Setup::default()
    };
    crash_under_load(setup, 3);
}

/// What is kept to be written again is bounded: there is a flush where nobody asks for one.
#[test]
fn much_that_is_never_flushed_is_flushed() {
    let device = Arc::new(ImageDevice::new(Image::from_bytes(&vec![0; 8 << 20])));
    let server = NbdServer::start(device, Setup::default()).unwrap();
    let client = open(&server, 30).unwrap();
    let data = vec![7; 4 << 20];
    for _ in 0..40 {
        client.write_at(0, &data).unwrap();
    }
    assert_eq!(server.count(3), 2);
}

/// Who waits for the server is told when the time is over, and so is everybody later, at once.
#[test]
fn the_time_comes_to_an_end() {
    let server = NbdServer::start(device(1 << 20), Setup::default()).unwrap();
    let client = open(&server, 1).unwrap();
    server.die();
    let start = Instant::now();
    let error = client.read_at(0, &mut [0; 512]).unwrap_err().to_string();
    assert!(start.elapsed() >= Duration::from_secs(1), "{error}");
    for words in ["has closed the connection", "within 1 s", "/s)"] {
        assert!(error.contains(words), "{error}");
    }
    let connections = server.connections();
    server.come_back(device(1 << 20));
    assert_eq!(client.flush().unwrap_err().to_string(), error);
    assert_eq!(server.connections(), connections, "it has tried again");
}

#[test]
fn another_export_is_not_used() {
    let server = NbdServer::start(device(1 << 20), Setup::default()).unwrap();
    let client = open(&server, 20).unwrap();
    server.die();
    server.come_back(device(2 << 20));
    let error = client.flush().unwrap_err().to_string();
    assert!(
        error.contains("2097152 bytes now, and had 1048576"),
        "{error}"
    );
    assert!(!error.contains("within 20 s"), "{error}");
}

/// One of the same size that holds other data; nothing is written to it. Where the server has lost
/// nothing but what was not flushed, it is the same.
#[test]
fn other_data_is_not_written_to() {
    const LENGTH: usize = 1 << 20;
    let of = |byte: u8| Arc::new(RecordingDevice::new(vec![byte; LENGTH]));
    let server = NbdServer::start(of(1), Setup::default()).unwrap();
    let client = open(&server, 20).unwrap();
    client.write_at(1024, &[2; 1024]).unwrap();
    server.die();
    server.come_back(of(1));
    client.flush().unwrap();
    client.write_at(LENGTH as u64 / 2, &[3; 512]).unwrap();
    server.die();
    let other = of(1);
    server.come_back(other.clone());
    let error = client.flush().unwrap_err().to_string();
    assert!(error.contains("holds something else"), "{error}");
    assert!(!error.contains("within 20 s"), "{error}");
    let epochs = other.recorded().epochs();
    assert_eq!(epochs.iter().map(|epoch| epoch.writes()).sum::<usize>(), 0);
}

/// A server that answers what it was not asked is not trusted again.
#[test]
fn nonsense_ends_it_at_once() {
    let setup = Setup {
        lie: Lie::Cookie,
        from: 3,
        ..Setup::default()
    };
    let server = NbdServer::start(device(1 << 20), setup).unwrap();
    let client = open(&server, 20).unwrap();
    let error = loop {
        if let Err(error) = client.write_at(0, &[1; 512]) {
            break error.to_string();
        }
    };
    assert!(error.contains("not asked"), "{error}");
    assert_eq!(server.connections(), 1);
}

/// A request that makes the server hang up each time is not sent for ever.
#[test]
fn a_request_is_not_sent_for_ever() {
    let setup = Setup {
        lie: Lie::HangUpOnFlush,
        ..Setup::default()
    };
    let server = NbdServer::start(device(1 << 20), setup).unwrap();
    let client = open(&server, 20).unwrap();
    let error = client.flush().unwrap_err().to_string();
    assert!(error.contains("is not sent again"), "{error}");
    assert!(client.read_at(0, &mut [0; 512]).is_err());
}

/// One that says that it is about to end has failed all requests, not this one.
#[test]
fn a_server_that_shuts_down_is_gone() {
    let setup = Setup {
        lie: Lie::Error(108),
        from: 2,
        ..Setup::default()
    };
    let server = NbdServer::start(device(1 << 20), setup).unwrap();
    let client = open(&server, 0).unwrap();
    for at in 0..2 {
        client.write_at(at * 512, &[1; 512]).unwrap();
    }
    let error = client.flush().unwrap_err().to_string();
    assert!(error.contains("shutting down"), "{error}");
    assert_eq!(client.read_at(0, &mut [0]).unwrap_err().to_string(), error);
}

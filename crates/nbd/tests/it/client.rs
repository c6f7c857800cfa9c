//! The client against a server of these tests: what is read is what was written, whatever the
//! server can do, and a server that lies, stalls or hangs up is an error in bounded time.

use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, Write};
use finefs_nbd::{NbdDevice, NbdUri};
use finefs_sim::nbd::{FUA, Lie, MULTI, NbdServer, Setup, ZEROES};
use finefs_sim::{Image, ImageDevice};

/// A server of so many zeros.
fn serve(length: usize, setup: Setup) -> NbdServer {
    let device = ImageDevice::new(Image::from_bytes(&vec![0; length]));
    NbdServer::start(Arc::new(device), setup).unwrap()
}

fn open(server: &NbdServer) -> io::Result<NbdDevice> {
    NbdDevice::open(&NbdUri::parse(&server.url(2)).unwrap(), false)
}

/// Random requests beside an array.
fn exercise(setup: Setup) {
    const LENGTH: usize = 3 << 20;
    let held = Arc::new(ImageDevice::new(Image::from_bytes(&[0; LENGTH])));
    let server = NbdServer::start(held.clone(), setup).unwrap();
    let device = open(&server).unwrap();
    assert_eq!(device.len_bytes(), LENGTH as u64);
    let mut model = vec![0_u8; LENGTH];
    let mut seed = 7_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for round in 0..200 {
        let start = next(LENGTH);
        let length = next((LENGTH - start).min(1 << 20) + 1);
        let range = start..start + length;
        match round % 4 {
            0 => {
                device.write_zeros_at(start as u64, length as u64).unwrap();
                model[range].fill(0);
            }
            1 => {
                let data: Vec<u8> = (0..length).map(|at| (at + round) as u8).collect();
                let (one, two) = data.split_at(length / 3);
                device
                    .write_parts_at(start as u64, &[one, &[], two])
                    .unwrap();
                model[range].copy_from_slice(&data);
            }
            2 => {
                let data = [round as u8; 4096];
                let places = [start / 8192, start / 8192 + 2].map(|place| place * 8192);
                let places = places.map(|place| place.min(LENGTH - 4096));
                let writes = places.map(|place| Write::new(place as u64, &data));
                device
                    .write_durably(&writes[..1 + usize::from(places[0] != places[1])])
                    .unwrap();
                for place in places {
                    model[place..place + 4096].copy_from_slice(&data);
                }
            }
            _ => {
                let mut buffer = vec![1; length];
                device.read_at(start as u64, &mut buffer).unwrap();
                assert!(buffer == model[range]);
            }
        }
    }
    device.flush().unwrap();
    let mut bytes = vec![1; LENGTH];
    held.read_at(0, &mut bytes).unwrap();
    assert!(bytes == model);
    assert!(device.read_at(LENGTH as u64, &mut [0]).is_err());
}

#[test]
fn reads_what_was_written() {
    exercise(Setup::default());
}

#[test]
fn replies_come_in_any_order() {
    exercise(Setup {
        reorders: true,
        flags: 1 | ZEROES | MULTI | FUA,
        ..Setup::default()
    });
}

#[test]
fn simple_replies_and_no_zeroes_are_enough() {
    exercise(Setup {
        is_structured: false,
        flags: 1,
        ..Setup::default()
    });
}

#[test]
fn requests_are_of_whole_blocks_and_not_too_long() {
    exercise(Setup {
        block_min: 4096,
        request_max: 64 << 10,
        flags: 1 | ZEROES | MULTI,
        ..Setup::default()
    });
}

#[test]
fn several_connections_where_the_server_takes_them() {
    let server = serve(
        1 << 20,
        Setup {
            flags: 1 | MULTI | FUA,
            ..Setup::default()
        },
    );
    let device = open(&server).unwrap();
    assert_eq!(server.connections(), 4);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50 {
                    let place = thread * (128 << 10) + round * 2048;
                    let data = [(thread + round) as u8; 2048];
                    device.write_at(place, &data).unwrap();
                    let mut back = [0; 2048];
                    device.read_at(place, &mut back).unwrap();
                    assert_eq!(back, data);
                }
            });
        }
    });
}

/// Many threads on one connection, each with several requests on their way.
#[test]
fn threads_share_a_connection() {
    let server = serve(
        8 << 20,
        Setup {
            request_max: 4096,
            ..Setup::default()
        },
    );
    let device = open(&server).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..16_usize {
            let device = &device;
            scope.spawn(move || {
                let place = (thread << 19) as u64;
                let data: Vec<u8> = (0..1 << 19).map(|at| (at * 7 + thread) as u8).collect();
                device.write_at(place, &data).unwrap();
                let mut back = vec![0; 1 << 19];
                device.read_at(place, &mut back).unwrap();
                assert!(back == data);
            });
        }
    });
}

#[test]
fn durable_writes_need_no_flush() {
    let server = serve(1 << 20, Setup::default());
    let device = open(&server).unwrap();
    let data = [1; 4096];
    let writes: Vec<Write<'_>> = (0..20).map(|at| Write::new(at * 8192, &data)).collect();
    device.write_durably(&writes).unwrap();
    // No flush: each write says that it is to be durable.
    assert_eq!((server.count(1), server.count(3)), (20, 0));
    assert_eq!(server.count_with(1, 1), 20);
}

#[test]
fn servers_that_cannot_be_used_are_refused() {
    for (lie, words) in [
        (Lie::NoGreeting, "no NBD server"),
        (Lie::OldGreeting, "old handshake"),
        (Lie::HugeOptionReply, "too long"),
        (Lie::NegativeSize, "larger than can be"),
        (Lie::BlockSizes, "make no sense"),
        (Lie::NoSuchExport, "no such export"),
    ] {
        let server = serve(
            1 << 20,
            Setup {
                lie,
                ..Setup::default()
            },
        );
        let error = open(&server).unwrap_err().to_string();
        assert!(error.contains(words), "{lie:?}: {error}");
    }
    let nobody = NbdUri::parse("nbd+unix:///?socket=/nonexistent/s".as_ref()).unwrap();
    let error = NbdDevice::open(&nobody, true).unwrap_err().to_string();
    assert!(error.contains("no such socket"), "{error}");
}

#[test]
fn a_server_that_lies_or_stalls_fails_the_device() {
    for (lie, words) in [
        (Lie::HangUp, "closed the connection"),
        (Lie::Silence, "does not answer"),
        (Lie::Dribble, "does not answer"),
        (Lie::ReplyMagic, "no reply"),
        (Lie::Cookie, "not asked"),
        (Lie::ShortData, "less than"),
        (Lie::DataOutside, "not to what it was asked"),
        (Lie::LongChunk, "not to what it was asked"),
    ] {
        let server = serve(
            1 << 20,
            Setup {
                lie,
                from: 3,
                ..Setup::default()
            },
        );
        let device = open(&server).unwrap();
        let mut buffer = [0; 4096];
        for at in 0..3 {
            device.read_at(at * 4096, &mut buffer).unwrap();
        }
        let error = device.read_at(0, &mut buffer).unwrap_err().to_string();
        assert!(error.contains(words), "{lie:?}: {error}");
        // With the server's name, and without the export's, which who tells it has.
        let socket = NbdUri::parse(&server.url(2)).unwrap().server;
        assert!(error.contains(&format!("({socket}")), "{error}");
        assert!(!error.contains("nbd+unix:"), "{error}");
        // And it has failed for good: nothing is asked any more.
        assert!(device.write_at(0, &buffer).is_err());
        assert!(device.flush().is_err());
        let asked = server.count(1) + server.count(3);
        assert_eq!((asked, server.connections()), (0, 1), "{lie:?}");
    }
}

/// Threads that wait when the connection ends.
#[test]
fn all_who_wait_are_told() {
    let server = serve(
        1 << 20,
        Setup {
            lie: Lie::Silence,
            from: 5,
            ..Setup::default()
        },
    );
    let device = open(&server).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..12_u64 {
            let device = &device;
            scope.spawn(move || {
                let mut buffer = [0; 512];
                while device.read_at(thread * 512, &mut buffer).is_ok() {}
            });
        }
    });
}

/// An error of one request says what it is, and leaves the device as it is.
#[test]
fn errors_of_requests_have_their_kind() {
    let lie = Lie::Error(28);
    let server = serve(
        1 << 20,
        Setup {
            lie,
            ..Setup::default()
        },
    );
    let device = open(&server).unwrap();
    let full = device.write_at(0, &[0; 512]).unwrap_err();
    assert!(finefs_block::is_full(&full), "{full}");
    assert!(
        full.to_string().contains("cannot write: no space left"),
        "{full}"
    );
    assert_eq!(
        device.flush().unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    // What that flush was for is gone.
    let later = device.flush().unwrap_err();
    assert_eq!(later.raw_os_error(), Some(5), "{later}"); // EIO
}

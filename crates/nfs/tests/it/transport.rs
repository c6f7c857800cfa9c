//! What is below the procedures: records, heads of calls, order, calls that are sent twice, clients
//! that mean no good.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::client::*;
use finefs_nfs::ExportOptions;
use nfs3_types::mount::mountres3;
use nfs3_types::nfs3::*;
use nfs3_types::rpc::{auth_flavor, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Void};

#[test]
fn calls_that_cannot_be_carried_out_are_told_why() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let mut outcome = |program, procedure, arguments: &[u8]| {
        let xid = client.next_xid();
        let record = client.record(xid, program, procedure, arguments);
        client.stream.write_all(&record).unwrap();
        let reply = client.reply(xid);
        let words = reply.chunks(4).skip(1);
        let words = words.map(|word| u32::from_be_bytes(word.try_into().unwrap()));
        words.collect::<Vec<_>>()
    };
    // Accepted, no verifier, and: no program, mismatch, no procedure, garbage.
    assert_eq!(outcome((100_000, 2), 0, &[]), [0, 0, 0, 1]);
    assert_eq!(outcome((100_021, 1), 0, &[]), [0, 0, 0, 2, 4, 4]);
    assert_eq!(outcome((100_003, 4), 0, &[]), [0, 0, 0, 2, 3, 3]);
    assert_eq!(outcome((100_005, 1), 0, &[]), [0, 0, 0, 2, 3, 3]);
    assert_eq!(outcome(NFS, 22, &[]), [0, 0, 0, 3]);
    assert_eq!(outcome(MOUNT, 6, &[]), [0, 0, 0, 3]);
    assert_eq!(
        outcome(NFS, procedure::GETATTR, &[0, 0, 1, 0]),
        [0, 0, 0, 4]
    );
    assert_eq!(outcome(NFS, procedure::REMOVE, &[]), [0, 0, 0, 4]);
    assert_eq!(outcome(NFS, procedure::NULL, &[]), [0, 0, 0, 0]);
    client.credential = opaque_auth {
        flavor: auth_flavor::AUTH_DES,
        body: Opaque::borrowed(&[]),
    };
    let xid = client.next_xid();
    let record = client.record(xid, NFS, procedure::NULL, &[]);
    client.stream.write_all(&record).unwrap();
    // Denied for its credential, which is too weak.
    let denied = [1u32, 1, 1, 5].map(u32::to_be_bytes).concat();
    assert_eq!(client.reply(xid), denied);
}

#[test]
fn handles_that_were_not_given_are_refused() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.data.to_vec();
    for (place, status) in [
        (0, nfsstat3::NFS3ERR_BADHANDLE),
        (5, nfsstat3::NFS3ERR_STALE),
        (25, nfsstat3::NFS3ERR_BADHANDLE),
        (30, nfsstat3::NFS3ERR_BADHANDLE),
        (39, nfsstat3::NFS3ERR_BADHANDLE),
    ] {
        let mut forged = root.clone();
        forged[place] ^= 1;
        let forged = nfs_fh3 {
            data: Opaque::owned(forged),
        };
        assert_eq!(
            client.attributes(&forged).unwrap_err(),
            status,
            "byte {place}"
        );
    }
}

#[test]
fn mounts_are_listed_and_paths_followed() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let dir = client.make_directory(&root, "dir").unwrap();
    client.make_file(&root, "file");
    let mount = |client: &mut Client, path: &str| {
        let result: mountres3<'static> = client.call_program(MOUNT, 1, &dirpath(path));
        match result {
            mountres3::Ok(mounted) => Ok(mounted.fhandle.0.to_vec()),
            mountres3::Err(status) => Err(status as u32),
        }
    };
    assert_eq!(mount(&mut client, "").unwrap(), *root.data);
    assert_eq!(mount(&mut client, "/dir/").unwrap(), *dir.data);
    assert_eq!(mount(&mut client, "/none"), Err(2));
    assert_eq!(mount(&mut client, "/file"), Err(20));
    let texts = |client: &mut Client, procedure| {
        let xid = client.next_xid();
        let record = client.record(xid, MOUNT, procedure, &[]);
        client.stream.write_all(&record).unwrap();
        String::from_utf8_lossy(&client.result(xid)).into_owned()
    };
    // DUMP, EXPORT
    let dump = texts(&mut client, 2);
    assert!(dump.contains("127.0.0.1") && dump.contains("/dir/"));
    assert!(texts(&mut client, 5).contains('/'));
    let _: Void = client.call_program(MOUNT, 3, &dirpath("/dir/"));
    assert!(!texts(&mut client, 2).contains("/dir/"));
    let _: Void = client.call_program(MOUNT, 4, &Void);
    assert!(!texts(&mut client, 2).contains("127.0.0.1"));
}

#[test]
fn many_calls_of_one_connection_are_all_answered() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_filled(&root, "file", 7);
    let mut sent = Vec::new();
    for number in 0..300 {
        let arguments = READ3args {
            file: file.clone(),
            offset: 0,
            count: if number % 10 == 0 { 1 << 20 } else { 1 },
        };
        sent.push(client.send(procedure::READ, &arguments));
        if number >= 40 {
            let xid = sent[number - 40];
            assert!(client.result(xid).len() > 100);
        }
    }
    for xid in &sent[260..] {
        assert!(client.result(*xid).len() > 100);
    }
}

#[test]
fn a_call_in_fragments_is_one_call() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let xid = client.next_xid();
    let record = client.record(xid, NFS, procedure::NULL, &[]);
    let (first, second) = record[4..].split_at(10);
    for (part, last) in [(first, 0u32), (second, 1 << 31)] {
        let mark = part.len() as u32 | last;
        for byte in [&mark.to_be_bytes()[..], part].concat() {
            client.stream.write_all(&[byte]).unwrap();
        }
    }
    assert!(client.result(xid).is_empty());
}

#[test]
fn a_call_that_is_sent_again_is_not_carried_out_again() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    client.make_file(&root, "file");
    let arguments = packed(&REMOVE3args {
        object: place(&root, "file"),
    });
    let xid = client.next_xid();
    let record = client.record(xid, NFS, procedure::REMOVE, &arguments);
    client.stream.write_all(&record).unwrap();
    let first = client.result(xid);
    assert_eq!(first[..4], [0; 4]);
    // On another connection, as after a loss.
    let mut again = Client::new(&server);
    again.stream.write_all(&record).unwrap();
    assert_eq!(again.result(xid), first);
    // The same call with another id is another.
    let status = again.remove(&root, "file").unwrap_err();
    assert_eq!(status, nfsstat3::NFS3ERR_NOENT);
    // The same id with another call is another, too.
    let other = packed(&REMOVE3args {
        object: place(&root, "other"),
    });
    let record = again.record(xid, NFS, procedure::REMOVE, &other);
    again.stream.write_all(&record).unwrap();
    assert_eq!(again.result(xid)[..4], 2u32.to_be_bytes());
}

#[test]
fn senseless_bytes_end_their_connection_and_no_other() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let ends = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        // Closed, or reset as bytes were left.
        let ended = stream.read_to_end(&mut rest);
        rest.is_empty()
            && !matches!(ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(ends(b"GET / HTTP/1.1\r\n\r\n"));
    assert!(ends(&u32::MAX.to_be_bytes()));
    assert!(ends(&[0x80, 0, 0, 4, 1, 2, 3, 4]));
    assert!(ends(&[0; 4 * 100]));
    client.attributes(&root).unwrap();
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_call_is_let_go() {
    let (server, _namespace) = serve_memory(trusting());
    for _ in 0..50 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        // The end comes with the bytes before it.
        stream.write_all(&[0x80, 0, 1, 0, 1, 2, 3]).unwrap();
    }
    let connections = || {
        let clients = server.clients();
        clients
            .iter()
            .map(|client| client.connections)
            .sum::<usize>()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    // Some may not have been taken in yet.
    std::thread::sleep(Duration::from_millis(200));
    while connections() > 0 {
        assert!(Instant::now() < deadline, "{} are left", connections());
        std::thread::sleep(Duration::from_millis(10));
    }
    server.stop();
}

#[test]
fn who_takes_no_replies_slows_nobody() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_filled(&root, "file", 7);
    let arguments = packed(&READ3args {
        file,
        offset: 0,
        count: 1 << 20,
    });
    let mut greedy: Vec<Client> = (0..10).map(|_| Client::new(&server)).collect();
    for client in &mut greedy {
        client.stream.set_nonblocking(true).unwrap();
        for _ in 0..200 {
            let xid = client.next_xid();
            let record = client.record(xid, NFS, procedure::READ, &arguments);
            if client.stream.write_all(&record).is_err() {
                break;
            }
        }
    }
    let start = Instant::now();
    for _ in 0..100 {
        client.attributes(&root).unwrap();
    }
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    // Some of them read in the end, and find all replies whole.
    for client in greedy.iter_mut().take(2) {
        client.stream.set_nonblocking(false).unwrap();
        for _ in 0..200 {
            let (_, reply) = client.receive().unwrap();
            assert!(reply.len() > 1 << 20);
        }
    }
    server.stop();
}

/// A client with many connections and a slow line: it asks for more than the server keeps for it.
#[test]
fn who_takes_replies_slowly_gets_them_all() {
    const CALLS: u32 = 8;
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_filled(&root, "file", 7);
    let mut slow: Vec<Client> = (0..50).map(|_| Client::new(&server)).collect();
    for client in &mut slow {
        for _ in 0..CALLS {
            let arguments = READ3args {
                file: file.clone(),
                offset: 0,
                count: 1 << 20,
            };
            client.send(procedure::READ, &arguments);
        }
    }
    // The server has done for them what it does.
    std::thread::sleep(Duration::from_millis(500));
    client.attributes(&root).unwrap();
    for client in &mut slow {
        for _ in 0..CALLS {
            let (_, reply) = client.receive().expect("nobody is cut off");
            assert!(reply.len() > 1 << 20);
        }
    }
    server.stop();
}

#[test]
fn one_address_has_so_many_connections() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let streams: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    let is_closed = |mut stream: &TcpStream| {
        stream
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
            || matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while streams.iter().filter(|stream| is_closed(stream)).count() < 137 {
        assert!(Instant::now() < deadline);
    }
    client.attributes(&root).unwrap();
    drop(streams);
    // Their places are free again.
    while Instant::now() < deadline {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let mut probe = Client::unmounted(&server, user(0, 0, &[]));
        let record = probe.record(1, NFS, procedure::NULL, &[]);
        let _ = stream.write_all(&record);
        if probe.stream.write_all(&record).is_ok() && probe.receive().is_ok() {
            return;
        }
    }
    panic!("no place is free");
}

#[test]
fn ten_thousand_connections_slow_nobody() {
    let (server, _namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    // As many at a time as a process may have files.
    let mut open = std::collections::VecDeque::new();
    let mut longest = Duration::ZERO;
    for number in 0..10_000 {
        open.push_back(TcpStream::connect(server.address()).unwrap());
        if open.len() > 300 {
            open.pop_front();
        }
        if number % 100 == 0 {
            let start = Instant::now();
            client.attributes(&root).unwrap();
            longest = longest.max(start.elapsed());
        }
    }
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    server.stop();
}

#[test]
fn only_the_clients_that_are_meant_are_served() {
    let options = ExportOptions {
        clients: vec!["192.0.2.0/24".parse().unwrap()],
        ..trusting()
    };
    let (server, _namespace) = serve_memory(options);
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    let record = client.record(1, NFS, procedure::NULL, &[]);
    let _ = client.stream.write_all(&record);
    assert!(client.receive().is_err());
}

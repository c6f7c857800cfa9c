//! Clients that come, work, lock, and go or die in the middle of a call: nobody else is slowed, and
//! nothing is left of them. For some seconds, or ten minutes with `FINEFS_FULL=1`.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::*;
use finefs_nfs::Server;
use nfs3_types::nfs3::*;
use rand::Rng;

const NLM: (u32, u32) = (100_021, 4);
const LOCK: u32 = 2;
const FREE_ALL: u32 = 23;
/// The longest that the client may wait for whom nothing is done wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// A LOCK of a few bytes, which waits or does not.
fn lock(name: &str, file: &nfs_fh3, waits: bool) -> Vec<u8> {
    let (svid, start) = (
        rand::rng().random_range(0..5u32),
        rand::rng().random_range(0..20u64),
    );
    [
        opaque(b"c"),
        words(&[waits.into(), 1]),
        opaque(name.as_bytes()),
        opaque(&file.data),
        opaque(b"owner"),
        words(&[svid]),
        start.to_be_bytes().to_vec(),
        3u64.to_be_bytes().to_vec(),
        words(&[0, 1]),
    ]
    .concat()
}

/// Connections that the server has not closed.
fn connections(server: &Server) -> usize {
    let clients = server.clients();
    clients.iter().map(|client| client.connections).sum()
}

/// Waits until there are no more than so many: one address may have 64, and those of the dead go
/// when their last calls are over.
fn wait_for_at_most(server: &Server, most: usize) {
    let deadline = Instant::now() + PATIENCE;
    while connections(server) > most {
        assert!(
            Instant::now() < deadline,
            "{} are left",
            connections(server)
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One client's life.
fn live(server: &Server, name: &str, file: &nfs_fh3) {
    wait_for_at_most(server, 40);
    let mut client = Client::new(server);
    let root = client.root.clone();
    let mut rng = rand::rng();
    for step in 0..rng.random_range(1..30u32) {
        match rng.random_range(0..6) {
            0 => {
                let own = format!("{name}-{step}");
                let made = client.make_file(&root, &own);
                let _ = client.write(&made, 0, &[7; 5000], stable_how::UNSTABLE);
                client.remove(&root, &own).unwrap();
            }
            1 => drop(client.read(file, 0, 100_000)),
            2 => drop(client.list(&root, 8192)),
            3 | 4 => {
                let xid = client.next_xid();
                let waits = rng.random();
                let record = client.record(xid, NLM, LOCK, &lock(name, file, waits));
                client.stream.write_all(&record).unwrap();
                client.result(xid);
            }
            _ => drop(client.attributes(&root)),
        }
    }
    match rng.random_range(0..4) {
        // In the middle of a call; with calls that nobody waits for; with nonsense.
        0 => drop(client.stream.write_all(&[0x80, 0, 1, 0, 1, 2, 3])),
        1 => {
            for _ in 0..50 {
                let arguments = READ3args {
                    file: file.clone(),
                    offset: 0,
                    count: 1 << 20,
                };
                client.send(procedure::READ, &arguments);
            }
        }
        2 => drop(client.stream.write_all(&[0xff; 64])),
        _ => {}
    }
}

fn free_all(client: &mut Client, name: &str) {
    let xid = client.next_xid();
    let arguments = [opaque(name.as_bytes()), words(&[1])].concat();
    let record = client.record(xid, NLM, FREE_ALL, &arguments);
    client.stream.write_all(&record).unwrap();
    client.result(xid);
}

#[test]
fn clients_come_and_go_and_die() {
    let is_full = std::env::var_os("FINEFS_FULL").is_some();
    let time = Duration::from_secs(if is_full { 600 } else { 3 });
    let (server, namespace) = serve_memory(trusting());
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_filled(&root, "file", 1);
    let (stop, lives) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (server, file, stop, lives) = (&server, &file, &stop, &lives);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    live(server, &format!("machine{thread}"), file);
                    lives.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + time;
        let are_few = || lives.load(Ordering::Relaxed) <= 4;
        while Instant::now() < end || are_few() && Instant::now() < end + PATIENCE {
            let start = Instant::now();
            client.attributes(&root).unwrap();
            longest = longest.max(start.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(longest < PATIENCE, "{longest:?}");
    assert!(lives.load(Ordering::Relaxed) > 4);
    for thread in 0..4 {
        free_all(&mut client, &format!("machine{thread}"));
    }
    assert_eq!(server.locks().len(), 0);
    assert_eq!(namespace.file_lock_count(), 0);
    assert_eq!(
        client.list(&root, 1 << 20).len(),
        3,
        "the root, and the file"
    );
    wait_for_at_most(&server, 1);
    server.stop();
}

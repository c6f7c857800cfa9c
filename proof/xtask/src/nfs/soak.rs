//! `nfs/soak`: clients of many addresses that come, work, lock, and go or die: in the middle of a
//! call, with replies that they do not take, with nonsense, with locks. All the while one client is
//! served; the server's memory is bounded, and no connection of the dead is left.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use finefs_harness::rng::Rng;
use finefs_harness::sets;
use finefs_nfs_client::connection::{Connection, Handle, attributes, procedure, write};
use finefs_nfs_client::wire::{Arguments, NFS, NLM, put_call};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use super::{Server, image};
use crate::guest::Guests;
use crate::soak::{judge_memory, resident_kib};

const LOCK: u32 = 2;
/// Clients that live at a time.
const WORKERS: u64 = 8;
/// Addresses that they have by turns.
const ADDRESSES: u64 = 16;
/// How often the server's memory is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// The most that the server may have.
const RESIDENT_KIB_MAX: u64 = 256 << 10;
/// How long the server may take to close what the dead have left.
const PATIENCE: Duration = Duration::from_secs(60);
/// A file that all read and lock.
const SHARED: &str = "shared";
const SHARED_BYTES: u64 = 1 << 20;
/// Clients lock bytes of it below this, as owners of numbers below this: so few that soon all of
/// them wait, and what the server knows of them does not grow.
const LOCKED: u64 = 6;

/// Loads a server; gives what became of its memory.
pub(super) fn soak(guests: &Guests, finefs: &Path, seed: u64, is_long: bool) -> Result<String> {
    let image = image(guests, "ext4")?;
    // Full early, so that it does not grow with what is in it.
    let what = ["-o", "data_cache=16m", &image.to_string_lossy()];
    let server = Server::start(finefs, &what, 0)?;
    let pid = server.running.pid();
    let address = SocketAddr::from(([127, 0, 0, 1], server.port));
    let mut steady = Connection::new(address)?;
    let root = steady.mount("/")?;
    let shared = steady.make_file(&root, SHARED, SHARED_BYTES)?;
    let files = open_files(pid)?;
    let end = Instant::now() + Duration::from_secs(if is_long { 600 } else { 15 });
    let stop = AtomicBool::new(false);
    let (lives, resident) = std::thread::scope(|scope| -> Result<_> {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (shared, stop) = (&shared, &stop);
                let rng = Rng::new(seed ^ number << 40);
                scope.spawn(move || lives(address, number, shared, rng, stop))
            })
            .collect();
        let looked = look(&mut steady, &root, pid, end);
        stop.store(true, Ordering::Relaxed);
        let mut lives = 0;
        for worker in workers {
            lives += worker.join().expect("a worker does not panic")?;
        }
        Ok((lives, looked?))
    })?;
    let begun = Instant::now();
    while open_files(pid)? > files {
        let waited = begun.elapsed();
        ensure!(waited < PATIENCE, "connections of the dead are left");
        std::thread::sleep(LOOK);
    }
    server.end()?;
    sets::fsck(&image)?;
    let most = resident.iter().max().copied().unwrap_or(0);
    ensure!(most <= RESIDENT_KIB_MAX, "the server had {most} KiB");
    // At first it grows: its buffers are made, replies are kept.
    let judged = match is_long {
        true => judge_memory(&resident)?,
        false => format!("server: {most} KiB at most"),
    };
    Ok(format!("{lives} lives; {judged}"))
}

/// Asks as a client that does nothing wrong, until `end`; gives the server's resident size in KiB
/// over the time.
fn look(steady: &mut Connection, root: &[u8], pid: u32, end: Instant) -> Result<Vec<u64>> {
    let mut resident = Vec::new();
    while Instant::now() < end {
        steady.call(NFS, procedure::GETATTR, &Arguments::new().opaque(root))?;
        resident.push(resident_kib(pid)?);
        std::thread::sleep(LOOK);
    }
    Ok(resident)
}

fn open_files(pid: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// One client after the other; gives how many.
fn lives(
    server: SocketAddr,
    number: u64,
    shared: &[u8],
    mut rng: Rng,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut lives = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("worker{number}");
        live(server, &name, shared, &mut rng).with_context(|| format!("life {lives} of {name}"))?;
        lives += 1;
    }
    Ok(lives)
}

/// Connects from an address of this machine.
fn connected(server: SocketAddr, rng: &mut Rng) -> io::Result<TcpStream> {
    let own = Ipv4Addr::new(127, 0, 77, 1 + rng.below(ADDRESSES) as u8);
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&stream, &SocketAddrV4::new(own, 0))?;
    connect(&stream, &server)?;
    Ok(TcpStream::from(stream))
}

fn live(server: SocketAddr, name: &str, shared: &[u8], rng: &mut Rng) -> Result<()> {
    let mut stream = connected(server, rng)?;
    let mut client = Connection::of(stream.try_clone()?)?;
    let root = client.mount("/")?;
    for step in 0..rng.range(1, 20) {
        match rng.below(4) {
            0 => work(&mut client, &root, &format!("{name}-{step}"))?,
            1 => drop(client.call(NFS, procedure::READ, &read(shared, 100_000))?),
            _ => {
                let arguments = lock(name, shared, rng);
                // The status is behind the cookie, and any is right.
                client.call_any(NLM, LOCK, &arguments)?;
            }
        }
    }
    match rng.below(5) {
        // In the middle of a call, without a word.
        0 => {
            stream.write_all(&[0x80, 0, 1, 0, 1, 2, 3])?;
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        }
        // With replies on the way.
        1 => {
            let (mut calls, Arguments(all)) = (Vec::new(), read(shared, 1 << 20));
            for xid in 0..50 {
                put_call(&mut calls, xid, NFS, procedure::READ, &all);
            }
            stream.write_all(&calls)?;
        }
        2 => stream.write_all(&[0xff; 64])?,
        _ => {}
    }
    Ok(())
}

fn read(file: &[u8], length: u32) -> Arguments {
    Arguments::new().opaque(file).long(0).word(length)
}

/// A file from its creation to its end.
fn work(client: &mut Connection, root: &[u8], name: &str) -> io::Result<()> {
    let place = || Arguments::new().opaque(root).opaque(name.as_bytes());
    let file: Handle = client.make_file(root, name, 0)?;
    client.call(NFS, procedure::WRITE, &write(&file, 0, &[7; 5000]))?;
    let mut mode = Arguments::new().opaque(&file);
    mode.0.extend(attributes(Some(0o600)).0);
    // Whatever its change time is.
    client.call(NFS, procedure::SETATTR, &mode.word(0))?;
    client.call(NFS, procedure::REMOVE, &place())?;
    Ok(())
}

/// A LOCK of some bytes, which waits or does not.
fn lock(name: &str, file: &[u8], rng: &mut Rng) -> Arguments {
    let (svid, start) = (rng.below(LOCKED) as u32, rng.below(LOCKED));
    let waits = rng.below(2) as u32;
    let head = Arguments::new().opaque(b"").word(waits).word(1);
    let lock = head.opaque(name.as_bytes()).opaque(file);
    let lock = lock.opaque(&svid.to_be_bytes()).word(svid);
    lock.long(start).long(3).word(0).word(1)
}

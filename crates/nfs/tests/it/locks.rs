//! Locks of clients (NLM 4, NSM): against each other and against local ones, waiting, cancelled, of
//! clients that were started anew, and after a start of the server.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::client::*;
use finefs::FileSystem;
use finefs_namespace::{
    Caller, Error, Ino, LockKind, LockWait, MemoryStore, Namespace, OpenAccess, Options, RangeOwner,
};
use finefs_nfs::{LockOptions, Rpcbind, Served, Server, ServerOptions};
use nfs3_types::nfs3::nfs_fh3;

const NLM: (u32, u32) = (100_021, 4);
const NSM: (u32, u32) = (100_024, 1);
const PORTMAP: (u32, u32) = (100_000, 2);

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const LOCK_MSG: u32 = 7;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const FREE_ALL: u32 = 23;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const GRACE_PERIOD: u32 = 4;

const PATIENCE: Duration = Duration::from_secs(60);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at * 4..at * 4 + 4].try_into().unwrap())
}

/// One owner's words.
#[derive(Clone)]
struct Owner {
    name: &'static str,
    svid: u32,
    file: nfs_fh3,
}

impl Owner {
    fn lock(&self, start: u64, length: u64) -> Vec<u8> {
        let owner = format!("{}@{}", self.svid, self.name);
        [
            opaque(self.name.as_bytes()),
            opaque(&self.file.data),
            opaque(owner.as_bytes()),
            words(&[self.svid]),
            start.to_be_bytes().to_vec(),
            length.to_be_bytes().to_vec(),
        ]
        .concat()
    }
}

/// Whether a LOCK waits, and whether the client had it before.
#[derive(Clone, Copy, Default)]
struct How {
    waits: bool,
    reclaims: bool,
}

fn lock_arguments(cookie: &[u8], owner: &Owner, range: (u64, u64), how: How) -> Vec<u8> {
    [
        opaque(cookie),
        words(&[how.waits.into(), 1]),
        owner.lock(range.0, range.1),
        words(&[how.reclaims.into(), 1]),
    ]
    .concat()
}

impl Client {
    fn ask(&mut self, program: (u32, u32), procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let xid = self.next_xid();
        let record = self.record(xid, program, procedure, arguments);
        self.stream.write_all(&record).expect("it listens");
        self.result(xid)
    }

    fn nlm(&mut self, procedure: u32, cookie: &[u8], arguments: &[u8]) -> Vec<u8> {
        let result = self.ask(NLM, procedure, arguments);
        let head = opaque(cookie);
        assert_eq!(result[..head.len()], head, "the cookie comes back");
        result[head.len()..].to_vec()
    }

    /// An exclusive lock.
    fn lock(&mut self, owner: &Owner, range: (u64, u64), how: How) -> u32 {
        let arguments = lock_arguments(b"lock", owner, range, how);
        word(&self.nlm(LOCK, b"lock", &arguments), 0)
    }

    fn try_lock(&mut self, owner: &Owner, range: (u64, u64)) -> u32 {
        self.lock(owner, range, How::default())
    }

    fn wait(&mut self, owner: &Owner, range: (u64, u64)) -> u32 {
        let how = How {
            waits: true,
            reclaims: false,
        };
        self.lock(owner, range, how)
    }

    fn unlock(&mut self, owner: &Owner, range: (u64, u64)) {
        let arguments = [opaque(b"u"), owner.lock(range.0, range.1)].concat();
        assert_eq!(word(&self.nlm(UNLOCK, b"u", &arguments), 0), GRANTED);
    }

    fn cancel(&mut self, owner: &Owner, range: (u64, u64)) -> u32 {
        let head = [opaque(b"c"), words(&[1, 1])].concat();
        let arguments = [head, owner.lock(range.0, range.1)].concat();
        word(&self.nlm(CANCEL, b"c", &arguments), 0)
    }

    /// The status, and what follows.
    fn test(&mut self, owner: &Owner, range: (u64, u64)) -> (u32, Vec<u8>) {
        let head = [opaque(b"t"), words(&[1])].concat();
        let arguments = [head, owner.lock(range.0, range.1)].concat();
        let result = self.nlm(TEST, b"t", &arguments);
        (word(&result, 0), result[4..].to_vec())
    }

    fn share(&mut self, procedure: u32, owner: &Owner, denied: u32, access: u32) -> u32 {
        let arguments = [
            opaque(b"s"),
            opaque(owner.name.as_bytes()),
            opaque(&owner.file.data),
            opaque(&owner.svid.to_be_bytes()),
            words(&[denied, access, 0]),
        ];
        word(&self.nlm(procedure, b"s", &arguments.concat()), 0)
    }
}

/// A call that a client's machine got: program, procedure, arguments.
type Got = (u32, u32, Vec<u8>);

/// A client's rpcbind, lock manager and monitor, all at one port. It answers GRANTED with a status.
struct Machine {
    port: u16,
    got: Receiver<Got>,
}

impl Machine {
    fn start(status: u32) -> Machine {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, got) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                Machine::serve(stream.unwrap(), port, status, &sender);
            }
        });
        Machine { port, got }
    }

    fn serve(mut stream: TcpStream, port: u16, status: u32, got: &Sender<Got>) {
        let mut mark = [0; 4];
        while stream.read_exact(&mut mark).is_ok() {
            let mut call = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
            stream.read_exact(&mut call).unwrap();
            let (program, procedure) = (word(&call, 3), word(&call, 5));
            // No credential, no verifier.
            let arguments = &call[40..];
            let result = match (program, procedure) {
                (100_000, 3) => words(&[port.into()]),
                (100_021, 5) => {
                    let cookie = word(arguments, 0) as usize;
                    [opaque(&arguments[4..4 + cookie]), words(&[status])].concat()
                }
                _ => Vec::new(),
            };
            if program != 100_000 {
                let _ = got.send((program, procedure, arguments.to_vec()));
            }
            let reply = [words(&[word(&call, 0), 1, 0, 0, 0, 0]), result].concat();
            let mark = reply.len() as u32 | 1 << 31;
            stream
                .write_all(&[&mark.to_be_bytes()[..], &reply].concat())
                .unwrap();
        }
    }

    fn next(&self) -> Got {
        self.got.recv_timeout(PATIENCE).expect("it is called")
    }
}

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

fn serve_with(namespace: &Arc<Namespace>, locks: LockOptions, rpcbind: Option<Rpcbind>) -> Server {
    let served = Served {
        name: "/".into(),
        namespace: Arc::clone(namespace),
        options: trusting(),
    };
    let options = ServerOptions {
        address: SocketAddr::new(HERE, 0),
        rpcbind,
        locks,
    };
    Server::start_all(vec![served], &options).expect("a port is free")
}

/// A server, its file system, and a client with a file.
fn start(rpcbind_port: u16) -> (Server, Arc<Namespace>, Client, nfs_fh3) {
    let namespace = memory();
    let locks = LockOptions {
        rpcbind_port,
        ..LockOptions::default()
    };
    let server = serve_with(&namespace, locks, None);
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    (server, namespace, client, file)
}

fn owner(name: &'static str, svid: u32, file: &nfs_fh3) -> Owner {
    Owner {
        name,
        svid,
        file: file.clone(),
    }
}

fn ino(namespace: &Namespace) -> Ino {
    let root = Caller::root();
    let found = namespace.lookup(&root, namespace.root(), b"file").unwrap();
    // Of the lookup: for as long as the file system is there.
    found.ino
}

/// Until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn locks_exclude_each_other_and_those_of_this_machine() {
    let (server, namespace, mut client, file) = start(1);
    let (first, second) = (owner("a", 7, &file), owner("a", 8, &file));
    assert_eq!(client.try_lock(&first, (10, 10)), GRANTED);
    assert_eq!(client.try_lock(&second, (0, 10)), GRANTED);
    assert_eq!(client.try_lock(&second, (19, 1)), DENIED);
    // Another machine's owner of the same number is another.
    assert_eq!(client.try_lock(&owner("b", 7, &file), (19, 1)), DENIED);
    let (status, holder) = client.test(&second, (0, 0));
    assert_eq!(status, DENIED);
    let expected = [
        words(&[1, 7]),
        opaque(b"7@a"),
        10u64.to_be_bytes().to_vec(),
        10u64.to_be_bytes().to_vec(),
    ];
    assert_eq!(holder, expected.concat());
    assert_eq!(client.test(&first, (10, 5)).0, GRANTED);

    let local = namespace.open(&Caller::root(), ino(&namespace), OpenAccess::ReadWrite);
    let local = local.unwrap();
    let here = |range| {
        let process = RangeOwner::Process(1);
        let locks = local.locks();
        locks.lock_range(process, LockKind::Exclusive, range, LockWait::never())
    };
    assert_eq!(here(15..16), Err(Error::WouldBlock));
    client.unlock(&first, (15, 1));
    here(15..16).unwrap();
    assert_eq!(client.try_lock(&first, (15, 1)), DENIED);
    assert_eq!(client.test(&first, (15, 1)).0, DENIED);
    // One that this machine waits for comes from a client.
    let waiting = std::thread::spawn({
        let namespace = Arc::clone(&namespace);
        move || {
            let (process, wait) = (RangeOwner::Process(2), LockWait::at_most(PATIENCE));
            let file = namespace.open(&Caller::root(), ino(&namespace), OpenAccess::ReadWrite);
            let file = file.unwrap();
            file.locks()
                .lock_range(process, LockKind::Exclusive, 0..5, wait)
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished());
    client.unlock(&second, (0, 0));
    waiting.join().unwrap().unwrap();
    assert_eq!(server.locks().len(), 1, "only one owner has any");
    client.unlock(&first, (0, 0));
    assert!(server.locks().is_empty());
    server.stop();
}

/// A program that embeds the file system and serves it in the same process.
#[test]
fn files_that_a_program_has_open_lock_as_clients_do() {
    let machine = Machine::start(GRANTED);
    let fs = FileSystem::memory(64 << 20).unwrap();
    let locks = LockOptions {
        rpcbind_port: machine.port,
        ..LockOptions::default()
    };
    let server = serve_with(fs.namespace(), locks, None);
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let first = owner("a", 1, &client.make_file(&root, "file"));

    let local = fs.create("file").unwrap();
    let (exclusive, now) = (LockKind::Exclusive, LockWait::never());
    local.lock_range(0..10, exclusive, now).unwrap();
    assert_eq!(client.try_lock(&first, (5, 10)), DENIED);
    assert_eq!(client.wait(&first, (5, 10)), BLOCKED);
    local.unlock_range(..9).unwrap();
    assert_eq!(client.test(&first, (5, 10)).0, DENIED);
    assert!(machine.got.try_recv().is_err(), "it is not granted yet");
    drop(local);
    let (program, procedure, arguments) = machine.next();
    assert_eq!((program, procedure), (100_021, 5));
    let expected = [opaque(b"lock"), words(&[1]), first.lock(5, 10)].concat();
    assert_eq!(arguments, expected);

    let local = fs.create("file").unwrap();
    let refused = local.lock_range(14.., exclusive, now).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let held = local.blocking_lock(.., exclusive).unwrap().unwrap();
    assert_eq!((held.kind, held.range), (exclusive, 5..15));
    std::thread::scope(|scope| {
        let wait = LockWait::at_most(PATIENCE);
        let local = &local;
        let waiting = scope.spawn(move || local.lock_range(.., exclusive, wait));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        client.unlock(&first, (0, 0));
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(client.try_lock(&first, (0, 1)), DENIED);
    local.unlock_range(..).unwrap();
    assert_eq!(client.try_lock(&first, (0, 1)), GRANTED);
    server.stop();
}

#[test]
fn a_client_that_waits_is_called() {
    let machine = Machine::start(GRANTED);
    let (server, _namespace, mut client, file) = start(machine.port);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 0)), GRANTED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    client.unlock(&first, (0, 7));
    assert_eq!(client.test(&second, (5, 5)).0, DENIED);
    client.unlock(&first, (7, 0));
    let (program, procedure, arguments) = machine.next();
    assert_eq!((program, procedure), (100_021, 5));
    let expected = [opaque(b"lock"), words(&[1]), second.lock(5, 5)].concat();
    assert_eq!(arguments, expected);
    assert_eq!(client.try_lock(&first, (9, 1)), DENIED);
    until("the wait is over", || {
        client.wait(&second, (5, 5)) == GRANTED
    });
    client.unlock(&second, (0, 0));
    until("nobody has locks", || server.locks().is_empty());
    server.stop();
}

#[test]
fn a_grant_that_the_client_does_not_want_is_no_lock() {
    let machine = Machine::start(DENIED);
    let (server, _namespace, mut client, file) = start(machine.port);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 0)), GRANTED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    client.unlock(&first, (0, 0));
    machine.next();
    until("it is free", || client.try_lock(&first, (0, 0)) == GRANTED);
    server.stop();
}

#[test]
fn a_client_that_cannot_be_called_asks_again_or_cancels() {
    // Nobody listens at port 1.
    let (server, _namespace, mut client, file) = start(1);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 0)), GRANTED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    client.unlock(&first, (0, 0));
    assert_eq!(client.wait(&second, (5, 5)), GRANTED);
    assert_eq!(client.try_lock(&first, (5, 1)), DENIED);

    assert_eq!(client.wait(&first, (5, 1)), BLOCKED);
    assert_eq!(
        client.cancel(&first, (5, 2)),
        DENIED,
        "it does not wait for that"
    );
    assert_eq!(client.cancel(&first, (5, 1)), GRANTED);
    client.unlock(&second, (0, 0));
    assert_eq!(client.test(&second, (5, 1)).0, GRANTED, "it did not get it");
    // Cancelled when it was granted and the client did not know.
    assert_eq!(client.try_lock(&second, (0, 0)), GRANTED);
    assert_eq!(client.wait(&first, (5, 1)), BLOCKED);
    client.unlock(&second, (0, 0));
    assert_eq!(client.cancel(&first, (5, 1)), GRANTED);
    assert_eq!(client.try_lock(&second, (0, 0)), GRANTED);
    client.unlock(&second, (0, 0));
    assert!(server.locks().is_empty());
    server.stop();
}

#[test]
fn who_waits_in_one_thread_and_tries_in_another_is_denied_and_waits_on() {
    let machine = Machine::start(GRANTED);
    let (server, _namespace, mut client, file) = start(machine.port);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 0)), GRANTED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    let tried = lock_arguments(b"tried", &second, (5, 5), How::default());
    assert_eq!(word(&client.nlm(LOCK, b"tried", &tried), 0), DENIED);
    client.unlock(&first, (0, 0));
    let (program, procedure, arguments) = machine.next();
    assert_eq!((program, procedure), (100_021, 5));
    let expected = [opaque(b"lock"), words(&[1]), second.lock(5, 5)].concat();
    assert_eq!(arguments, expected, "of the call that waits");
    until("the wait is over", || {
        client.try_lock(&second, (5, 5)) == GRANTED
    });
    server.stop();
}

/// It answers, and never comes to an end of it: the server ends all the same.
#[test]
fn a_client_whose_answer_does_not_end_keeps_no_server_from_its_end() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (called, is_called) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        called.send(()).unwrap();
        // Fragments without content, none of them the last.
        while stream.write_all(&[0; 4]).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (server, _namespace, mut client, file) = start(port);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 0)), GRANTED);
    assert_eq!(client.wait(&second, (5, 5)), BLOCKED);
    client.unlock(&first, (0, 0));
    is_called.recv_timeout(PATIENCE).expect("it is called");
    let (ended, has_ended) = channel();
    std::thread::spawn(move || {
        server.stop();
        ended.send(()).unwrap();
    });
    has_ended.recv_timeout(PATIENCE).expect("the server ends");
}

#[test]
fn an_owner_does_not_wait_for_itself() {
    let (server, _namespace, mut client, file) = start(1);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.try_lock(&first, (0, 1)), GRANTED);
    assert_eq!(client.try_lock(&second, (1, 1)), GRANTED);
    assert_eq!(client.wait(&first, (1, 1)), BLOCKED);
    // NLM4_DEADLCK
    assert_eq!(client.wait(&second, (0, 1)), 5);
    server.stop();
}

#[test]
fn locks_go_with_their_client() {
    let (server, _namespace, mut client, file) = start(1);
    let (first, second) = (owner("a", 1, &file), owner("b.example.org", 2, &file));
    let third = owner("c", 3, &file);
    assert_eq!(client.try_lock(&first, (0, 1)), GRANTED);
    assert_eq!(client.try_lock(&second, (1, 1)), GRANTED);
    assert_eq!(client.wait(&first, (1, 1)), BLOCKED);
    assert_eq!(client.share(SHARE, &first, 3, 3), GRANTED);
    let notify = |name: &[u8]| [opaque(name), words(&[3])].concat();
    client.ask(NLM, FREE_ALL, &notify(b"a"));
    assert_eq!(client.try_lock(&third, (0, 1)), GRANTED);
    assert_eq!(client.try_lock(&third, (1, 1)), DENIED);
    assert_eq!(client.share(SHARE, &third, 0, 1), GRANTED);
    // Its monitor knows it without its domain, and speaks by UDP.
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    socket.connect(server.address()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let record = client.record(77, NSM, 6, &notify(b"B"));
    socket.send(&record[4..]).unwrap();
    let mut reply = [0; 100];
    let length = socket.recv(&mut reply).unwrap();
    assert_eq!(reply[..length], words(&[77, 1, 0, 0, 0, 0]));
    assert_eq!(client.try_lock(&third, (1, 1)), GRANTED);
    assert_eq!(server.locks().len(), 1);
    // One that has nothing but reservations.
    assert_eq!(client.share(UNSHARE, &third, 0, 1), GRANTED);
    assert_eq!(client.share(SHARE, &owner("d", 4, &file), 3, 3), GRANTED);
    assert_eq!(client.share(SHARE, &third, 0, 1), DENIED);
    client.ask(NSM, 6, &notify(b"d"));
    assert_eq!(client.share(SHARE, &third, 0, 1), GRANTED);
    server.stop();
}

#[test]
fn who_reserves_is_told_of_a_start_too() {
    let machine = Machine::start(GRANTED);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("locks");
    let namespace = memory();
    let server = restarted(&namespace, &state, machine.port);
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    assert_eq!(client.share(SHARE, &first, 3, 3), GRANTED);
    // Who does not get one has nothing to ask for again.
    assert_eq!(client.share(SHARE, &second, 3, 3), DENIED);
    server.stop();
    let noted = std::fs::read_to_string(&state).unwrap();
    assert!(noted.ends_with("\n127.0.0.1 127.0.0.1 61\n"), "{noted}");
    let server = restarted(&namespace, &state, machine.port);
    let (program, procedure, _) = machine.next();
    assert_eq!((program, procedure), (100_024, 6));
    server.stop();
    // It has not asked: nobody has anything.
    std::fs::remove_file(&state).unwrap();
    let server = restarted(&namespace, &state, machine.port);
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    assert_eq!(client.share(SHARE, &first, 3, 3), GRANTED);
    assert_eq!(client.share(UNSHARE, &first, 3, 3), GRANTED);
    server.stop();
    let noted = std::fs::read_to_string(&state).unwrap();
    assert_eq!(noted, "finefs locks 1\nstate 3\n");
}

/// How long only those get locks who had them before.
const GRACE: Duration = Duration::from_secs(4);

fn restarted(namespace: &Arc<Namespace>, file: &Path, port: u16) -> Server {
    let locks = LockOptions {
        state_file: Some(file.to_owned()),
        grace: GRACE,
        rpcbind_port: port,
    };
    serve_with(namespace, locks, None)
}

#[test]
fn after_a_start_clients_are_told_and_have_their_locks_again() {
    let machine = Machine::start(GRANTED);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("locks");
    let namespace = memory();
    let server = restarted(&namespace, &state, machine.port);
    let mut client = Client::new(&server);
    let root = client.root.clone();
    let file = client.make_file(&root, "file");
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    // Nobody had any before: no grace period.
    assert_eq!(client.try_lock(&first, (0, 10)), GRANTED);
    server.stop();
    // What is left of them in the namespace.
    assert_eq!(namespace.file_lock_count(), 0);

    let before = Instant::now();
    let server = restarted(&namespace, &state, machine.port);
    let (program, procedure, arguments) = machine.next();
    assert_eq!((program, procedure), (100_024, 6));
    assert_eq!(arguments[..16], opaque(b"127.0.0.1"));
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    let reclaim = How {
        waits: false,
        reclaims: true,
    };
    let answers = [
        client.try_lock(&second, (0, 10)),
        client.test(&second, (0, 10)).0,
        client.lock(&first, (0, 10), reclaim),
    ];
    if before.elapsed() >= GRACE {
        eprintln!("skipped: the grace period may be over already");
        server.stop();
        return;
    }
    assert_eq!(answers, [GRACE_PERIOD, GRACE_PERIOD, GRANTED]);
    until("the grace period ends", || {
        client.try_lock(&second, (0, 10)) != GRACE_PERIOD
    });
    assert_eq!(client.try_lock(&second, (0, 10)), DENIED);
    assert_eq!(
        client.lock(&second, (20, 1), reclaim),
        GRACE_PERIOD,
        "it is over"
    );
    server.stop();
}

#[test]
fn shares_are_kept_and_refused() {
    let (server, _namespace, mut client, file) = start(1);
    let (first, second) = (owner("a", 1, &file), owner("b", 2, &file));
    // Reads, and nobody may write.
    assert_eq!(client.share(SHARE, &first, 2, 1), GRANTED);
    assert_eq!(client.share(SHARE, &second, 0, 2), DENIED);
    assert_eq!(client.share(SHARE, &second, 1, 1), DENIED);
    assert_eq!(client.share(SHARE, &second, 0, 1), GRANTED);
    assert_eq!(client.share(UNSHARE, &first, 2, 1), GRANTED);
    assert_eq!(client.share(SHARE, &second, 0, 2), GRANTED);
    server.stop();
}

#[test]
fn who_asks_by_a_message_is_answered_by_one() {
    let machine = Machine::start(GRANTED);
    let (server, _namespace, mut client, file) = start(machine.port);
    let first = owner("a", 1, &file);
    let arguments = lock_arguments(b"m", &first, (0, 1), How::default());
    assert!(client.ask(NLM, LOCK_MSG, &arguments).is_empty());
    let (program, procedure, arguments) = machine.next();
    // NLM4_LOCK_RES
    assert_eq!((program, procedure), (100_021, 12));
    assert_eq!(arguments, [opaque(b"m"), words(&[GRANTED])].concat());
    assert_eq!(client.try_lock(&owner("b", 1, &file), (0, 1)), DENIED);
    server.stop();
}

#[test]
fn only_who_may_read_a_file_locks_it() {
    let (server, namespace, mut client, file) = start(1);
    client.set(&file, with_mode(0o600)).unwrap();
    let mut other = Client::by(&server, user(1000, 1000, &[]));
    let first = owner("a", 1, &file);
    assert_eq!(other.try_lock(&first, (0, 1)), DENIED);
    client.set(&file, with_mode(0o644)).unwrap();
    assert_eq!(other.try_lock(&first, (0, 1)), GRANTED);
    let gone = client.root.clone();
    client.remove(&gone, "file").unwrap();
    other.unlock(&first, (0, 1));
    assert_eq!(namespace.file_lock_count(), 0);
    // NLM4_STALE_FH
    assert_eq!(other.try_lock(&first, (0, 1)), 7);
    server.stop();
}

#[test]
fn ports_are_told() {
    let namespace = memory();
    // Freed at once, and given to nobody else soon.
    let port = TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap();
    let rpcbind = Some(Rpcbind::Serve(port));
    let server = serve_with(&namespace, LockOptions::default(), rpcbind);
    let mut client = Client::unmounted(&server, user(0, 0, &[]));
    client.stream = TcpStream::connect(port).unwrap();
    let own = u32::from(server.address().port());
    for (program, protocol, expected) in [
        (100_003, 6, own),
        (100_003, 17, 0),
        (100_021, 17, own),
        (100_024, 6, own),
        (100_000, 6, u32::from(port.port())),
    ] {
        let asked = words(&[program, 4, protocol, 0]);
        assert_eq!(
            client.ask(PORTMAP, 3, &asked),
            words(&[expected]),
            "{program}"
        );
    }
    server.stop();
}

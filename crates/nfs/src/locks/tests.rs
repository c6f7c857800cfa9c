//! Calls of the lock manager without a socket: what the port decides, what a monitor tells, and a
//! file of clients that cannot be written.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use finefs_namespace::{Caller, MemoryStore, Options};

use super::*;
use crate::export::{ExportOptions, Served, Squash};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(60);

const LOCK: u32 = 2;
const FREE_ALL: u32 = 23;
/// Of the monitor.
const NOTIFY: u32 = 6;
/// The state of a client when it locks, and after its next start.
const STATE: u32 = 1;
const NEXT_STATE: u32 = 3;

/// A port that only root of a client has, and one that any user has.
const ROOTS_PORT: u16 = 1023;
const ANYBODYS_PORT: u16 = 1024;

/// The lock manager of one export with one file.
struct Fixture {
    locking: Arc<Locking>,
    /// The file's handle.
    handle: Vec<u8>,
}

impl Fixture {
    fn new(options: ExportOptions, state_file: Option<PathBuf>) -> Fixture {
        let store = MemoryStore::new(16 << 20, 0o755, 0, 0).unwrap();
        let namespace = store.into_namespace(Options::default()).unwrap();
        let root = namespace.root();
        let file = namespace.create_file(&Caller::root(), root, b"file", 0o644);
        let file = file.unwrap();
        let export = Export::new(Served {
            name: "/".into(),
            namespace,
            options: ExportOptions {
                squash: Squash::None,
                ..options
            },
        });
        let handle = export.handle(file.ino, file.generation).to_vec();
        let locks = LockOptions {
            state_file,
            ..LockOptions::default()
        };
        let exports = Arc::new(Exports::new(vec![export]).unwrap());
        Fixture {
            locking: Locking::new(exports, &locks).unwrap(),
            handle,
        }
    }

    /// What a procedure answers.
    fn run(&self, port: u16, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.run_by(port, |client, out| {
            let mut reader = Reader::new(arguments);
            self.locking.run(client, procedure, &mut reader, out)
        })
    }

    fn run_by(
        &self,
        port: u16,
        run: impl FnOnce(&Client<'_>, &mut Writer) -> std::result::Result<(), Rejection>,
    ) -> Vec<u8> {
        let credential = Credential::User {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        };
        let client = Client {
            address: HERE,
            server: HERE,
            port,
            credential: &credential,
        };
        let mut out = Writer::default();
        assert!(run(&client, &mut out).is_ok());
        out.bytes().to_vec()
    }

    /// An exclusive lock of the whole file, or a shared one, that does not wait.
    fn lock(&self, svid: u32, is_exclusive: bool) -> u32 {
        self.lock_by(ROOTS_PORT, svid, is_exclusive)
    }

    fn lock_by(&self, port: u16, svid: u32, is_exclusive: bool) -> u32 {
        self.lock_in(STATE, port, svid, is_exclusive)
    }

    fn lock_in(&self, state: u32, port: u16, svid: u32, is_exclusive: bool) -> u32 {
        let mut arguments = Writer::default();
        arguments.opaque(b"");
        arguments.bool(false);
        arguments.bool(is_exclusive);
        arguments.opaque(b"client");
        arguments.opaque(&self.handle);
        arguments.opaque(b"owner");
        arguments.u32(svid);
        arguments.u64(0);
        arguments.u64(0);
        arguments.bool(false);
        arguments.u32(state);
        let answer = self.run(port, LOCK, arguments.bytes());
        // Behind the cookie.
        u32::from_be_bytes(answer[4..8].try_into().unwrap())
    }

    /// The client says that it has started anew.
    fn free_all(&self, port: u16) {
        let mut arguments = Writer::default();
        arguments.opaque(b"client");
        arguments.u32(1);
        assert!(self.run(port, FREE_ALL, arguments.bytes()).is_empty());
    }

    /// Its monitor says so.
    fn notify(&self, port: u16, state: u32) {
        let mut arguments = Writer::default();
        arguments.opaque(b"client");
        arguments.u32(state);
        let answer = self.run_by(port, |client, out| {
            let mut reader = Reader::new(arguments.bytes());
            self.locking.run_monitor(client, NOTIFY, &mut reader, out)
        });
        assert!(answer.is_empty());
    }

    /// How many owners have locks.
    fn held(&self) -> usize {
        self.locking.held().len()
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The first waits for the file, which then cannot be written.
#[test]
fn no_owner_of_a_client_gets_a_lock_before_the_client_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("locks");
    let fixture = Fixture::new(ExportOptions::default(), Some(state));
    let beside = directory.path().join("locks.new");
    make_fifo(&beside);
    std::thread::scope(|scope| {
        let lock = |svid| {
            scope.spawn({
                let fixture = &fixture;
                move || fixture.lock(svid, false)
            })
        };
        let first = lock(1);
        until("the first asks", || fixture.locking.held().len() == 1);
        let second = lock(2);
        until("the second asks", || fixture.locking.held().len() == 2);
        // Who has opened it for writing cannot make it durable.
        let reader = File::open(&beside).unwrap();
        assert_eq!(first.join().unwrap(), messages::NO_LOCKS);
        assert_eq!(second.join().unwrap(), messages::NO_LOCKS);
        drop(reader);
    });
    assert!(fixture.locking.held().is_empty());
    std::fs::remove_file(&beside).unwrap();
    assert_eq!(fixture.lock(2, true), messages::GRANTED);
}

#[test]
fn who_has_any_port_neither_locks_nor_frees_where_the_export_says_so() {
    let secure = ExportOptions {
        needs_reserved_port: true,
        ..ExportOptions::default()
    };
    let fixture = Fixture::new(secure, None);
    assert_eq!(fixture.lock_by(ANYBODYS_PORT, 1, true), messages::DENIED);
    assert_eq!(fixture.lock_by(ROOTS_PORT, 1, true), messages::GRANTED);
    fixture.free_all(ANYBODYS_PORT);
    assert_eq!(fixture.locking.held().len(), 1);
    fixture.free_all(ROOTS_PORT);
    assert!(fixture.locking.held().is_empty());
    assert_eq!(fixture.lock_by(ROOTS_PORT, 1, true), messages::GRANTED);
    fixture.notify(ANYBODYS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 1);
    // The machine's own monitor, after a user has told the same.
    fixture.notify(ROOTS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 0);

    let fixture = Fixture::new(ExportOptions::default(), None);
    assert_eq!(fixture.lock_by(ANYBODYS_PORT, 1, true), messages::GRANTED);
    fixture.free_all(ANYBODYS_PORT);
    assert!(fixture.locking.held().is_empty());
    assert_eq!(fixture.lock_by(ANYBODYS_PORT, 1, true), messages::GRANTED);
    fixture.notify(ANYBODYS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 0);
}

/// Datagrams are sent again, and sm-notify tells a host by all its names.
#[test]
fn a_monitor_that_repeats_itself_frees_nothing() {
    let fixture = Fixture::new(ExportOptions::default(), None);
    assert_eq!(fixture.lock(1, false), messages::GRANTED);
    fixture.notify(ROOTS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 0);
    let lock_in = |state, svid| fixture.lock_in(state, ROOTS_PORT, svid, false);
    assert_eq!(lock_in(NEXT_STATE, 1), messages::GRANTED);
    fixture.notify(ROOTS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 1);
    let last_state = NEXT_STATE + 2;
    fixture.notify(ROOTS_PORT, last_state);
    assert_eq!(fixture.held(), 0);
    // The server, which was started anew, has heard nothing yet: the first lock tells it.
    let fixture = Fixture::new(ExportOptions::default(), None);
    let lock_in = |state, svid| fixture.lock_in(state, ROOTS_PORT, svid, false);
    assert_eq!(lock_in(NEXT_STATE, 1), messages::GRANTED);
    fixture.notify(ROOTS_PORT, NEXT_STATE);
    assert_eq!(fixture.held(), 1);
    // A lock that comes before the monitor's word does not keep those of before.
    assert_eq!(lock_in(last_state, 2), messages::GRANTED);
    fixture.notify(ROOTS_PORT, last_state);
    assert_eq!(fixture.held(), 0);
}

/// Where one of several exports believes any user, what such a user says of the machine's state is
/// not believed for the others.
#[test]
fn the_state_of_a_client_is_what_its_root_says() {
    let fixture = Fixture::new(
        ExportOptions {
            needs_reserved_port: true,
            ..ExportOptions::default()
        },
        None,
    );
    let says = |port| {
        let credential = Credential::Nobody;
        fixture.locking.speaks_for_machine(&Client {
            address: HERE,
            server: HERE,
            port,
            credential: &credential,
        })
    };
    assert!(says(ROOTS_PORT) && !says(ANYBODYS_PORT));
}

//! The control socket: who may ask, what is answered, and what becomes of the file.

#![cfg(not(feature = "off"))]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use finefs_lockmeter::control::{Reply, Request, Server, ask};
use finefs_lockmeter::{
    Kind, LastCpu, LockClass, Mode, Waiting, Wanted, hold_sampling, mode, thresholds,
};

#[test]
fn questions_are_answered() {
    static CLASS: LockClass = LockClass::new("test.control", 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meter");
    let server = Server::start(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Server::start(&path).is_err(), "somebody listens there");

    assert_eq!(ask(&path, &Request::SetFull(true)).unwrap(), Reply::Done);
    assert_eq!(mode(), Mode::Full);
    assert_eq!(ask(&path, &Request::SetFull(false)).unwrap(), Reply::Done);
    assert_eq!(mode(), Mode::ContendedOnly);
    let wanted = Request::SetHoldSampling(5);
    assert_eq!(ask(&path, &wanted).unwrap(), Reply::Done);
    assert_eq!(hold_sampling(), 5);
    let settings = |waiters: Option<usize>| Reply::Settings {
        is_full: false,
        hold_sampling: hold_sampling(),
        wait_us: waiters.map(|_| 0),
        hold_us: None,
        waiters,
    };
    assert_eq!(ask(&path, &Request::Settings).unwrap(), settings(None));
    let wanted = Request::SetThresholds {
        wait_us: Some(0),
        hold_us: None,
        waiters: Some(5),
    };
    assert_eq!(ask(&path, &wanted).unwrap(), Reply::Done);
    assert_eq!(thresholds().waiters, Some(5));
    assert_eq!(ask(&path, &Request::Settings).unwrap(), settings(Some(5)));

    let waiting = Waiting::begin(&CLASS, Kind::Writer, 0x77);
    let Reply::Waiting(queues) = ask(&path, &Request::Waiting).unwrap() else {
        panic!()
    };
    assert_eq!((queues.len(), queues[0].lock), (1, 0x77));
    drop(waiting.granted(&LastCpu::new()));
    let Reply::Reports(reports) = ask(&path, &Request::Reports).unwrap() else {
        panic!()
    };
    assert!(reports.iter().any(|report| report.class == "test.control"));
    let Reply::Snapshot(snapshot) = ask(&path, &Request::Snapshot).unwrap() else {
        panic!()
    };
    assert_eq!(snapshot.class("test.control").unwrap().writer.contended, 1);
    let Reply::Text(text) = ask(&path, &Request::OpenMetrics).unwrap() else {
        panic!()
    };
    assert!(text.ends_with("# EOF\n"));

    leases(&path);

    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"what?\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("refused"), "{reply}");
    drop(server);
    assert!(!path.exists());
}

/// Beside the thresholds that are set (waits of 0, 5 waiters), which stay.
fn leases(path: &std::path::Path) {
    let lease = |id, time_ms, wanted| {
        let asked = Request::Lease {
            id,
            time_ms,
            wanted,
        };
        let Reply::Leased { id, has_lasted } = ask(path, &asked).unwrap() else {
            panic!()
        };
        (id, has_lasted)
    };
    let all = Wanted {
        is_full: true,
        hold_sampling: Some(3),
        waiters: Some(9),
        ..Wanted::default()
    };
    let few = Wanted {
        waiters: Some(2),
        ..Wanted::default()
    };
    let (first, _) = lease(None, 60_000, all);
    assert_eq!(
        (mode(), hold_sampling(), thresholds().waiters),
        (Mode::Full, 3, Some(5))
    );
    let (second, _) = lease(None, 60_000, few);
    assert_ne!(first, second);
    assert_eq!((mode(), thresholds().waiters), (Mode::Full, Some(2)));
    // What is set meanwhile is what is there afterwards.
    assert_eq!(ask(path, &Request::SetFull(false)).unwrap(), Reply::Done);
    assert_eq!(
        ask(path, &Request::SetHoldSampling(7)).unwrap(),
        Reply::Done
    );
    assert_eq!((mode(), hold_sampling()), (Mode::Full, 3));
    // Shortened, it ends by itself, and the other goes on.
    assert_eq!(lease(Some(first), 1, all), (first, true));
    let start = std::time::Instant::now();
    while mode() == Mode::Full {
        assert!(start.elapsed().as_secs() < 20, "the lease does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!((hold_sampling(), thresholds().waiters), (7, Some(2)));
    let (again, has_lasted) = lease(Some(first), 60_000, all);
    assert!(!has_lasted && again != first && mode() == Mode::Full);
    for id in [again, second] {
        assert_eq!(ask(path, &Request::EndLease(id)).unwrap(), Reply::Done);
    }
    assert_eq!(
        (mode(), thresholds().waiters),
        (Mode::ContendedOnly, Some(5))
    );
}

#[test]
fn a_file_left_behind_is_replaced_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meter");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    // A child that another test is about to start holds the listener until it executes.
    let start = std::time::Instant::now();
    let server = loop {
        match Server::start(&path) {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse
                    && start.elapsed().as_secs() < 20 =>
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            started => break started.unwrap(),
        }
    };
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, b"precious").unwrap();
    assert!(Server::start(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// As root only: another user, even where the file's mode lets him in, learns nothing.
#[test]
fn other_users_learn_nothing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(dir.path(), 0o755);
    let path = dir.path().join("meter");
    let _server = Server::start(&path).unwrap();
    open(&path, 0o666);
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n\
                  try: s.sendall(b'\"snapshot\"\\n')\n\
                  except BrokenPipeError: pass\n\
                  print(s.recv(100).decode())";
    let ask_as = |user: u32| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("python3");
        command.args(["-c", script]).arg(&path).uid(user).gid(user);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert!(ask_as(0).starts_with("{\"snapshot\""), "{}", ask_as(0));
    assert!(
        ask_as(65_534).starts_with("{\"refused\""),
        "{}",
        ask_as(65_534)
    );
}

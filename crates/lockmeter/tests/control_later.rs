//! Answers that are given later, the end of a server, and servers that do not answer.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use finefs_lockmeter::control::{Answerer, Server, ask_on, connect};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A server that answers even numbers at once, and gives the odd ones away.
struct Odd {
    path: PathBuf,
    server: Server,
    later: Receiver<(u32, Answerer<u32>)>,
    _dir: tempfile::TempDir,
}

impl Odd {
    fn new() -> Odd {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("odd");
        let (to_later, later) = channel();
        let answer = move |question: Result<u32, String>, answerer: Answerer<u32>| {
            let number = question.unwrap();
            match number % 2 {
                0 => answerer.give(&number),
                _ => to_later.send((number, answerer)).unwrap(),
            }
        };
        let server = Server::answering_later(UnixListener::bind(&path).unwrap(), answer);
        Odd {
            path,
            server: server.unwrap(),
            later,
            _dir: dir,
        }
    }

    /// Asks, and does not wait for the answer.
    fn ask(&self, number: u32) -> UnixStream {
        let mut stream = connect(&self.path, LONG).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(format!("{number}\n").as_bytes()).unwrap();
        stream
    }
}

fn answer(mut stream: UnixStream) -> String {
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[test]
fn others_are_answered_while_one_waits() {
    let odd = Odd::new();
    let first = odd.ask(1);
    let second = odd.ask(3);
    let (number, answerer) = odd.later.recv_timeout(LONG).unwrap();
    assert_eq!(number, 1);
    for number in [2, 4] {
        assert_eq!(answer(odd.ask(number)), number.to_string());
    }
    // Longer than a client may take to ask.
    std::thread::sleep(Duration::from_millis(2500));
    let (_, dropped) = odd.later.recv_timeout(LONG).unwrap();
    drop(dropped);
    assert_eq!(answer(second), "", "closed without an answer");
    std::thread::spawn(move || answerer.give(&10))
        .join()
        .unwrap();
    assert_eq!(answer(first), "10");
}

#[test]
fn who_goes_while_waiting_is_forgotten() {
    let odd = Odd::new();
    drop(odd.ask(1));
    let (_, answerer) = odd.later.recv_timeout(LONG).unwrap();
    assert_eq!(answer(odd.ask(2)), "2");
    answerer.give(&1);
    assert_eq!(answer(odd.ask(2)), "2");
}

#[test]
fn those_that_wait_leave_room_for_the_others() {
    let odd = Odd::new();
    let waiting: Vec<_> = (0..64).map(|_| odd.ask(1)).collect();
    let answerers: Vec<_> = (0..64)
        .map(|_| odd.later.recv_timeout(LONG).unwrap())
        .collect();
    assert_eq!(answer(odd.ask(2)), "2");
    assert_eq!(answer(odd.ask(1)), "", "one too many");
    for (_, answerer) in answerers {
        answerer.give(&5);
    }
    for stream in waiting {
        assert_eq!(answer(stream), "5");
    }
}

#[test]
fn who_has_asked_before_the_end_is_answered() {
    for _ in 0..50 {
        let odd = Odd::new();
        let waiting = odd.ask(1);
        let (_, answerer) = odd.later.recv_timeout(LONG).unwrap();
        let streams: Vec<_> = (0..5).map(|_| odd.ask(2)).collect();
        answerer.give(&7);
        drop(odd.server);
        assert_eq!(answer(waiting), "7");
        for stream in streams {
            assert_eq!(answer(stream), "2");
        }
    }
}

/// A server that accepts nobody, for more than it lets wait.
#[test]
fn a_server_that_accepts_nobody_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deaf");
    let kind = SocketType::STREAM;
    let socket = |flags| rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let listener: OwnedFd = socket(SocketFlags::CLOEXEC);
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match connect(&path, Duration::from_millis(100)) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100);
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // Somebody listens there all the same.
    let error = Server::start(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

/// A server that says something all the time, and never comes to an end.
#[test]
fn an_answer_that_never_ends_is_given_up() {
    let (client, mut server) = UnixStream::pair().unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let dribbling = std::thread::spawn(move || {
        while server.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let error = ask_on::<u32, u32>(client, &1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    dribbling.join().unwrap();
}

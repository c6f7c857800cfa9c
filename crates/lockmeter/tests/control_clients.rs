//! Clients of a control socket that are slow, silent, many or not allowed to ask: none keeps the
//! others waiting.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use finefs_lockmeter::control::{Server, ask_on};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the server waits for one client.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// On a busy machine a thread may get its CPU later than the server's patience ends. Something that
/// is served at once is so in one of so many attempts.
const ATTEMPTS: usize = 20;

/// A server that answers a number with so many bytes.
struct Bytes {
    path: PathBuf,
    _server: Server,
    _dir: tempfile::TempDir,
}

impl Bytes {
    fn new() -> Bytes {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        let listener = UnixListener::bind(&path).unwrap();
        let server = Server::answering(listener, |count: Result<usize, String>| {
            count.map(|count| "x".repeat(count))
        });
        Bytes {
            path,
            _server: server.unwrap(),
            _dir: dir,
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Asks for a few bytes, and tells how long that took.
    fn ask(&self) -> Duration {
        let start = Instant::now();
        let answer: Result<String, String> = ask_on(self.connect(), &3).unwrap();
        assert_eq!(answer.unwrap(), "xxx");
        start.elapsed()
    }
}

/// Sends a space every tenth of a second, until the server has had enough.
fn dribble(mut stream: UnixStream) {
    let start = Instant::now();
    while stream.write_all(b" ").is_ok() {
        assert!(start.elapsed() < LONG, "it is never given up");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// True if one who asks is answered before the server can have given up those that came before him.
fn is_answered_beside(come: impl Fn(&Bytes)) -> bool {
    (0..ATTEMPTS).any(|_| {
        let server = Bytes::new();
        come(&server);
        server.ask() < PATIENCE
    })
}

#[test]
fn slow_clients_are_given_up() {
    let server = Bytes::new();
    let start = Instant::now();
    let slow: Vec<_> = (0..10).map(|_| server.connect()).collect();
    std::thread::scope(|scope| {
        for stream in slow {
            scope.spawn(|| dribble(stream));
        }
    });
    assert!(start.elapsed() >= PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn slow_clients_keep_nobody_waiting() {
    assert!(is_answered_beside(|server| {
        for _ in 0..10 {
            let mut stream = server.connect();
            stream.write_all(b" ").unwrap();
            std::thread::spawn(move || dribble(stream));
        }
    }));
}

/// An answer that fits into no buffer.
const BYTES: usize = 1 << 20;

/// Asks for it.
fn ask_for_much(server: &Bytes) -> UnixStream {
    let mut stream = server.connect();
    stream.write_all(format!("{BYTES}\n").as_bytes()).unwrap();
    stream
}

#[test]
fn clients_that_do_not_read_keep_nobody_waiting() {
    let silent = std::sync::Mutex::new(Vec::new());
    assert!(is_answered_beside(|server| {
        silent.lock().unwrap().push(ask_for_much(server));
    }));
}

#[test]
fn clients_that_do_not_read_are_given_up() {
    let server = Bytes::new();
    let mut silent = ask_for_much(&server);
    // Until it is closed.
    let limit = Timespec::try_from(LONG).unwrap();
    let mut closed = [PollFd::new(&silent, PollFlags::empty())];
    assert_eq!(poll(&mut closed, Some(&limit)), Ok(1));
    let mut rest = Vec::new();
    // Cut off in the middle.
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.len() < BYTES, "{}", rest.len());
    // Whoever reads gets all of it.
    let whole: Result<String, String> = ask_on(server.connect(), &BYTES).unwrap();
    assert_eq!(whole.unwrap().len(), BYTES);
}

/// More at a time than the server keeps open, and none of them says anything.
#[test]
fn many_silent_clients_keep_nobody_out() {
    let server = Bytes::new();
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    server.ask();
    drop(silent);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..200).map(|_| scope.spawn(|| server.ask())).collect();
        for client in asking {
            client.join().unwrap();
        }
    });
}

/// A question may come in pieces, and without the end of its line where nothing follows.
#[test]
fn questions_may_come_in_pieces() {
    let server = Bytes::new();
    for (pieces, expected) in [
        (&["1", "0\n"][..], "{\"Ok\":\"xxxxxxxxxx\"}\n"),
        (&["", "2", ""], "{\"Ok\":\"xx\"}\n"),
    ] {
        let mut stream = server.connect();
        for piece in pieces {
            stream.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, expected);
    }
    let mut stream = server.connect();
    let _ = stream.write_all(&[b' '; 1 << 14]);
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"{\"Err\"", "too long a question");
}

/// The time that the program takes to answer one is not held against another who has asked
/// meanwhile.
#[test]
fn who_waits_for_the_answer_to_another_is_not_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("slow");
    let answer = |question: Result<u64, String>| {
        let seconds = question.unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        seconds
    };
    let server = Server::answering(UnixListener::bind(&path).unwrap(), answer).unwrap();
    let patient = UnixStream::connect(&path).unwrap();
    let slow = UnixStream::connect(&path).unwrap();
    std::thread::scope(|scope| {
        let (asks, has_asked) = channel();
        scope.spawn(move || {
            let (mut question, mut reply) = (&slow, String::new());
            question.write_all(b"3\n").unwrap();
            asks.send(()).unwrap();
            question.read_to_string(&mut reply).unwrap();
            assert_eq!(reply, "3\n");
        });
        has_asked.recv().unwrap();
        assert_eq!(ask_on::<_, u64>(patient, &0).unwrap(), 0);
    });
    drop(server);
}

/// As root only: another user is sent away at once, whatever he says and however often he comes.
#[test]
fn strangers_keep_nobody_waiting() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let server = Bytes::new();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(server.path.parent().unwrap(), 0o755);
    open(&server.path, 0o666);
    // Twenty that dribble, then one connection after the other; says how many of the first are
    // left, and how long the first to be sent away was borne.
    let script = "import socket, sys, time\n\
                  def connect():\n\
                  \x20   s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); return s\n\
                  start, slow, ends = time.time(), [connect() for _ in range(20)], []\n\
                  while time.time() - start < 5:\n\
                  \x20   for s in slow:\n\
                  \x20       try: s.send(b' ')\n\
                  \x20       except OSError: slow.remove(s); ends.append(time.time() - start); break\n\
                  \x20   for _ in range(50): connect().close()\n\
                  \x20   print('.', flush=True) if len(ends) < 2 else None\n\
                  \x20   time.sleep(0.01)\n\
                  print(len(slow), min(ends, default=9))";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(&server.path);
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut first = [0];
    output.read_exact(&mut first).unwrap();
    let fastest = (0..10).map(|_| server.ask()).min().unwrap();
    assert!(fastest < PATIENCE, "{fastest:?}");
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let mut last = text.lines().last().unwrap().split(' ');
    assert_eq!(last.next(), Some("0"), "all were sent away: {text}");
    let shortest: f64 = last.next().unwrap().parse().unwrap();
    assert!(shortest < 2.0, "{shortest} s");
}

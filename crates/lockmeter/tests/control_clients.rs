//! Clients of a control socket that are slow, silent, many or not allowed to ask: none keeps the
//! others waiting.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use finefs_lockmeter::control::{Server, ask_on};

/// How long the server waits for one client, and what a busy machine may add.
const PATIENCE: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(3);

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
        UnixStream::connect(&self.path).unwrap()
    }

    /// Asks for a few bytes, and tells how long that took.
    fn ask(&self) -> Duration {
        let start = Instant::now();
        let stream = self.connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let answer: Result<String, String> = ask_on(stream, &3).unwrap();
        assert_eq!(answer.unwrap(), "xxx");
        start.elapsed()
    }
}

/// Sends a space every tenth of a second, until the server has had enough. How long that took.
fn dribble(mut stream: UnixStream) -> Duration {
    let start = Instant::now();
    while stream.write_all(b" ").is_ok() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
    }
    start.elapsed()
}

#[test]
fn slow_clients_keep_nobody_waiting_and_are_given_up() {
    let server = Bytes::new();
    let slow: Vec<_> = (0..10)
        .map(|_| {
            let stream = server.connect();
            std::thread::spawn(move || dribble(stream))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let took = server.ask();
    assert!(took < PATIENCE / 2, "{took:?}");
    for client in slow {
        let took = client.join().unwrap();
        assert!(took >= PATIENCE && took < PATIENCE + SLACK, "{took:?}");
    }
}

/// An answer that fits into no buffer, and is read late, in small pieces, or never.
#[test]
fn clients_that_do_not_read_keep_nobody_waiting_and_are_given_up() {
    const BYTES: usize = 16 << 20;
    let server = Bytes::new();
    let mut silent = server.connect();
    silent.write_all(format!("{BYTES}\n").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let took = server.ask();
    assert!(took < PATIENCE / 2, "{took:?}");
    std::thread::sleep(PATIENCE + Duration::from_millis(500));
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
fn many_silent_clients_delay_others_by_one_patience_at_most() {
    let server = Bytes::new();
    let silent: Vec<_> = (0..100).map(|_| server.connect()).collect();
    let took = server.ask();
    assert!(took < PATIENCE + SLACK, "{took:?}");
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
        scope.spawn(|| assert_eq!(ask_on::<_, u64>(slow, &3).unwrap(), 3));
        std::thread::sleep(Duration::from_millis(300));
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
    // Twenty that dribble, then one connection after the other; says how long each of the first was
    // borne.
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
                  print(len(slow), max(ends, default=-1))";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(&server.path);
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut first = [0];
    output.read_exact(&mut first).unwrap();
    for _ in 0..10 {
        let took = server.ask();
        assert!(took < PATIENCE / 2, "{took:?}");
    }
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let mut last = text.lines().last().unwrap().split(' ');
    assert_eq!(last.next(), Some("0"), "all were sent away: {text}");
    let longest: f64 = last.next().unwrap().parse().unwrap();
    assert!(longest < 2.0, "{longest} s");
}

//! Where messages of a mounted file system go: stderr (in the foreground), a file (`--log`), or
//! the system log through `/dev/log`.
//!
//! A log daemon that was started again may have made its socket anew, so a message that was refused
//! is sent by a new connection. A confined process can make none (`confine`): its messages are lost
//! then, but where the socket stays (systemd's does).
//!
//! # References
//! RFC 3164 and syslog(3): `<priority>tag[pid]: message` in one datagram.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::time::SystemTime;

use finefs_locks::{LockClass, Mutex};
use log::{Level, LevelFilter, Log, Metadata, Record};

const SYSTEM_LOG: &str = "/dev/log";

/// LOG_DAEMON
const FACILITY: u32 = 3 << 3;

enum Target {
    Stderr,
    File(File),
    System(Option<UnixDatagram>),
}

struct Logger {
    target: Mutex<Target>,
}

/// Where messages go; the last of all classes, since any code may have something to say.
static LOG: LockClass = LockClass::new("cli.log", 100);

static LOGGER: Logger = Logger {
    target: Mutex::new(&LOG, Target::Stderr),
};

/// Starts logging to stderr.
pub(crate) fn start(is_verbose: bool) {
    let level = if is_verbose {
        LevelFilter::Debug
    } else {
        LevelFilter::Warn
    };
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}

/// From now on messages go to `file`, or to the system log when there is none.
pub(crate) fn redirect(file: Option<File>) {
    LOGGER.set(match file {
        Some(file) => Target::File(file),
        None => Target::System(connect(SYSTEM_LOG)),
    });
}

fn connect(path: &str) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // A system log that does not keep up must not stop the file system.
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

/// Sends a message by the socket, or a new one where nobody listens at it any more.
fn send(socket: &mut Option<UnixDatagram>, path: &str, line: &[u8]) {
    let is_lost = match socket.as_ref().map(|socket| socket.send(line)) {
        Some(Ok(_)) => false,
        Some(Err(error)) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::NotConnected | ErrorKind::ConnectionReset
        ),
        None => true,
    };
    if is_lost && let Some(new) = connect(path) {
        let _ = new.send(line);
        *socket = Some(new);
    }
}

impl Logger {
    fn set(&self, target: Target) {
        *self.target.lock() = target;
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // There is nowhere to report a message that cannot be written.
        let _ = match &mut *self.target.lock() {
            Target::Stderr => writeln!(std::io::stderr(), "finefs: {}", record.args()),
            Target::File(file) => file.write_all(file_line(record).as_bytes()),
            Target::System(socket) => {
                send(socket, SYSTEM_LOG, system_line(record).as_bytes());
                Ok(())
            }
        };
    }

    fn flush(&self) {}
}

fn system_line(record: &Record<'_>) -> String {
    let severity = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let process = std::process::id();
    format!(
        "<{}>finefs[{process}]: {}",
        FACILITY | severity,
        record.args()
    )
}

fn file_line(record: &Record<'_>) -> String {
    let process = std::process::id();
    format!(
        "{} finefs[{process}]: {}: {}\n",
        humantime::format_rfc3339_seconds(SystemTime::now()),
        record.level().as_str().to_lowercase(),
        record.args()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_a_log_daemon_that_was_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let name = path.to_str().unwrap();
        let mut socket = None;
        send(&mut socket, name, b"nobody listens yet");
        for line in [b"first", b"again"] {
            let daemon = UnixDatagram::bind(&path).unwrap();
            daemon.set_nonblocking(true).unwrap();
            send(&mut socket, name, line);
            let mut received = [0; 16];
            let length = daemon.recv(&mut received).unwrap();
            assert_eq!(&received[..length], line);
            drop(daemon);
            send(&mut socket, name, b"lost");
            std::fs::remove_file(&path).unwrap();
        }
    }
}

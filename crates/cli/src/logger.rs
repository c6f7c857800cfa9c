//! Where messages of a mounted file system go: stderr (in the foreground), a file (`--log`), or
//! the system log through `/dev/log`.
//!
//! # References
//! RFC 3164 and syslog(3): `<priority>tag[pid]: message` in one datagram.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::SystemTime;

use finefs_locks::{LockClass, Mutex};
use log::{Level, LevelFilter, Log, Metadata, Record};

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
        None => Target::System(connect()),
    });
}

fn connect() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // A system log that does not keep up must not stop the file system.
    socket.set_nonblocking(true).ok()?;
    socket.connect("/dev/log").ok()?;
    Some(socket)
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
            Target::System(Some(socket)) => socket.send(system_line(record).as_bytes()).map(|_| ()),
            Target::System(None) => Ok(()),
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

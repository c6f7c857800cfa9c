//! Where messages of a mounted file system go: stderr (in the foreground), a file (`--log`), or
//! the system log through `/dev/log`.
//!
//! # References
//! RFC 3164 and syslog(3): `<priority>tag[pid]: message` in one datagram.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::{SystemTime, UNIX_EPOCH};

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
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let process = std::process::id();
    format!(
        "{} finefs[{process}]: {}: {}\n",
        utc(now.as_secs()),
        record.level().as_str().to_lowercase(),
        record.args()
    )
}

/// `2026-01-31T23:59:59Z`. The Gregorian calendar repeats every 400 years, in which a year that
/// starts in March has its leap day at its end.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        // As date -u -d @N prints them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}

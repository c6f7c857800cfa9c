//! Modes, sizes and times as text, as coreutils writes them.

use finefs::FileKind;
use finefs_image::{Attributes, Time};

use super::clock::{self, Local};

pub(crate) use crate::size::human;

/// As in `-rwsr-xr-x`.
pub(super) fn mode_string(attributes: &Attributes) -> String {
    mode_text(
        finefs_image::walk::letter(attributes.kind),
        attributes.permissions,
    )
}

/// The same of a kind's letter and permission bits.
pub(super) fn mode_text(letter: char, mode: u32) -> String {
    let mut text = String::from(letter);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// As `2026-11-24 00:07:17.123456789 +0100`.
pub(super) fn full_time(time: Time) -> String {
    let at = clock::local(time.seconds);
    format!(
        "{}.{:09} {}",
        date_and_time(&at, ' '),
        time.nanos,
        offset(&at)
    )
}

/// As `2026-11-24T00:07:17.123456789Z`.
pub(super) fn rfc3339(time: Time) -> String {
    let at = clock::utc(time.seconds);
    format!("{}.{:09}Z", date_and_time(&at, 'T'), time.nanos)
}

/// As `2026-11-24 00:07`.
pub(super) fn minute(time: Time) -> String {
    let at = clock::local(time.seconds);
    date_and_time(&at, ' ')[..16].to_owned()
}

fn date_and_time(at: &Local, between: char) -> String {
    let Local {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ..
    } = at;
    format!("{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}")
}

fn offset(at: &Local) -> String {
    let minutes = at.offset_seconds.abs() / 60;
    let sign = if at.offset_seconds < 0 { '-' } else { '+' };
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}

/// As `ls -l` has it: with the time of day for the last half year, else with the year.
pub(super) fn list_time(time: Time, now: Time) -> String {
    const HALF_YEAR: i64 = 31_556_952 / 2;
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let at = clock::local(time.seconds);
    let month = MONTHS[at.month.clamp(1, 12) as usize - 1];
    let is_recent = time <= now && time.seconds > now.seconds - HALF_YEAR;
    match is_recent {
        true => format!("{month} {:2} {:02}:{:02}", at.day, at.hour, at.minute),
        false => format!("{month} {:2}  {:4}", at.day, at.year),
    }
}

/// What stat(1) calls a kind of file.
pub(super) fn kind_name(attributes: &Attributes) -> &'static str {
    match attributes.kind {
        FileKind::Regular if attributes.size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block special file",
        FileKind::CharDevice => "character special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// True for device nodes.
pub(super) fn is_device(attributes: &Attributes) -> bool {
    matches!(
        attributes.kind,
        FileKind::BlockDevice | FileKind::CharDevice
    )
}

/// Major and minor number of a device node.
pub(super) fn device_numbers(attributes: &Attributes) -> (u32, u32) {
    let rdev = attributes.rdev as libc::dev_t;
    (libc::major(rdev), libc::minor(rdev))
}

/// The time now.
pub(super) fn now() -> Time {
    std::time::SystemTime::now().into()
}

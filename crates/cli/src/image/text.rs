//! Modes, sizes, times and names as text, as coreutils writes them.

use std::io::{self, IsTerminal};

use finefs::FileKind;
use finefs_image::{Attributes, Time};

use super::clock::{self, Local};

pub(crate) use crate::size::human;

/// ls shows the time of day of files that are no older.
const HALF_YEAR: i64 = 31_556_952 / 2;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A name as it may go to a terminal, which control characters would change.
pub(super) fn for_terminal(name: &[u8]) -> Vec<u8> {
    match io::stdout().is_terminal() {
        true => without_controls(name),
        false => name.to_vec(),
    }
}

/// The same with `?` for what is no text and no letter.
pub(crate) fn without_controls(name: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let letters = chunk.valid().chars();
        let letters = letters.map(|letter| if letter.is_control() { '?' } else { letter });
        shown.extend(letters.collect::<String>().bytes());
        shown.extend(chunk.invalid().iter().map(|_| b'?'));
    }
    shown
}

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
    let at = clock::local(time.seconds);
    let month = &MONTHS[at.month.clamp(1, 12) as usize - 1][..3];
    let is_recent = time <= now && time.seconds > now.seconds - HALF_YEAR;
    match is_recent {
        true => format!("{month} {:2} {:02}:{:02}", at.day, at.hour, at.minute),
        false => format!("{month} {:2}  {:4}", at.day, at.year),
    }
}

/// The same as `ls --time-style=iso` has it.
pub(super) fn iso_time(time: Time, now: Time) -> String {
    let is_recent = time <= now && time.seconds > now.seconds - HALF_YEAR;
    match is_recent {
        true => formatted("%m-%d %H:%M", time),
        false => formatted("%Y-%m-%d ", time),
    }
}

/// As date(1) writes a time by a format, in the local time zone; what is no directive stays.
pub(super) fn formatted(format: &str, time: Time) -> String {
    let at = clock::local(time.seconds);
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => out += &directive(letters.next().unwrap_or('%'), &at, time),
            letter => out.push(letter),
        }
    }
    out
}

fn directive(letter: char, at: &Local, time: Time) -> String {
    const DAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let local_seconds = time.seconds + at.offset_seconds;
    let day = DAYS[local_seconds.div_euclid(86_400).rem_euclid(7) as usize];
    let hour = (at.hour + 11) % 12 + 1;
    match letter {
        'Y' => at.year.to_string(),
        'C' => format!("{:02}", at.year / 100),
        'y' => format!("{:02}", at.year.rem_euclid(100)),
        'm' => format!("{:02}", at.month),
        'b' | 'h' => MONTHS[at.month.clamp(1, 12) as usize - 1][..3].to_owned(),
        'B' => MONTHS[at.month.clamp(1, 12) as usize - 1].to_owned(),
        'd' => format!("{:02}", at.day),
        'e' => format!("{:2}", at.day),
        'j' => format!("{:03}", clock::day_of_year(at)),
        'a' => day[..3].to_owned(),
        'A' => day.to_owned(),
        'H' => format!("{:02}", at.hour),
        'k' => format!("{:2}", at.hour),
        'I' => format!("{hour:02}"),
        'l' => format!("{hour:2}"),
        'M' => format!("{:02}", at.minute),
        'S' => format!("{:02}", at.second),
        'p' => if at.hour < 12 { "AM" } else { "PM" }.to_owned(),
        'P' => if at.hour < 12 { "am" } else { "pm" }.to_owned(),
        's' => time.seconds.to_string(),
        'N' => format!("{:09}", time.nanos),
        'z' => offset(at),
        'Z' => clock::zone(time.seconds),
        'u' => ((clock::weekday(at) + 6) % 7 + 1).to_string(),
        'w' => clock::weekday(at).to_string(),
        'U' => format!(
            "{:02}",
            (clock::day_of_year(at) + 6 - clock::weekday(at)) / 7
        ),
        'W' => {
            let since_monday = (clock::weekday(at) + 6) % 7;
            format!("{:02}", (clock::day_of_year(at) + 6 - since_monday) / 7)
        }
        'V' => format!("{:02}", clock::week(at).1),
        'G' => clock::week(at).0.to_string(),
        'g' => format!("{:02}", clock::week(at).0.rem_euclid(100)),
        'q' => at.month.div_ceil(3).to_string(),
        'F' => formatted("%Y-%m-%d", time),
        'T' => formatted("%H:%M:%S", time),
        'R' => formatted("%H:%M", time),
        'D' => formatted("%m/%d/%y", time),
        'c' => formatted("%a %b %e %H:%M:%S %Y", time),
        'x' => formatted("%m/%d/%y", time),
        'X' => formatted("%H:%M:%S", time),
        'r' => formatted("%I:%M:%S %p", time),
        'n' => "\n".to_owned(),
        't' => "\t".to_owned(),
        '%' => "%".to_owned(),
        other => format!("%{other}"),
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

/// The same of text, of which the precision says how much there is.
pub(super) fn padded_text(field: &str, mut value: Vec<u8>) -> Vec<u8> {
    let precision = field.split_once('.').map(|(_, digits)| digits.parse());
    if let Some(length) = precision {
        value.truncate(length.unwrap_or(0));
    }
    // Of the flags only this one is for text.
    let flags_end = field.find(|c: char| ('1'..='9').contains(&c) || c == '.');
    let (flags, width) = field.split_at(flags_end.unwrap_or(field.len()));
    let flag = if flags.contains('-') { "-" } else { "" };
    padded(&format!("{flag}{width}"), value)
}

/// With the width and the flags that stand between `%` and the directive.
pub(super) fn padded(field: &str, value: Vec<u8>) -> Vec<u8> {
    let (flags, _precision) = field.split_once('.').unwrap_or((field, ""));
    let width_at = flags.find(|c: char| ('1'..='9').contains(&c));
    let (flags, width) = flags.split_at(width_at.unwrap_or(flags.len()));
    let missing = width
        .trim_end_matches(['H', 'L'])
        .parse()
        .unwrap_or(0_usize)
        .min(4096)
        .saturating_sub(value.len());
    let fill = |byte: u8| vec![byte; missing];
    if flags.contains('-') {
        [value, fill(b' ')].concat()
    } else if flags.contains('0') {
        [fill(b'0'), value].concat()
    } else {
        [fill(b' '), value].concat()
    }
}

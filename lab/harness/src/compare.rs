//! The differences between two views of a tree.

use crate::sets::TimeRange;
use crate::snapshot::{Entry, Snapshot, Time};
use anyhow::{Result, bail};
use std::fmt::Write as _;

/// What the two views are of, which decides what must be equal.
#[derive(Clone, Copy, Debug)]
pub enum Relation {
    /// The second is a copy of the first, on a file system with these times. A copy has its own
    /// change times, and the root directory is not part of it.
    Copy(TimeRange),
    /// Both are the same file system, seen by two servers one after the other.
    SameFileSystem,
    /// The second is what debugfs copied of the first: no times, attributes, hard links, nor what
    /// is neither file, directory nor symbolic link; of these links their targets alone.
    Dump,
}

/// Fails with the first differences when `second` is not what `first` says.
pub fn expect_equal(
    (first_name, first): (&str, &Snapshot),
    (second_name, second): (&str, &Snapshot),
    relation: Relation,
) -> Result<()> {
    let differences = differences((first_name, first), (second_name, second), relation);
    if differences.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "{} differences between {first_name} and {second_name}, the first ones:",
        differences.len()
    );
    for difference in differences.iter().take(12) {
        let _ = write!(text, "\n{difference}");
    }
    bail!(text)
}

/// All differences, one line each.
pub fn differences(
    (first_name, first): (&str, &Snapshot),
    (second_name, second): (&str, &Snapshot),
    relation: Relation,
) -> Vec<String> {
    let mut found = Vec::new();
    for (path, a) in &first.entries {
        let shown = String::from_utf8_lossy(path);
        match second.entries.get(path) {
            None if matches!(relation, Relation::Dump) && !is_dumped(a) => {}
            None => found.push(format!("{shown}: missing in {second_name}")),
            Some(_) if path.is_empty() && matches!(relation, Relation::Copy(_)) => {}
            Some(b) => {
                for (field, x, y) in entry_differences(a, b, relation) {
                    found.push(format!(
                        "{shown}: {field}: {first_name} {x}, {second_name} {y}"
                    ));
                }
            }
        }
    }
    for path in second
        .entries
        .keys()
        .filter(|path| !first.entries.contains_key(*path))
    {
        found.push(format!(
            "{}: missing in {first_name}",
            String::from_utf8_lossy(path)
        ));
    }
    found
}

/// True of what debugfs copies.
fn is_dumped(entry: &Entry) -> bool {
    matches!(entry.kind, 'f' | 'd' | 'l')
}

fn entry_differences(
    a: &Entry,
    b: &Entry,
    relation: Relation,
) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    let mut field = |name, x: String, y: String| {
        if x != y {
            found.push((name, x, y));
        }
    };
    let is_dump = matches!(relation, Relation::Dump);
    field("type", a.kind.to_string(), b.kind.to_string());
    field("size", a.size.to_string(), b.size.to_string());
    field(
        "contents",
        short(a.digest.as_ref()),
        short(b.digest.as_ref()),
    );
    field(
        "target",
        text(a.target.as_deref()),
        text(b.target.as_deref()),
    );
    if is_dump && a.kind == 'l' {
        return found;
    }
    // Nor does it copy set-id and sticky bits.
    let mode = |mode: u32| format!("{:o}", if is_dump { mode & 0o777 } else { mode });
    field("mode", mode(a.mode), mode(b.mode));
    field(
        "owner",
        format!("{}:{}", a.uid, a.gid),
        format!("{}:{}", b.uid, b.gid),
    );
    if is_dump {
        return found;
    }
    if matches!(a.kind, 'b' | 'c') {
        field("device", a.rdev.to_string(), b.rdev.to_string());
    }
    field("links", a.nlink.to_string(), b.nlink.to_string());
    field(
        "hard link of",
        text(Some(&a.first_name)),
        text(Some(&b.first_name)),
    );
    field("xattrs", xattr_text(a), xattr_text(b));
    match relation {
        Relation::Dump => {}
        Relation::Copy(range) => {
            field("mtime", stamp(kept(a.mtime, range)), stamp(b.mtime));
            // A directory's or link's access time moves whenever it is looked at.
            if matches!(a.kind, 'f' | 'p' | 's' | 'b' | 'c') {
                field("atime", stamp(kept(a.atime, range)), stamp(b.atime));
            }
        }
        Relation::SameFileSystem => {
            field("mtime", stamp(a.mtime), stamp(b.mtime));
            field("ctime", stamp(a.ctime), stamp(b.ctime));
            if a.kind == 'f' {
                field("atime", stamp(a.atime), stamp(b.atime));
            }
        }
    }
    found.extend(lost_holes(a, b));
    found
}

fn lost_holes(a: &Entry, b: &Entry) -> Option<(&'static str, String, String)> {
    (has_holes(a) && !has_holes(b)).then(|| {
        (
            "holes",
            format!("{} of {} bytes allocated", a.sectors * 512, a.size),
            format!("{} bytes allocated", b.sectors * 512),
        )
    })
}

/// True when at least a quarter of a file, and more than any rounding, is not allocated.
fn has_holes(entry: &Entry) -> bool {
    let hole = entry.size.saturating_sub(entry.sectors * 512);
    entry.kind == 'f' && hole > (128 << 10).max(entry.size / 4)
}

/// What an inode with times of `range` keeps of `time`.
fn kept(time: Time, range: TimeRange) -> Time {
    let min = i64::from(i32::MIN);
    match range {
        TimeRange::Nanoseconds34Bit if time.0 < min => (min, 0),
        TimeRange::Nanoseconds34Bit => time,
        TimeRange::Seconds32Bit => (time.0.clamp(min, i64::from(i32::MAX)), 0),
    }
}

fn stamp((seconds, nanoseconds): Time) -> String {
    format!("{seconds}.{nanoseconds:09}")
}

fn short(digest: Option<&[u8; 32]>) -> String {
    digest.map_or_else(String::new, |d| {
        d[..8].iter().map(|b| format!("{b:02x}")).collect()
    })
}

fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(String::new, |bytes| bytes.escape_ascii().to_string())
}

fn xattr_text(entry: &Entry) -> String {
    let mut line = String::new();
    for (name, value) in &entry.xattrs {
        let digest = blake3::hash(value);
        let _ = write!(
            line,
            "{}={}:{} ",
            name.escape_ascii(),
            value.len(),
            short(Some(digest.as_bytes()))
        );
    }
    line
}

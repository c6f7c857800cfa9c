//! All options that are known: done, ignored for a reason, or refused for a reason.
//!
//! # References
//! mount(8), ext4(5), `Documentation/admin-guide/ext4.rst`, fuse2fs(1), mount.fuse3(8).

pub(crate) use rows::find;
#[cfg(test)]
pub(crate) use rows::rows;
use rows::*;
pub(crate) use rows::{help, page};
use std::fmt::Write;
use std::time::Duration;

use finefs::{AtimePolicy, LockingScheme, OnError};

use super::MountOptions;
use crate::size::{self, Size};
use crate::{CliResult, Failure};

/// Takes an option: its name, and its value or nothing.
type Set = fn(&mut MountOptions, &str, &str) -> CliResult<()>;

/// What becomes of an option.
pub(super) enum What {
    /// A flag of the mount, which a remount changes too.
    Flag(Set, &'static str),
    /// Heeded from the mount to its end.
    Done(Set, &'static str),
    /// Without effect, and why that does no harm.
    Ignored(&'static str),
    /// Refused, and what to do instead.
    Refused(&'static str),
}

/// What can be mounted with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Both,
    Image,
    Memory,
}

/// The value that an option takes.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub shown: &'static str,
    pub is_optional: bool,
    /// A valid one.
    #[cfg_attr(not(test), allow(dead_code))]
    pub example: &'static str,
}

/// Options that are treated alike.
pub(super) struct Row {
    /// A name that ends with `*` stands for all that begin so; one with `=` for that value alone.
    pub names: &'static [&'static str],
    pub value: Option<Value>,
    pub of: Of,
    pub what: What,
}

const fn row(names: &'static [&'static str], what: What) -> Row {
    Row {
        names,
        value: None,
        of: Of::Both,
        what,
    }
}

impl Row {
    const fn takes(self, shown: &'static str, example: &'static str) -> Row {
        let value = Some(Value {
            shown,
            is_optional: false,
            example,
        });
        Row { value, ..self }
    }

    const fn may_take(self, shown: &'static str, example: &'static str) -> Row {
        let value = Some(Value {
            shown,
            is_optional: true,
            example,
        });
        Row { value, ..self }
    }

    const fn of(self, of: Of) -> Row {
        Row { of, ..self }
    }
}

use What::{Done, Flag, Ignored, Refused};

const MOUNTS_OWN: &str = "it speaks to mount(8)";
const ALLOCATION: &str = "finefs chooses blocks, and when it writes, in its own way";
const OBSOLETE: &str = "the kernel's ext4 ignores it too by now";
const CACHE: &str =
    "what is mounted changes only through the mount, so the kernel may keep all it knows";
const LIBRARY: &str = "finefs speaks with the kernel itself, without libfuse";
const QUOTA: &str = "finefs keeps no quotas; leave it out";
const LABEL: &str = "finefs has no security labels for a whole mount; leave it out";
const OF_KERNEL: &str = "the kernel tells it of a mount";
const PROPAGATION: &str =
    "mount(8) does that by itself, with no file system's help: mount --bind and the like";
const JOURNAL: &str = "a journal must lie within the image";

/// The longest commit interval: beyond it the option is a mistake.
const COMMIT_SECONDS_MAX: u64 = 3600;

/// A bound above a second would bound nothing.
const CPU_LATENCY_US_MAX: u32 = 1_000_000;

/// Options about one thing.
pub(super) struct Group {
    heading: &'static str,
    pub rows: &'static [Row],
}

/// The table.
pub(super) static GROUPS: &[Group] = &[
    Group {
        heading: "What may be done in the mount",
        rows: ACCESS,
    },
    Group {
        heading: "Times of reading",
        rows: TIMES,
    },
    Group {
        heading: "What is written to the image, and when",
        rows: WRITING,
    },
    Group {
        heading: "The server",
        rows: SERVER,
    },
    Group {
        heading: "Memory file systems",
        rows: MEMORY,
    },
    Group {
        heading: "Other options of mount(8)",
        rows: MOUNT,
    },
    Group {
        heading: "Other options of the kernel's ext2, ext3 and ext4",
        rows: EXT,
    },
    Group {
        heading: "Other options of FUSE file systems",
        rows: FUSE,
    },
];

/// Sets something.
macro_rules! set {
    (|$options:ident| $set:expr) => {
        |$options, _, _| {
            $set;
            Ok(())
        }
    };
    (|$options:ident, $name:ident| $set:expr) => {
        |$options, $name, _| {
            $set;
            Ok(())
        }
    };
}

// After the macro that its rows use.
mod rows;

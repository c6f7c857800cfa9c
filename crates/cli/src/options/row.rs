//! What a row of the table of options says.

use super::MountOptions;
use crate::CliResult;

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

pub(super) const fn row(names: &'static [&'static str], what: What) -> Row {
    Row {
        names,
        value: None,
        of: Of::Both,
        what,
    }
}

impl Row {
    pub(super) const fn takes(self, shown: &'static str, example: &'static str) -> Row {
        let value = Some(Value {
            shown,
            is_optional: false,
            example,
        });
        Row { value, ..self }
    }

    pub(super) const fn may_take(self, shown: &'static str, example: &'static str) -> Row {
        let value = Some(Value {
            shown,
            is_optional: true,
            example,
        });
        Row { value, ..self }
    }

    pub(super) const fn of(self, of: Of) -> Row {
        Row { of, ..self }
    }
}

/// Options about one thing.
pub(super) struct Group {
    pub heading: &'static str,
    pub rows: &'static [Row],
}

//! Which time of a file is looked at or printed.

use finefs_image::{Attributes, Time};

/// A time of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Accessed,
    Modified,
    Changed,
    Born,
}

impl Which {
    /// By find's letter.
    pub fn by(letter: char) -> Option<Which> {
        Some(match letter {
            'a' => Which::Accessed,
            'm' => Which::Modified,
            'c' => Which::Changed,
            'B' => Which::Born,
            _ => return None,
        })
    }
}

impl Which {
    pub fn of(self, attributes: &Attributes) -> Time {
        match self {
            Which::Born => attributes.born.unwrap_or(attributes.changed),
            Which::Accessed => attributes.accessed,
            Which::Modified => attributes.modified,
            Which::Changed => attributes.changed,
        }
    }
}

//! The units that `--block-size` of ls, du and df names.

use std::str::FromStr;

use crate::size::{self, human};

/// How sizes are shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Units {
    /// As 1.5K, 23M.
    Human,
    /// In units of so many bytes, rounded up.
    Of {
        bytes: u64,
        /// What stands behind each number; a letter alone is one of its units, and says so.
        letter: String,
    },
}

impl Units {
    /// In units of so many bytes, and nothing behind the numbers.
    pub fn of(bytes: u64) -> Units {
        let letter = String::new();
        Units::Of { bytes, letter }
    }

    /// A number of bytes in these units.
    pub fn shown(&self, bytes: u64) -> String {
        match self {
            Units::Human => human(bytes),
            Units::Of {
                bytes: unit,
                letter,
            } => format!("{}{letter}", bytes.div_ceil(*unit)),
        }
    }

    /// What df calls a column of them.
    pub fn title(&self) -> String {
        const LETTERS: [(u64, char); 5] = [
            (1 << 40, 'T'),
            (1 << 30, 'G'),
            (1 << 20, 'M'),
            (1 << 10, 'K'),
            (1, 'B'),
        ];
        match self {
            Units::Human => "Size".to_owned(),
            Units::Of { bytes, .. } => {
                let fits = |unit: &&(u64, char)| bytes.is_multiple_of(unit.0);
                let (unit, letter) = LETTERS.iter().find(fits).unwrap_or(&LETTERS[4]);
                format!("{}{letter}-blocks", bytes / unit)
            }
        }
    }
}

impl FromStr for Units {
    type Err = String;

    fn from_str(text: &str) -> Result<Units, String> {
        match text {
            "human-readable" => return Ok(Units::Human),
            "" => return Err("give a size".to_owned()),
            _ => {}
        }
        let is_number = text.starts_with(|first: char| first.is_ascii_digit());
        let (number, letter) = match is_number {
            true => (text.to_owned(), String::new()),
            false => {
                let mut letter = text.to_owned();
                // As coreutils write them: kB, and else capitals.
                if let Some(first) = letter.get_mut(..1).filter(|_| text != "kB") {
                    first.make_ascii_uppercase();
                }
                (format!("1{text}"), letter)
            }
        };
        match size::bytes(&number)? {
            0 => Err("give a size above 0".to_owned()),
            bytes => Ok(Units::Of { bytes, letter }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_alone_stands_behind_numbers() {
        let shown = |text: &str| text.parse::<Units>().unwrap().shown(5 << 20);
        for (text, is) in [
            ("1", "5242880"),
            ("1k", "5120"),
            ("k", "5120K"),
            ("M", "5M"),
            ("kB", "5243kB"),
            ("MiB", "5MiB"),
            ("human-readable", "5.0M"),
        ] {
            assert_eq!(shown(text), is, "{text}");
        }
        for wrong in ["", "0", "x", "é", "0k"] {
            assert!(wrong.parse::<Units>().is_err(), "{wrong}");
        }
    }
}

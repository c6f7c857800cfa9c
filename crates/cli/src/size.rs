//! Sizes as options give them: bytes, or with k, m, g, t or KiB, MiB and so on (powers of 1024), or
//! KB, MB and so on (powers of 1000), or % of memory.

use std::str::FromStr;

use crate::{CliResult, Failure};

/// `MemoryStore` has at least 16 pages.
const MEMORY_BYTES_MIN: u64 = 64 << 10;

/// A size that may depend on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// A share of this machine's memory.
    PercentOfMemory(u64),
}

impl Size {
    /// Parses the value of the option `name`.
    pub(crate) fn parse(name: &str, text: &str) -> CliResult<Size> {
        text.parse()
            .map_err(|reason| Failure::new(format!("option {name}={text}: {reason}")))
    }

    /// The size in bytes on this machine.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::PercentOfMemory(percent) => {
                let memory = u128::from(memory_bytes()) * u128::from(percent) / 100;
                u64::try_from(memory).unwrap_or(u64::MAX)
            }
        }
    }

    /// The same, of a file system in memory.
    ///
    /// # Errors
    /// Smaller than 64 KiB.
    pub fn bytes_in_memory(self) -> CliResult<u64> {
        match self.bytes() {
            0..MEMORY_BYTES_MIN => Err(Failure::new(
                "a file system in memory takes 64k at least; give a larger size",
            )),
            bytes => Ok(bytes),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let percent = text.strip_suffix('%').map(str::parse);
        match percent {
            Some(Ok(percent)) => Ok(Size::PercentOfMemory(percent)),
            _ => match of_bytes(text) {
                Some(bytes) => Ok(Size::Bytes(bytes)),
                None => Err(format!("{NO_SIZE}, t or %")),
            },
        }
    }
}

const NO_SIZE: &str = "not a size; give bytes, or a number with k, m, g";

fn of_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let (letter, kind) = match text[digits.len()..].chars().next() {
        None => ("", ""),
        Some(first) => text[digits.len()..].split_at(first.len_utf8()),
    };
    let power = ["", "k", "m", "g", "t"]
        .iter()
        .position(|known| letter.eq_ignore_ascii_case(known))?;
    let base: u64 = match kind {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    let unit = base.pow(power as u32);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if digits.contains('.') {
        let places = u32::try_from(part.len()).ok()?;
        let scale = 10_u128.checked_pow(places)?;
        let rest = part.parse::<u64>().ok()?;
        bytes = bytes.checked_add((u128::from(rest) * u128::from(unit) / scale) as u64)?;
    }
    Some(bytes)
}

/// Reads a number of bytes, which no share of the memory is.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    of_bytes(text).ok_or_else(|| format!("{NO_SIZE} or t"))
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The types of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// As `ls -h` writes sizes: powers of 1024, rounded up, one digit after the point below 10.
pub(crate) fn human(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1024_u128;
    for letter in UNITS {
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        if tenths <= 99 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if whole < 1024 {
            return format!("{whole}{letter}");
        }
        unit *= 1024;
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(Size::parse("size", "4096").unwrap(), Size::Bytes(4096));
        assert_eq!(Size::parse("size", "3k").unwrap(), Size::Bytes(3072));
        assert_eq!(Size::parse("size", "2G").unwrap(), Size::Bytes(2 << 30));
        assert_eq!(
            Size::parse("size", "25%").unwrap(),
            Size::PercentOfMemory(25)
        );
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64MB", 64_000_000),
            ("1.5g", 3 << 29),
            ("0.001KB", 1),
        ] {
            assert_eq!(text.parse(), Ok(Size::Bytes(bytes)), "{text}");
        }
        for bad in [
            "",
            "k",
            "-1",
            "1.g",
            ".5g",
            "1kb",
            "5iB",
            "5B",
            "99999999999999t",
            "1 m",
            "1.5.5",
            "5é",
        ] {
            let Failure(line) = Size::parse("size", bad).unwrap_err();
            assert!(line.contains("size="), "{line}");
        }
    }

    #[test]
    fn an_offset_is_no_share_of_the_memory() {
        assert_eq!(bytes("1m"), Ok(1 << 20));
        assert!(bytes("5%").is_err() && bytes("x").is_err());
    }

    #[test]
    fn the_smallest_memory_is_enough() {
        let refused = Size::Bytes(MEMORY_BYTES_MIN - 1).bytes_in_memory();
        assert!(refused.unwrap_err().0.contains("64k"));
        let size = Size::Bytes(MEMORY_BYTES_MIN).bytes_in_memory().unwrap();
        finefs::FileSystem::memory(size).unwrap();
    }

    #[test]
    fn memory_is_known() {
        let whole = Size::PercentOfMemory(100).bytes();
        assert!(whole > 1 << 20);
        assert!(Size::PercentOfMemory(50).bytes() <= whole / 2);
    }

    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_139, "10K"),
            (10_240, "10K"),
            (1_047_553, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}

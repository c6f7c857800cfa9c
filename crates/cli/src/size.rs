//! Sizes as mount options give them: bytes, or with k, m, g, t (powers of 1024), or % of memory.

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
        let refuse = || "not a size; give bytes, or a number with k, m, g or %".to_owned();
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number: u64 = digits.parse().map_err(|_| refuse())?;
        let shift = match &text[digits.len()..] {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            "g" | "G" => 30,
            "t" | "T" => 40,
            "%" => return Ok(Size::PercentOfMemory(number)),
            _ => return Err(refuse()),
        };
        let bytes = number.checked_mul(1 << shift).ok_or_else(refuse)?;
        Ok(Size::Bytes(bytes))
    }
}

/// Reads a number of bytes, which no share of the memory is.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::PercentOfMemory(_) => Err("give a number of bytes".to_owned()),
    }
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
        for bad in ["", "k", "-1", "1.5g", "1kb", "99999999999999t", "1 m"] {
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
        finefs::front_end::open_memory(size, 0o755, 0, 0, finefs::Options::default()).unwrap();
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

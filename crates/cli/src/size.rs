//! Sizes as mount options give them: bytes, or with k, m, g, t (powers of 1024), or % of memory.

use crate::{CliResult, Failure};

/// A size that may depend on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    Bytes(u64),
    PercentOfMemory(u64),
}

impl Size {
    /// Parses the value of the option `name`.
    pub(crate) fn parse(name: &str, text: &str) -> CliResult<Size> {
        let refuse = || {
            Failure::new(format!(
                "option {name}={text}: not a size; give bytes, or a number with k, m, g or %"
            ))
        };
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
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The types of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
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
    fn memory_is_known() {
        let whole = Size::PercentOfMemory(100).bytes();
        assert!(whole > 1 << 20);
        assert!(Size::PercentOfMemory(50).bytes() <= whole / 2);
    }
}

//! Numbers as the options of `finefs-bench` give them. What is none is an error of usage.

use std::str::FromStr;

/// More threads than this are a mistake; some more, and the kernel gives no memory for their
/// stacks.
const CREW_MAX: usize = 10_000;

const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn crew(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=CREW_MAX) => Ok(count),
        _ => Err(format!("give a number, 1 to {CREW_MAX}")),
    }
}

pub(super) fn at_least_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse().ok();
    number
        .filter(|number: &N| *number >= N::from(1))
        .ok_or_else(|| "give a number, at least 1".to_owned())
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1.0..=1e9).contains(&number) => Ok(number),
        _ => Err("give a number, at least 1".to_owned()),
    }
}

/// Of what is measured.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("give seconds, 0.001 to {SECONDS_MAX}")),
    }
}

/// Of what may be left out.
pub(super) fn seconds_or_none(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("give seconds, at most {SECONDS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        assert_eq!(crew("10000"), Ok(10_000));
        assert!(crew("0").is_err() && crew("10001").is_err() && crew("x").is_err());
        assert_eq!(at_least_one::<u64>("7"), Ok(7));
        assert!(at_least_one::<usize>("0").is_err());
        assert_eq!(seconds("0.5"), Ok(0.5));
        for bad in ["0", "-1", "nan", "inf", "1e9", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds_or_none("0"), Ok(0.0));
        assert!(seconds_or_none("-1").is_err() && positive("0").is_err());
    }
}

//! Times as touch(1) reads them.

use finefs_image::Time;

use super::clock::{self, Local};
use super::text;

/// `@SECONDS`, `YYYY-MM-DD`, with `hh:mm`, `hh:mm:ss` or `hh:mm:ss.n` after a space or T, then
/// nothing for the local time zone, `Z`, or `+hh:mm`; or `now`.
pub(super) fn parse(text: &str) -> Result<Time, String> {
    let refuse = || format!("invalid date '{text}'; write @SECONDS or YYYY-MM-DD hh:mm:ss");
    if text == "now" {
        return Ok(text::now());
    }
    if let Some(number) = text.strip_prefix('@') {
        return epoch(number).ok_or_else(refuse);
    }
    written(text).ok_or_else(refuse)
}

/// `[[CC]YY]MMDDhhmm[.ss]`, as `touch -t` has it.
pub(super) fn stamp(text: &str) -> Result<Time, String> {
    let parse = || {
        let (digits, second) = match text.split_once('.') {
            Some((digits, second)) if second.len() == 2 => (digits, number(second, 0, 60)?),
            Some(_) => return None,
            None => (text, 0),
        };
        let (year, rest) = digits.split_at_checked(digits.len().checked_sub(8)?)?;
        let year = match (year.len(), year.parse::<i64>().ok()) {
            (0, _) => clock::local(text::now().seconds).year,
            (2, Some(short)) if short >= 69 => 1900 + short,
            (2, Some(short)) => 2000 + short,
            (4, Some(year)) => year,
            _ => return None,
        };
        let seconds = clock::seconds(Local {
            year,
            month: number(&rest[..2], 1, 12)?,
            day: number(&rest[2..4], 1, 31)?,
            hour: number(&rest[4..6], 0, 23)?,
            minute: number(&rest[6..], 0, 59)?,
            second,
            offset_seconds: 0,
        })?;
        Some(Time { seconds, nanos: 0 })
    };
    match text.is_ascii() {
        true => parse(),
        false => None,
    }
    .ok_or_else(|| format!("invalid date '{text}'; write [[CC]YY]MMDDhhmm[.ss]"))
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten()?;
    (min..=max).contains(&number).then_some(number)
}

fn epoch(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let nanos = nanos(fraction)?;
    // -1.25 is a quarter before second -1.
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some(Time {
            seconds: seconds - 1,
            nanos: 1_000_000_000 - nanos,
        }),
        _ => Some(Time { seconds, nanos }),
    }
}

/// Digits after the point.
fn nanos(digits: &str) -> Option<u32> {
    if digits.is_empty() {
        return Some(0);
    }
    let cut = &digits[..digits.len().min(9)];
    let value = number(cut, 0, 999_999_999)?;
    Some(value * 10_u32.pow(9 - cut.len() as u32))
}

fn written(text: &str) -> Option<Time> {
    if !text.is_ascii() {
        return None;
    }
    let (date, rest) = text.split_at_checked(10)?;
    let mut fields = date.split('-');
    let year = number(fields.next()?, 0, 9999)?;
    let (month, day) = (
        number(fields.next()?, 1, 12)?,
        number(fields.next()?, 1, 31)?,
    );
    let rest = rest.trim_start_matches(['T', ' ']);
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock_text, zone) = rest.split_at(zone_at);
    let (clock_text, fraction) = clock_text
        .trim()
        .split_once('.')
        .unwrap_or((clock_text.trim(), ""));
    let mut fields = clock_text.split(':').filter(|field| !field.is_empty());
    let mut field = |max| fields.next().map_or(Some(0), |field| number(field, 0, max));
    let at = Local {
        year: i64::from(year),
        month,
        day,
        hour: field(23)?,
        minute: field(59)?,
        second: field(60)?,
        offset_seconds: 0,
    };
    let seconds = match zone {
        "" => clock::seconds(at)?,
        zone => clock::utc_seconds(Local {
            offset_seconds: offset(zone)?,
            ..at
        }),
    };
    Some(Time {
        seconds,
        nanos: nanos(fraction)?,
    })
}

fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, digits) = zone.split_at(1);
    let digits = digits.replace(':', "");
    let hours = i64::from(number(digits.get(..2)?, 0, 15)?);
    let minutes = match digits.get(2..) {
        Some("") | None => 0,
        Some(minutes) => i64::from(number(minutes, 0, 59)?),
    };
    let seconds = hours * 3600 + minutes * 60;
    Some(if sign == "-" { -seconds } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        let time = |seconds, nanos| Ok(Time { seconds, nanos });
        assert_eq!(parse("@0"), time(0, 0));
        assert_eq!(parse("@-1.25"), time(-2, 750_000_000));
        assert_eq!(parse("2000-02-29T12:34:56Z"), time(951_827_696, 0));
        assert_eq!(
            parse("2000-02-29 13:34:56.5 +01:00"),
            time(951_827_696, 500_000_000)
        );
        assert_eq!(parse("1970-01-01 00:00:00.000000001 +0000"), time(0, 1));
        for bad in [
            "",
            "tomorrow",
            "2000-13-01",
            "@x",
            "2000-01-01 25:00",
            "2000-01-01é",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(stamp("200002291234.56").is_ok());
        assert!(stamp("2000").is_err());
    }
}

//! Times as touch(1) reads them.

use finefs_image::Time;

use super::clock::{self, Local};
use super::text;

/// A time, from now on where it is relative; see [`from`].
pub(super) fn parse(text: &str) -> Result<Time, String> {
    from(text, text::now())
}

/// The text, if it is a time.
pub(super) fn check(text: &str) -> Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// `@SECONDS`; `YYYY-MM-DD` or `YYYYMMDD`, with `hh:mm`, `hh:mm:ss` or `hh:mm:ss.n` after a space
/// or T, then nothing for the local time zone, `Z`, `UTC`, or `+hh:mm`; behind these or alone
/// `today`, `yesterday`, `tomorrow`, and items as `2 days`, `-1 week` and `3 hours ago`, which
/// count from `base` on.
pub(super) fn from(text: &str, base: Time) -> Result<Time, String> {
    let refuse = || {
        format!("invalid date '{text}'; write @SECONDS, YYYY-MM-DD hh:mm:ss, or as '2 days ago'")
    };
    let text = text.trim();
    if let Some(number) = text.strip_prefix('@') {
        return epoch(number).ok_or_else(refuse);
    }
    let (absolute, relative) = text.split_at(relative_at(text));
    let start = match absolute.trim() {
        "" if relative.is_empty() => return Err(refuse()),
        "" => base,
        absolute => written(absolute).ok_or_else(refuse)?,
    };
    moved(start, relative).ok_or_else(refuse)
}

/// Where the words begin that count from a moment on.
fn relative_at(text: &str) -> usize {
    let words = text.split_inclusive(' ');
    let starts = words.scan(0, |at, word| {
        let start = *at;
        *at += word.len();
        Some(start)
    });
    let is_relative = |rest: &str| {
        let mut words = rest.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let is_number = first.parse::<i64>().is_ok();
        is_number && unit(second).is_some()
            || word_days(first).is_some()
            || unit(first).is_some()
            || matches!(first, "next" | "last")
    };
    let mut starts = starts;
    starts
        .find(|at| is_relative(&text[*at..]))
        .unwrap_or(text.len())
}

fn word_days(word: &str) -> Option<i64> {
    match word {
        "now" | "today" => Some(0),
        "yesterday" => Some(-1),
        "tomorrow" => Some(1),
        _ => None,
    }
}

/// Something that is added: seconds, or days and months by the calendar.
#[derive(Clone, Copy)]
enum Unit {
    Seconds(i64),
    Days(i64),
    Months(i64),
}

fn unit(word: &str) -> Option<Unit> {
    let one = word.strip_suffix('s').unwrap_or(word);
    Some(match one {
        "sec" | "second" => Unit::Seconds(1),
        "min" | "minute" => Unit::Seconds(60),
        "hour" => Unit::Seconds(3600),
        "day" => Unit::Days(1),
        "week" => Unit::Days(7),
        "fortnight" => Unit::Days(14),
        "month" => Unit::Months(1),
        "year" => Unit::Months(12),
        _ => return None,
    })
}

/// A moment so much later, or, with `ago`, earlier.
fn moved(start: Time, words: &str) -> Option<Time> {
    let mut words = words.split_whitespace().peekable();
    let (mut seconds, mut days, mut months) = (0_i64, 0_i64, 0_i64);
    while let Some(word) = words.next() {
        if let Some(count) = word_days(word) {
            days += count;
            continue;
        }
        let (count, name) = match word {
            "next" => (1, words.next()?),
            "last" => (-1, words.next()?),
            word => match word.parse::<i64>() {
                Ok(count) => (count, words.next()?),
                Err(_) => (1, word),
            },
        };
        let sign = if words.next_if_eq(&"ago").is_some() {
            -1
        } else {
            1
        };
        let count = count.checked_mul(sign)?;
        match unit(name)? {
            Unit::Seconds(each) => seconds = seconds.checked_add(count.checked_mul(each)?)?,
            Unit::Days(each) => days = days.checked_add(count.checked_mul(each)?)?,
            Unit::Months(each) => months = months.checked_add(count.checked_mul(each)?)?,
        }
    }
    let mut moved = start.seconds;
    if (days, months) != (0, 0) {
        let at = clock::local(start.seconds);
        let month = at
            .year
            .checked_mul(12)?
            .checked_add(i64::from(at.month) - 1)?;
        let month = month.checked_add(months)?;
        // The C library carries days that a month does not have.
        let at = Local {
            year: month.div_euclid(12),
            month: month.rem_euclid(12) as u32 + 1,
            ..at
        };
        moved = clock::seconds_of_day(at, i64::from(at.day).checked_add(days)?)?;
    }
    let seconds = moved.checked_add(seconds)?;
    Some(Time { seconds, ..start })
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
        let month = number(&rest[..2], 1, 12)?;
        let seconds = clock::seconds(Local {
            year,
            month,
            day: number(&rest[2..4], 1, clock::days_of_month(year, month))?,
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
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let ((year, month, day), rest) = match digits {
        8 => ((&text[..4], &text[4..6], &text[6..8]), &text[8..]),
        _ => {
            let (date, rest) = text.split_at_checked(10)?;
            let mut fields = date.split('-');
            ((fields.next()?, fields.next()?, fields.next()?), rest)
        }
    };
    let year = number(year, 0, 9999)?;
    let month = number(month, 1, 12)?;
    let day = number(day, 1, clock::days_of_month(year.into(), month))?;
    let rest = rest.trim_start_matches(['T', ' ']);
    let zone_at = rest.find(['Z', '+', '-', 'U', 'G']).unwrap_or(rest.len());
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
        second: field(59)?,
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
    if matches!(zone, "Z" | "UTC" | "GMT") {
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
            "someday",
            "3",
            "3 apples",
            "2000-01-01 2 days ago ago",
            "2000-13-01",
            "@x",
            "2000-01-01 25:00",
            "2024-02-30",
            "2023-02-29",
            "1900-02-29",
            "2004-04-31",
            "2000-01-01 03:04:60",
            "2000-01-01é",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("20000229 12:34:56 UTC"), time(951_827_696, 0));
        let base = Time {
            seconds: 951_827_696,
            nanos: 7,
        };
        for (text, seconds) in [
            ("now", 0),
            ("1 hour ago", -3600),
            ("+2 days -1 minute", 2 * 86_400 - 60),
            ("yesterday", -86_400),
            ("last week", -7 * 86_400),
            ("2 weeks", 14 * 86_400),
        ] {
            let moved = base.seconds + seconds;
            assert_eq!(from(text, base), time(moved, 7), "{text}");
        }
        // A month later is the same day, whose number of seconds the zone has to say.
        assert_eq!(
            from("2000-02-29T12:34:56Z 3 hours", base),
            time(951_838_496, 0)
        );
        assert!(stamp("200002291234.56").is_ok());
        assert!(stamp("202001010304.60").is_ok());
        for bad in ["2000", "202302290304", "202001010304.61"] {
            assert!(stamp(bad).is_err(), "{bad}");
        }
    }
}

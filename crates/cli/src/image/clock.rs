//! Local time, by the C library, which knows TZ and the zone files.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// A moment in the local time zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    /// East of Greenwich.
    pub offset_seconds: i64,
}

/// The moment so many seconds after 1970.
pub(super) fn local(seconds: i64) -> Local {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let seconds = seconds as libc::time_t;
    // SAFETY: both pointers are of live values of the right types; the function writes the second
    // only, and keeps neither.
    let filled = unsafe { libc::localtime_r(&seconds, parts.as_mut_ptr()) };
    // SAFETY: all bits zero are a valid `tm`: numbers, and a pointer that is not used here. The
    // call has overwritten it or, for a year that does not fit, left it.
    let parts = unsafe { parts.assume_init() };
    if filled.is_null() {
        return utc(seconds as i64);
    }
    // The type of this field differs between C libraries.
    #[allow(clippy::unnecessary_cast)]
    let offset_seconds = parts.tm_gmtoff as i64;
    Local {
        year: i64::from(parts.tm_year) + 1900,
        month: parts.tm_mon as u32 + 1,
        day: parts.tm_mday as u32,
        hour: parts.tm_hour as u32,
        minute: parts.tm_min as u32,
        second: parts.tm_sec as u32,
        offset_seconds,
    }
}

/// The same in universal time.
pub(super) fn utc(seconds: i64) -> Local {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The civil calendar from days: eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * day_of_year + 2) / 153;
    let month = if month_of_year < 10 {
        month_of_year + 3
    } else {
        month_of_year - 9
    };
    Local {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month: month as u32,
        day: (day_of_year - (153 * month_of_year + 2) / 5 + 1) as u32,
        hour: (rest / 3600) as u32,
        minute: (rest / 60 % 60) as u32,
        second: (rest % 60) as u32,
        offset_seconds: 0,
    }
}

/// The seconds of a moment in the local time zone; its offset does not count. `None` for what is no
/// time.
pub(super) fn seconds(local: Local) -> Option<i64> {
    seconds_of_day(local, i64::from(local.day))
}

/// The same of another day, which may lie before or behind the month.
pub(super) fn seconds_of_day(local: Local, day: i64) -> Option<i64> {
    // SAFETY: all bits zero are a valid `tm`.
    let mut parts: libc::tm = unsafe { MaybeUninit::zeroed().assume_init() };
    parts.tm_year = i32::try_from(local.year - 1900).ok()?;
    parts.tm_mon = local.month as i32 - 1;
    parts.tm_mday = i32::try_from(day).ok()?;
    parts.tm_hour = local.hour as i32;
    parts.tm_min = local.minute as i32;
    parts.tm_sec = local.second as i32;
    parts.tm_isdst = -1;
    // SAFETY: the pointer is of a live value, which the function changes and does not keep.
    let seconds = unsafe { libc::mktime(&mut parts) };
    Some(seconds as i64)
}

/// How many days a month has.
pub(super) fn days_of_month(year: i64, month: u32) -> u32 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The name of the local time zone at a moment so many seconds after 1970.
pub(super) fn zone(seconds: i64) -> String {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let seconds = seconds as libc::time_t;
    // SAFETY: as in `local`.
    let filled = unsafe { libc::localtime_r(&seconds, parts.as_mut_ptr()) };
    if filled.is_null() {
        return "UTC".to_owned();
    }
    // SAFETY: the call has written it; the name is a string of the C library that stays until TZ
    // changes, which nothing here does.
    unsafe {
        let name = parts.assume_init().tm_zone;
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}

/// 0 to 6, from Sunday on.
pub(super) fn weekday(at: &Local) -> i64 {
    let seconds = utc_seconds(Local {
        offset_seconds: 0,
        ..*at
    });
    (seconds.div_euclid(86_400) + 4).rem_euclid(7)
}

/// The year and week of ISO 8601: weeks begin on Monday, the first has the year's first Thursday.
pub(super) fn week(at: &Local) -> (i64, i64) {
    let day = day_of_year(at) - 1;
    let thursday = day - (weekday(at) + 6) % 7 + 3;
    let days_of = |year: i64| 337 + i64::from(days_of_month(year, 2));
    match thursday {
        ..0 => (at.year - 1, (thursday + days_of(at.year - 1)) / 7 + 1),
        _ if thursday >= days_of(at.year) => (at.year + 1, 1),
        _ => (at.year, thursday / 7 + 1),
    }
}

/// 1 to 366.
pub(super) fn day_of_year(at: &Local) -> i64 {
    let first = Local {
        month: 1,
        day: 1,
        ..*at
    };
    (utc_seconds(*at) - utc_seconds(first)) / 86_400 + 1
}

/// The seconds of a moment in universal time.
pub(super) fn utc_seconds(at: Local) -> i64 {
    let year = at.year - i64::from(at.month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_of_year = (i64::from(at.month) + 9) % 12;
    let day_of_year = (153 * month_of_year + 2) / 5 + i64::from(at.day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    days * 86_400 + i64::from(at.hour) * 3600 + i64::from(at.minute) * 60 + i64::from(at.second)
        - at.offset_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_are_those_of_iso_8601() {
        for (year, month, day, week, weekday) in [
            (2021, 1, 3, (2020, 53), 0),
            (2021, 1, 4, (2021, 1), 1),
            (2024, 12, 30, (2025, 1), 1),
            (2016, 1, 1, (2015, 53), 5),
            (2026, 7, 15, (2026, 29), 3),
        ] {
            let at = Local {
                year,
                month,
                day,
                ..utc(0)
            };
            assert_eq!(
                (super::week(&at), super::weekday(&at)),
                (week, weekday),
                "{at:?}"
            );
        }
    }

    #[test]
    fn the_calendar_is_right() {
        let parts = |seconds| {
            let at = utc(seconds);
            (at.year, at.month, at.day, at.hour, at.minute, at.second)
        };
        assert_eq!(parts(0), (1970, 1, 1, 0, 0, 0));
        assert_eq!(parts(951_827_696), (2000, 2, 29, 12, 34, 56));
        assert_eq!(parts(-1), (1969, 12, 31, 23, 59, 59));
        for seconds in [0, 1, -1, 951_827_696, 4_107_542_400, -2_208_988_800] {
            assert_eq!(utc_seconds(utc(seconds)), seconds);
            assert_eq!(super::seconds(local(seconds)), Some(seconds));
        }
    }
}

//! RFC 3339 and seconds since the epoch, to any number of digits behind the point.

use super::decimal::Decimal;

const DAY: i64 = 86_400;
/// 0000-01-01T00:00:00Z and 9999-12-31T23:59:59Z, the ends of what RFC 3339 can say.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

/// The moment in UTC; `None` outside of the years 0000 to 9999.
pub(crate) fn to_rfc3339(seconds: &Decimal) -> Option<String> {
    let (whole, fraction) = seconds.parts()?;
    let (seconds, fraction) = signed(seconds.is_negative(), whole.parse().ok()?, &fraction)?;
    if !(FIRST..=LAST).contains(&seconds) {
        return None;
    }
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{point}{fraction}Z"
    ))
}

/// Seconds since the epoch; `None` where the text isn't a moment of RFC 3339, or is a leap second,
/// which seconds since the epoch have no number for.
pub(crate) fn from_rfc3339(text: &str) -> Option<Decimal> {
    let year = number(text, 0, 4)?;
    let month = number(text, 5, 2)?;
    let day = number(text, 8, 2)?;
    let hour = number(text, 11, 2)?;
    let minute = number(text, 14, 2)?;
    let second = number(text, 17, 2)?;
    let bytes = text.as_bytes();
    let marks = [4, 7, 10, 13, 16].map(|at| bytes.get(at).copied());
    let [
        Some(b'-'),
        Some(b'-'),
        Some(b'T' | b't'),
        Some(b':'),
        Some(b':'),
    ] = marks
    else {
        return None;
    };
    if !(1..=12).contains(&month) || day < 1 || day > days_in(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let end = after.bytes().take_while(u8::is_ascii_digit).count();
        (fraction, rest) = after.split_at_checked(end)?;
        if fraction.is_empty() {
            return None;
        }
    }
    let of_day = hour * 3600 + minute * 60 + second;
    let seconds = days(year, month, day) * DAY + of_day - offset(rest)?;
    let fraction = fraction.trim_end_matches('0');
    // Before the epoch: from the second below and what is above it, to a size and its sign.
    let (size, fraction) = match (seconds < 0, fraction.is_empty()) {
        (false, _) => (seconds, fraction.to_owned()),
        (true, true) => (-seconds, String::new()),
        (true, false) => (-(seconds + 1), complement(fraction)),
    };
    Decimal::from_parts(seconds < 0, &size.to_string(), &fraction)
}

/// The second that a moment lies in, and its fraction above that.
fn signed(negative: bool, whole: i64, fraction: &str) -> Option<(i64, String)> {
    match (negative, fraction.is_empty()) {
        (false, _) => Some((whole, fraction.to_owned())),
        (true, true) => Some((-whole, String::new())),
        (true, false) => Some((whole.checked_add(1)?.checked_neg()?, complement(fraction))),
    }
}

/// `1 - 0.DIGITS`, as digits; the last one isn't zero.
fn complement(digits: &str) -> String {
    let last = digits.len().saturating_sub(1);
    digits
        .bytes()
        .enumerate()
        .map(|(n, digit)| {
            let base = if n == last { b'9' + 1 } else { b'9' };
            char::from(b'0' + base.saturating_sub(digit))
        })
        .collect()
}

fn number(text: &str, from: usize, length: usize) -> Option<i64> {
    let digits = text.get(from..from + length)?;
    match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits.parse().ok(),
        false => None,
    }
}

fn offset(text: &str) -> Option<i64> {
    if let "Z" | "z" = text {
        return Some(0);
    }
    let sign = match text.as_bytes() {
        [b'+', _, _, b':', _, _] => 1,
        [b'-', _, _, b':', _, _] => -1,
        _ => return None,
    };
    let (hours, minutes) = (number(text, 1, 2)?, number(text, 4, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since the epoch, counted in eras of 400 years that begin in March, so that the leap day is
/// the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

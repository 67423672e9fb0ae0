//! A decimal number of any length, whose point can be moved. No float is involved.

/// The most zeros that are written to spare an exponent.
const MAX_ZEROS: i64 = 64;

/// `0.DIGITS × 10^point`, without zeros at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    /// Reads the text of a JSON number; `None` where its exponent is beyond reason.
    pub(crate) fn read(number: &str) -> Option<Decimal> {
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (number, 0),
        };
        let unsigned = mantissa.strip_prefix('-');
        let (whole, fraction) = {
            let text = unsigned.unwrap_or(mantissa);
            text.split_once('.').unwrap_or((text, ""))
        };
        Decimal::from_parts(unsigned.is_some(), whole, fraction)?.moved(exponent)
    }

    pub(crate) fn from_parts(negative: bool, whole: &str, fraction: &str) -> Option<Decimal> {
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let zeros = all.len().checked_sub(digits.len())?;
        let point = i64::try_from(whole.len())
            .ok()?
            .checked_sub(i64::try_from(zeros).ok()?)?;
        let digits = digits.trim_end_matches('0').to_owned();
        let point = if digits.is_empty() { 0 } else { point };
        Some(Decimal {
            negative,
            digits,
            point,
        })
    }

    /// The number times `10^by`.
    pub(crate) fn moved(mut self, by: i64) -> Option<Decimal> {
        if !self.digits.is_empty() {
            self.point = self.point.checked_add(by)?;
        }
        Some(self)
    }

    pub(crate) fn is_negative(&self) -> bool {
        self.negative
    }

    /// The digits before and behind the point, of a number that is neither huge nor tiny.
    pub(crate) fn parts(&self) -> Option<(String, String)> {
        let length = i64::try_from(self.digits.len()).ok()?;
        if self.point > length.checked_add(MAX_ZEROS)? || self.point < -MAX_ZEROS {
            return None;
        }
        if self.point <= 0 {
            let zeros = usize::try_from(self.point.checked_neg()?).ok()?;
            let fraction = match self.digits.is_empty() {
                true => String::new(),
                false => "0".repeat(zeros) + &self.digits,
            };
            return Some(("0".to_owned(), fraction));
        }
        let point = usize::try_from(self.point).ok()?;
        Some(match self.digits.split_at_checked(point) {
            Some((whole, fraction)) => (whole.to_owned(), fraction.to_owned()),
            None => {
                let zeros = point.checked_sub(self.digits.len())?;
                (self.digits.clone() + &"0".repeat(zeros), String::new())
            }
        })
    }

    /// The number without its fraction.
    pub(crate) fn whole(mut self) -> Decimal {
        match usize::try_from(self.point) {
            Ok(point) if point > 0 => {
                if self.digits.len() > point {
                    self.digits.truncate(point);
                    let kept = self.digits.trim_end_matches('0').len();
                    self.digits.truncate(kept);
                }
            }
            _ => {
                self.digits.clear();
                self.point = 0;
                self.negative = false;
            }
        }
        self
    }

    /// The number as JSON: without an exponent wherever that is readable, and without a fraction
    /// where it is whole.
    pub(crate) fn to_json(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        if let Some((whole, fraction)) = self.parts() {
            return match fraction.is_empty() {
                true => format!("{sign}{whole}"),
                false => format!("{sign}{whole}.{fraction}"),
            };
        }
        let exponent = self.point.saturating_sub(1);
        let (first, rest) = self.digits.split_at_checked(1).unwrap_or(("0", ""));
        match rest.is_empty() {
            true => format!("{sign}{first}e{exponent}"),
            false => format!("{sign}{first}.{rest}e{exponent}"),
        }
    }
}

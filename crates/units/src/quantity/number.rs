//! Decimal numbers with a unit, parsed without losing a digit. The units themselves are defined in [`super`].

/// Splits `1.5GiB` into `1.5` and `GiB`; blanks around and between are dropped. Returns `None` unless the text starts
/// with a plain decimal number: digits with at most one point between them, no sign, no exponent.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (before, after) = number.split_once('.').unwrap_or((number, "0"));
    let plain = !before.is_empty() && !after.is_empty() && !after.contains('.');
    plain.then_some((number, unit.trim_start()))
}

/// Reasons why a number times a factor is not a `u64`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WholeError {
    /// Digits remain after the decimal point.
    Fraction,
    /// More than 2^64 - 1.
    TooLarge,
}

/// Returns `number` (from [`split`]) times `factor`, exactly.
pub(super) fn whole(number: &str, factor: u64) -> Result<u64, WholeError> {
    let (before, after) = number.split_once('.').unwrap_or((number, ""));
    let after = after.trim_end_matches('0');
    // No factor has more than 41 powers of two or five, so a product with more than 41 decimal places is never whole.
    if after.len() > 41 {
        return Err(WholeError::Fraction);
    }
    let digits = format!("{before}{after}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    let product = digits
        .parse::<u128>()
        .ok()
        .and_then(|digits| digits.checked_mul(u128::from(factor)))
        .ok_or(WholeError::TooLarge)?;
    let divisor = u32::try_from(after.len())
        .ok()
        .and_then(|places| 10u128.checked_pow(places));
    // With 39 or more decimal places, the divisor does not fit. The product does fit, so it is smaller than the
    // divisor, and digits remain after the decimal point.
    let divisor = divisor.ok_or(WholeError::Fraction)?;
    if !product.is_multiple_of(divisor) {
        return Err(WholeError::Fraction);
    }
    u64::try_from(product / divisor).map_err(|_| WholeError::TooLarge)
}

/// Returns `number` (from [`split`]) times ten to the `exponent`, rounded once; `None` if it is out of range for an
/// `f64`.
pub(super) fn scaled(number: &str, exponent: i32) -> Option<f64> {
    let value: f64 = format!("{number}e{exponent}").parse().ok()?;
    value.is_finite().then_some(value)
}

/// Formats `value` divided by ten to the `exponent` as the shortest plain decimal that [`scaled`] reads back as the
/// same `f64`. The decimal point is moved in the text, so that nothing is rounded a second time.
pub(super) fn shifted(value: f64, exponent: i32) -> String {
    // Zero has no leading digit to move the decimal point past.
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:e}");
    let Some((mantissa, power)) = text.split_once('e') else {
        return text;
    };
    let power = power.parse::<i32>().unwrap_or(0).saturating_sub(exponent);
    let (sign, mantissa) = mantissa
        .strip_prefix('-')
        .map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    let Ok(before) = usize::try_from(power.saturating_add(1)) else {
        return format!("{sign}0.{}{digits}", zeros(-(power + 1)));
    };
    if before == 0 {
        return format!("{sign}0.{digits}");
    }
    if digits.len() <= before {
        let padding = i32::try_from(before - digits.len()).unwrap_or(0);
        return format!("{sign}{digits}{}", zeros(padding));
    }
    let (front, back) = digits.split_at(before);
    format!("{sign}{front}.{back}")
}

fn zeros(count: i32) -> String {
    "0".repeat(usize::try_from(count).unwrap_or(0))
}

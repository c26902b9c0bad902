//! Sizes and numbers as IOR reads them: a whole number, and `k`, `m`, `g`, `t` or `p` for a power of two.

use tonnage_units::{Error, Result};

/// Reads `8`, `4k`, `4K`, `4kb`, `4KiB`: whatever follows the letter, IOR means a power of two.
///
/// # Errors
/// `Usage`, with the option's name, for anything else; IOR takes what it understands of it and goes on.
pub fn whole(option: &str, text: &str) -> Result<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok();
    let shift = shift_of(unit);
    match (number, shift) {
        (Some(number), Some(shift)) => {
            let value = number.checked_mul(1 << shift);
            value.ok_or_else(|| wrong(option, text, "is too large"))
        }
        (None, Some(_)) if digits > 0 => Err(wrong(option, text, "is too large")),
        _ => Err(wrong(option, text, "is not a number")),
    }
}

fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_lowercase();
    let letter = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    match letter {
        "" if !unit.starts_with('i') => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        "p" => Some(50),
        _ => None,
    }
}

fn wrong(option: &str, text: &str, why: &str) -> Error {
    Error::Usage(format!(
        "{option} {text:.40?} {why}: write a whole number, with k, m, g or t for powers of two, such as 8, 4k or 2m"
    ))
}

/// Reads what a flag is set to by `-F=1` or `-O filePerProc=1`.
///
/// # Errors
/// `Usage`, with the option's name, for what is not a small number.
pub fn times(option: &str, text: &str) -> Result<u64> {
    let digits = !text.is_empty() && text.len() < 5 && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(times) if digits => Ok(times),
        _ => Err(Error::Usage(format!(
            "{option} {text:.40?} is neither on nor off: write 1 or 0"
        ))),
    }
}

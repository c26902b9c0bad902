//! Errors for requests that cannot be measured, found before a rank starts.

use std::fmt::Display;
use std::ops::RangeInclusive;

use tonnage_engine::Entry;
use tonnage_units::{Error, Nanos, Result};

/// Returns a usage error. The message names the fault and a valid choice.
pub(crate) fn usage_error<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Usage(message.into()))
}

/// Checks a number of threads or the like, from 1 to `most`. With 0, nothing would move.
pub(crate) fn mover_count(option: &str, value: u64, most: u32) -> Result<u32> {
    match u32::try_from(value) {
        Ok(0) => usage_error(format!(
            "--{option} 0 would move nothing: the fewest is --{option} 1"
        )),
        Ok(narrow) if narrow <= most => Ok(narrow),
        _ => usage_error(format!(
            "--{option} {value} are too many: the most is --{option} {most}"
        )),
    }
}

/// Checks a number of repetitions, such as trials: 1 to `most`.
pub(crate) fn repetition_count(option: &str, value: u64, most: u64) -> Result<u64> {
    match value {
        0 => usage_error(format!(
            "--{option} 0 would measure nothing: the fewest is --{option} 1"
        )),
        _ if value <= most => Ok(value),
        _ => usage_error(format!(
            "--{option} {value} is too many: the most is --{option} {most}"
        )),
    }
}

/// Checks that a value is within bounds. If it is not, the message names them.
pub(crate) fn value_within<T: PartialOrd + Display>(
    option: &str,
    value: T,
    bounds: RangeInclusive<T>,
) -> Result<T> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (least, most) = bounds.into_inner();
    usage_error(format!(
        "--{option} {value} is not possible: use --{option} {least} to --{option} {most}"
    ))
}

/// Checks that a time is within bounds. In messages, `why` follows "is too short", and `over` follows the given value.
pub(crate) fn time_within(
    option: &str,
    over: &str,
    ns: u64,
    why: &str,
    bounds: RangeInclusive<u64>,
) -> Result<u64> {
    let (given, least, most) = (Nanos(ns), Nanos(*bounds.start()), Nanos(*bounds.end()));
    if given < least {
        return usage_error(format!(
            "--{option} {given}{over} is too short{why}: the shortest is --{option} {least}"
        ));
    }
    if given > most {
        return usage_error(format!(
            "--{option} {given}{over} is too long: the longest is --{option} {most}"
        ));
    }
    Ok(ns)
}

/// Refuses engines that run ranks as threads of one process, for experiments that run them as processes.
pub(crate) fn check_one_process(entry: &Entry, experiment: &str) -> Result<()> {
    if !entry.one_process {
        return Ok(());
    }
    usage_error(format!(
        "--engine {} moves bytes within one process, and the ranks of {experiment} are processes: use `tonnage \
         transfer` ([[transfer]] in a plan), or an engine between processes, as `tonnage engines` lists them",
        entry.name
    ))
}

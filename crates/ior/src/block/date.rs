//! Dates in IOR's format, `Sat Nov 21 17:28:09 2026`. They are in UTC, so that they do not depend on the host's time
//! zone.

use jiff::Timestamp;

/// Formats a time, given in nanoseconds since 1970.
pub fn date(unix_ns: u64) -> String {
    let time = Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%a %b %e %H:%M:%S %Y").to_string()
}

#[cfg(test)]
mod tests {
    use super::date;

    /// The expected dates are output of `date -u -d @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (951_868_799, "Tue Feb 29 23:59:59 2000"),
            (1_700_000_000, "Tue Nov 14 22:13:20 2023"),
            (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000 + 999_999_999), text);
        }
    }
}

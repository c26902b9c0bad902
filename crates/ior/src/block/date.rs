//! Points in time as IOR writes them, `Sat Nov 21 17:28:09 2026`; in UTC, because nothing here knows time zones.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The text of a point in time in nanoseconds since 1970.
pub fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let weekday = DAYS.iter().cycle().nth((days % 7) as usize);
    let (mut year, mut left) = (1970, days);
    while left >= days_of_year(year) {
        left -= days_of_year(year);
        year += 1;
    }
    let mut month = 0;
    while left >= days_of_month(year, month) {
        left -= days_of_month(year, month);
        month += 1;
    }
    format!(
        "{} {} {:>2} {:02}:{:02}:{:02} {year}",
        weekday.unwrap_or(&"Thu"),
        MONTHS[month % 12],
        left + 1,
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::date;

    /// What `date -u -d @SECONDS` says.
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

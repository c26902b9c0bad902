//! The formatter for numbers and quantities in tables, sentences and messages.
//!
//! | for | functions |
//! | --- | --- |
//! | a number under a header that has its unit | [`number`], [`fixed`], [`prefixed`] |
//! | about three digits and the fitting unit | [`bandwidth`], [`rate`], [`bytes`], [`duration`], [`percent`] |
//! | an exact setting or a device's rated speed | [`exact_size`], [`exact_duration`], [`link_speed`], [`thousandths`] |
//! | sums and times in sentences | [`size`], [`size_to`], [`seconds`], [`gigabytes_per_s`], [`whole_percent`] |
//!
//! This output is for people and cannot be parsed back. For text that can, use the `Display` of the types in [`super`].

/// Formats with at least three significant digits, and all digits before the point. A small number is never printed as
/// zero.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size == 0.0 || !size.is_finite() => 0,
        _ if size < 0.001 => return scientific(value),
        _ if size < 0.01 => 5,
        _ if size < 0.1 => 4,
        _ if size < 1.0 => 3,
        _ if size < 100.0 => 2,
        _ if size < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Formats a [`number`] for a column that is aligned at the decimal point: never with an exponent.
pub fn fixed(value: f64) -> String {
    match value.abs() {
        size if size > 0.0 && size < 0.001 => {
            let decimals = 2 - size.log10().floor() as i32;
            format!("{value:.0$}", decimals.clamp(5, 15) as usize)
        }
        _ => number(value),
    }
}

/// Formats a [`number`], marked with ≥ if it is a lower bound.
pub fn number_at_least(value: f64, is_bound: bool) -> String {
    at_least(number(value), is_bound)
}

/// Marks a formatted number with ≥ if it is a lower bound.
pub fn at_least(number: String, is_bound: bool) -> String {
    if is_bound {
        format!("≥{number}")
    } else {
        number
    }
}

/// Formats 0.000008 as "8e-6", 0.000512 as "5.12e-4".
fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            format!("{digits}e{exponent}")
        }
        _ => text,
    }
}

/// Three significant digits with the decimal prefix k, M or G: 3814697 as "3.81M".
pub fn prefixed(value: f64) -> String {
    for (limit, unit, prefix) in [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k")] {
        if value.abs() >= limit {
            return format!("{}{prefix}", three_digits(value / unit));
        }
    }
    number(value)
}

/// `1.23 GB/s`, decimal. "n/a" if the value is not finite.
pub fn bandwidth(bytes_per_s: f64) -> String {
    let units = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
    with_unit(bytes_per_s, &units, 1000.0)
}

/// `1.23 M/s`, decimal. "n/a" if the value is not finite.
pub fn rate(per_s: f64) -> String {
    with_unit(per_s, &["/s", "k/s", "M/s", "G/s"], 1000.0)
}

/// `1.23 GiB`, powers of two. "n/a" if the value is not finite.
pub fn bytes(bytes: f64) -> String {
    with_unit(bytes, &["B", "KiB", "MiB", "GiB", "TiB"], 1024.0)
}

/// `12.3 us`; the largest unit is seconds. "n/a" if the value is not finite.
pub fn duration(ns: f64) -> String {
    with_unit(ns, &["ns", "us", "ms", "s"], 1000.0)
}

/// A fraction as `2.00 %`. "n/a" if the value is not finite.
pub fn percent(fraction: f64) -> String {
    with_unit(fraction * 100.0, &["%"], 1000.0)
}

/// A size in the largest binary unit that divides it: 65536 as "64 KiB", 1000 as "1000 B".
pub fn exact_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// A duration in the largest unit that divides it: 200000000 ns as "200 ms". From 10 us on, a duration that no unit
/// divides is rounded: a third of 200 ms is "66.7 ms".
pub fn exact_duration(ns: u64) -> String {
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
        if ns > 0 && ns.is_multiple_of(unit_ns) {
            return format!("{} {unit}", ns / unit_ns);
        }
    }
    match ns {
        10_000.. => duration(ns as f64),
        _ => format!("{ns} ns"),
    }
}

/// Speed of a link: 2500000000 bits per second as "2.5 Gb/s"; below 1 Gb/s in whole Mb/s.
pub fn link_speed(bits_per_s: u64) -> String {
    match bits_per_s {
        1_000_000_000.. => format!("{} Gb/s", thousandths(bits_per_s / 1_000_000)),
        _ => format!("{} Mb/s", bits_per_s / 1_000_000),
    }
}

/// A number of thousandths, exactly: 1500 as "1.5".
pub fn thousandths(number: u64) -> String {
    match number % 1000 {
        0 => (number / 1000).to_string(),
        rest => format!("{}.{rest:03}", number / 1000)
            .trim_end_matches('0')
            .to_owned(),
    }
}

/// A size in the largest binary unit that it fills. From 1 MiB on it has one decimal, unless it is whole; smaller sizes
/// are never rounded.
pub fn size(bytes: u64) -> String {
    size_to(bytes, 1)
}

/// Like [`size`], with the given number of decimals.
pub fn size_to(bytes: u64, decimals: usize) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB")] {
        if bytes >> shift > 0 {
            let whole = bytes.trailing_zeros() >= shift;
            let decimals = if whole { 0 } else { decimals };
            let scaled = bytes as f64 / (1_u64 << shift) as f64;
            return format!("{scaled:.decimals$} {unit}");
        }
    }
    match bytes {
        1024.. if bytes % 1024 == 512 => format!("{}.5 KiB", bytes >> 10),
        _ => exact_size(bytes),
    }
}

/// A time in seconds: "0.0512 s".
pub fn seconds(ns: u64) -> String {
    format!("{} s", number(ns as f64 * 1e-9))
}

/// A bandwidth in GB/s (1e9 bytes), as in the columns of tables.
pub fn gigabytes_per_s(bytes_per_s: f64) -> String {
    format!("{} GB/s", number(bytes_per_s * 1e-9))
}

/// A fraction in whole percent. A small one prints "< 1 %" instead of 0, and one just below 1 prints "> 99 %".
pub fn whole_percent(fraction: f64) -> String {
    match fraction * 100.0 {
        value if value > 0.0 && value < 1.0 => "< 1 %".to_owned(),
        value if value > 99.0 && value < 100.0 => "> 99 %".to_owned(),
        value => format!("{value:.0} %"),
    }
}

fn with_unit(value: f64, units: &[&str], base: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let mut scaled = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or("");
    // Values just below the base would be printed as the base, so the next unit is used: 999.6 kB/s becomes 1.00 MB/s.
    while scaled.abs() >= base - 0.5 {
        let Some(next) = units.next() else { break };
        unit = next;
        scaled /= base;
    }
    format!("{} {unit}", three_digits(scaled))
}

fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_fitting_unit() {
        assert_eq!(bandwidth(1.234e9), "1.23 GB/s");
        assert_eq!(bandwidth(12.34e9), "12.3 GB/s");
        assert_eq!(bandwidth(123.4e9), "123 GB/s");
        assert_eq!(bandwidth(999_600.0), "1.00 MB/s");
        assert_eq!(bandwidth(0.0), "0 B/s");
        assert_eq!(bandwidth(5e16), "50000 TB/s");
        assert_eq!(rate(66_000_000.0), "66.0 M/s");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(duration(83.0), "83.0 ns");
        assert_eq!(duration(8_730.0), "8.73 us");
        assert_eq!(duration(90e9), "90.0 s");
        assert_eq!(percent(0.02), "2.00 %");
        assert_eq!(bandwidth(f64::NAN), "n/a");
        assert_eq!(bandwidth(f64::INFINITY), "n/a");
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_008, "8e-6"),
            (0.000_512, "5.12e-4"),
            (0.001_024, "0.00102"),
            (0.016_384, "0.0164"),
            (0.131_072, "0.131"),
            (1.0, "1.00"),
            (48.316, "48.32"),
            (113.73, "113.7"),
            (5605.94, "5606"),
            (-0.5, "-0.500"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_small_number_of_a_column_has_its_digits() {
        assert_eq!(fixed(3.2e-4), "0.000320");
        assert_eq!(fixed(8e-9), "0.00000000800");
        assert_eq!(fixed(0.0), "0");
        assert_eq!(fixed(48.316), number(48.316));
    }

    #[test]
    fn large_numbers_have_a_prefix() {
        for (value, text) in [
            (0.0, "0"),
            (42.0, "42.00"),
            (999.4, "999.4"),
            (999.6, "1.00k"),
            (200_000.0, "200k"),
            (3_814_697.0, "3.81M"),
            (99_960_000.0, "100M"),
            (1.25e9, "1.25G"),
        ] {
            assert_eq!(prefixed(value), text);
        }
    }

    #[test]
    fn sizes_and_durations_are_exact() {
        for (value, text) in [
            (0, "0 B"),
            (1000, "1000 B"),
            (65536, "64 KiB"),
            (3 << 30, "3 GiB"),
            (1 << 20, "1 MiB"),
        ] {
            assert_eq!(exact_size(value), text);
        }
        for (value, text) in [
            (0, "0 ns"),
            (1500, "1500 ns"),
            (200_000_000, "200 ms"),
            (66_666_666, "66.7 ms"),
            (2_000_000_000, "2 s"),
        ] {
            assert_eq!(exact_duration(value), text);
        }
        assert_eq!(link_speed(2_500_000_000), "2.5 Gb/s");
        assert_eq!(link_speed(200_000_000_000), "200 Gb/s");
        assert_eq!(link_speed(100_000_000), "100 Mb/s");
        assert_eq!(thousandths(1050), "1.05");
    }

    #[test]
    fn sums_in_sentences_are_exact_or_rounded() {
        for (value, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1536, "1.5 KiB"),
            (2 << 20, "2 MiB"),
            (512 << 20, "512 MiB"),
            (4097, "4097 B"),
            ((512 << 20) + 1, "512.0 MiB"),
            ((5 << 30) / 2, "2.5 GiB"),
            (24 << 40, "24 TiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(size(value), text);
        }
        assert_eq!(size_to((5 << 30) / 2, 2), "2.50 GiB");
        assert_eq!(seconds(51_200_000), "0.0512 s");
        assert_eq!(gigabytes_per_s(2.4e9), "2.40 GB/s");
    }

    #[test]
    fn fractions_are_never_rounded_to_0_or_100_percent() {
        for (part, text) in [
            (0.0, "0 %"),
            (1e-6, "< 1 %"),
            (0.5, "50 %"),
            (0.9999, "> 99 %"),
            (1.0, "100 %"),
            (1.372, "137 %"),
        ] {
            assert_eq!(whole_percent(part), text);
        }
    }
}

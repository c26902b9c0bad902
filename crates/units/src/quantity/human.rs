//! Quantities for people to read: three digits and the unit that keeps the number between 1 and 1000.
//!
//! Nothing here can be read back; text that can is the `Display` of the types in [`super`].

/// `1.23 GB/s`, decimal. "n/a" for what is not a finite number.
pub fn bandwidth(bytes_per_s: f64) -> String {
    with_prefix(
        bytes_per_s,
        &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"],
        1000.0,
    )
}

/// `1.23 M/s`, decimal. "n/a" for what is not a finite number.
pub fn rate(per_s: f64) -> String {
    with_prefix(per_s, &["/s", "k/s", "M/s", "G/s"], 1000.0)
}

/// `1.23 GiB`, powers of two. "n/a" for what is not a finite number.
pub fn bytes(bytes: f64) -> String {
    with_prefix(bytes, &["B", "KiB", "MiB", "GiB", "TiB"], 1024.0)
}

/// `12.3 us`; from a second on seconds. "n/a" for what is not a finite number.
pub fn duration(ns: f64) -> String {
    with_prefix(ns, &["ns", "us", "ms", "s"], 1000.0)
}

/// `2.00 %` of a fraction. "n/a" for what is not a finite number.
pub fn percent(fraction: f64) -> String {
    with_prefix(fraction * 100.0, &["%"], 1000.0)
}

fn with_prefix(value: f64, units: &[&str], base: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let mut scaled = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or("");
    // From half a unit below the base on, rounding would print the base itself: 999.6 kB/s is 1.00 MB/s.
    while scaled.abs() >= base - 0.5 {
        let Some(next) = units.next() else { break };
        unit = next;
        scaled /= base;
    }
    let digits = match scaled.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$} {unit}")
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
}

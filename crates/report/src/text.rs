//! Numbers, sizes, durations and pacings as tables print them, and lines that end before the screen does.

use tonnage_plan::transfer::Pacing;

/// Greatest width of a report.
pub const WIDTH: usize = 120;

/// At least three significant digits, and all digits before the point. What is small is never printed as zero.
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

/// 0.000008 as "8e-6", 0.000512 as "5.12e-4".
fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => {
            format!(
                "{}e{exponent}",
                digits.trim_end_matches('0').trim_end_matches('.')
            )
        }
        _ => text,
    }
}

/// Three significant digits with the decimal prefix k, M or G: 3814697 as "3.81M".
pub fn rate(value: f64) -> String {
    for (limit, unit, prefix) in [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k")] {
        if value.abs() >= limit {
            let scaled = value / unit;
            let decimals = match scaled.abs() {
                size if size < 9.995 => 2,
                size if size < 99.95 => 1,
                _ => 0,
            };
            return format!("{scaled:.decimals$}{prefix}");
        }
    }
    number(value)
}

/// A size in the largest binary unit that divides it: 65536 as "64 KiB", 1000 as "1000 B".
pub fn bytes(value: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if value > 0 && value.trailing_zeros() >= shift {
            return format!("{} {unit}", value >> shift);
        }
    }
    format!("{value} B")
}

/// A sum of sizes, which need not be exact: from 1 MiB on with one decimal.
pub fn bytes_rounded(value: u64) -> String {
    if value < 1 << 20 {
        return bytes(value);
    }
    format!("{:.1} MiB", value as f64 / f64::from(1 << 20))
}

/// A duration in the largest unit that divides it: 200000000 ns as "200 ms".
pub fn duration(value_ns: u64) -> String {
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
        if value_ns > 0 && value_ns.is_multiple_of(unit_ns) {
            return format!("{} {unit}", value_ns / unit_ns);
        }
    }
    format!("{value_ns} ns")
}

/// Pacing of operations, in two or three words.
pub fn pacing(pacing: &Pacing) -> String {
    match pacing {
        Pacing::PingPong => "ping-pong".to_owned(),
        Pacing::Stream { window } => format!("window {window}"),
        Pacing::Batch { batch } => format!("batch {batch}"),
        Pacing::Paced { rate_per_s, .. } => format!("{} operations/s", rate(*rate_per_s)),
    }
}

/// Breaks at spaces so that no line is wider than `width`, each line after the first indented by `indent` spaces. A
/// longer word stays whole; line breaks of the text are kept.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if !out.is_empty() {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
        }
        let mut used = if out.is_empty() { 0 } else { indent };
        for (at, word) in line.split_whitespace().enumerate() {
            let length = word.chars().count();
            if at > 0 && used + 1 + length > width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                used = indent;
            } else if at > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += length;
        }
    }
    out
}

/// A head in a column of `indent` characters, and beside it the body, wrapped within [`WIDTH`].
pub fn entry(head: &str, indent: usize, body: &str) -> String {
    let body = wrap(body, WIDTH.saturating_sub(indent), 0);
    format!(
        "{head:<indent$}{}\n",
        body.replace('\n', &format!("\n{:indent$}", ""))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn rates_have_a_prefix() {
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
            assert_eq!(rate(value), text);
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
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [
            (0, "0 ns"),
            (1500, "1500 ns"),
            (200_000_000, "200 ms"),
            (2_000_000_000, "2 s"),
        ] {
            assert_eq!(duration(value), text);
        }
    }

    #[test]
    fn lines_end_in_time() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrap("a\nb", 9, 1), "a\n b");
        assert_eq!(wrap("unbreakable", 3, 1), "unbreakable");
        let long = entry("head", 6, &"word ".repeat(40));
        assert!(
            long.starts_with("head  word") && long.contains("\n      word"),
            "{long}"
        );
    }
}

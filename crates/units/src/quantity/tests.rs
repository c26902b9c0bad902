use super::*;

use proptest::prelude::*;

fn message<T: FromStr<Err = Error> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn bare_letters_are_powers_of_two_and_kb_is_decimal() {
    for (text, bytes) in [
        ("8", 8),
        ("1k", 1024),
        ("1K", 1024),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("4M", 4 << 20),
        ("4m", 4 << 20),
        ("4MiB", 4 << 20),
        ("1G", 1 << 30),
        ("1g", 1 << 30),
        ("1T", 1 << 40),
        ("1kB", 1000),
        ("1KB", 1000),
        ("100MB", 100_000_000),
        ("1GB", 1_000_000_000),
        ("1.5k", 1536),
        ("0.5kB", 500),
        (" 64 MB ", 64_000_000),
        ("0", 0),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
    }
}

#[test]
fn a_wrong_size_names_the_text_and_shows_how() {
    assert_eq!(
        message::<Bytes>("4q"),
        "\"4q\" has an unknown unit: e.g. 8, 4k (4096), 1M, 1.5GiB or 100MB (decimal)"
    );
    for text in ["", "k", "-1", "1e3", "1.", ".5", "1..2", "١k", "8 8", "+4"] {
        assert!(message::<Bytes>(text).contains("e.g. 8, 4k"), "{text}");
    }
    assert!(message::<Bytes>("0.3").contains("is not a whole number of bytes"));
    assert!(
        message::<Bytes>("1.0000000000000000000000000000000000000000000001k").contains("whole")
    );
    assert!(message::<Bytes>("18446744073709551616").contains("is too large"));
    assert!(message::<Bytes>(&"9".repeat(10_000)).len() < 300);
}

#[test]
fn sizes_print_in_the_shortest_exact_form() {
    for (bytes, text) in [
        (0, "0"),
        (64, "64"),
        (1000, "1000"),
        (1024, "1k"),
        (1 << 20, "1M"),
        (3 << 30, "3G"),
        (1 << 40, "1T"),
        (1025, "1025"),
    ] {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
}

#[test]
fn counts_are_decimal() {
    assert_eq!("200k".parse::<Count>().unwrap(), Count(200_000));
    assert_eq!("1M".parse::<Count>().unwrap(), Count(1_000_000));
    assert_eq!(
        message::<Count>("five"),
        "\"five\" is not a number: e.g. 128, 200k (200000) or 1M (decimal)"
    );
}

#[test]
fn durations_need_a_unit() {
    for (text, ns) in [
        ("10ns", 10),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("200ms", 200_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0", 0),
    ] {
        assert_eq!(text.parse::<Nanos>().unwrap(), Nanos(ns), "{text}");
    }
    assert_eq!(
        message::<Nanos>("200"),
        "\"200\" has no unit: e.g. 10ns, 1us, 200ms, 5s or 2m"
    );
    assert!(message::<Nanos>("0.5ns").contains("is not a whole number of nanoseconds"));
}

#[test]
fn durations_print_in_the_largest_exact_unit() {
    assert_eq!(Nanos(200_000_000).to_string(), "200ms");
    assert_eq!(Nanos(90_000_000_000).to_string(), "90s");
    assert_eq!(Nanos(120_000_000_000).to_string(), "2m");
    assert_eq!(Nanos(0).to_string(), "0ns");
    assert_eq!(Nanos(1_001).to_string(), "1001ns");
}

#[test]
fn rates_are_per_second_and_decimal() {
    assert_eq!("200000".parse::<PerSecond>().unwrap(), PerSecond(200_000.0));
    assert_eq!("200k".parse::<PerSecond>().unwrap(), PerSecond(200_000.0));
    assert_eq!(
        "1.5M/s".parse::<PerSecond>().unwrap(),
        PerSecond(1_500_000.0)
    );
    assert!(message::<PerSecond>("-5").contains("e.g. 200000, 200k or 1.5M"));
    assert!(message::<PerSecond>("inf").contains("is not a rate"));
    assert!(message::<PerSecond>(&"9".repeat(400)).contains("is not a rate"));
}

#[test]
fn bandwidths_distinguish_bits_from_bytes() {
    for (text, bytes_per_s) in [
        ("12.5GB/s", 12.5e9),
        ("100Gb/s", 12.5e9),
        ("1GiB/s", 1024.0 * 1024.0 * 1024.0),
        ("8b/s", 1.0),
        ("3MB/s", 3e6),
    ] {
        assert_eq!(
            text.parse::<BytesPerSecond>().unwrap(),
            BytesPerSecond(bytes_per_s),
            "{text}"
        );
    }
    assert_eq!(
        message::<BytesPerSecond>("12.5"),
        "\"12.5\" is not a bandwidth: e.g. 12.5GB/s, 100Gb/s or 10GiB/s"
    );
    assert_eq!(BytesPerSecond(12.5e9).to_string(), "12.5GB/s");
    assert_eq!(BytesPerSecond(3e6).to_string(), "3MB/s");
}

#[test]
fn a_percentage_keeps_its_sign() {
    assert_eq!("2%".parse::<Fraction>().unwrap(), Fraction(0.02));
    assert_eq!(Fraction(0.02).to_string(), "2%");
    assert_eq!(Fraction(0.0).to_string(), "0%");
    assert_eq!(
        message::<Fraction>("0.02"),
        "\"0.02\" is not a percentage: e.g. 2% or 0.5%"
    );
}

/// Any finite number from 0 up.
fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![
        proptest::num::f64::POSITIVE.prop_filter("finite", |value| value.is_finite()),
        proptest::num::f64::SUBNORMAL.prop_map(f64::abs),
        0.0..1e12,
        (0u32..1_000_000).prop_map(f64::from),
    ]
}

proptest! {
    #[test]
    fn printed_values_parse_back(value: u64, shift in 0u32..64, real in positive()) {
        for value in [value, (value >> shift) << shift, value >> shift] {
            prop_assert_eq!(Bytes(value).to_string().parse::<Bytes>().unwrap(), Bytes(value));
            prop_assert_eq!(Count(value).to_string().parse::<Count>().unwrap(), Count(value));
            prop_assert_eq!(Nanos(value).to_string().parse::<Nanos>().unwrap(), Nanos(value));
        }
        let text = PerSecond(real).to_string();
        prop_assert_eq!(text.parse::<PerSecond>().unwrap(), PerSecond(real));
        let text = BytesPerSecond(real).to_string();
        prop_assert_eq!(text.parse::<BytesPerSecond>().unwrap(), BytesPerSecond(real));
        let text = Fraction(real).to_string();
        prop_assert_eq!(text.parse::<Fraction>().unwrap(), Fraction(real));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in ".{0,40}", near in "[0-9.]{0,50}[kKMGTiBb/s%mun ]{0,5}") {
        for text in [text, near] {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Count>();
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<PerSecond>();
            let _ = text.parse::<BytesPerSecond>();
            let _ = text.parse::<Fraction>();
        }
    }
}

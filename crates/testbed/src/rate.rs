//! Rates of a link in its two directions.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Bits per second on the wire, in the notation of `tc`: `10gbit`, `500mbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    bits_per_s: u64,
}

const UNITS: [(&str, u64); 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

/// Highest rate for which the small bucket suffices. Above it, the kernel's shaper uses more tokens between two of its
/// runs.
const SMALL_BUCKET_UP_TO_BITS_PER_S: u64 = 1_000_000_000;

/// TCP payload of a full Ethernet frame, with time stamps.
const PAYLOAD_PER_FRAME_BYTES: f64 = 1448.0;

/// Size of a full frame as the shaper counts it: with the Ethernet header, without preamble and checksum.
const FRAME_BYTES: f64 = 1514.0;

impl Rate {
    /// 1 Gb/s.
    pub const GBIT_1: Self = Self {
        bits_per_s: 1_000_000_000,
    };

    /// 10 Gb/s.
    pub const GBIT_10: Self = Self {
        bits_per_s: 10_000_000_000,
    };

    /// Bits per second on the wire.
    pub fn bits_per_s(self) -> u64 {
        self.bits_per_s
    }

    /// Returns the theoretical payload rate of a TCP stream over this link, in bytes per second.
    pub fn tcp_payload_bytes_per_s(self) -> f64 {
        self.bits_per_s as f64 / 8.0 * PAYLOAD_PER_FRAME_BYTES / FRAME_BYTES
    }

    /// Returns the shaper's bucket size. With a larger bucket, a short or intermittent transfer would exceed the rate
    /// for too long.
    pub(crate) fn burst(self) -> &'static str {
        if self.bits_per_s <= SMALL_BUCKET_UP_TO_BITS_PER_S {
            "128kb"
        } else {
            "512kb"
        }
    }
}

/// Rates of a link, each with its own shaper. A direction with `None` is limited only by the CPU. `into` converts a
/// [`Rate`] to the same rate in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRates {
    /// Rate at which the host sends.
    pub send: Option<Rate>,
    /// Rate at which the host receives from all other hosts together.
    pub receive: Option<Rate>,
}

impl LinkRates {
    /// Limited only by the CPU, both ways.
    pub const UNSHAPED: Self = Self {
        send: None,
        receive: None,
    };
}

impl From<Rate> for LinkRates {
    fn from(rate: Rate) -> Self {
        Some(rate).into()
    }
}

impl From<Option<Rate>> for LinkRates {
    fn from(rate: Option<Rate>) -> Self {
        Self {
            send: rate,
            receive: rate,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS
            .iter()
            .find(|(_, factor)| self.bits_per_s.is_multiple_of(*factor));
        let (name, factor) = whole.unwrap_or(&("bit", 1));
        write!(f, "{}{name}", self.bits_per_s / factor)
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Failed(format!(
                "{text:?} is not the rate of a link: write one like 10gbit, 1gbit or 500mbit"
            ))
        };
        let end = text
            .find(|character: char| !character.is_ascii_digit())
            .ok_or_else(wrong)?;
        let (number, unit) = text.split_at(end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        match number.checked_mul(*factor) {
            Some(bits_per_s) if bits_per_s >= 8_000 => Ok(Self { bits_per_s }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_as_they_are_written() {
        for text in ["10gbit", "1gbit", "500mbit", "8kbit", "12345678bit"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
        assert_eq!("1000mbit".parse::<Rate>().unwrap(), Rate::GBIT_1);
    }

    #[test]
    fn an_invalid_rate_is_refused() {
        for text in [
            "",
            "10",
            "gbit",
            "10 gbit",
            "10Gb/s",
            "-1gbit",
            "1.5gbit",
            "0gbit",
            "99999999999gbit",
        ] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("10gbit"), "{error}");
        }
    }

    #[test]
    fn known_answers() {
        let megabytes = |rate: Rate| rate.tcp_payload_bytes_per_s() / 1e6;
        assert!((megabytes(Rate::GBIT_1) - 119.55).abs() < 0.01);
        assert!((megabytes(Rate::GBIT_10) - 1195.5).abs() < 0.1);
        assert_eq!(Rate::GBIT_1.burst(), "128kb");
        assert_eq!(Rate::GBIT_10.burst(), "512kb");
    }
}

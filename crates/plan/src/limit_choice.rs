//! Form of a limit as text. Names of values are declared with their types, by `tonnage_units::names!`.

use std::str::FromStr;

use crate::point::LimitChoice;
use crate::refuse::usage;
use tonnage_units::BytesPerSecond;
use tonnage_units::names::quote;
use tonnage_units::{Error, Result};

impl FromStr for LimitChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => match text.parse() {
                Ok(BytesPerSecond(bytes_per_s)) if bytes_per_s > 0.0 => {
                    Ok(Self::Stated { bytes_per_s })
                }
                _ => usage(format!(
                    "{} is not a limit: write auto, none or a bandwidth above 0 such as 12.5GB/s or 100Gb/s",
                    quote(text)
                )),
            },
        }
    }
}

impl std::fmt::Display for LimitChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Stated { bytes_per_s } => BytesPerSecond(*bytes_per_s).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::Verb;
    use tonnage_units::names::nearest;

    use super::*;
    use crate::fixture::Holds;
    use crate::point::Traffic;
    use crate::transfer::Addresses;

    fn message<T: FromStr<Err = Error> + std::fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn names_read_back() {
        assert!(
            Verb::ALL
                .iter()
                .all(|verb| verb.name().parse::<Verb>().unwrap() == *verb)
        );
        assert!(
            Traffic::ALL
                .iter()
                .all(|all| all.name().parse::<Traffic>().unwrap() == *all)
        );
        for addresses in Addresses::ALL {
            assert_eq!(addresses.name().parse::<Addresses>().unwrap(), addresses);
            assert_eq!(serde_json::to_value(addresses).unwrap(), addresses.name());
        }
        for text in ["auto", "none", "12.5GB/s", "3MB/s"] {
            assert_eq!(text.parse::<LimitChoice>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_one() {
        assert_eq!(
            message::<Verb>("wirte"),
            "unknown op \"wirte\": did you mean \"write\"? ops: write, write-imm, read, send, fetch-add, compare-swap"
        );
        assert!(message::<Verb>("write_imm").contains("did you mean \"write-imm\"?"));
        assert!(message::<Verb>("READ").contains("did you mean \"read\"?"));
        assert!(message::<Verb>("teleport").starts_with("unknown op \"teleport\": ops: write"));
        assert!(message::<Traffic>("fanout").contains("did you mean \"fan-out\"?"));
        assert!(message::<Traffic>("all").contains("did you mean \"all-to-all\"?"));
        assert!(message::<Addresses>("rand").contains("did you mean \"random\"?"));
        message::<LimitChoice>("0GB/s").holds("write auto, none or a bandwidth above 0");
    }

    #[test]
    fn nothing_is_near_a_very_long_name() {
        assert_eq!(nearest(&"write".repeat(1000), &["write"]), None);
    }
}

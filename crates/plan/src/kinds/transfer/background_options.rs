//! Options of a background.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use serde::{Deserialize, Serialize, Serializer};

use super::background::Background;
use crate::options::{Group, Many, text, with_default};
use tonnage_units::{Error, PerSecond, Result};

/// Rate of a background.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BackgroundRate {
    /// Operations per second of each initiating rank.
    PerSecond(PerSecond),
    /// As many as its window carries.
    Full,
}

/// Word for a background without a rate.
const FULL: &str = "full";

impl FromStr for BackgroundRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            FULL => Ok(Self::Full),
            _ => text.parse().map(Self::PerSecond),
        }
    }
}

impl fmt::Display for BackgroundRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Full => f.write_str(FULL),
        }
    }
}

impl Serialize for BackgroundRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Load beside a latency.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Background", mut_args = with_default::<Self>)]
pub struct BackgroundOptions {
    /// Load beside a ping-pong or a rate, from workers of its own: op=write,size=1M,window=8,pair=same are its keys and
    /// their defaults. Each trial measures the latency without it and with it. pair=other loads the way of each
    /// initiator to the next one's target, workers=N takes the last N workers of a rank.
    #[arg(long, value_name = "KEY=VALUE,...")]
    #[serde(with = "text")]
    pub background: Option<Background>,

    /// Operations per second of the background in each initiating rank; several are joined by commas, and full is what
    /// its window carries: latency over load. [default: full]
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    pub background_rate: Option<Many<BackgroundRate>>,
}

impl Group for BackgroundOptions {
    fn defaults() -> Self {
        Self::default()
    }
}

/// Workers of a rank where a background is asked for and no number is said: one for each side.
pub(super) fn workers_default(options: &BackgroundOptions) -> Option<u32> {
    let background = options.background.as_ref();
    background.map(|background| background.workers + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_or_all_that_there_is() {
        let read = |text: &str| text.parse::<BackgroundRate>().unwrap();
        assert_eq!(read("1k"), BackgroundRate::PerSecond(PerSecond(1000.0)));
        assert_eq!(read("full"), BackgroundRate::Full);
        assert_eq!(
            ["1k", "full"].map(|text| read(text).to_string()),
            ["1000", "full"]
        );
        assert!("half".parse::<BackgroundRate>().is_err());
    }
}

//! Load beside a latency: bytes that workers of their own move meanwhile, and how it is written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bounds::{DEPTH_MAX, SIZE_BYTES_MAX, WORKERS_MAX};
use crate::refuse::usage;
use tonnage_engine::Verb;
use tonnage_units::names::quote;
use tonnage_units::{Bytes, Error, Result};

tonnage_units::names! {
    /// Pairs of ranks between which a background moves its bytes.
    pub enum BackgroundPair: "background pair" {
        /// Those whose latency is measured.
        Same = "same",
        /// Each initiator goes to the target of the next one.
        Other = "other",
    }
}

/// Load that some workers of each initiating rank put on the paths beside a latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Operation.
    pub op: Verb,
    /// Payload bytes of one operation.
    pub size_bytes: u32,
    /// Operations in flight on each lane.
    pub window: u32,
    /// Pairs of ranks.
    pub pair: BackgroundPair,
    /// Workers of each rank that move it, the last ones.
    pub workers: u32,
    /// Operations per second of each initiating rank; as many as it can without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
}

/// `op=write,size=1M,window=8,pair=same`, with the workers where there are several.
impl fmt::Display for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, size) = (self.op.name(), Bytes(self.size_bytes.into()));
        let pair = self.pair.name();
        write!(f, "op={op},size={size},window={},pair={pair}", self.window)?;
        match self.workers {
            1 => Ok(()),
            workers => write!(f, ",workers={workers}"),
        }
    }
}

const KEYS: &str = "op, size, window, pair and workers";

impl FromStr for Background {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut read = Self {
            op: Verb::Write,
            size_bytes: 1 << 20,
            window: 8,
            pair: BackgroundPair::Same,
            workers: 1,
            rate_per_s: None,
        };
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',') {
            let Some((key, value)) = part.split_once('=') else {
                return usage(format!(
                    "{} is no part of a background: write KEY=VALUE, with {KEYS} as keys, such as \
                     op=write,size=1M,window=8,pair=same",
                    quote(part)
                ));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return usage(format!("{} is said twice of one background", quote(key)));
            }
            seen.push(key);
            match key {
                "op" => read.op = value.parse()?,
                "size" => {
                    let Bytes(bytes) = value.parse()?;
                    read.size_bytes = bounded((key, bytes), SIZE_BYTES_MAX)?;
                }
                "window" => read.window = bounded((key, count(key, value)?), DEPTH_MAX)?,
                "pair" => read.pair = value.parse()?,
                "workers" => {
                    let most = WORKERS_MAX - 1;
                    read.workers = bounded((key, count(key, value)?), most)?;
                }
                _ => {
                    return usage(format!(
                        "{} is no key of a background: use {KEYS}",
                        quote(key)
                    ));
                }
            }
        }
        Ok(read)
    }
}

fn count(key: &str, value: &str) -> Result<u64> {
    let wrong = |_| {
        Error::Usage(format!(
            "{key}={} of a background is no count",
            quote(value)
        ))
    };
    value.parse().map_err(wrong)
}

fn bounded((key, value): (&str, u64), most: u32) -> Result<u32> {
    match u32::try_from(value) {
        Ok(narrow) if (1..=most).contains(&narrow) => Ok(narrow),
        _ if key == "size" => usage(format!(
            "size={} of a background is out of range: it is from 1 to {}",
            Bytes(value),
            Bytes(most.into())
        )),
        _ => usage(format!(
            "{key}={value} of a background is out of range: it is from 1 to {most}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_written_as_it_is_read() {
        let defaults: Background = "op=write".parse().unwrap();
        assert_eq!(defaults.to_string(), "op=write,size=1M,window=8,pair=same");
        for text in [
            "op=read,size=64k,window=1,pair=other",
            "op=send,size=1000,window=64,pair=same,workers=3",
        ] {
            let read: Background = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let spaced: Background = "size = 4k, pair = other".parse().unwrap();
        assert_eq!(
            (spaced.size_bytes, spaced.pair),
            (4096, BackgroundPair::Other)
        );
    }
}

//! Latency figures of a record, and the encoded form of its histogram.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tonnage_units::histogram::{HDR_BYTES_MAX, LatencyHistogram, LowerBounds};
use tonnage_units::{Error, Result};

/// Value of [`HistogramData::encoding`].
const ENCODING: &str = "hdr-v2-base64";
/// Value of [`HistogramData::unit`].
const UNIT: &str = "ns";
/// Kind of a latency sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LatencyKind {
    /// Post to completion of one operation, at the initiator.
    Operation,
    /// First post to last completion of one batch.
    Batch,
    /// Half the round trip of a ping-pong in which each side waits for data to arrive.
    OneWay,
    /// From the time when an operation was due to its completion.
    Response,
    /// One step of setting up a thread's connections.
    Step,
    /// One call of a collective, on its slowest rank.
    Call,
}

/// Latency over all operations of all trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Kind of one sample.
    pub kind: LatencyKind,
    /// True if the written bytes are in the peer's memory when a sample ends. Absent for reads and ping-pongs, because
    /// their bytes have always arrived by then. Also absent for engines that move nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<bool>,
    /// Number of samples.
    pub samples: u64,
    /// Minimum.
    pub latency_ns_min: u64,
    /// Mean over all samples.
    pub latency_ns_mean: f64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 90th percentile.
    pub latency_ns_p90: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Exact maximum, even beyond the histogram's range.
    pub latency_ns_max: u64,
    /// Marks some of these figures as lower bounds; absent if all figures are exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bounds: Option<LowerBounds>,
}

impl Latency {
    /// Computes the figures of a histogram; `None` if it is empty.
    pub fn summarize(histogram: &LatencyHistogram, kind: LatencyKind) -> Option<Self> {
        Some(Self {
            kind,
            delivered: None,
            samples: histogram.count(),
            latency_ns_min: histogram.min_ns()?,
            latency_ns_mean: histogram.mean_ns()?,
            latency_ns_p50: histogram.quantile_ns(0.5)?,
            latency_ns_p90: histogram.quantile_ns(0.9)?,
            latency_ns_p99: histogram.quantile_ns(0.99)?,
            latency_ns_p999: histogram.quantile_ns(0.999)?,
            latency_ns_max: histogram.max_ns()?,
            lower_bounds: histogram.lower_bounds(),
        })
    }
}

/// A histogram in the standard HdrHistogram V2 encoding, as base64. Any HdrHistogram library can read and merge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramData {
    /// Encoding of the data: "hdr-v2-base64".
    pub encoding: String,
    /// Unit of the values: "ns".
    pub unit: String,
    /// The encoded histogram.
    pub data: String,
}

impl HistogramData {
    /// Encodes a histogram for a record.
    pub fn from_histogram(histogram: &LatencyHistogram) -> Self {
        Self {
            encoding: ENCODING.to_owned(),
            unit: UNIT.to_owned(),
            data: STANDARD.encode(histogram.to_hdr()),
        }
    }

    /// Decodes the histogram. Its minimum, maximum and mean are exact to three significant digits only.
    ///
    /// # Errors
    /// If the encoding, unit or shape differs, or the data are damaged.
    pub fn to_histogram(&self) -> Result<LatencyHistogram> {
        if self.encoding != ENCODING || self.unit != UNIT {
            return Err(Error::Failed(format!(
                "a histogram is in encoding {:?} and unit {:?}; this tonnage reads {ENCODING:?} in {UNIT:?}",
                self.encoding, self.unit
            )));
        }
        let base64_bytes_max = HDR_BYTES_MAX.div_ceil(3) * 4;
        let bytes = if self.data.len() > base64_bytes_max {
            None
        } else {
            STANDARD.decode(&self.data).ok()
        };
        let bytes =
            bytes.ok_or_else(|| Error::Failed("a histogram's data is not base64".to_owned()))?;
        LatencyHistogram::from_hdr(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_units::histogram::ENCODED_BYTES_MAX;

    fn of(latencies_ns: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for &latency_ns in latencies_ns {
            histogram.record(latency_ns);
        }
        histogram
    }

    #[test]
    fn percentiles_of_1_to_1000_have_known_values() {
        let all: Vec<u64> = (1..=1000).collect();
        let found = Latency::summarize(&of(&all), LatencyKind::Batch).unwrap();
        let expected = Latency {
            kind: LatencyKind::Batch,
            delivered: None,
            samples: 1000,
            latency_ns_min: 1,
            latency_ns_mean: 500.5,
            latency_ns_p50: 500,
            latency_ns_p90: 900,
            latency_ns_p99: 990,
            latency_ns_p999: 999,
            latency_ns_max: 1000,
            lower_bounds: None,
        };
        assert_eq!(found, expected);
        assert_eq!(
            Latency::summarize(&LatencyHistogram::new(), LatencyKind::Batch),
            None
        );
    }

    #[test]
    fn percentiles_in_the_last_bin_are_lower_bounds_and_the_largest_is_exact() {
        let found = of(&[vec![1000; 95], vec![90_000_000_000; 5]].concat());
        let found = Latency::summarize(&found, LatencyKind::Response).unwrap();
        let bounds = found.lower_bounds.unwrap();
        assert!(!bounds.has_percentile(found.latency_ns_p90));
        assert!(bounds.has_percentile(found.latency_ns_p99));
        assert!((59_900_000_000..=60_000_000_000).contains(&found.latency_ns_p99));
        assert_eq!(
            (bounds.has_extremes(), found.latency_ns_max),
            (false, 90_000_000_000)
        );
        assert_eq!(of(&[59_999_999_999]).lower_bounds(), None);
    }

    #[test]
    fn a_record_names_the_encoding_of_its_histogram() {
        let histogram = of(&[100, 200, 123_456, 7_000_000]);
        let data = HistogramData::from_histogram(&histogram);
        assert_eq!(
            (data.encoding.as_str(), data.unit.as_str()),
            ("hdr-v2-base64", "ns")
        );
        assert_eq!(data.to_histogram().unwrap().to_hdr(), histogram.to_hdr());
    }

    #[test]
    fn foreign_or_damaged_data_is_refused() {
        let good = HistogramData::from_histogram(&of(&[1, 2, 3]));
        let changes: [fn(&mut HistogramData); 6] = [
            |it| it.encoding = "hdr-v1".into(),
            |it| it.unit = "us".into(),
            |it| it.data = "?".into(),
            |it| it.data.clear(),
            |it| it.data += "AAAA",
            |it| it.data = "A".repeat(2 * ENCODED_BYTES_MAX),
        ];
        for change in changes {
            let mut data = good.clone();
            change(&mut data);
            assert!(data.to_histogram().is_err(), "{data:?}");
        }
    }

    #[test]
    fn texts_up_to_the_longest_are_read() {
        let why = |bytes: usize| {
            let data = "A".repeat(bytes);
            let data = HistogramData {
                data,
                ..HistogramData::from_histogram(&of(&[1]))
            };
            data.to_histogram().unwrap_err().to_string()
        };
        let most = HDR_BYTES_MAX.div_ceil(3) * 4;
        assert!(!why(most).contains("base64"), "{}", why(most));
        assert!(why(most + 4).contains("base64"));
    }
}

//! Merges the latencies of all ranks, by the control tree on the way to its root.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_ranks::Rank;
use tonnage_units::histogram::{LatencyHistogram, merge_encoded};
use tonnage_units::{Reduce, Result};

/// A histogram in its own encoding. The decoder checks all bytes. If a part cannot be decoded, the sum becomes empty.
/// Decoding the sum then fails, instead of giving a wrong result.
#[derive(Serialize, Deserialize)]
struct EncodedHistogram(Vec<u8>);

impl Reduce for EncodedHistogram {
    fn merge(&mut self, other: Self) {
        // A sum that is empty stays empty.
        if self.0.is_empty() || merge_encoded(&mut self.0, &other.0).is_err() {
            self.0.clear();
        }
    }
}

/// Merges the latencies of all ranks.
pub(crate) fn merge_all(
    rank: &mut Rank,
    what: &str,
    mine: &LatencyHistogram,
    deadline: Duration,
) -> Result<LatencyHistogram> {
    let EncodedHistogram(all) = rank.reduce(what, EncodedHistogram(mine.encode()), deadline)?;
    LatencyHistogram::decode(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(latencies_ns: &[u64]) -> EncodedHistogram {
        let mut histogram = LatencyHistogram::new();
        latencies_ns.iter().for_each(|&ns| histogram.record(ns));
        EncodedHistogram(histogram.encode())
    }

    #[test]
    fn an_undecodable_part_invalidates_the_sum() {
        let mut sum = encoded(&[1, 5]);
        sum.merge(encoded(&[900]));
        assert_eq!(LatencyHistogram::decode(&sum.0).unwrap().count(), 3);
        sum.merge(EncodedHistogram(b"garbage".to_vec()));
        sum.merge(encoded(&[7]));
        assert!(LatencyHistogram::decode(&sum.0).is_err());
    }
}

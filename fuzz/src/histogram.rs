//! Any bytes are an encoded histogram or are refused. A histogram that was read must encode to the same bytes, its
//! quantiles must not fall, and adding it to itself must double it.
use tonnage_record::HistogramData;
use tonnage_units::histogram::{LatencyHistogram, merge_encoded};

pub fn try_input(data: &[u8]) {
    let Ok(histogram) = LatencyHistogram::decode(data) else {
        return;
    };
    let encoded = histogram.encode();
    let again = LatencyHistogram::decode(&encoded).expect("what was encoded can be decoded");
    assert_eq!(again.encode(), encoded);
    let quantiles = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|part| histogram.quantile_ns(part));
    assert!(quantiles.is_sorted());
    assert!(quantiles[0] >= histogram.min_ns() && quantiles[5] <= histogram.max_ns());
    let kept = HistogramData::from_histogram(&histogram)
        .to_histogram()
        .expect("what is kept can be read");
    assert_eq!(kept.count(), histogram.count());
    let mut sum = encoded.clone();
    merge_encoded(&mut sum, &encoded).expect("it can be added to itself");
    // Encoded histograms can always be added, but decoding refuses a count that no run can reach.
    if let Ok(sum) = LatencyHistogram::decode(&sum) {
        assert_eq!(sum.count(), 2 * histogram.count());
        assert_eq!(
            (sum.min_ns(), sum.max_ns()),
            (histogram.min_ns(), histogram.max_ns())
        );
    }
}

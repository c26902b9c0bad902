//! Tests of histograms.

use proptest::prelude::*;

use super::*;

fn of(latencies_ns: &[u64]) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for &latency_ns in latencies_ns {
        histogram.record(latency_ns);
    }
    histogram
}

fn same(left: &LatencyHistogram, right: &LatencyHistogram) -> bool {
    left.exact == right.exact && left.index_counts().eq(right.index_counts())
}

#[test]
fn percentiles_stay_within_three_digits_and_the_extremes() {
    let one = of(&[123_456_789]);
    assert_eq!(
        (one.quantile_ns(0.5), one.max_ns()),
        (Some(123_456_789), Some(123_456_789))
    );
    let histogram = of(&[1_000_000, 2_345_678, 9_000_000]);
    let median = histogram.quantile_ns(0.5).unwrap();
    assert!(median.abs_diff(2_345_678) * 1000 <= 2_345_678, "{median}");
}

#[test]
fn nothing_is_lost_beyond_the_range() {
    let hour_ns = 3_600_000_000_000;
    let histogram = of(&[0, 1, hour_ns, u64::MAX]);
    assert_eq!(histogram.count(), 4);
    assert_eq!(
        (histogram.min_ns(), histogram.max_ns()),
        (Some(0), Some(u64::MAX))
    );
    assert_eq!(
        of(&[hour_ns, hour_ns + 2]).mean_ns(),
        Some(hour_ns as f64 + 1.0)
    );
    // The quantile lies in the last bin, so it is a lower bound: the lower end of that bin.
    let last_ns = hdr_v2::value_of(hdr_v2::index_of(hdr_v2::HIGH_NS));
    assert_eq!(histogram.quantile_ns(0.75), Some(last_ns));
    assert!(same(
        &LatencyHistogram::decode(&histogram.encode()).unwrap(),
        &histogram
    ));
}

fn waits(count: u64, shortest_ns: u64, longest_ns: u64) -> Unfinished {
    Unfinished {
        count,
        shortest_ns,
        longest_ns,
    }
}

proptest! {
    /// The result is as if each wait had been recorded individually.
    #[test]
    fn waits_are_evenly_spaced(
        count in 1u64..300,
        shortest_ns in 0u64..3_000_000_000,
        span_ns in prop_oneof![Just(0), 1u64..5000, 1u64..100_000_000_000],
    ) {
        let span_ns = if count == 1 { 0 } else { span_ns };
        let step = |at: u64| (u128::from(at) * u128::from(span_ns)).div_ceil(u128::from(count.max(2) - 1));
        let each: Vec<u64> = (0..count).map(|at| shortest_ns + step(at) as u64).collect();
        let mut together = LatencyHistogram::new();
        together.record_unfinished(&waits(count, shortest_ns, shortest_ns + span_ns));
        prop_assert!(together.index_counts().eq(of(&each).index_counts()));
        prop_assert_eq!((together.count(), together.unfinished()), (count, count));
        let mean_ns = shortest_ns as f64 + span_ns as f64 / 2.0;
        prop_assert!((together.mean_ns().unwrap() - mean_ns).abs() <= 1.0);
        prop_assert!(same(&LatencyHistogram::decode(&together.encode()).unwrap(), &together));
    }
}

/// 985 operations ended after 10 ns, 5 after 2 s, and 10 were unfinished after 1 s or more.
#[test]
fn figures_that_rest_on_waits_are_lower_bounds() {
    let mut histogram = of(&[vec![10; 985], vec![2_000_000_000; 5]].concat());
    assert_eq!(histogram.lower_bounds(), None);
    let mut others = LatencyHistogram::new();
    others.record_unfinished(&waits(0, 0, 0));
    assert!(same(&others, &LatencyHistogram::new()));
    others.record_unfinished(&waits(10, 1_000_000_000, 3_000_000_000));
    let mut sent = others.encode();
    merge_encoded(&mut sent, &LatencyHistogram::new().encode()).unwrap();
    histogram.merge_encoded(&sent).unwrap();
    let [p50, p90, p99, p999] =
        [0.5, 0.9, 0.99, 0.999].map(|it| histogram.quantile_ns(it).unwrap());
    let bounds = histogram.lower_bounds().unwrap();
    assert!(bounds.has_extremes() && bounds.unfinished == 10);
    // The ten unfinished operations cannot change these percentiles, because 985 of 1000 operations were faster.
    assert!(!bounds.has_percentile(p50) && !bounds.has_percentile(p90));
    // p99 and p99.9 depend on the true latencies of the ten, which may be below or above 2 s.
    for bound_ns in [p99, p999] {
        assert!(bounds.has_percentile(bound_ns), "{bound_ns}: {bounds:?}");
    }
    // p99 is the wait of the fifth unfinished operation, rounded down to its bin.
    let fifth_ns = 1_000_000_000 + 4 * 2_000_000_000 / 9;
    assert!(
        p99 <= fifth_ns && (fifth_ns - p99) * 1000 <= fifth_ns,
        "{p99}"
    );
    assert_eq!(histogram.max_ns(), Some(3_000_000_000));
    histogram.clear();
    assert!(same(&histogram, &LatencyHistogram::new()));
}

#[test]
fn figures_that_contradict_the_bins_are_refused() {
    let good = of(&[10, 20, 30]).encode();
    for (at, what) in [(7, "count"), (15, "minimum"), (23, "maximum"), (38, "sum")] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        assert!(LatencyHistogram::decode(&bad).is_err(), "a wrong {what}");
    }
}

/// Decoding refuses exactly those figures that contradict the others.
#[test]
fn each_figure_has_its_bounds() {
    let good = of(&[10, 20, 30]);
    let refused = |change: fn(&mut ExactFigures)| {
        let mut changed = good.clone();
        change(&mut changed.exact);
        LatencyHistogram::decode(&changed.encode()).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(!refused(|exact| exact.sum_ns = 30) && !refused(|exact| exact.sum_ns = 90));
    assert!(refused(|exact| exact.sum_ns = 29) && refused(|exact| exact.sum_ns = 91));
    assert!(refused(|exact| exact.count = 4) && refused(|exact| exact.count = 2));
    assert!(refused(|exact| exact.min_ns = 9) && refused(|exact| exact.min_ns = 11));
    assert!(refused(|exact| exact.max_ns = 31) && refused(|exact| exact.max_ns = 29));
    assert!(
        refused(|exact| exact.unfinished = 1) && refused(|exact| exact.least_unfinished_ns = 20)
    );
    let unfinished = |count, least_ns| {
        let mut changed = good.clone();
        (changed.exact.unfinished, changed.exact.least_unfinished_ns) = (count, least_ns);
        LatencyHistogram::decode(&changed.encode()).is_ok()
    };
    assert!(unfinished(3, 10) && unfinished(1, 30));
    assert!(!unfinished(4, 10) && !unfinished(1, 9) && !unfinished(1, 31));
    // Minimum and maximum fall into the same bin, so only the sum shows that the minimum exceeds the maximum.
    let mut one = of(&[1_000_001]);
    one.exact.min_ns = 1_000_002;
    assert!(LatencyHistogram::decode(&one.encode()).is_err());
}

#[test]
fn an_empty_histogram_has_no_figures() {
    let none = LatencyHistogram::default();
    assert_eq!(
        (none.count(), none.min_ns(), none.max_ns()),
        (0, None, None)
    );
    assert_eq!((none.mean_ns(), none.quantile_ns(0.5)), (None, None));
    assert_eq!(none.recorded_bins().count(), 0);
}

#[test]
fn counts_of_bins_are_added_with_their_exact_figures() {
    let mut bins = vec![0; hdr_v2::BINS];
    bins[10] = 2;
    bins[hdr_v2::index_of(1_000_000)] = 1;
    let binned = BinnedLatencies {
        bins,
        samples: 3,
        min_ns: 10,
        max_ns: 1_000_001,
        sum_ns: 1_000_021,
    };
    let mut sum = of(&[5]);
    sum.merge_binned(&binned);
    assert!(same(&sum, &of(&[5, 10, 10, 1_000_001])));
    // Merging a set without samples must not change the extremes.
    sum.merge_binned(&BinnedLatencies::default());
    assert!(same(&sum, &of(&[5, 10, 10, 1_000_001])));
}

#[test]
fn the_growth_of_counts_is_added() {
    let mut sum = of(&[5]);
    // The earlier counts had only three bins, and the third of these has not grown.
    sum.add_counts(&[0, 7, 3, 4], &[0, 5, 3]);
    assert!(same(&sum, &of(&[5, 1, 1, 3, 3, 3, 3])));
    let recorded: Vec<_> = sum.recorded_bins().collect();
    assert_eq!(recorded, [(1, 2), (3, 4), (5, 1)]);
    // Values beyond the range are counted in the last bin.
    let last = vec![0; hdr_v2::BINS - 1]
        .into_iter()
        .chain([1])
        .collect::<Vec<_>>();
    sum.clear();
    sum.add_counts(&last, &[]);
    assert_eq!(sum.max_ns(), Some(hdr_v2::HIGH_NS));
}

#[test]
fn encoded_histograms_merge_like_histograms() {
    let mut sum = Vec::new();
    for part in [&[1, 5, 900][..], &[], &[70_000_000_000, 5]] {
        merge_encoded(&mut sum, &of(part).encode()).unwrap();
    }
    let whole = of(&[1, 5, 900, 70_000_000_000, 5]);
    assert!(same(&LatencyHistogram::decode(&sum).unwrap(), &whole));
    let before = sum.clone();
    assert!(merge_encoded(&mut sum, b"garbage").is_err());
    assert_eq!(sum, before);
}

#[test]
fn the_standard_encoding_keeps_three_digits() {
    let histogram = of(&[100, 200, 123_456, 7_000_000]);
    let back = LatencyHistogram::from_hdr(&histogram.to_hdr()).unwrap();
    assert!(back.index_counts().eq(histogram.index_counts()));
    assert_eq!((back.count(), back.min_ns()), (4, Some(100)));
    let often = of(&[7, 7, 7, 100]);
    let back_often = LatencyHistogram::from_hdr(&often.to_hdr()).unwrap();
    assert!(same(&back_often, &often));
    let (mean, exact) = (back.mean_ns().unwrap(), histogram.mean_ns().unwrap());
    assert!((mean - exact).abs() < exact / 1000.0, "{mean} {exact}");
}

#[test]
fn latencies_of_lanes_add_up_and_empty_ones_change_nothing() {
    let of = |bins: &[u64], [samples, min_ns, max_ns, sum_ns]: [u64; 4]| BinnedLatencies {
        bins: bins.to_vec(),
        samples,
        min_ns,
        max_ns,
        sum_ns,
    };
    let mut all = BinnedLatencies::default();
    all.merge(&of(&[0, 0], [0, u64::MAX, 0, 0]));
    all.merge(&of(&[1, 2], [3, 5, 9, 20]));
    all.merge(&of(&[0, 1], [1, 7, 11, 11]));
    assert_eq!(all, of(&[1, 3], [4, 5, 11, 31]));
}

proptest! {
    #[test]
    fn garbage_is_refused_and_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(LatencyHistogram::decode(&bytes).is_err());
    }

    #[test]
    fn damaged_bytes_never_panic(
        latencies in prop::collection::vec(any::<u64>(), 0..60), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = of(&latencies).encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(mut histogram) = LatencyHistogram::decode(&bytes) {
            let copy = histogram.clone();
            histogram.merge(&copy);
            prop_assert!(histogram.quantile_ns(0.5).is_some() || latencies.is_empty());
            prop_assert!(LatencyHistogram::from_hdr(&histogram.to_hdr()).is_ok());
        }
    }

    #[test]
    fn merging_is_recording_both(
        left in prop::collection::vec(any::<u64>(), 0..60), right in prop::collection::vec(0..1_000_000u64, 0..60),
    ) {
        let mut merged = of(&left);
        merged.merge(&of(&right));
        let whole = of(&[left, right].concat());
        prop_assert_eq!(merged.exact, whole.exact);
        prop_assert_eq!(merged.index_counts().collect::<Vec<_>>(), whole.index_counts().collect::<Vec<_>>());
        prop_assert_eq!(merged.encode(), whole.encode());
        prop_assert!(merged.encode().len() <= ENCODED_BYTES_MAX);
    }
}

//! Compares the statistics with stored SciPy results, and with simulations of known outcome.

use serde_json::Value;
use statrs::distribution::{ContinuousCDF, Normal};

use crate::correction::adjust_p_values;
use crate::criteria::{Criteria, PointVerdict};
use crate::estimate::Estimate;
use crate::welch::{LogSummary, Welch};
use tonnage_record::figures::Better;

fn stored() -> Value {
    serde_json::from_str(include_str!("testdata/welch.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    let all = value.as_array().unwrap().iter();
    all.map(|value| value.as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_near(what: &str, found: f64, expected: &Value) {
    let expected = expected.as_f64().unwrap();
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs(),
        "{what}: {found}, not {expected}"
    );
}

fn welch(set: &Value) -> Welch {
    let [a, b] = ["a", "b"].map(|side| LogSummary::from_values(&numbers(&set[side])).unwrap());
    Welch::new(&a, &b)
}

#[test]
fn figures_are_those_of_scipy() {
    let stored = stored();
    let sets = stored["sets"].as_array().unwrap();
    assert_eq!(sets.len(), 20);
    for set in sets {
        let found = welch(set);
        assert_near("t", found.t(), &set["t"]);
        assert_near("freedom", found.freedom, &set["freedom"]);
        assert_near("p", found.p(), &set["p"]);
        assert_near("ratio", found.difference.exp(), &set["ratio"]);
        for (confidence, ends) in set["intervals"].as_object().unwrap() {
            let (low, high) = found.interval(confidence.parse().unwrap());
            assert_near("low", low.exp(), &ends[0]);
            assert_near("high", high.exp(), &ends[1]);
        }
    }
    let p: Vec<f64> = sets.iter().map(|set| welch(set).p()).collect();
    let expected = stored["adjusted"].as_array().unwrap();
    for (found, expected) in adjust_p_values(&p).into_iter().zip(expected) {
        assert_near("adjusted p", found, expected);
    }
}

/// Seeded random values with normally distributed logarithms.
pub(crate) struct NormalSource(pub(crate) u64);

impl NormalSource {
    fn uniform(&mut self) -> f64 {
        // SplitMix64; its upper bits pass the usual tests.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn runs(&mut self, count: usize, mean: f64, spread: f64) -> Vec<f64> {
        let normal = Normal::new(0.0, spread).unwrap();
        let values = (0..count).map(|_| mean * normal.inverse_cdf(self.uniform()).exp());
        values.collect()
    }
}

/// Returns the fraction of 2,000 comparisons with this verdict: 100 files of 20 points, with `runs` runs per side.
fn part(verdict: PointVerdict, runs: usize, ratio: f64, spread: f64) -> f64 {
    let criteria = Criteria::default();
    let mut source = NormalSource(18);
    let mut found = 0;
    for _ in 0..100 {
        let estimates: Vec<Estimate> = (0..20)
            .map(|_| {
                let a = source.runs(runs, 1e10, spread);
                let b = source.runs(runs, 1e10 * ratio, spread);
                Estimate::new(&a, &b, &criteria).unwrap()
            })
            .collect();
        let p: Vec<f64> = estimates.iter().map(|estimate| estimate.p).collect();
        let verdicts = estimates
            .iter()
            .zip(adjust_p_values(&p))
            .map(|(estimate, p)| estimate.verdict(p, Better::High, &criteria));
        found += verdicts.filter(|it| *it == verdict).count();
    }
    found as f64 / 2000.0
}

/// The spreads include those of real machines: runs vary by 1 % to 10 %, and by more on shared machines.
#[test]
fn equal_sides_are_hardly_ever_worse() {
    for spread in [0.003, 0.01, 0.03, 0.1, 0.3] {
        let worse = part(PointVerdict::Worse, 7, 1.0, spread);
        assert!(worse <= 0.01, "{worse} at a spread of {spread}");
    }
    // If runs vary little, the verdict is *same*.
    let same = part(PointVerdict::Same, 7, 1.0, 0.01);
    assert!(same >= 0.99, "{same}");
}

/// *Worse* requires that the whole interval is below -5 %. 7 runs achieve this in 9 of 10 cases, the 11 runs of
/// `tonnage ab` nearly always.
#[test]
fn a_tenth_less_is_found() {
    let found = part(PointVerdict::Worse, 11, 0.9, 0.03);
    assert!(found >= 0.95, "{found}");
    let found = part(PointVerdict::Worse, 7, 0.9, 0.03);
    assert!((0.8..0.95).contains(&found), "{found}");
    // Higher is better here, so an increase of 10 % is never worse.
    assert_eq!(part(PointVerdict::Worse, 11, 1.1, 0.03), 0.0);
}

#[test]
fn two_percent_less_is_not_worse_under_a_margin_of_five() {
    for spread in [0.003, 0.01, 0.03, 0.1] {
        let worse = part(PointVerdict::Worse, 7, 0.98, spread);
        assert!(worse <= 0.01, "{worse} at a spread of {spread}");
    }
}

//! Results are the same in any order, and depend on each rank as often as `share` states.

use proptest::prelude::*;

use super::super::balanced::{is_exact, round};
use super::super::hash::mix;
use super::super::share;
use super::arithmetic::{Average, reduce};
use super::{RANKS, all_kinds, all_reduce, expected, input};
use crate::{Dtype, Reduction};

/// Picks two indices below `left`. Depending on `order`: the first and last, two neighbours, or two random ones.
fn picker(order: u64) -> impl FnMut(usize) -> (usize, usize) {
    let mut state = order;
    move |left| {
        state = mix(state.wrapping_add(1));
        let one = (state >> 8) as usize % left;
        match order % 4 {
            0 => (0, left - 1),
            1 => (one, (one + 1) % left),
            _ => (one, (one + 1 + (state >> 40) as usize % (left - 1)) % left),
        }
    }
}

/// Methods that must compute exact averages of this type.
fn averages(dtype: Dtype, reduction: Reduction, ranks: u32) -> Vec<Average> {
    let is_integer = matches!(
        dtype,
        Dtype::Int8 | Dtype::Uint8 | Dtype::Int32 | Dtype::Int64
    );
    match reduction {
        Reduction::Avg if is_integer => {
            let divides = share::deciding_share(dtype, reduction, ranks) > 0.0;
            let parts = divides.then_some(Average::DivideParts);
            parts.into_iter().chain([Average::DivideSum]).collect()
        }
        // The inverse is not a normal float16, so multiplication by it would be rounded too much.
        Reduction::Avg if dtype == Dtype::Float16 && ranks > 1 << 14 => {
            vec![Average::DivideSum, Average::DivideParts]
        }
        Reduction::Avg => Average::ALL.to_vec(),
        _ => vec![Average::DivideSum],
    }
}

fn check(dtype: Dtype, reduction: Reduction, ranks: u32, elements: u64, call: u64) {
    let data = all_reduce(dtype, reduction, ranks, elements, call);
    let inputs: Vec<_> = (0..ranks).map(|rank| input(&data, rank)).collect();
    let expected = expected(&data, 0);
    let size = dtype.bytes() as usize;
    for at in (0..elements as usize).map(|element| element * size) {
        let parts: Vec<_> = inputs.iter().map(|input| &input[at..at + size]).collect();
        for average in averages(dtype, reduction, ranks) {
            for order in 0..3 {
                let pick = picker(call * 4 + order);
                let found = reduce(dtype, (reduction, average), &parts, ranks, pick);
                assert_eq!(
                    found.as_deref(),
                    Some(&expected[at..at + size]),
                    "{dtype} {reduction} {ranks} ranks, {average:?}, byte {at}: {parts:?}"
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_order() {
    for (dtype, reduction) in all_kinds() {
        for ranks in RANKS {
            check(dtype, reduction, ranks, 40, 0);
        }
    }
}

#[test]
fn results_of_many_ranks_do_not_depend_on_the_order() {
    for (dtype, reduction) in all_kinds() {
        check(dtype, reduction, 1000, 8, 1);
        check(dtype, reduction, 8283, 4, 1);
        check(dtype, reduction, 32_768, 1, 1);
        check(dtype, reduction, 44_000, 1, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn results_of_any_number_of_ranks_do_not_depend_on_the_order(
        kind in 0usize..40, ranks in 1u32..=300, call in 0u64..1 << 40,
    ) {
        let (dtype, reduction) = all_kinds().nth(kind).unwrap();
        check(dtype, reduction, ranks, 5, call);
    }
}

/// Number of results that change if a rank's part is left out or counted twice.
fn noticed(dtype: Dtype, reduction: Reduction, ranks: u32, elements: u64, twice: bool) -> u64 {
    let data = all_reduce(dtype, reduction, ranks, elements, 3);
    let inputs: Vec<_> = (0..ranks).map(|rank| input(&data, rank)).collect();
    let expected = expected(&data, 0);
    let size = dtype.bytes() as usize;
    let changed = (0..elements as usize).filter(|element| {
        let at = element * size;
        let part = |rank: usize| &inputs[rank][at..at + size];
        let mut parts: Vec<_> = (0..inputs.len()).map(part).collect();
        let culprit = element % inputs.len();
        if twice {
            parts.push(parts[culprit]);
        } else {
            parts.remove(culprit);
        }
        let kind = (reduction, Average::DivideSum);
        let found = reduce(dtype, kind, &parts, ranks, |_| (0, 1));
        found.as_deref() != Some(&expected[at..at + size])
    });
    changed.count() as u64
}

#[test]
fn missing_and_doubled_parts_are_detected_as_often_as_stated() {
    const ELEMENTS: u64 = 200;
    let mut wrong = Vec::new();
    for (dtype, reduction) in all_kinds() {
        for ranks in RANKS.into_iter().filter(|ranks| *ranks > 1) {
            let share = share::deciding_share(dtype, reduction, ranks);
            let mean = share * ELEMENTS as f64;
            let slack = 4.0 * (mean * (1.0 - share)).sqrt();
            let missing = noticed(dtype, reduction, ranks, ELEMENTS, false) as f64;
            let twice = noticed(dtype, reduction, ranks, ELEMENTS, true) as f64;
            let idempotent = matches!(reduction, Reduction::Min | Reduction::Max);
            if missing < mean - slack || !idempotent && twice < mean - slack {
                wrong.push(format!(
                    "{dtype} {reduction} {ranks}: found {missing} omitted and {twice} repeated parts, expected {mean}"
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_rank_counts_up_to_the_limit_of_each_type() {
    let all = super::super::RANKS_MAX;
    let ranks_max = |reduction| {
        Dtype::ALL.map(|dtype| {
            let have_all = |ranks: &u32| share::deciding_share(dtype, reduction, *ranks) >= 1.0;
            (1..=all).take_while(have_all).last().unwrap_or(0)
        })
    };
    // In order of the types: float32, float64, float16, bfloat16, int8, uint8, int32, int64.
    assert_eq!(
        ranks_max(Reduction::Sum),
        [all, all, 1023, 127, 62, 126, all, all]
    );
    assert_eq!(
        ranks_max(Reduction::Prod),
        [all, all, all, all, all, 1, all, all]
    );
    assert_eq!(ranks_max(Reduction::Max), [1; 8]);
    assert_eq!(ranks_max(Reduction::Min), [1; 8]);
    assert_eq!(
        ranks_max(Reduction::Avg),
        [1986, 65_284, 40, 20, 7, 10, 32_767, all]
    );
}

#[test]
fn narrow_types_are_rounded_once() {
    // 128 / 2047 is just above the midpoint of two float16 values, by a 4096th of their distance.
    assert_eq!(
        round(Dtype::Float16, 128.0 / 2047.0),
        0.0625 + 0.0625 / 1024.0
    );
    let halfway = 1.0 + 1.0 / 256.0;
    assert_eq!(round(Dtype::Bfloat16, halfway), 1.0);
    for sign in [1.0, -1.0] {
        let more = round(Dtype::Bfloat16, sign * (halfway + 1e-12));
        assert_eq!(more, sign * (1.0 + 1.0 / 128.0));
        assert_eq!(round(Dtype::Bfloat16, sign * (halfway - 1e-12)), sign);
    }
}

#[test]
fn rounding_through_float32_matters_for_six_numbers_of_ranks() {
    let mut wrong = Vec::new();
    for ranks in 1..=1u32 << 16 {
        // 2^7 / n is the smallest average if three ranks contribute.
        let at_once = 128.0 / f64::from(ranks);
        for dtype in [Dtype::Float16, Dtype::Bfloat16] {
            if round(dtype, at_once) != round(dtype, f64::from(at_once as f32)) {
                wrong.push((dtype, ranks));
            }
        }
    }
    let six = [8283, 16_566, 33_132, 48_931, 59_205, 61_823];
    assert_eq!(wrong, six.map(|ranks| (Dtype::Float16, ranks)));
}

#[test]
fn a_product_that_rounds_to_another_number_is_not_exact() {
    assert!(is_exact(Dtype::Float32, 3, 1));
    // The inverse of 41 is rounded down so far that 41 times this inverse is not 1.
    assert_ne!(41f32 * (1.0 / 41f32), 1.0);
    assert!(!is_exact(Dtype::Float32, 41, 1));
    // 301 needs more bits than the significand of a bfloat16 has.
    assert!(!is_exact(Dtype::Bfloat16, 301, 1));
}

//! Faults of collectives that a comparison must find, and must name if possible.

use half::f16;

use super::super::compare::WrongElements;
use super::arithmetic::{Average, reduce};
use super::{Data, all_reduce, expected, input};
use crate::{Collective, Dtype, Reduction, Shape};

const ELEMENTS: u64 = 300;

fn compare(data: &Data, rank: u32, found: &[u8]) -> WrongElements {
    let mut mismatches = WrongElements::default();
    mismatches.compare(data, rank, 0, found).unwrap();
    mismatches
}

/// The result if only the parts of these ranks are combined, in this order.
fn result_of(data: &Data, ranks: &[u32]) -> Vec<u8> {
    let inputs: Vec<_> = ranks.iter().map(|rank| input(data, *rank)).collect();
    let (dtype, all) = (data.shape().dtype, data.shape().ranks);
    let size = dtype.bytes() as usize;
    let kind = (data.reduction().unwrap(), Average::DivideSum);
    let element = |at: usize| {
        let parts: Vec<_> = inputs.iter().map(|input| &input[at..at + size]).collect();
        reduce(dtype, kind, &parts, all, |_| (0, 1)).unwrap()
    };
    (0..inputs[0].len())
        .step_by(size)
        .flat_map(element)
        .collect()
}

#[test]
fn a_rank_whose_part_is_missing_is_named() {
    for (dtype, reduction) in super::all_kinds() {
        for ranks in [2, 3, 8, 13, 60] {
            let data = all_reduce(dtype, reduction, ranks, ELEMENTS, 4);
            let culprit = ranks / 2;
            let others: Vec<_> = (0..ranks).filter(|rank| *rank != culprit).collect();
            let text = compare(&data, 0, &result_of(&data, &others)).describe();
            let named = format!("(the part of rank {culprit} is missing)");
            assert!(text.contains(&named), "{dtype} {reduction} {ranks}: {text}");
        }
    }
}

#[test]
fn a_rank_whose_part_is_counted_twice_is_named() {
    for dtype in [
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Int32,
        Dtype::Int64,
    ] {
        for reduction in [Reduction::Sum, Reduction::Avg, Reduction::Prod] {
            for ranks in [2, 3, 8, 13] {
                // An integer product with one factor twice may overflow, which the test's arithmetic does not allow.
                if reduction == Reduction::Prod && dtype != Dtype::Float64 {
                    continue;
                }
                let data = all_reduce(dtype, reduction, ranks, ELEMENTS, 4);
                let culprit = ranks - 1;
                let with_twice: Vec<_> = (0..ranks).chain([culprit]).collect();
                let text = compare(&data, 0, &result_of(&data, &with_twice)).describe();
                let named = format!("(the part of rank {culprit} is counted twice)");
                assert!(text.contains(&named), "{dtype} {reduction} {ranks}: {text}");
            }
        }
    }
}

#[test]
fn a_rank_counted_in_place_of_another_is_detected() {
    for dtype in Dtype::ALL {
        let data = all_reduce(dtype, Reduction::Sum, 6, ELEMENTS, 4);
        let found = result_of(&data, &[0, 1, 1, 3, 4, 5]);
        let wrong = compare(&data, 0, &found).wrong_elements;
        assert!(wrong > ELEMENTS / 2, "{dtype}: {wrong}");
    }
}

#[test]
fn different_ranks_are_named_for_different_elements() {
    let data = all_reduce(Dtype::Float32, Reduction::Sum, 16, ELEMENTS, 4);
    let without = |culprit| {
        let others: Vec<_> = (0..16).filter(|rank| *rank != culprit).collect();
        result_of(&data, &others)
    };
    let mut found = expected(&data, 0);
    found[400..600].copy_from_slice(&without(5)[400..600]);
    found[800..1000].copy_from_slice(&without(11)[800..1000]);
    let mismatches = compare(&data, 0, &found);
    assert_eq!(mismatches.wrong_elements, 100);
    let text = mismatches.describe();
    assert!(
        text.starts_with("100 of 300 elements are wrong; rank 0, element 100: expected "),
        "{text}"
    );
    assert!(text.contains("(the part of rank 5 is missing)"), "{text}");
    assert!(text.contains("element 200: "), "{text}");
    assert!(text.contains("(the part of rank 11 is missing)"), "{text}");
}

#[test]
fn a_few_candidate_ranks_are_listed() {
    // A single element of an 8-bit type fits several explanations.
    let lists = (0..200).filter(|call| {
        let data = all_reduce(Dtype::Int8, Reduction::Sum, 4, 1, *call);
        let text = compare(&data, 0, &result_of(&data, &[0, 1, 2])).describe();
        text.contains(" or 3 is missing)")
    });
    assert!(lists.count() > 3);
}

#[test]
fn any_flipped_bit_is_found_at_its_element() {
    for (dtype, reduction) in super::all_kinds() {
        let data = all_reduce(dtype, reduction, 5, ELEMENTS, 4);
        let right = expected(&data, 0);
        for (at, bit) in [(0, 0), (right.len() / 2, 3), (right.len() - 1, 7)] {
            let mut found = right.clone();
            found[at] ^= 1 << bit;
            let mismatches = compare(&data, 0, &found);
            assert_eq!(mismatches.wrong_elements, 1);
            assert_eq!(mismatches.first[0].element, at as u64 / dtype.bytes());
        }
    }
}

#[test]
fn results_of_other_calls_seeds_and_positions_are_detected() {
    for (dtype, reduction) in super::all_kinds() {
        for ranks in [2, 16, 100] {
            let data = all_reduce(dtype, reduction, ranks, ELEMENTS, 4);
            let is_wide = dtype.bytes() >= 4;
            let least = match reduction {
                // As `plan` describes, the parts of an 8-bit average over many ranks are 0 or n.
                Reduction::Avg if dtype.bytes() == 1 => 80,
                Reduction::Prod | Reduction::Avg => 200,
                _ if is_wide => 290,
                _ => 260,
            };
            let stale = expected(&data.for_call(3), 0);
            let other = Data::new(data.shape(), reduction, 6, 4).unwrap();
            let mut shifted = expected(&data, 0);
            shifted.rotate_left(dtype.bytes() as usize);
            for found in [stale, expected(&other, 0), shifted] {
                let wrong = compare(&data, 0, &found).wrong_elements;
                assert!(wrong >= least, "{dtype} {reduction} {ranks}: {wrong}");
            }
        }
    }
}

#[test]
fn stale_unwritten_and_unreduced_outputs_are_named() {
    for (dtype, reduction) in super::all_kinds() {
        let data = all_reduce(dtype, reduction, 6, ELEMENTS, 4);
        let named = |found: &[u8], cause: &str| {
            let text = compare(&data, 0, found).describe();
            assert!(text.contains(cause), "{dtype} {reduction}: {text}");
        };
        named(
            &expected(&data.for_call(3), 0),
            "(the result of the previous call)",
        );
        named(
            &expected(&data.for_call(1), 0),
            "(the result of 3 calls ago)",
        );
        named(&input(&data, 4), "(the part of rank 4 alone)");
        let mut poison = expected(&data, 0);
        data.poison(0, 0, &mut poison).unwrap();
        let mismatches = compare(&data, 0, &poison);
        assert_eq!(mismatches.wrong_elements, ELEMENTS);
        named(&poison, "(nothing was written)");
        let right = expected(&data, 0);
        assert!(right.iter().zip(&poison).all(|(a, b)| a != b));
    }
}

#[test]
fn moved_bytes_of_others_are_named() {
    for dtype in Dtype::ALL {
        let shape = Shape {
            op: Collective::AllToAll,
            ranks: 5,
            root: 0,
            dtype,
            block: 40,
        };
        let data = Data::new(&shape, Reduction::Sum, 9, 7).unwrap();
        let block = shape.block_bytes() as usize;
        let right = expected(&data, 2);
        let named = |give: &dyn Fn(&mut [u8]), cause: &str| {
            let mut found = right.clone();
            give(&mut found[3 * block..4 * block]);
            let text = compare(&data, 2, &found).describe();
            assert!(text.contains("; rank 2, element 120: "), "{dtype}: {text}");
            assert!(text.contains(cause), "{dtype}: {text}");
        };
        let take = |rank: u32, from: usize, call| {
            let bytes = input(&data.for_call(call), rank);
            move |out: &mut [u8]| out.copy_from_slice(&bytes[from * block..][..block])
        };
        named(&take(1, 2, 7), "(bytes of rank 1)");
        named(&take(1, 2, 6), "(bytes of rank 1 of the previous call)");
        named(&take(3, 4, 7), "(bytes of block 4)");
        named(&take(3, 2, 6), "(the result of the previous call)");
        let by = 3 * dtype.bytes() as usize;
        let shifted = |out: &mut [u8]| out.copy_from_slice(&right[3 * block + by..][..block]);
        named(&shifted, "(the element 3 further on)");
    }
}

#[test]
fn nonsense_has_no_explanation() {
    let data = all_reduce(Dtype::Float32, Reduction::Sum, 4, ELEMENTS, 4);
    let mut found = expected(&data, 0);
    found[40..44].copy_from_slice(&0.125f32.to_le_bytes());
    found[48..52].copy_from_slice(&f32::NAN.to_le_bytes());
    let text = compare(&data, 0, &found).describe();
    assert!(text.contains("found 0.125;"), "{text}");
    assert!(text.ends_with("found NaN"), "{text}");
}

#[test]
fn a_large_group_is_explained_in_bounded_time() {
    let data = all_reduce(Dtype::Float16, Reduction::Sum, 44_000, 20_000, 4);
    let mut right = expected(&data, 0);
    let mut part = right.clone();
    data.input(43_210, 0, &mut part).unwrap();
    for (sum, part) in right.chunks_exact_mut(2).zip(part.chunks_exact(2)) {
        let half = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]);
        let less = half(sum) - half(part);
        sum.copy_from_slice(&less.to_le_bytes());
    }
    let mismatches = compare(&data, 0, &right);
    let share = mismatches.wrong_elements as f64 / 20_000.0;
    let stated = super::super::share::deciding_share(Dtype::Float16, Reduction::Sum, 44_000);
    assert!((share - stated).abs() < 0.01, "{share} {stated}");
    let text = mismatches.describe();
    assert!(
        text.contains("(the part of rank 43210 is missing)"),
        "{text}"
    );
}

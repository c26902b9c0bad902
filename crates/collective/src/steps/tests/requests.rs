//! Refused requests, and the length of programs.

use super::{forms, puts};
use crate::steps::{Algorithm, InPlace, MESSAGES_MAX, Program, program};
use crate::{Collective, Dtype, Reduction, Shape};

fn shape(op: Collective, ranks: u32, block: u64) -> Shape {
    Shape {
        op,
        ranks,
        root: 0,
        dtype: Dtype::Float32,
        block,
    }
}

fn of_rank(
    shape: &Shape,
    algorithm: Algorithm,
    rank: u32,
    chunk_bytes: u64,
) -> tonnage_units::Result<Program> {
    program(shape, Reduction::Sum, algorithm, rank, chunk_bytes, false)
}

#[test]
fn an_unsupported_algorithm_is_refused_listing_the_supported_ones() {
    let shape = shape(Collective::AllGather, 4, 1);
    let why = of_rank(&shape, Algorithm::Tree, 0, 64).unwrap_err();
    assert_eq!(
        why.to_string(),
        "algorithm tree does not support all-gather: choose one of ring, bruck, recursive-doubling"
    );
    assert_eq!(why.exit_code(), 2);
}

#[test]
fn only_bruck_supports_an_all_to_all_in_place() {
    let shape = shape(Collective::AllToAll, 4, 1);
    let in_place = |algorithm| program(&shape, Reduction::Sum, algorithm, 0, 64, true);
    assert!(in_place(Algorithm::Bruck).is_ok());
    let why = in_place(Algorithm::Linear).unwrap_err().to_string();
    assert!(why.contains("use --algorithm bruck"), "{why}");
}

#[test]
fn ranks_outside_of_the_group_are_refused() {
    let shape = shape(Collective::Broadcast, 4, 1);
    assert!(of_rank(&shape, Algorithm::Tree, 4, 64).is_err());
    let outside = Shape { root: 7, ..shape };
    let why = of_rank(&outside, Algorithm::Tree, 0, 64).unwrap_err();
    assert!(why.to_string().contains("root 7"), "{why}");
    let nobody = Shape { ranks: 0, ..shape };
    assert!(of_rank(&nobody, Algorithm::Tree, 0, 64).is_err());
}

#[test]
fn no_elements_make_no_steps() {
    for (op, algorithm) in forms().filter(|(op, _)| *op != Collective::Barrier) {
        for rank in 0..5 {
            let program = of_rank(&shape(op, 5, 0), algorithm, rank, 64).unwrap();
            assert!(program.steps.is_empty(), "{op} by {algorithm}");
        }
    }
}

#[test]
fn chunks_that_are_too_short_are_refused_with_one_that_fits() {
    for (op, algorithm) in forms().filter(|(op, _)| *op != Collective::Barrier) {
        let shape = shape(op, 6, 1_100_000);
        // All ranks give the same error, although some of them send only a few messages.
        let refusals =
            (0..6).map(|rank| of_rank(&shape, algorithm, rank, 3).unwrap_err().to_string());
        let refusals: Vec<String> = refusals.collect();
        assert!(
            refusals.iter().all(|why| *why == refusals[0]),
            "{refusals:?}"
        );
        let least = refusals[0].rsplit(' ').next().unwrap().parse().unwrap();
        let fits = of_rank(&shape, algorithm, 0, least).unwrap();
        assert!(
            u64::from(fits.messages) <= MESSAGES_MAX,
            "{op} by {algorithm}"
        );
        assert!(
            of_rank(&shape, algorithm, 0, least - 4).is_err(),
            "{op} by {algorithm}"
        );
    }
    let crowd = shape(Collective::AllToAll, 2_000_000, 1);
    let why = of_rank(&crowd, Algorithm::Linear, 0, 64).unwrap_err();
    assert!(why.to_string().contains("fewer ranks"), "{why}");
}

#[test]
fn chunks_are_rounded_down_to_whole_elements() {
    let shape = shape(Collective::Broadcast, 2, 100_000);
    let program = |chunk| of_rank(&shape, Algorithm::Tree, 0, chunk).unwrap();
    assert_eq!(program(4099), program(4096));
    assert_eq!(puts(&program(4099)).max(), Some(4096));
    assert_eq!(program(0), program(4));
}

#[test]
fn programs_are_short() {
    let long = shape(Collective::AllReduce, 16, 16 << 20);
    for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling] {
        let program = of_rank(&long, algorithm, 3, 64 << 10).unwrap();
        let steps = program.steps.len();
        assert!(steps < 20_000, "{algorithm}: {steps} steps");
        assert!(
            program.scratch_bytes <= 9 << 20,
            "{algorithm}: {}",
            program.scratch_bytes
        );
    }
    // A small call waits only for data, not for signals.
    let small = shape(Collective::AllReduce, 8, 2);
    let program = of_rank(&small, Algorithm::RecursiveDoubling, 5, 64 << 10).unwrap();
    assert_eq!(program.steps.len(), 9);
}

#[test]
fn program_length_is_at_most_proportional_to_the_ranks() {
    const RANKS: usize = 1000;
    for (op, algorithm) in forms() {
        let block = if op == Collective::Barrier { 0 } else { 2000 };
        let shape = shape(op, RANKS as u32, block);
        for rank in [0, 1, 511, 999] {
            let steps = of_rank(&shape, algorithm, rank, 8 << 10)
                .unwrap()
                .steps
                .len();
            let steps_max = match algorithm {
                Algorithm::Tree if op != Collective::Gather && op != Collective::Scatter => 100,
                // Each round copies each block once.
                Algorithm::Bruck => 20 * RANKS,
                _ => 6 * RANKS,
            };
            assert!(
                steps <= steps_max,
                "{op} by {algorithm}: {steps} steps of rank {rank}"
            );
        }
    }
}

#[test]
fn in_place_input_and_output_share_a_buffer() {
    let of = |op, rank| InPlace::for_rank(&shape(op, 3, 5), rank);
    let stretch = |bytes, input, output| InPlace {
        bytes,
        input,
        output,
    };
    assert_eq!(of(Collective::AllReduce, 2), stretch(20, 0, 0));
    assert_eq!(of(Collective::AllGather, 2), stretch(60, 40, 0));
    assert_eq!(of(Collective::ReduceScatter, 1), stretch(60, 0, 20));
    assert_eq!(of(Collective::Gather, 0), stretch(60, 0, 0));
    assert_eq!(of(Collective::Gather, 2), stretch(20, 0, 0));
    assert_eq!(of(Collective::Scatter, 2), stretch(20, 0, 0));
    assert_eq!(of(Collective::Broadcast, 2), stretch(20, 0, 0));
}

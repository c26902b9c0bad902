//! Bytes put, compared with theory. Factors are from the cost tables of Thakur, Rabenseifner and Gropp (2005). For
//! Bruck's all-to-all, see Bruck et al. (1997), section 3; for the additional bytes of excess ranks, see `halving`.

use super::{DTYPE, Trial, forms, puts};
use crate::steps::Algorithm;
use crate::{Collective, Reduction};

const BLOCK: u64 = 24;

fn trial(op: Collective, algorithm: Algorithm, ranks: u32, chunk_elements: u64) -> Trial {
    Trial {
        op,
        algorithm,
        ranks,
        root: if op.is_rooted() { ranks - 1 } else { 0 },
        block: if op == Collective::Barrier { 0 } else { BLOCK },
        chunk_elements,
        in_place: false,
        reduction: Reduction::Sum,
        eager_elements: 0,
        slots: 4,
    }
}

/// Number of elements that all ranks together put.
fn elements(op: Collective, algorithm: Algorithm, ranks: u32) -> u64 {
    use Collective::{AllReduce, AllToAll, Barrier, Gather, Scatter, SendRecvPairs, SendRecvRing};
    let n = u64::from(ranks);
    let core = 1 << ranks.ilog2();
    let excess = n - core;
    let rounds = u64::from(ranks.ilog2());
    let in_blocks = match (op, algorithm) {
        (Barrier, _) => 0,
        (AllReduce, Algorithm::HalvingDoubling) => 2 * (core - 1) + 2 * excess,
        (AllReduce, Algorithm::RecursiveDoubling) => core * rounds + 2 * excess,
        (AllReduce, _) => 2 * (n - 1),
        (Collective::ReduceScatter, Algorithm::HalvingDoubling) => {
            (core - 1) * n + excess * (n + 1)
        }
        (Collective::AllGather, Algorithm::RecursiveDoubling) => {
            (core - 1) * n + excess * (1 + n - 1)
        }
        // Each block is put once for each binary 1 in its distance.
        (AllToAll, Algorithm::Bruck) => {
            n * (1..n)
                .map(|distance| u64::from(distance.count_ones()))
                .sum::<u64>()
        }
        (AllToAll | Collective::ReduceScatter | Collective::AllGather, _) => n * (n - 1),
        (Gather | Scatter, Algorithm::Tree) => {
            (1..n).map(|rank| u64::from(rank.count_ones())).sum()
        }
        (SendRecvPairs, _) => n / 2,
        (SendRecvRing, _) => {
            if n > 1 {
                n
            } else {
                0
            }
        }
        (Gather | Scatter | Collective::Broadcast | Collective::Reduce, _) => n - 1,
    };
    in_blocks * BLOCK
}

#[test]
fn byte_counts_agree_with_theory() {
    for (op, algorithm) in forms() {
        for (ranks, chunk_elements) in (1..=33).zip([1, 5, 24, 1000].into_iter().cycle()) {
            let case = trial(op, algorithm, ranks, chunk_elements).case(1);
            let bytes: u64 = case.programs.iter().flat_map(puts).sum();
            let expected = elements(op, algorithm, ranks) * DTYPE.bytes();
            assert_eq!(bytes, expected, "{op} by {algorithm} over {ranks} ranks");
            let longest = case.programs.iter().flat_map(puts).max();
            assert!(longest.unwrap_or(0) <= chunk_elements * DTYPE.bytes());
        }
    }
}

/// If n divides the data evenly, each rank puts 2 (n - 1) / n of the data.
#[test]
fn no_rank_puts_more_than_its_share() {
    for ranks in [2u32, 3, 4, 6, 8, 12, 24] {
        for algorithm in [Algorithm::Ring, Algorithm::HalvingDoubling] {
            if algorithm == Algorithm::HalvingDoubling && !ranks.is_power_of_two() {
                continue;
            }
            let case = trial(Collective::AllReduce, algorithm, ranks, 4).case(1);
            let share = 2 * u64::from(ranks - 1) * BLOCK / u64::from(ranks) * DTYPE.bytes();
            for program in &case.programs {
                assert_eq!(
                    puts(program).sum::<u64>(),
                    share,
                    "{algorithm} over {ranks} ranks"
                );
            }
        }
    }
}

#[test]
fn ranks_know_whom_they_put_to_and_get_from() {
    for (op, algorithm) in forms() {
        for ranks in 1..=17 {
            let case = trial(op, algorithm, ranks, 5).case(1);
            for (rank, program) in (0..).zip(&case.programs) {
                for peer in program.puts_to() {
                    let gets_from = &case.programs[peer as usize].gets_from;
                    assert!(
                        gets_from.contains(&rank),
                        "{op} by {algorithm}: {rank} to {peer}"
                    );
                }
                for peer in &program.gets_from {
                    let puts_to = case.programs[*peer as usize].puts_to();
                    assert!(
                        puts_to.contains(&rank),
                        "{op} by {algorithm}: {peer} to {rank}"
                    );
                }
            }
        }
    }
}

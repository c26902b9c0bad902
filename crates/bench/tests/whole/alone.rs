//! Consecutive rounds don't overlap. A pair that is meant to have the path to itself really has it. Pairs of a round
//! begin only after those of the previous round have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use tonnage_plan::point::{MatrixRounds, Traffic};
use tonnage_plan::roles::Roles;
use tonnage_record::{Outcome, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::lock::lock;

use crate::runs::{Run, over, why_failed};
use crate::seen::{self, Posted};

/// Locked during a run, because the engine records the posts of only one run at a time.
static ONE_RUN: Mutex<()> = Mutex::new(());

/// Number of trials of a run.
const TRIALS: usize = 2;

/// Returns the posts of a run in their order.
fn posted(ranks: u32, lines: &str) -> Vec<Posted> {
    let table = format!(
        "[[transfer]]\nengine = 'seen'\nop = 'write'\nsizes = 64\ntrials = {TRIALS}\nwarmup = '0s'\n\
         bound = 'none'\ntrial-time = '3ms'\n{lines}"
    );
    drop(seen::take());
    let records = over(seen::LISTS).tables(ranks, &table).unwrap();
    assert_eq!(records[0].outcome, Outcome::Measured, "{records:#?}");
    seen::take()
}

/// Returns the rounds in order of their first post, each with the pairs that posted in it. If a round has posts after
/// another round has begun, the round is listed again.
fn rounds(roles: Roles, posted: &[Posted]) -> Vec<(u32, BTreeSet<Posted>)> {
    let of_pairs: BTreeMap<Posted, u32> = (0..roles.round_count())
        .flat_map(|round| {
            let pairs = roles.pairs_of_round(round).into_iter();
            pairs.map(move |pair| (pair, round))
        })
        .collect();
    let mut rounds: Vec<(u32, BTreeSet<Posted>)> = Vec::new();
    for pair in posted {
        let round = of_pairs[pair];
        match rounds.last_mut().filter(|(last, _)| *last == round) {
            Some((_, pairs)) => drop(pairs.insert(*pair)),
            None => rounds.push((round, BTreeSet::from([*pair]))),
        }
    }
    rounds
}

/// Checks that every round of each trial ran once, and had ended before the next one began.
fn check(roles: Roles, lines: &str) {
    let one = lock(&ONE_RUN);
    let posted = posted(roles.ranks, lines);
    drop(one);
    let seen = rounds(roles, &posted);
    let order: Vec<u32> = seen.iter().map(|(round, _)| *round).collect();
    let expected: Vec<u32> = (0..TRIALS).flat_map(|_| 0..roles.round_count()).collect();
    assert_eq!(order, expected, "{roles:?}");
    for (round, pairs) in seen {
        let all: BTreeSet<_> = roles.pairs_of_round(round).into_iter().collect();
        assert_eq!(pairs, all, "{roles:?} {round}");
    }
}

#[test]
fn pairs_of_a_matrix_run_alone_or_disjoint_ones_share_a_round() {
    for (ranks, matrix) in [
        (2, MatrixRounds::Alone),
        (5, MatrixRounds::Alone),
        (4, MatrixRounds::Disjoint),
        (5, MatrixRounds::Disjoint),
    ] {
        let roles = Roles {
            matrix,
            ..Roles::new(Traffic::Matrix, ranks)
        };
        let lines = format!("traffic = 'matrix'\nmatrix = '{}'", matrix.name());
        check(roles, &lines);
    }
}

#[test]
fn the_targets_of_rank_0_take_turns() {
    check(Roles::new(Traffic::InTurn, 5), "traffic = 'in-turn'");
}

const SIZES: &str = "[[transfer]]\nengine = 'seen'\nop = 'write'\nsizes = [8, 16, 32]\ntrials = 1\niters = 1\nwarmup = '0s'\n\
                     bound = 'none'";

/// Hosts with different boot IDs have different clocks. Each record has the uncertainty of their offsets at its point,
/// which grows as estimates get older. Other tests check that estimates are renewed.
#[test]
fn each_record_states_the_clock_uncertainty_at_its_point() {
    let _alone = lock(&ONE_RUN);
    let boots = Run {
        host: |rank, options| options.boot_id = format!("boot {rank}"),
        ..over(seen::LISTS)
    };
    let records = boots.tables(2, SIZES);
    let of_rank_1 = |record: &Record| {
        let mut hosts = record.environment.iter().flat_map(|group| &group.hosts);
        let host = hosts.find(|host| host.ranks == "1").unwrap();
        host.clock_uncertainty_ns
    };
    let mut uncertainties: Vec<u64> = records.unwrap().iter().map(of_rank_1).collect();
    // From each point to the next, an estimate gets older or is renewed. If it were computed once for all points, the
    // values would be equal.
    uncertainties.dedup();
    assert_eq!(uncertainties.len(), 3, "{uncertainties:?}");
    drop(seen::take());
}

/// A clock that is 5 % fast makes every figure wrong by 5 %. No engine or kind could notice this.
#[test]
fn a_point_with_a_wrong_clock_fails_and_the_next_is_measured() {
    let _alone = lock(&ONE_RUN);
    let clock = Clock::misjudged(50_000);
    if clock.source_name() == "clock_gettime" {
        return println!("skip: the kernel does not trust this CPU's counter");
    }
    let misjudged = Run {
        clock,
        ..over(seen::LISTS)
    };
    let records = misjudged.tables(2, SIZES).unwrap();
    let why = why_failed(&records[0]);
    for part in [
        "rank ",
        "here",
        "the CPU's counter",
        "more than 1 %",
        "Measure this point again",
    ] {
        assert!(why.contains(part), "no {part:?} in {why}");
    }
    assert_eq!(records[1].outcome, Outcome::Measured);
    drop(seen::take());
}

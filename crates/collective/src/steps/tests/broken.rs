//! Deliberately broken programs. The simulator must detect each of them.

use super::simulator::{Case, Order, run};
use super::{DTYPE, Trial, forms};
use crate::steps::{Algorithm, Place, Step, check};
use crate::{Collective, Reduction};

/// Small calls of all combinations: with and without signals, and with and without reuse of slots.
fn cases(ranks: &[u32]) -> impl Iterator<Item = (Trial, Case)> {
    let sizes = [(1, 1, 100), (6, 1, 0), (9, 4, 0)];
    let trial = |(op, algorithm), ranks, (block, chunk_elements, eager_elements)| Trial {
        op,
        algorithm,
        ranks,
        root: if op.is_rooted() { ranks / 2 } else { 0 },
        block: if op == Collective::Barrier { 0 } else { block },
        chunk_elements,
        in_place: block == 9 && check(op, algorithm, true).is_ok(),
        reduction: Reduction::Avg,
        eager_elements,
        slots: 4,
    };
    let of = move |form| {
        let ranks = ranks.iter();
        ranks.flat_map(move |ranks| sizes.map(|sizes| trial(form, *ranks, sizes)))
    };
    forms().flat_map(of).map(|trial| (trial, trial.case(3)))
}

/// Returns the case with one step of a rank replaced or removed.
fn changed(case: &Case, rank: usize, index: usize, step: Option<Step>) -> Case {
    let mut case = case.clone();
    case.programs[rank].steps.splice(index..=index, step);
    case
}

/// Returns all steps of a case, each with its rank and index.
fn steps(case: &Case) -> Vec<(usize, usize, Step)> {
    let programs = case.programs.iter().enumerate();
    let steps = programs.flat_map(|(rank, program)| {
        let steps = program.steps.iter().enumerate();
        steps.map(move |(index, step)| (rank, index, *step))
    });
    steps.collect()
}

fn must_fail(trial: &Trial, case: &Case, what: &str) {
    assert!(
        run(case, Order::Straight).is_err(),
        "the simulator does not notice {what}: {trial:?}"
    );
}

/// Returns the case without a step of a rank, and without the peer's step that answers it.
fn without_both(case: &Case, (rank, index): (usize, usize), peer: u32, answer: Step) -> Case {
    let mut case = changed(case, rank, index, None);
    let steps = &mut case.programs[peer as usize].steps;
    let found = steps.iter().position(|step| *step == answer);
    steps.remove(found.unwrap());
    case
}

#[test]
fn a_missing_step_is_found() {
    for (trial, case) in cases(&[2, 3, 5]) {
        for (rank, index, step) in steps(&case) {
            let broken = changed(&case, rank, index, None);
            must_fail(
                &trial,
                &broken,
                &format!("rank {rank} without step {index} ({step:?})"),
            );
        }
    }
}

/// Combinations in which some signals are redundant, because returning data proves as much as a slot release.
const FEEDBACK: [(Collective, Algorithm); 3] = [
    (Collective::AllReduce, Algorithm::Ring),
    (Collective::AllReduce, Algorithm::Tree),
    (Collective::ReduceScatter, Algorithm::Ring),
];

#[test]
fn a_removed_signal_is_found() {
    let mut found = FEEDBACK.map(|form| (form, 0, 0));
    for (trial, case) in cases(&[2, 3, 4, 5, 7]) {
        for (rank, index, step) in steps(&case) {
            let Step::Put {
                peer,
                message,
                bytes: 0,
                ..
            } = step
            else {
                continue;
            };
            let broken = without_both(&case, (rank, index), peer, Step::Await { message });
            let form = (trial.op, trial.algorithm);
            match found.iter_mut().find(|(one, ..)| *one == form) {
                Some((_, found, signals)) => {
                    *found += u32::from(run(&broken, Order::Straight).is_err());
                    *signals += 1;
                }
                None => must_fail(
                    &trial,
                    &broken,
                    &format!("rank {rank} without signal {message} to {peer}"),
                ),
            }
        }
    }
    for (form, found, signals) in found {
        assert!(
            2 * found > signals,
            "{form:?}: only {found} of {signals} removed signals are noticed"
        );
    }
}

#[test]
fn a_put_without_a_claim_is_found() {
    let mut claims = 0;
    for (trial, case) in cases(&[2, 3, 4, 5, 7]) {
        for (rank, index, step) in steps(&case) {
            let Step::Claim { peer } = step else {
                continue;
            };
            let grant = Step::Grant { peer: rank as u32 };
            let broken = without_both(&case, (rank, index), peer, grant);
            must_fail(
                &trial,
                &broken,
                &format!("rank {rank} without a claim of {peer}'s grant"),
            );
            claims += 1;
        }
    }
    assert!(claims > 100, "{claims}");
}

#[test]
fn a_grant_that_comes_too_early_is_found() {
    for (trial, case) in cases(&[2, 3, 4, 5, 7]) {
        for (rank, index, step) in steps(&case) {
            if let Step::Grant { .. } = step {
                let mut broken = changed(&case, rank, index, None);
                broken.programs[rank].steps.insert(0, step);
                must_fail(&trial, &broken, &format!("rank {rank} that grants first"));
            }
        }
    }
}

#[test]
fn a_wrong_location_is_found() {
    let further = |place: Place| place.beyond(DTYPE.bytes());
    for (trial, case) in cases(&[2, 5]) {
        for (rank, index, step) in steps(&case) {
            let moved = match step {
                Step::Put {
                    peer,
                    message,
                    from,
                    to,
                    bytes,
                } if bytes > 0 => {
                    let put = |from, to| Step::Put {
                        peer,
                        message,
                        from,
                        to,
                        bytes,
                    };
                    [put(further(from), to), put(from, further(to))]
                }
                Step::Fold { from, to, elements } => {
                    let fold = |from, to| Step::Fold { from, to, elements };
                    [fold(further(from), to), fold(from, further(to))]
                }
                Step::Copy { from, to, bytes } => {
                    let copy = |from, to| Step::Copy { from, to, bytes };
                    [copy(further(from), to), copy(from, further(to))]
                }
                _ => continue,
            };
            for step in moved {
                let broken = changed(&case, rank, index, Some(step));
                must_fail(
                    &trial,
                    &broken,
                    &format!("rank {rank} with step {index} as {step:?}"),
                );
            }
        }
    }
}

#[test]
fn exchanged_targets_are_found() {
    for (trial, case) in cases(&[2, 3, 5]) {
        for (rank, program) in case.programs.iter().enumerate() {
            let puts = (0..)
                .zip(&program.steps)
                .filter_map(|(index, step)| match step {
                    Step::Put {
                        to, bytes, peer, ..
                    } if *bytes > 0 => Some((index, *to, *bytes, *peer)),
                    _ => None,
                });
            let puts: Vec<(usize, Place, u64, u32)> = puts.collect();
            for pair in puts.windows(2) {
                let [one, other] = [pair[0], pair[1]];
                if one.1 == other.1 || (one.2, one.3) != (other.2, other.3) {
                    continue;
                }
                let mut broken = case.clone();
                for (index, place) in [(one.0, other.1), (other.0, one.1)] {
                    if let Step::Put { to, .. } = &mut broken.programs[rank].steps[index] {
                        *to = place;
                    }
                }
                must_fail(
                    &trial,
                    &broken,
                    &format!("rank {rank} with exchanged puts {one:?} and {other:?}"),
                );
            }
        }
    }
}

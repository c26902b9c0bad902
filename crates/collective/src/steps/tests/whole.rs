//! Proves by simulation that all operations work with all algorithms.

use proptest::prelude::*;

use super::simulator::{Order, run};
use super::{Trial, forms};
use crate::steps::{Algorithm, check};
use crate::{Collective, Reduction, Shape};

/// Block elements, chunk elements, the most elements that go through the scratch, and slots.
const SIZES: [(u64, u64, u64, u64); 8] = [
    (1, 1, 0, 8),
    (1, 9, 100, 8),
    (3, 2, 0, 4),
    (7, 3, 0, 4),
    (7, 1, 9, 5),
    (13, 4, 1000, 4),
    (23, 1, 0, 4),
    (40, 7, 0, 6),
];

fn trials(op: Collective, algorithm: Algorithm, ranks: u32) -> impl Iterator<Item = Trial> {
    let places = [false, true].into_iter();
    let places = places.filter(move |in_place| check(op, algorithm, *in_place).is_ok());
    places.flat_map(move |in_place| {
        // With many ranks, only some of the sizes are tested. Which ones depends on the number of ranks.
        let sizes = (0..).zip(SIZES);
        let sizes = sizes.filter(move |(index, _)| ranks <= 9 || (index + ranks).is_multiple_of(4));
        sizes.map(
            move |(index, (block, chunk_elements, eager_elements, slots))| Trial {
                op,
                algorithm,
                ranks,
                root: match op.is_rooted() {
                    true => (ranks * index / 3) % ranks,
                    false => 0,
                },
                block: match op {
                    Collective::Barrier => 0,
                    _ if Shape::is_total(op) && ranks > 9 => block.min(4),
                    _ => block,
                },
                chunk_elements,
                in_place,
                reduction: [Reduction::Sum, Reduction::Avg][index as usize % 2],
                eager_elements,
                slots,
            },
        )
    })
}

fn prove(ops: &[Collective]) {
    for (op, algorithm) in forms().filter(|(op, _)| ops.contains(op)) {
        for trial in (1..=33).flat_map(|ranks| trials(op, algorithm, ranks)) {
            let calls = if trial.ranks > 9 { 3 } else { 4 };
            if let Err(why) = run(&trial.case(calls), Order::Straight) {
                panic!("{trial:?}: {why}");
            }
        }
    }
}

#[test]
fn reductions_hold_each_rank_once() {
    prove(&[
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::Reduce,
    ]);
}

#[test]
fn all_to_all_holds_each_rank_once() {
    prove(&[Collective::AllToAll]);
}

#[test]
fn other_operations_hold_each_rank_once() {
    prove(&[
        Collective::AllGather,
        Collective::Broadcast,
        Collective::Gather,
        Collective::Scatter,
        Collective::Barrier,
        Collective::SendRecvPairs,
        Collective::SendRecvRing,
    ]);
}

fn any_trial() -> impl Strategy<Value = Trial> {
    let form = prop::sample::select(forms().collect::<Vec<_>>());
    let ranks = prop_oneof![3 => 1u32..=9, 1 => 10u32..=33];
    let sizes = (1u64..30, 1u64..10, 0u64..200, 4u64..9);
    let choices = (
        any::<u32>(),
        any::<bool>(),
        prop::sample::select(&Reduction::ALL[..]),
    );
    (form, ranks, sizes, choices).prop_map(|((op, algorithm), ranks, sizes, choices)| {
        let (block, chunk_elements, eager_elements, slots) = sizes;
        let (root, in_place, reduction) = choices;
        Trial {
            op,
            algorithm,
            ranks,
            root: if op.is_rooted() { root % ranks } else { 0 },
            block: if op == Collective::Barrier { 0 } else { block },
            chunk_elements,
            in_place: in_place && check(op, algorithm, true).is_ok(),
            reduction,
            eager_elements,
            slots,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_order_of_events_has_the_same_result(trial in any_trial(), seed in any::<u64>(), in_order in any::<bool>()) {
        let order = match in_order {
            true => Order::Paired(seed),
            false => Order::Any(seed),
        };
        prop_assert_eq!(run(&trial.case(5), order), Ok(()));
    }
}

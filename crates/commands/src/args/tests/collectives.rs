//! `tonnage verify --collectives` and `tonnage layers`: their plans.

use std::collections::BTreeSet;

use tonnage_collective::steps::{algorithms, check_in_place};
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction};
use tonnage_plan::collective::CollectivePoint;
use tonnage_plan::transfer::Pacing;

use super::*;
use crate::args::layers::LayersArgs;

fn calls(plan: &Plan, ranks: u32) -> Vec<CollectivePoint> {
    let planned = plan.points(ranks, &LISTS).unwrap();
    let calls = planned
        .into_iter()
        .filter_map(|planned| match planned.point {
            Point::Collective(point) => Some(point),
            _ => None,
        });
    calls.collect()
}

fn verified(line: &str, ranks: u32) -> Vec<CollectivePoint> {
    let args = verify(&format!("--collectives {line}"));
    let plan = args.to_plan(&LISTS, Ranks::of(None, ranks)).unwrap();
    calls(&plan, ranks)
}

#[test]
fn every_operation_type_reduction_and_algorithm_is_verified() {
    let points = verified("", 4);
    assert!(points.iter().all(|point| point.verify));
    for op in Collective::ALL {
        let own = || points.iter().filter(move |point| point.op == op);
        assert_eq!(own().count() == 0, op == Collective::Barrier, "{op}");
        if op == Collective::Barrier {
            continue;
        }
        let native = || own().filter(|point| point.backends == ["native:shm"]);
        let ways: BTreeSet<_> = native()
            .filter_map(|it| it.algorithm)
            .map(Algorithm::name)
            .collect();
        let all: BTreeSet<_> = algorithms(op).iter().map(|way| way.name()).collect();
        assert_eq!(ways, all, "{op}");
        assert!(
            Dtype::ALL
                .iter()
                .all(|&dtype| native().any(|it| it.dtype == dtype))
        );
        let reduces = |reduction| native().any(|it| it.reduction == Some(reduction));
        assert!(
            !op.reduces() || Reduction::ALL.into_iter().all(reduces),
            "{op}"
        );
        let may = check_in_place(op, true).is_ok();
        assert_eq!(native().any(|point| point.in_place), may, "{op}");
        assert!(
            !op.is_rooted() || native().any(|point| point.root == 3),
            "{op}"
        );
        assert!(own().any(|point| point.backends == ["torch:gloo"]), "{op}");
        // MPI has not started these ranks, so the plan leaves mpi out.
        assert!(!own().any(|point| point.backends == ["mpi"]), "{op}");
    }
}

#[test]
fn odd_ranks_leave_out_pairs_alone() {
    let ops: BTreeSet<_> = verified("", 5)
        .iter()
        .map(|point| point.op.name())
        .collect();
    assert!(!ops.contains("send-recv-pairs"));
    assert!(ops.contains("send-recv-ring") && ops.contains("scatter"));
}

#[test]
fn some_collectives_of_some_backend_are_verified() {
    let points = verified("--backend native:shm --sizes 4000", 2);
    assert!(points.iter().all(|point| point.backends == ["native:shm"]));
    let of = |line: &str| {
        let plan = verify(line).to_plan(&LISTS, Ranks::of(None, 2)).unwrap();
        calls(&plan, 2)
    };
    let points = of("--collectives=gather,reduce --backend native:shm");
    let ops: BTreeSet<_> = points.iter().map(|point| point.op.name()).collect();
    assert_eq!(Vec::from_iter(ops), ["gather", "reduce"]);
    // Without an operation that reduces, no reductions are requested.
    let moved = of("--collectives=gather --backend native:shm");
    assert!(moved.iter().all(|point| point.reduction.is_none()));
    let types: BTreeSet<_> = moved.iter().map(|point| point.dtype.name()).collect();
    assert_eq!(types.len(), Dtype::ALL.len());
}

fn layers(line: &str) -> LayersArgs {
    match parse(&format!("tonnage layers {line}")).unwrap().command {
        Some(Command::Layers(args)) => *args,
        other => panic!("not layers: {other:?}"),
    }
}

#[test]
fn every_layer_has_a_turn_in_each_round() {
    let plan = layers("--engine shm --rounds 3 --sizes 64k")
        .to_plan(&LISTS, Ranks::of(None, 2))
        .unwrap();
    assert_eq!(plan.ranks, Some(2));
    let planned = plan.points(2, &LISTS).unwrap();
    let writes = planned.iter().filter_map(|planned| match &planned.point {
        Point::Transfer(point) => Some(point),
        _ => None,
    });
    let writes: Vec<_> = writes.collect();
    assert_eq!(writes.len(), 3);
    for point in writes {
        assert_eq!((point.engine.as_str(), point.op), ("shm", Verb::Write));
        assert_eq!(point.pacing, Pacing::Stream { depth: 1 });
    }
    let calls = calls(&plan, 2);
    let ops: Vec<_> = calls.iter().map(|point| point.op).collect();
    let both = [Collective::SendRecvPairs, Collective::AllReduce];
    assert_eq!(ops, [both, both, both].concat());
    assert!(
        calls
            .iter()
            .all(|point| point.backends == ["native:shm", "torch:gloo"])
    );
}

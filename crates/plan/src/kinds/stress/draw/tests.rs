use std::collections::BTreeSet;

use clap::{Args, Command};
use proptest::prelude::*;

use super::*;
use crate::fixture::LISTS;
use crate::options::from_command_line;
use crate::transfer::{Pacing, TrialLength};

fn stress(ranks: u32, seed: u64) -> StressPoint {
    StressPoint {
        label: None,
        engine: "shm,loose".to_owned(),
        engine_options: Default::default(),
        ranks,
        ops: Verb::COPYING.to_vec(),
        size_bytes_max: 1 << 20,
        threads: vec![1, 2],
        memory: "host,far".to_owned(),
        seed,
        duration_ns: 1_000_000_000,
    }
}

/// Returns the point that the draw's own command line requests.
fn repeated(draw: &DrawnTransfer, ranks: u32) -> TransferPoint {
    let words = draw.arguments().unwrap();
    let command = Transfer::augment_args(Command::new("transfer"));
    let matches = command.try_get_matches_from(&words).unwrap();
    let again: Transfer = from_command_line(&matches).unwrap();
    let mut points = again.cells(ranks, &LISTS, 1).unwrap();
    points.remove(0).point
}

proptest! {
    #[test]
    fn every_draw_is_valid_and_its_command_line_asks_for_the_same(
        (ranks, seed, number) in (2u32..9, any::<u64>(), 0u64..1000),
        size_bytes_max in prop_oneof![1u32..70, Just(4096), Just(1 << 20), Just(1 << 30)],
        threads in proptest::sample::subsequence(vec![1u32, 2, 3], 1..=3),
        memory in proptest::sample::select(vec!["host", "far", "host,huge,far"]),
        engine in proptest::sample::select(vec!["shm", "loose"]),
    ) {
        let stress = StressPoint { size_bytes_max, threads, memory: memory.to_owned(), ..stress(ranks, seed) };
        let draws = stress.draw_group(engine, number, &LISTS).unwrap();
        prop_assert_eq!(draws.len(), DRAWS_OF_STRETCH);
        let first = &draws[0].point;
        for draw in &draws {
            let point = &draw.point;
            prop_assert_eq!(&repeated(draw, ranks), point);
            prop_assert!(point.verify.is_on() && point.length.trials == 1 && point.length.warmup_ns == 0);
            prop_assert!(matches!(point.length.trial, TrialLength::Iterations(1..=OPERATIONS_MAX)));
            prop_assert!(point.slots.size_bytes <= size_bytes_max);
            prop_assert_eq!((point.op, point.roles, point.division), (first.op, first.roles, first.division));
            prop_assert_eq!((&point.memories.memory, &point.memories.target_memory), (&first.memories.memory, &first.memories.target_memory));
            prop_assert_eq!((point.threads, point.engine.as_str()), (first.threads, engine));
            let lanes = u64::from(point.roles.peers_max()) * 2 * u64::from(point.threads);
            let most = WALKED_BYTES.max(lanes * point.slots.stride_bytes);
            prop_assert!(point.slots.footprint_bytes * lanes <= most, "{:?}", point);
        }
        prop_assert_eq!(draws, stress.draw_group(engine, number, &LISTS).unwrap());
    }
}

/// Returns the draws of a hundred groups of each engine.
fn many(ranks: u32, seed: u64) -> Vec<TransferPoint> {
    let stress = stress(ranks, seed);
    let of = |engine: &str| {
        let numbers = 0..100;
        let draws = numbers.flat_map(|number| stress.draw_group(engine, number, &LISTS).unwrap());
        draws.map(|draw| draw.point).collect::<Vec<_>>()
    };
    stress.engines().flat_map(of).collect()
}

#[test]
fn draws_follow_from_the_seed_and_differ_between_engines_and_numbers() {
    assert_eq!(many(4, 1), many(4, 1));
    assert_ne!(many(4, 1), many(4, 2));
    let texts: BTreeSet<String> = many(4, 1)
        .iter()
        .map(|point| format!("{point:?}"))
        .collect();
    assert!(texts.len() > 1550, "{}", texts.len());
}

#[test]
fn each_operation_comes_once_in_as_many_stretches_as_there_are() {
    let stress = stress(2, 9);
    for engine in stress.engines() {
        let ops = stress.ops_of(engine, &LISTS).unwrap();
        for cycle in 0..5 {
            let numbers = (0..ops.len()).map(|at| (cycle * ops.len() + at) as u64);
            let drawn = numbers.map(|number| {
                let draws = stress.draw_group(engine, number, &LISTS).unwrap();
                draws[0].point.op.name()
            });
            let drawn: BTreeSet<_> = drawn.collect();
            assert_eq!(drawn.len(), ops.len(), "{engine} {drawn:?}");
        }
    }
}

/// Returns all values of a property that occur in the points.
fn values(points: &[TransferPoint], of: impl Fn(&TransferPoint) -> String) -> BTreeSet<String> {
    points.iter().map(of).collect()
}

#[test]
fn draws_cover_every_choice() {
    for ranks in [2, 3, 4] {
        let points = many(ranks, 3);
        let has = |of: fn(&TransferPoint) -> String, expected: &[&str]| {
            let found = values(&points, of);
            let lacks = expected.iter().filter(|name| !found.contains(**name));
            assert_eq!(lacks.count(), 0, "{expected:?} in {found:?}");
        };
        has(
            |it| it.op.to_string(),
            &["write", "write-imm", "read", "send"],
        );
        has(
            |it| it.pacing.name().to_owned(),
            &["ping-pong", "stream", "batch"],
        );
        has(
            |it| it.session.map_or("none".to_owned(), |it| it.to_string()),
            &["none", "on", "off", "fresh", "register"],
        );
        has(|it| it.api.to_string(), &["engine", "poll", "async"]);
        has(|it| it.division.queue_pairs.to_string(), &["1", "2", "4"]);
        has(
            |it| it.division.cut.is_some().to_string(),
            &["false", "true"],
        );
        has(|it| it.memories.memory.clone(), &["host", "far"]);
        has(
            |it| it.memories.target_memory.clone().unwrap_or_default(),
            &["", "host", "far"],
        );
        has(|it| it.threads.to_string(), &["1", "2"]);
        has(
            |it| it.slots.access.to_string(),
            &["sequential", "random", "permuted", "fixed"],
        );
        has(|it| it.slots.local_access.is_some().to_string(), &["true"]);
        has(|it| it.slots.has_gaps().to_string(), &["false", "true"]);
        has(
            |it| (it.slots.stride_bytes % 8 == 0).to_string(),
            &["false", "true"],
        );
        has(|it| it.batching.merge.to_string(), &["on", "off"]);
        has(|it| it.batching.in_flight.to_string(), &["1", "2", "4"]);
        let all = [
            "fan-out",
            "in-turn",
            "fan-in",
            "all-to-all",
            "shift",
            "matrix",
        ];
        has(|it| it.roles.traffic.to_string(), &all);
        let pairs = values(&points, |it| it.roles.bidirectional.to_string());
        assert_eq!(pairs.len(), if ranks == 3 { 1 } else { 2 });
        let sizes = points.iter().map(|point| point.slots.size_bytes);
        let lengths: BTreeSet<u32> = sizes.map(u32::ilog2).collect();
        assert!((0..=20).all(|bits| lengths.contains(&bits)), "{lengths:?}");
        let depths = points.iter().filter(|it| it.pacing != Pacing::PingPong);
        let deep = depths.filter(|it| it.depth() >= 32).count();
        assert!(deep > points.len() / 20, "{deep}");
    }
}

//! Plans, texts and values made at random: each reads back the same, or is refused as a wrong request.

use super::*;
use crate::collective::{Across, Align, CallOptions, CheckOptions, CollectiveJob, Groups, Refill};
use crate::connect;
use crate::files::arbitrary::file_jobs;
use crate::fixture::LISTS;
use crate::options::Many;
use crate::point::{LimitChoice, MatrixRounds, Traffic};
use crate::published::{Cell, PublishedTable};
use crate::skipping::SkippingOptions;
use crate::stress::{Drawn, Stress, StressLength};
use crate::sweep::Sweep;
use crate::transfer::CqMode;
use crate::transfer::{
    Addresses, Background, BackgroundOptions, BackgroundPair, BackgroundRate, BatchCall,
    BatchMerge, BatchOf, BatchingOptions, IssuingOptions, LengthOptions, LibraryOptions,
    MeasureOptions, MemoryOptions, OperationOptions, PacingOptions, SessionUse, TargetFootprint,
    TransferApi,
};
use crate::tune::{Goal, SearchOptions, Tune};
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction};
use tonnage_engine::Verb;
use tonnage_engine::paths::Rails;
use tonnage_units::{Bytes, Fraction, Nanos, PairPlace, PerSecond};

use proptest::option;
use proptest::prelude::*;

fn sweeps() -> impl Strategy<Value = Sweep> {
    prop_oneof![
        "[1-9][0-9]{0,2}\\.\\.[1-9][0-9]{3}[kM]?",
        "[1-9][0-9]{0,5}[kM]?",
        "[1-9],1[0-9],[1-9]k",
        "[1-9]M\\.\\.[1-9]0M\\+1M",
    ]
    .prop_map(|text| text.parse().unwrap())
}

type Group<T> = BoxedStrategy<T>;

type Said = (
    Option<String>,
    Option<Many<String>>,
    Option<Many<Verb>>,
    Option<Traffic>,
    Option<Sweep>,
);

fn what() -> Group<Said> {
    let engines = proptest::collection::vec("[a-z]{1,6}", 1..3).prop_map(|it| Some(Many(it)));
    let ops =
        proptest::sample::subsequence(Verb::ALL.to_vec(), 1..=4).prop_map(|it| Some(Many(it)));
    let traffic = option::of(proptest::sample::select(Traffic::ALL.to_vec()));
    (
        option::of(".{0,20}"),
        engines,
        ops,
        traffic,
        sweeps().prop_map(Some),
    )
        .boxed()
}

type Paced = (
    Option<Sweep>,
    Option<Sweep>,
    bool,
    Option<PerSecond>,
    Option<Sweep>,
);

fn paced() -> Group<Paced> {
    let rate = option::of((0.0..1e12).prop_map(PerSecond));
    (
        option::of(sweeps()),
        option::of(sweeps()),
        any::<bool>(),
        rate,
        option::of(sweeps()),
    )
        .boxed()
}

type Placed = (
    [Option<Many<String>>; 2],
    Option<Bytes>,
    Option<TargetFootprint>,
    Option<Bytes>,
    Option<Bytes>,
    Option<Addresses>,
    Option<Addresses>,
    Option<Count>,
);

fn placed() -> Group<Placed> {
    let name = proptest::sample::select(vec!["host".to_owned(), "huge".to_owned()]);
    let memory = option::of(proptest::collection::vec(name, 1..3).prop_map(Many));
    let addresses = || option::of(proptest::sample::select(Addresses::ALL.to_vec()));
    let bytes = || option::of(any::<u64>().prop_map(Bytes));
    (
        [memory.clone(), memory],
        bytes(),
        option::of(proptest::sample::select(TargetFootprint::ALL.to_vec())),
        bytes(),
        bytes(),
        addresses(),
        addresses(),
        option::of(any::<u64>().prop_map(Count)),
    )
        .boxed()
}

fn limits() -> impl Strategy<Value = LimitChoice> {
    prop_oneof![
        Just(LimitChoice::Auto),
        Just(LimitChoice::None),
        (1e-3..1e15).prop_map(|bytes_per_s| LimitChoice::Stated { bytes_per_s }),
    ]
}

type Long = (
    Option<Count>,
    Option<Nanos>,
    Option<Count>,
    Option<Nanos>,
    Option<Nanos>,
    Option<Fraction>,
    [Option<Nanos>; 3],
);

fn long() -> Group<Long> {
    let counts = || option::of(any::<u64>().prop_map(Count));
    let times = || option::of(any::<u64>().prop_map(Nanos));
    let part = option::of((0.0..2.0).prop_map(Fraction));
    let others = [times(), times(), times()];
    (counts(), times(), counts(), times(), times(), part, others).boxed()
}

fn places() -> impl Strategy<Value = Option<Many<PairPlace>>> {
    let place = proptest::sample::select(PairPlace::ALL.to_vec());
    option::of(proptest::collection::vec(place, 1..3).prop_map(Many))
}

fn published() -> impl Strategy<Value = Vec<PublishedTable>> {
    let cell = prop_oneof![
        (0..i64::MAX as u64).prop_map(Cell::Count),
        (-1e300..1e300).prop_map(Cell::Number),
        "\\PC{0,6}".prop_map(Cell::Text),
    ];
    let rows = proptest::collection::vec(proptest::collection::vec(cell, 0..3), 0..3);
    let columns = proptest::collection::vec("\\PC{0,6}", 0..3);
    let table = ("\\PC{0,6}", columns, rows).prop_map(|(what, columns, rows)| PublishedTable {
        what,
        columns,
        rows,
    });
    proptest::collection::vec(table, 0..3)
}

fn batching() -> impl Strategy<Value = BatchingOptions> {
    let of = option::of(proptest::sample::select(BatchOf::ALL.to_vec()));
    let call = option::of(proptest::sample::select(BatchCall::ALL.to_vec()));
    let merge = option::of(proptest::sample::select(BatchMerge::ALL.to_vec()));
    (of, option::of(sweeps()), call, merge).prop_map(
        |(batch_of, batches_in_flight, batch_call, merge)| BatchingOptions {
            batch_of,
            batches_in_flight,
            batch_call,
            merge,
        },
    )
}

fn backgrounds() -> impl Strategy<Value = BackgroundOptions> {
    let op = proptest::sample::select(Verb::ALL.to_vec());
    let pair = proptest::sample::select(BackgroundPair::ALL.to_vec());
    let load = (op, 1..1u32 << 20, 1..100u32, pair, 1..9u32);
    let load = load.prop_map(|(op, size_bytes, window, pair, workers)| Background {
        op,
        size_bytes,
        window,
        pair,
        workers,
        rate_per_s: None,
    });
    let rate = prop_oneof![
        Just(BackgroundRate::Full),
        (0.0..1e12).prop_map(|rate| BackgroundRate::PerSecond(PerSecond(rate))),
    ];
    let rates = option::of(proptest::collection::vec(rate, 1..4).prop_map(Many));
    (option::of(load), rates).prop_map(|(background, background_rate)| BackgroundOptions {
        background,
        background_rate,
    })
}

fn library() -> impl Strategy<Value = LibraryOptions> {
    let api = proptest::sample::select(TransferApi::ALL.to_vec());
    let session = proptest::sample::select(SessionUse::ALL.to_vec());
    let apis = option::of(proptest::collection::vec(api, 1..3).prop_map(Many));
    let sessions = option::of(proptest::collection::vec(session, 1..3).prop_map(Many));
    (apis, sessions).prop_map(|(api, session)| LibraryOptions { api, session })
}

prop_compose! {
    fn transfers()(
        (label, engine, op, traffic, sizes) in what(),
        (window, batch, ping_pong, rate, workers) in paced(),
        ([memory, target_memory], footprint, target_footprint, stride, gap, addresses, local_addresses, seed) in placed(),
        (latency, verify, per_rank, limit) in (option::of(any::<bool>()), option::of(proptest::sample::select(vec![crate::transfer::Verification::Last, crate::transfer::Verification::Each])), any::<bool>(), option::of(limits())),
        engine_options in proptest::collection::btree_map("[a-z-]{1,8}", "\\PC{0,8}", 0..3),
        (trials, trial_time, iters, duration, warmup, until_ci, [max_duration, interval, checkpoint]) in long(),
        place in places(),
        initiators in option::of(sweeps()),
        ((target_shift, shift), (bidirectional, matrix)) in ((option::of(any::<u64>().prop_map(Count)), option::of(any::<u64>().prop_map(Count))), (any::<bool>(), option::of(proptest::sample::select(MatrixRounds::ALL.to_vec())))),
        (qps, chunk) in (option::of(sweeps()), option::of(sweeps())),
        (max_chunks, rail_shift) in (option::of(any::<u64>().prop_map(Count)), option::of(any::<u64>().prop_map(Count))),
        cq in option::of(proptest::collection::vec(proptest::sample::select(CqMode::ALL.to_vec()), 1..3).prop_map(Many)),
        rails in option::of(proptest::collection::vec(proptest::sample::select(Rails::ALL.to_vec()), 1..3).prop_map(Many)),
        (batching, background, library, optional, published) in (batching(), backgrounds(), library(), any::<bool>(), published()),
        traffic_file in option::weighted(0.2, crate::transfer::traffic_files()),
        memory_options in proptest::collection::btree_map("[a-z-]{1,8}", "\\PC{0,8}", 0..3),
    ) -> Transfer {
        let engine_options = engine_options.into_iter().collect();
        let memory_options = memory_options.into_iter().collect();
        Transfer {
            what: OperationOptions { label, engine, engine_options, op, traffic, traffic_file, initiators, shift, matrix, target_shift, bidirectional, sizes, workers, place },
            pacing: PacingOptions { window, batch, ping_pong, rate, cq },
            issuing: IssuingOptions { rails, rail_shift, qps, chunk, max_chunks },
            batching,
            background,
            library,
            memory: MemoryOptions { memory, target_memory, memory_options, footprint, target_footprint, stride, gap, addresses, local_addresses, seed },
            measure: MeasureOptions { latency, verify, per_rank, limit, published },
            skipping: SkippingOptions { optional },
            length: LengthOptions { trials, trial_time, iters, duration, warmup, until_ci, max_duration, interval, checkpoint },
        }
    }
}

prop_compose! {
    fn connects()(
        (label, engine, _, traffic, workers) in what(),
        engine_options in proptest::collection::btree_map("[a-z-]{1,8}", "\\PC{0,8}", 0..3),
        register in option::of(sweeps()),
        memory in option::of(proptest::collection::vec("[a-z]{1,4}", 1..3).prop_map(Many)),
        (trials, duration, _, _, _, _, _) in long(),
        (place, optional) in (places(), any::<bool>()),
    ) -> Connect {
        let engine_options = engine_options.into_iter().collect();
        Connect {
            what: connect::What { label, engine, engine_options, traffic, workers, place, register, memory },
            length: connect::Length { duration, trials },
            skipping: SkippingOptions { optional },
        }
    }
}

prop_compose! {
    fn stresses()(
        (label, engine, op, _, workers) in what(),
        engine_options in proptest::collection::btree_map("[a-z-]{1,8}", "\\PC{0,8}", 0..3),
        max_size in option::of(any::<u64>().prop_map(Bytes)),
        memory in option::of(proptest::collection::vec("[a-z]{1,4}", 1..3).prop_map(Many)),
        seed in option::of(any::<u64>().prop_map(Count)),
        (_, duration, _, _, _, _, _) in long(),
    ) -> Stress {
        let engine_options = engine_options.into_iter().collect();
        Stress {
            what: Drawn { label, engine, engine_options, op, max_size, workers, memory, seed },
            length: StressLength { duration },
        }
    }
}

prop_compose! {
    /// Searches have most of their options from transfers.
    fn tunes()(
        transfer in transfers(),
        goal in option::of(proptest::sample::select(Goal::ALL.to_vec())),
        trial_time in option::of(any::<u64>().prop_map(Nanos)),
    ) -> Tune {
        Tune {
            search: SearchOptions { goal, trial_time },
            what: transfer.what,
            pacing: transfer.pacing,
            batching: transfer.batching,
            issuing: transfer.issuing,
            library: transfer.library,
            memory: transfer.memory,
        }
    }
}

prop_compose! {
    fn calls()(
        label in option::of(".{0,20}"),
        backend in proptest::collection::vec("(native:)?[a-z]{1,6}", 1..3),
        op in proptest::sample::subsequence(Collective::ALL.to_vec(), 1..=4),
        sizes in option::of(sweeps()),
        dtype in option::of(proptest::sample::subsequence(Dtype::ALL.to_vec(), 1..=3)),
        reduce in option::of(proptest::sample::subsequence(Reduction::ALL.to_vec(), 1..=3)),
        algorithm in option::of(proptest::sample::subsequence(Algorithm::ALL.to_vec(), 1..=2)),
        chunk in option::of(sweeps()),
        (root, seed) in (option::of(any::<u64>().prop_map(Count)), option::of(any::<u64>().prop_map(Count))),
        timeout in option::of(any::<u64>().prop_map(Nanos)),
        groups in option::of((any::<bool>(), 1..u32::MAX)),
        in_place in any::<bool>(),
    ) -> CallOptions {
        CallOptions {
            label,
            backend: Some(Many(backend)),
            op: Some(Many(op)),
            sizes,
            dtype: dtype.map(Many),
            reduce: reduce.map(Many),
            algorithm: algorithm.map(Many),
            chunk,
            root,
            seed,
            timeout,
            groups: groups.map(|(is_div, number)| if is_div { Groups::Div(number) } else { Groups::Mod(number) }),
            in_place,
            ..CallOptions::default()
        }
    }
}

prop_compose! {
    /// Collectives have their length from transfers.
    fn collectives()(
        call in calls(),
        transfer in transfers(),
        (align, refill) in (
            option::of(proptest::sample::select(Align::ALL.to_vec())),
            option::of(proptest::sample::select(Refill::ALL.to_vec())),
        ),
        across in option::of(proptest::sample::select(Across::ALL.to_vec())),
        (verify, per_rank, each) in any::<(bool, bool, bool)>(),
    ) -> CollectiveJob {
        CollectiveJob {
            call: CallOptions { align, refill, ..call },
            length: transfer.length,
            check: CheckOptions {
                verify, across, per_rank, each, limit: transfer.measure.limit, published: transfer.measure.published,
            },
            skipping: transfer.skipping,
        }
    }
}

fn experiments() -> impl Strategy<Value = Experiment> {
    prop_oneof![
        transfers().prop_map(Experiment::from),
        file_jobs().prop_map(Experiment::from),
        connects().prop_map(Experiment::from),
        stresses().prop_map(Experiment::from),
        tunes().prop_map(Experiment::from),
        collectives().prop_map(Experiment::from),
    ]
}

prop_compose! {
    fn plans()(
        name in "\\PC{0,12}",
        title in option::of("(?s).{0,40}"),
        ranks in option::of(any::<u32>()),
        experiments in proptest::collection::vec(experiments(), 0..5),
    ) -> Plan {
        Plan { name, title, ranks, experiments, given: Vec::new() }
    }
}

const SHIPPED: [&str; 7] = [
    include_str!("../../../../../plans/efa-write.toml"),
    include_str!("../../../../../plans/tour.toml"),
    include_str!("../../../../../plans/mori-io-read.toml"),
    include_str!("../../../../../plans/mori-io-write.toml"),
    include_str!("../../../../../plans/one-sided-read.toml"),
    include_str!("../../../../../plans/cori-lustre-mpiio.toml"),
    include_str!("../../../../../plans/cori-datawarp-1.toml"),
];

proptest! {
    #[test]
    fn what_is_printed_reads_back_as_the_same_plan(plan in plans()) {
        let text = plan.to_toml().unwrap();
        let back = Plan::from_toml(&text, "p").map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(back, plan);
    }

    #[test]
    fn any_plan_expands_or_is_refused_as_usage(
        mut plan in plans(), ranks in 0u32..6, factor in 1e-9..1e5,
    ) {
        plan.scale(factor, ranks).unwrap();
        let mut tunes = plan.clone();
        tunes.experiments.retain(|experiment| matches!(experiment, Experiment::Tune(_)));
        let _none_is_left = tunes.use_engines(&["shm".into()]);
        if let Err(error) = tunes.points(ranks, &LISTS) {
            prop_assert_eq!(error.exit_code(), 2);
        }
        plan.experiments.retain(|experiment| matches!(experiment, Experiment::Transfer(_)));
        let _none_is_left = plan.use_engines(&["shm".into()]);
        match plan.transfer_points(ranks) {
            Ok(points) => {
                let whole = points.iter().all(|point| {
                    point.footprint_bytes >= point.stride_bytes
                        && point.footprint_bytes.is_multiple_of(point.stride_bytes)
                        && point.stride_bytes >= u64::from(point.size_bytes)
                        && point.depth() >= 1
                });
                prop_assert!(whole);
            }
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    // The same entry points as the cargo-fuzz targets, so that a bounded run is part of every test.
    #[test]
    fn any_text_is_a_plan_or_refused_as_usage(text in "(?s).{0,200}") {
        if let Err(error) = Plan::from_toml(&text, "p") {
            prop_assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_damaged_plan_is_read_or_refused_as_usage(
        shipped in proptest::sample::select(SHIPPED.to_vec()),
        edits in proptest::collection::vec((any::<usize>(), 0usize..6, "(?s).{0,3}|[0-9.+*\"'=\\[\\]]{1,3}"), 1..4),
    ) {
        // Comments are left out, so that every edit hits something.
        let lines = shipped.lines().filter(|line| !line.starts_with('#'));
        let mut text: Vec<char> = lines.collect::<Vec<_>>().join("\n").chars().collect();
        for (at, removed, added) in edits {
            let start = at % text.len();
            let end = (start + removed).min(text.len());
            text.splice(start..end, added.chars());
        }
        match Plan::from_toml(&text.iter().collect::<String>(), "p") {
            Ok(plan) => {
                prop_assert_eq!(&Plan::from_toml(&plan.to_toml().unwrap(), "p").unwrap(), &plan);
                let ranks = plan.ranks.unwrap_or(2);
                let points = plan.points(ranks, &LISTS);
                prop_assert!(points.map_or_else(|e| e.exit_code() == 2, |points| !points.is_empty()));
            }
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }

    #[test]
    fn any_value_is_read_or_refused_as_usage(
        key in proptest::sample::select(Transfer::keys()),
        value in "[-+]?[0-9.]{1,8}|'[0-9a-zA-Z.,+*% /-]{0,12}'|\\[[0-9, ']{0,8}\\]|true|false",
    ) {
        let base = ["engine = 'shm'", "op = 'read'", "sizes = 64"];
        let lines: Vec<_> = base.iter().filter(|line| !line.starts_with(key)).copied().collect();
        let text = format!("name = 'p'\n[[transfer]]\n{}\n{key} = {value}\n", lines.join("\n"));
        match Plan::from_toml(&text, "p").and_then(|plan| plan.transfer_points(2)) {
            Ok(points) => prop_assert!(!points.is_empty()),
            Err(error) => prop_assert_eq!(error.exit_code(), 2),
        }
    }
}

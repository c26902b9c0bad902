//! File jobs of all kinds, valid and not, for the property tests of plans.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::options::{Many, Pair};
use crate::point::LimitChoice;
use crate::skipping::SkippingOptions;
use crate::sweep::Sweep;
use tonnage_units::{Bytes, Count, Nanos};

type Group<T> = BoxedStrategy<T>;

fn sweeps() -> impl Strategy<Value = Option<Sweep>> {
    let text = prop_oneof![
        "[1-9][0-9]{0,2}\\.\\.[1-9][0-9]{3}[kM]?",
        "[1-9][0-9]{0,5}[kM]?",
        "4k,[1-9]M",
        "[1-9]M\\.\\.[1-9]0M\\+1M",
    ];
    option::of(text.prop_map(|text| text.parse().unwrap()))
}

fn counts() -> impl Strategy<Value = Option<Count>> {
    option::of(prop_oneof![0u64..5, any::<u64>()].prop_map(Count))
}

fn shifts() -> impl Strategy<Value = Option<ReadShift>> {
    option::of(prop_oneof![
        any::<u64>().prop_map(ReadShift::Ranks),
        (1..=u64::MAX).prop_map(ReadShift::Nodes),
    ])
}

fn times() -> impl Strategy<Value = Option<Nanos>> {
    option::of(any::<u64>().prop_map(Nanos))
}

fn sizes() -> impl Strategy<Value = Option<Bytes>> {
    option::of(any::<u64>().prop_map(Bytes))
}

fn phases() -> impl Strategy<Value = Option<Many<Phase>>> {
    option::of(subsequence(Phase::ALL.to_vec(), 0..=3).prop_map(Many))
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    btree_map("[a-z_-]{1,8}", "\\PC{0,8}", 0..3).prop_map(|pairs| pairs.into_iter().collect())
}

type Places = (
    Option<String>,
    Option<Many<String>>,
    Vec<Pair>,
    Vec<String>,
    Option<FileLayout>,
);

fn places() -> Group<Places> {
    (
        option::of(".{0,20}"),
        option::of(vec("[a-z]{1,6}", 0..3).prop_map(Many)),
        pairs(),
        vec("\\PC{0,8}", 1..3),
        option::of(select(FileLayout::ALL.to_vec())),
    )
        .boxed()
}

type Reads = (
    Option<FileOrder>,
    Option<Many<Phase>>,
    Option<Count>,
    Option<ReadShift>,
    Option<Count>,
    Option<Fsync>,
);

fn reads() -> Group<Reads> {
    (
        option::of(select(FileOrder::ALL.to_vec())),
        phases(),
        counts(),
        shifts(),
        counts(),
        option::of(select(Fsync::ALL.to_vec())),
    )
        .boxed()
}

type Written = (
    Option<DataKind>,
    Option<Verify>,
    Option<StripeCount>,
    Option<Bytes>,
    Vec<Published>,
);

fn written() -> Group<Written> {
    let data = prop_oneof![
        Just(DataKind::Random),
        (1u32..=99).prop_map(|percent| DataKind::Compressible { percent }),
    ];
    let some = subsequence(Phase::ALL.to_vec(), 1..=3).prop_map(Verify::After);
    let stripes = prop_oneof![
        Just(StripeCount::All),
        (1..=u32::MAX).prop_map(StripeCount::Targets),
    ];
    (
        option::of(data),
        option::of(prop_oneof![Just(Verify::Last), some]),
        option::of(stripes),
        sizes(),
        vec(figures(), 0..3),
    )
        .boxed()
}

prop_compose! {
    fn figures()(
        phase in select(Phase::ALL.to_vec()),
        bandwidth_mib_per_s in option::of(-1.0..1e9),
        operations_per_s in option::of(0.0..1e9),
        ranks in option::of(any::<u32>()),
        percent_of_earlier in option::of(0.0..200.0),
        what in "\\PC{0,12}",
    ) -> Published {
        Published { phase, bandwidth_mib_per_s, operations_per_s, ranks, percent_of_earlier, what }
    }
}

type Long = (
    Option<Nanos>,
    Option<Count>,
    Option<Nanos>,
    Option<Nanos>,
    Option<Nanos>,
    Option<LimitChoice>,
);

fn long() -> Group<Long> {
    let limits = select(vec![LimitChoice::Auto, LimitChoice::None]);
    (
        times(),
        counts(),
        times(),
        times(),
        times(),
        option::of(limits),
    )
        .boxed()
}

prop_compose! {
    /// Any job that a plan can hold.
    pub(in crate) fn file_jobs()(
        (label, engine, hints, path, layout) in places(),
        (order, phases, read_percent, read_shift, read_shuffled, fsync) in reads(),
        (data, verify, stripe_count, stripe_size, published) in written(),
        (stonewall, trials, delay, max_duration, outlier, limit) in long(),
        [directory_per_rank, file_per_trial, direct, collective, file_view, barriers, keep, existing, wear_out, prefill,
            drop_caches, optional] in proptest::array::uniform12(any::<bool>()),
        (block, transfer, window) in (sweeps(), sweeps(), sweeps()),
        [segments, seed, threads, wear_out_transfers, data_seed] in proptest::array::uniform5(counts()),
        stonewall_status in option::of("\\PC{0,8}"),
        engine_options in pairs(),
    ) -> FileJob {
        FileJob {
            files: FilesOptions {
                label, path, layout, directory_per_rank, file_per_trial, keep, existing, prefill, stripe_count,
                stripe_size,
            },
            work: WorkOptions {
                block, transfer, segments, phases, read_percent, order, seed, read_shift, read_shuffled,
            },
            how: HowOptions {
                engine, engine_options, hints, direct, fsync, collective, file_view, barriers, threads, window,
                drop_caches,
            },
            data: DataOptions { data, data_seed, verify },
            length: FileLengthOptions {
                stonewall, wear_out, wear_out_transfers, stonewall_status, trials, delay, max_duration,
            },
            results: ResultsOptions { outlier, limit, published },
            skipping: SkippingOptions { optional },
        }
    }
}

//! Points for tests of this crate and others (feature `testing`). A test names only the fields that matter to it:
//! `TransferPoint { engine: "null".into(), ..transfer_point() }`.

use crate::files::{DataKind, FileLayout, FileOrder, FilePoint, Fsync, Phase, ReadFrom};
use crate::point::{BoundChoice, Traffic};
use crate::roles::Roles;
use crate::transfer::{
    Access, Batching, CqMode, Memories, Pacing, PointLength, Slots, TargetFootprint, TransferApi,
    TransferPoint, TrialLength, Verification,
};
use tonnage_engine::Verb;
use tonnage_engine::paths::Division;

/// Returns a small point with `slots` slots of 8 bytes, for loops over a test engine.
pub fn slots_point(access: Access, slots: u64) -> TransferPoint {
    TransferPoint {
        engine: "mock".into(),
        pacing: Pacing::Stream { depth: 4 },
        slots: Slots {
            size_bytes: 8,
            footprint_bytes: slots * 8,
            stride_bytes: 8,
            access,
            seed: 5,
            ..transfer_point().slots
        },
        bound: BoundChoice::None,
        length: iterations(100),
        ..transfer_point()
    }
}

/// The point of `engine = "shm"`, `op = "write"` and `sizes = 64` between two ranks.
pub fn transfer_point() -> TransferPoint {
    TransferPoint {
        label: None,
        engine: "shm".into(),
        engine_options: Default::default(),
        op: Verb::Write,
        roles: Roles::new(Traffic::Pair, 2),
        loads: None,
        threads: 1,
        division: Division::NONE,
        rail_shift: 0,
        background: None,
        cq: CqMode::Busy,
        batching: Batching::default(),
        api: TransferApi::Engine,
        session: None,
        place: None,
        pacing: Pacing::Stream { depth: 64 },
        memories: Memories {
            memory: "host".into(),
            target_memory: None,
            memory_options: Default::default(),
        },
        slots: Slots {
            size_bytes: 64,
            footprint_bytes: 4096,
            target_footprint: TargetFootprint::Own,
            stride_bytes: 64,
            access: Access::Sequential,
            local_access: None,
            seed: 1,
        },
        latency: true,
        verify: Verification::Off,
        per_rank: false,
        bound: BoundChoice::Auto,
        length: PointLength {
            trials: 5,
            trial: TrialLength::DurationNs(200_000_000),
            warmup_ns: 50_000_000,
            until_ci: None,
            max_duration_ns: None,
            interval_ns: None,
            checkpoint_ns: None,
        },
    }
}

/// Returns the length of one trial in which each thread issues this many operations, without a warm-up.
pub fn iterations(count: u64) -> PointLength {
    PointLength {
        trials: 1,
        trial: TrialLength::Iterations(count),
        warmup_ns: 0,
        ..transfer_point().length
    }
}

/// The point of `engine = "posix"`, `file = "t.dat"`, `block = "1M"` and `transfer = "256k"` of two ranks.
pub fn file_point() -> FilePoint {
    FilePoint {
        label: None,
        engine: "posix".into(),
        engine_options: Default::default(),
        hints: Default::default(),
        ranks: 2,
        threads: 1,
        paths: vec!["t.dat".into()],
        layout: FileLayout::Shared,
        directory_per_rank: false,
        file_per_trial: false,
        block_bytes: 1 << 20,
        transfer_bytes: 256 << 10,
        segments: 1,
        order: FileOrder::Sequential,
        seed: 1,
        phases: vec![Phase::Write, Phase::Read],
        read_percent: None,
        read_from: ReadFrom::Own,
        fsync: Fsync::None,
        direct: false,
        collective: false,
        file_view: false,
        barriers: false,
        keep: false,
        existing: false,
        depth: 1,
        stonewall: None,
        status_file: None,
        prefill: false,
        data: DataKind::Random,
        data_seed: None,
        verify_after: Vec::new(),
        drop_caches: false,
        striping: None,
        trials: 1,
        delay_ns: 0,
        max_duration_ns: None,
        bound: BoundChoice::Auto,
    }
}

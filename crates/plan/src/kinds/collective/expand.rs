//! Expands an experiment with collectives to its points. Every mistake that can be found before a rank starts is
//! refused here, in one sentence that names the nearest valid choice.

use super::options::{
    ACROSS_DEFAULT, ALIGN_DEFAULT, BOUND_DEFAULT, CallOptions, CollectiveJob, SEED_DEFAULT,
    TIMEOUT_DEFAULT,
};
use super::point::{Align, CollectivePoint, PYTHON_DEFAULT, Refill};
use crate::bounds::{MEMORY_BYTES_MAX, POINTS_MAX, RANKS_MAX};
use crate::cells::{Cell, Cells, cross_product};
use crate::conflicts::{self, Conflict};
use crate::engine_choice::choose;
use crate::gpu_options::refuse_gpu_options;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::options::{Many, pairs, several};
use crate::point::PointNotes;
use crate::published;
use crate::refuse::{usage_error, value_within};
use crate::skipping;
use crate::sweep::Sweep;
use crate::transfer::scale_length;
use crate::transfer::{LENGTH_CONFLICTS, PointLength, point_length};
use tonnage_collective::steps::{check, check_in_place};
use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_engine::backend::{BackendEntry, BackendVariant};
use tonnage_engine::{EngineOptions, Lists, split_name};
use tonnage_units::{Bytes, Count, Nanos, Result};

const TIMEOUT_NS_MIN: u64 = 1_000_000_000;
const TIMEOUT_NS_MAX: u64 = 3_600_000_000_000;

const CONFLICTS: &[Conflict] = &[
    Conflict::both(
        "print-calls",
        "align none",
        "back-to-back calls have no separate times",
        "use --align barrier, or leave --print-calls out",
    ),
    Conflict::both(
        "refill iteration",
        "align none",
        "back-to-back calls leave no time to refill",
        "use --refill trial, or use --align barrier",
    ),
];

impl Kind for CollectiveJob {
    type Point = CollectivePoint;

    const ABOUT: &'static str = "Operations of all ranks together, such as all-reduce";
    const AFTER_HELP: &'static str = "Sizes and chunk take sweeps: one value (4), a doubling range (1..16), a range with a factor (4k..1G*16), or \
    several of these joined by commas. Several sweeps multiply. k, M and G are powers of two; MB is 1e6.\n\n\
    The time of an iteration is that of the slowest rank; algorithm bandwidth is size / time. Bus bandwidth is the \
    traffic on the busiest link, assuming the best algorithm. Both are defined as in nccl-tests.\n\n\
    Examples:\n  \
    tonnage collective --backend native:shm --op all-reduce --sizes 8..64M*8 --ranks 2 --verify\n  \
    tonnage collective --backend native:shm,native:fabric:tcp --op all-to-all,all-gather --sizes 64k..16M*4 --ranks 4\n  \
    tonnage collective --backend native:shm,torch:gloo --op all-reduce --sizes 100MB --ranks 2\n  \
    mpirun -np 4 tonnage collective --backend mpi,native:fabric:tcp --op all-gather --sizes 64k..16M*4";

    /// Returns the cells of an experiment, at most `points_max`: one for each combination of operation, type,
    /// reduction, algorithm, chunk and size. The last varies fastest.
    fn cells(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<Vec<Cell<CollectivePoint>>> {
        let call = &self.call;
        let ops = Many::all(&call.op);
        if ops.is_empty() {
            return usage_error("--op is required, e.g. --op all-reduce; --help lists the others");
        }
        if self.length.interval.is_some() || self.length.checkpoint.is_some() {
            return usage_error(
                "--interval and --checkpoint apply to transfers only: leave them out",
            );
        }
        conflicts::check(self, &[CONFLICTS, LENGTH_CONFLICTS])?;
        check_effects(call, ops)?;
        let common = common(self, ranks, lists)?;
        let group_ranks = common.point.grouping().size();
        let algorithms = values_or_none(several("algorithm", &call.algorithm, "ring")?);
        let chunks = values_or_none(call.chunk.as_ref().map(Sweep::values));
        let mut cells = Cells::new();
        for &op in ops {
            let (elements, sizes) = (element_combinations(call, op), sizes(call, op)?);
            let counts = [elements.len(), algorithms.len(), chunks.len(), sizes.len()];
            let total = counts.into_iter().fold(1, usize::saturating_mul);
            if total > points_max - cells.len() {
                return usage_error(format!(
                    "the plan has more than {POINTS_MAX} points: use coarser sweeps, or several plans"
                ));
            }
            let root = root(call, op, group_ranks)?;
            let of_op = CollectivePoint {
                op,
                root,
                ..common.point.clone()
            };
            let points = cross_product(vec![of_op], &elements, |point, &(dtype, reduction)| {
                (point.dtype, point.reduction) = (dtype, reduction);
            });
            let points = cross_product(points, &algorithms, |point, &it| point.algorithm = it);
            let points = cross_product(points, &chunks, |point, &it| point.chunk_bytes = it);
            for mut point in cross_product(points, &sizes, |point, &size| point.size_bytes = size) {
                let checked = complete(&mut point, &common.backends);
                cells.add(point, checked)?;
            }
        }
        cells.all()
    }

    fn notes(&self) -> Result<PointNotes> {
        Ok(PointNotes {
            optional: self.skipping.optional,
            tables: published::check_and_share(&self.check.published)?,
            ..PointNotes::default()
        })
    }
}

impl AnyExperiment for CollectiveJob {
    fn label(&self) -> Option<&str> {
        self.call.label.as_deref()
    }

    /// Replaces the backends by native backends over these engines.
    fn use_engines(&mut self, engines: &[String]) -> bool {
        let native = engines.iter().map(|engine| format!("native:{engine}"));
        let (own, options) = (&mut self.call.backend, &self.call.engine_options);
        choose(own, native.collect(), options, self.skipping.optional)
    }

    fn scale(&mut self, scale: Scale) {
        scale_length(&mut self.length, scale.time);
    }
}

/// Returns the requested values, or a single `None` if the option was not given.
fn values_or_none<T: Copy>(asked: Option<&[T]>) -> Vec<Option<T>> {
    asked.map_or_else(
        || vec![None],
        |asked| asked.iter().copied().map(Some).collect(),
    )
}

/// Fills in a point's block, and refuses values that cannot be combined.
fn complete(point: &mut CollectivePoint, backends: &[&BackendEntry]) -> Result<()> {
    let (op, dtype) = (point.op, point.dtype);
    let elements = |entry: &&BackendEntry| entry.check(op, dtype, point.reduction);
    backends.iter().try_for_each(elements)?;
    check_in_place(op, point.in_place)?;
    if let Some(algorithm) = point.algorithm {
        check(op, algorithm, point.in_place)?;
    }
    if let Some(chunk_bytes) = point.chunk_bytes {
        check_chunk(chunk_bytes, dtype)?;
    }
    point.block_elements = block_elements(op, point.grouping().size(), dtype, point.size_bytes)?;
    Ok(())
}

/// Values that all points of an experiment share.
struct CommonParts {
    backends: Vec<&'static BackendEntry>,
    point: CollectivePoint,
}

fn common(job: &CollectiveJob, ranks: u32, lists: &Lists) -> Result<CommonParts> {
    let (call, results) = (&job.call, &job.check);
    if !(1..=RANKS_MAX).contains(&ranks) {
        return usage_error(format!(
            "{ranks} ranks cannot call anything together: use --ranks 1 to --ranks {RANKS_MAX}"
        ));
    }
    let (backends, engine_options) = backends(call, lists)?;
    check_place(call, &backends)?;
    let groups = call.groups.unwrap_or_default();
    groups.grouping(ranks)?;
    let align = call.align.unwrap_or(ALIGN_DEFAULT);
    let refill = call.refill.unwrap_or(match align {
        Align::None => Refill::Trial,
        Align::Barrier => Refill::Iteration,
    });
    let memory = match &call.memory {
        Some(memory) => memory.clone(),
        None => lists.default_memory().to_owned(),
    };
    if let Some(entry) = skipping::memory(lists, &memory, &job.skipping)?
        && !entry.host_addressable
    {
        return usage_error(format!(
            "--memory {memory} cannot be written by the CPU, which fills and checks the elements: use --memory host"
        ));
    }
    let Nanos(timeout_ns) = call.timeout.unwrap_or(TIMEOUT_DEFAULT);
    value_within(
        "timeout",
        Nanos(timeout_ns),
        Nanos(TIMEOUT_NS_MIN)..=Nanos(TIMEOUT_NS_MAX),
    )?;
    let Count(seed) = call.seed.unwrap_or(SEED_DEFAULT);
    let point = CollectivePoint {
        label: call.label.clone(),
        backends: Many::all(&call.backend).to_vec(),
        engine_options,
        op: Collective::Barrier,
        dtype: Dtype::Float32,
        reduction: None,
        root: 0,
        in_place: call.in_place,
        size_bytes: 0,
        block_elements: 0,
        ranks,
        groups,
        algorithm: None,
        chunk_bytes: None,
        align,
        refill,
        memory,
        place: call.place,
        seed,
        python: python(call, &backends)?,
        timeout_ns,
        verify: results.verify,
        across: results.rank_time.unwrap_or(ACROSS_DEFAULT),
        per_rank: results.per_rank,
        each: results.print_calls,
        bound: results.bound.unwrap_or(BOUND_DEFAULT),
        length: length(job)?,
    };
    Ok(CommonParts { backends, point })
}

/// Returns the rows of the requested backends, and the engine options for native ones.
fn backends(
    call: &CallOptions,
    lists: &Lists,
) -> Result<(Vec<&'static BackendEntry>, EngineOptions)> {
    let names = Many::all(&call.backend);
    if names.is_empty() {
        let known: Vec<_> = lists.backends.iter().map(|entry| entry.name).collect();
        return usage_error(format!(
            "--backend is required, e.g. --backend native:shm; there are {}",
            known.join(", ")
        ));
    }
    let asked = pairs::map(&call.engine_options);
    let (mut entries, mut options) = (Vec::new(), EngineOptions::new());
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return usage_error(format!("--backend {name} is named twice: name it once"));
        }
        let (entry, variant) = lists.backend(name)?;
        if entry.variant == BackendVariant::Engine {
            let engine = lists.engine(variant)?;
            if !engine.carries_collectives() {
                return usage_error(format!(
                    "--backend {name} needs an engine that moves bytes by write-imm, and {} does not: use --backend \
                     native:shm",
                    engine.name
                ));
            }
            let own = engine.check_options(&asked, split_name(variant).1)?;
            refuse_gpu_options(engine, &own)?;
            options.extend(own);
        }
        entries.push(entry);
    }
    let mut variants = entries.iter().map(|entry| &entry.variant);
    if !asked.is_empty() && !variants.any(|variant| *variant == BackendVariant::Engine) {
        return usage_error("--engine-option has no effect without a native backend: leave it out");
    }
    let own = entries.iter().any(|entry| entry.has_algorithms);
    if !own && (call.algorithm.is_some() || call.chunk.is_some()) {
        return usage_error(
            "--algorithm and --chunk have no effect without a native backend: leave them out, or add --backend \
             native:shm",
        );
    }
    Ok((entries, options))
}

/// Refuses options that apply to none of the operations, because the results would seem to be those of another call. An
/// option is accepted if it applies to at least one operation.
fn check_effects(call: &CallOptions, ops: &[Collective]) -> Result<()> {
    let moves = |op: Collective| op != Collective::Barrier;
    let (no_root, no_reduction, no_bytes) = ("no root", "nothing to reduce", "no bytes to move");
    // Each row: an option, whether it was given, the operations that have it, and why others do not.
    type OperationPredicate = fn(Collective) -> bool;
    let options: [(&str, bool, OperationPredicate, &str); 6] = [
        ("root", call.root.is_some(), Collective::is_rooted, no_root),
        (
            "reduce",
            call.reduce.is_some(),
            Collective::reduces,
            no_reduction,
        ),
        ("sizes", call.sizes.is_some(), moves, no_bytes),
        ("in-place", call.in_place, moves, no_bytes),
        ("dtype", call.dtype.is_some(), moves, no_bytes),
        ("chunk", call.chunk.is_some(), moves, no_bytes),
    ];
    for (option, given, has, lack) in options {
        if given && !ops.iter().copied().any(has) {
            let having: Vec<_> = Collective::ALL.into_iter().filter(|&op| has(op)).collect();
            return usage_error(format!(
                "--{option} has no effect on {}, which has {lack}: leave it out, or add one of --op {}",
                names(ops),
                names(&having)
            ));
        }
    }
    Ok(())
}

fn names(ops: &[Collective]) -> String {
    let names: Vec<_> = ops.iter().map(|op| op.name()).collect();
    names.join(", ")
}

/// Refuses `place` if no backend uses it.
fn check_place(call: &CallOptions, backends: &[&BackendEntry]) -> Result<()> {
    let in_workers = |entry: &&BackendEntry| matches!(entry.variant, BackendVariant::OneOf(_));
    if call.place.is_some() && backends.iter().all(in_workers) {
        return usage_error(
            "--place has no effect on torch's workers, which are not pinned: leave it out",
        );
    }
    Ok(())
}

/// Returns the Python interpreter of torch backends.
fn python(call: &CallOptions, backends: &[&BackendEntry]) -> Result<String> {
    let has_python = |entry: &&BackendEntry| matches!(entry.variant, BackendVariant::OneOf(_));
    match &call.python {
        Some(_) if !backends.iter().any(has_python) => usage_error(
            "--python has no effect without a torch backend: leave it out, or add --backend torch:gloo",
        ),
        asked => Ok(asked.clone().unwrap_or_else(|| PYTHON_DEFAULT.to_owned())),
    }
}

fn length(job: &CollectiveJob) -> Result<PointLength> {
    point_length(&job.length)
}

/// Returns each combination of type and reduction of an operation.
fn element_combinations(call: &CallOptions, op: Collective) -> Vec<(Dtype, Option<Reduction>)> {
    let dtypes = call
        .dtype
        .as_ref()
        .map_or(&[Dtype::Float32][..], Many::values);
    let dtypes = if op == Collective::Barrier {
        &dtypes[..1]
    } else {
        dtypes
    };
    let reductions: Vec<_> = match &call.reduce {
        _ if !op.reduces() => vec![None],
        None => vec![Some(Reduction::Sum)],
        Some(asked) => asked.values().iter().copied().map(Some).collect(),
    };
    let with = |&dtype| reductions.iter().map(move |&reduction| (dtype, reduction));
    dtypes.iter().flat_map(with).collect()
}

fn check_chunk(bytes: u64, dtype: Dtype) -> Result<()> {
    if bytes >= dtype.bytes() {
        return Ok(());
    }
    usage_error(format!(
        "--chunk {bytes} is less than one element of {dtype}: the smallest is --chunk {}",
        dtype.bytes()
    ))
}

/// Returns the sizes of an operation; a barrier has only the size 0.
fn sizes(call: &CallOptions, op: Collective) -> Result<Vec<u64>> {
    match &call.sizes {
        _ if op == Collective::Barrier => Ok(vec![0]),
        Some(sizes) => Ok(Sweep::values(sizes).to_vec()),
        None => usage_error(format!("--sizes is required for {op}, e.g. --sizes 1M")),
    }
}

fn root(call: &CallOptions, op: Collective, ranks: u32) -> Result<u32> {
    let Count(root) = call.root.unwrap_or(Count(0));
    match u32::try_from(root) {
        Ok(root) if root < ranks => Ok(if op.is_rooted() { root } else { 0 }),
        _ => usage_error(format!(
            "--root {root} is none of {ranks} ranks: the last one is --root {}",
            ranks - 1
        )),
    }
}

/// Returns the number of elements of one block among `ranks` ranks: 0 for a barrier, at least 1 otherwise.
fn block_elements(op: Collective, ranks: u32, dtype: Dtype, size_bytes: u64) -> Result<u64> {
    if op == Collective::Barrier {
        return Ok(0);
    }
    if op == Collective::SendRecvPairs && !ranks.is_multiple_of(2) {
        return usage_error(format!(
            "send-recv-pairs needs an even number of ranks and there are {ranks}: use --ranks {}, groups of an even \
             number, or --op send-recv-ring",
            ranks + 1
        ));
    }
    let shape = Shape::from_size((op, 0), ranks, dtype, size_bytes);
    let parts = if Shape::is_total(op) {
        u64::from(ranks)
    } else {
        1
    };
    if shape.block == 0 {
        return usage_error(format!(
            "--sizes {size_bytes} of {op} is less than one element of {dtype} for each rank: the smallest is {}",
            parts * dtype.bytes()
        ));
    }
    if size_bytes.saturating_mul(2) > MEMORY_BYTES_MAX {
        return usage_error(format!(
            "--sizes {} is more than the memory of a rank may be: the most is {}",
            Bytes(size_bytes),
            Bytes(MEMORY_BYTES_MAX / 2)
        ));
    }
    Ok(shape.block)
}

#[cfg(test)]
mod tests;

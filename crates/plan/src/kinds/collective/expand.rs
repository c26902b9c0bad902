//! The points of an experiment with collectives. Everything that can be known to be wrong is refused here, before a
//! rank starts, in one sentence that names the nearest valid choice.

mod without_effect;

use super::options::{
    ACROSS_DEFAULT, ALIGN_DEFAULT, CallOptions, CollectiveJob, LIMIT_DEFAULT, SEED_DEFAULT,
    TIMEOUT_DEFAULT,
};
use super::point::{Align, CollectivePoint, PYTHON_DEFAULT, Refill};
use crate::bounds::{MEMORY_BYTES_MAX, POINTS_MAX, RANKS_MAX};
use crate::cells::{Cell, Cells};
use crate::gpu_options::refuse_gpu_options;
use crate::options::{Many, pairs};
use crate::refuse::usage;
use crate::skipping;
use crate::sweep::Sweep;
use crate::transfer::{PointLength, point_length};
use tonnage_collective::steps::{check, check_in_place};
use tonnage_collective::{Algorithm, Collective, Dtype, Reduction, Shape};
use tonnage_engine::backend::{BackendEntry, BackendVariant};
use tonnage_engine::{EngineOptions, Lists, split_name};
use tonnage_units::{Bytes, Count, Nanos, Result};

const TIMEOUT_NS_MIN: u64 = 1_000_000_000;
const TIMEOUT_NS_MAX: u64 = 3_600_000_000_000;

/// The cells of an experiment, in each operation, type, reduction, algorithm, chunk and size, the last varying
/// fastest; at most `points_max`.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank, unless only some cells are.
pub(super) fn expand(
    job: &CollectiveJob,
    ranks: u32,
    lists: &Lists,
    points_max: usize,
) -> Result<Vec<Cell<CollectivePoint>>> {
    let call = &job.call;
    let ops = call.op.as_ref().map_or(&[][..], Many::values);
    if ops.is_empty() {
        return usage("op is missing: write op all-reduce, or another one that --help lists");
    }
    without_effect::refuse(call, ops)?;
    let common = common(job, ranks, lists)?;
    let group_ranks = common.point.grouping().size();
    let mut cells = Cells::new();
    for &op in ops {
        for (dtype, reduction) in elements(call, op) {
            for algorithm in algorithms_of(call) {
                for chunk_bytes in chunks(call) {
                    for size_bytes in sizes(call, op)? {
                        if cells.len() >= points_max {
                            return usage(format!(
                                "the plan has more than {POINTS_MAX} points: use coarser sweeps, or several plans"
                            ));
                        }
                        let mut point = CollectivePoint {
                            op,
                            dtype,
                            reduction,
                            root: root(call, op, group_ranks)?,
                            size_bytes,
                            algorithm,
                            chunk_bytes,
                            ..common.point.clone()
                        };
                        let checked = complete(&mut point, &common.backends);
                        cells.add(point, checked)?;
                    }
                }
            }
        }
    }
    cells.all()
}

/// Gives a point its block, where its values go together.
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
    point.block_elements = block(op, point.grouping().size(), dtype, point.size_bytes)?;
    Ok(())
}

/// Parts that all points of an experiment have.
struct Common {
    backends: Vec<&'static BackendEntry>,
    point: CollectivePoint,
}

fn common(job: &CollectiveJob, ranks: u32, lists: &Lists) -> Result<Common> {
    let (call, results) = (&job.call, &job.check);
    if !(1..=RANKS_MAX).contains(&ranks) {
        return usage(format!(
            "{ranks} ranks cannot call anything together: use --ranks 1 to --ranks {RANKS_MAX}"
        ));
    }
    let (backends, engine_options) = backends(call, lists)?;
    without_effect::refuse_for_backends(call, &backends)?;
    let groups = call.groups.unwrap_or_default();
    groups.of(ranks)?;
    let align = call.align.unwrap_or(ALIGN_DEFAULT);
    let refill = refill(call.refill, align)?;
    let memory = match &call.memory {
        Some(memory) => memory.clone(),
        None => lists.default_memory().to_owned(),
    };
    if let Some(entry) = skipping::memory(lists, &memory, &job.skipping)?
        && !entry.host_addressable
    {
        return usage(format!(
            "memory {memory} cannot be written by the CPU, which fills and checks the elements: use memory host"
        ));
    }
    let Nanos(timeout_ns) = call.timeout.unwrap_or(TIMEOUT_DEFAULT);
    if !(TIMEOUT_NS_MIN..=TIMEOUT_NS_MAX).contains(&timeout_ns) {
        return usage(format!(
            "timeout {} is not possible: write timeout {} to timeout {}",
            Nanos(timeout_ns),
            Nanos(TIMEOUT_NS_MIN),
            Nanos(TIMEOUT_NS_MAX)
        ));
    }
    let Count(seed) = call.seed.unwrap_or(SEED_DEFAULT);
    let point = CollectivePoint {
        label: call.label.clone(),
        backends: call
            .backend
            .as_ref()
            .map_or(Vec::new(), |it| it.values().to_vec()),
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
        across: results.across.unwrap_or(ACROSS_DEFAULT),
        per_rank: results.per_rank,
        each: each(results.each, align)?,
        limit: results.limit.unwrap_or(LIMIT_DEFAULT),
        length: length(job)?,
    };
    Ok(Common { backends, point })
}

/// The rows of the backends, and the options of the engines of native ones.
fn backends(
    call: &CallOptions,
    lists: &Lists,
) -> Result<(Vec<&'static BackendEntry>, EngineOptions)> {
    let names = call.backend.as_ref().map_or(&[][..], Many::values);
    if names.is_empty() {
        let known: Vec<_> = lists.backends.iter().map(|entry| entry.name).collect();
        return usage(format!(
            "backend is missing: write backend native:shm; there are {}",
            known.join(", ")
        ));
    }
    let asked = pairs::map(&call.engine_options);
    let (mut entries, mut options) = (Vec::new(), EngineOptions::new());
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return usage(format!("backend {name} is named twice: name it once"));
        }
        let (entry, variant) = lists.backend(name)?;
        if entry.variant == BackendVariant::Engine {
            let engine = lists.engine(variant)?;
            if !engine.carries_collectives() {
                return usage(format!(
                    "backend {name} needs an engine that moves bytes by write-imm, and {} does not: use backend native:shm",
                    engine.name
                ));
            }
            let own = engine.check_options(&asked, split_name(variant).1)?;
            refuse_gpu_options(engine, &own)?;
            options.extend(own);
        }
        entries.push(entry);
    }
    let is_native = |entry: &&BackendEntry| entry.variant == BackendVariant::Engine;
    if !asked.is_empty() && !entries.iter().copied().any(|entry| is_native(&entry)) {
        return usage("engine-option has no effect without a native backend: leave it out");
    }
    let own = entries.iter().any(|entry| entry.has_algorithms);
    if !own && (call.algorithm.is_some() || call.chunk.is_some()) {
        return usage(
            "algorithm and chunk have no effect without a native backend: leave them out, or add backend native:shm",
        );
    }
    Ok((entries, options))
}

/// Python of torch backends.
fn python(call: &CallOptions, backends: &[&BackendEntry]) -> Result<String> {
    let has_python = |entry: &&BackendEntry| matches!(entry.variant, BackendVariant::OneOf(_));
    match &call.python {
        Some(_) if !backends.iter().any(has_python) => usage(
            "python has no effect without a torch backend: leave it out, or add backend torch:gloo",
        ),
        asked => Ok(asked.clone().unwrap_or_else(|| PYTHON_DEFAULT.to_owned())),
    }
}

fn refill(asked: Option<Refill>, align: Align) -> Result<Refill> {
    match (asked, align) {
        (Some(Refill::Iteration), Align::None) => usage(
            "refill iteration and align none contradict each other, for calls that follow each other leave no time between \
             them: use refill trial, or align barrier",
        ),
        (Some(asked), _) => Ok(asked),
        (None, Align::None) => Ok(Refill::Trial),
        (None, Align::Barrier) => Ok(Refill::Iteration),
    }
}

fn each(asked: bool, align: Align) -> Result<bool> {
    match (asked, align) {
        (true, Align::None) => usage(
            "each and align none contradict each other, for calls that follow each other have no times of their own: use \
             align barrier, or leave each out",
        ),
        _ => Ok(asked),
    }
}

fn length(job: &CollectiveJob) -> Result<PointLength> {
    if job.length.interval.is_some() || job.length.checkpoint.is_some() {
        return usage("interval and checkpoint are of transfers: leave them out");
    }
    point_length(&job.length)
}

/// Types and reductions of an operation.
fn elements(call: &CallOptions, op: Collective) -> Vec<(Dtype, Option<Reduction>)> {
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

fn algorithms_of(call: &CallOptions) -> Vec<Option<Algorithm>> {
    match &call.algorithm {
        Some(asked) => asked.values().iter().copied().map(Some).collect(),
        None => vec![None],
    }
}

fn chunks(call: &CallOptions) -> Vec<Option<u64>> {
    match &call.chunk {
        Some(asked) => asked.values().iter().copied().map(Some).collect(),
        None => vec![None],
    }
}

fn check_chunk(bytes: u64, dtype: Dtype) -> Result<()> {
    if bytes >= dtype.bytes() {
        return Ok(());
    }
    usage(format!(
        "chunk {bytes} is less than one element of {dtype}: the smallest is chunk {}",
        dtype.bytes()
    ))
}

/// The sizes of an operation; 0 for a barrier, which has none.
fn sizes(call: &CallOptions, op: Collective) -> Result<Vec<u64>> {
    match &call.sizes {
        _ if op == Collective::Barrier => Ok(vec![0]),
        Some(sizes) => Ok(Sweep::values(sizes).to_vec()),
        None => usage(format!("sizes is missing: write sizes 1M for {op}")),
    }
}

fn root(call: &CallOptions, op: Collective, ranks: u32) -> Result<u32> {
    let Count(root) = call.root.unwrap_or(Count(0));
    match u32::try_from(root) {
        Ok(root) if root < ranks => Ok(if op.is_rooted() { root } else { 0 }),
        _ => usage(format!(
            "root {root} is none of {ranks} ranks: the last one is root {}",
            ranks - 1
        )),
    }
}

/// Elements of one block of so many ranks, of which there is at least one.
fn block(op: Collective, ranks: u32, dtype: Dtype, size_bytes: u64) -> Result<u64> {
    if op == Collective::Barrier {
        return Ok(0);
    }
    if op == Collective::SendRecvPairs && !ranks.is_multiple_of(2) {
        return usage(format!(
            "send-recv-pairs needs an even number of ranks and there are {ranks}: use --ranks {}, groups of an even number, or \
             op send-recv-ring",
            ranks + 1
        ));
    }
    let shape = Shape::of_size((op, 0), ranks, dtype, size_bytes);
    let parts = if Shape::is_total(op) {
        u64::from(ranks)
    } else {
        1
    };
    if shape.block == 0 {
        return usage(format!(
            "size {size_bytes} of {op} is less than one element of {dtype} for each rank: the smallest is {}",
            parts * dtype.bytes()
        ));
    }
    if size_bytes.saturating_mul(2) > MEMORY_BYTES_MAX {
        return usage(format!(
            "size {} is more than a rank can have: the most is {}",
            Bytes(size_bytes),
            Bytes(MEMORY_BYTES_MAX / 2)
        ));
    }
    Ok(shape.block)
}

#[cfg(test)]
mod tests;

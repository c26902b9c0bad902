//! `tonnage verify --collectives`: every operation of every backend, with every element checked.

use tonnage_collective::steps::{algorithms, check, check_in_place};
use tonnage_collective::{Algorithm, Collective};
use tonnage_engine::Lists;
use tonnage_engine::backend::{BackendEntry, BackendVariant};
use tonnage_plan::Experiment;
use tonnage_plan::collective::{CallOptions, CheckOptions, CollectiveJob};
use tonnage_plan::options::Many;
use tonnage_plan::point::BoundChoice;
use tonnage_plan::skipping::SkippingOptions;
use tonnage_plan::sweep::Sweep;
use tonnage_plan::transfer::LengthOptions;
use tonnage_units::{Count, Error, Nanos, Result};

use super::{Ranks, VerifyArgs};

/// Calls per trial. The second call can detect data that the first call left behind.
const CALLS: Count = Count(2);

/// Maximum message size in the tests of chunking. It is small, so that the largest call is cut into many messages.
const CHUNK_BYTES: u64 = 4096;

impl VerifyArgs {
    /// Returns the experiments for each backend. They run every operation at many sizes, with every supported type and
    /// reduction, in place, and from another root. Native backends also run every algorithm, with calls that are cut
    /// into many messages.
    pub(super) fn collective_jobs(
        &self,
        ops: &[Collective],
        lists: &Lists,
        ranks: Ranks,
    ) -> Result<Vec<Experiment>> {
        let Ranks {
            size: ranks,
            launched,
        } = ranks;
        let sizes = if self.sizes.is_empty() {
            default_sizes(ranks)
        } else {
            self.sizes.iter().flat_map(Sweep::values).copied().collect()
        };
        let backends = if self.backend.is_empty() {
            lists.usual_backends(launched)
        } else {
            self.backend.clone()
        };
        let ops = checkable(ops, ranks)?;
        let mut jobs = Vec::new();
        let mut types_are_checked = false;
        for name in &backends {
            let (entry, _) = lists.backend(name)?;
            let plan = OneBackend {
                name,
                entry,
                python: self.python.as_ref().filter(|_| is_in_workers(entry)),
                sizes: &sizes,
                is_optional: self.backend.is_empty(),
            };
            let is_native = entry.has_algorithms;
            // All engines share the code that reduces, so one native backend is enough to check the types.
            let with_types = !(is_native && types_are_checked);
            types_are_checked |= is_native;
            jobs.extend(plan.jobs(&ops, ranks, with_types)?);
        }
        Ok(jobs.into_iter().map(Experiment::from).collect())
    }
}

fn is_in_workers(entry: &BackendEntry) -> bool {
    matches!(entry.variant, BackendVariant::OneOf(_))
}

/// Returns the operations that move data and support this number of ranks.
fn checkable(asked: &[Collective], ranks: u32) -> Result<Vec<Collective>> {
    if asked.contains(&Collective::Barrier) {
        return Err(Error::Usage(
            "a barrier moves no bytes, so there is nothing to verify: leave it out of --collectives".to_owned(),
        ));
    }
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    let fits = |op: &Collective| *op != Collective::SendRecvPairs || ranks.is_multiple_of(2);
    let moving = Collective::ALL
        .into_iter()
        .filter(|op| *op != Collective::Barrier);
    Ok(moving.filter(fits).collect())
}

/// Returns sizes in bytes that reveal errors: one element for each rank, and odd multiples of that size. Others are one
/// element more than 4 KiB, 64 KiB and 1 MiB, which most numbers of ranks do not divide.
fn default_sizes(ranks: u32) -> Vec<u64> {
    let least = u64::from(ranks) * 4;
    let mut sizes = vec![least, 3 * least, 17 * least];
    sizes.extend([4096, 64 << 10, 1 << 20].map(|edge| least.max(edge + 4)));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// A backend, and the sizes with which it is verified.
struct OneBackend<'a> {
    name: &'a str,
    entry: &'a BackendEntry,
    python: Option<&'a String>,
    sizes: &'a [u64],
    /// True if the user did not name the backend. Features that the machine lacks are then not failures.
    is_optional: bool,
}

impl OneBackend<'_> {
    fn jobs(&self, ops: &[Collective], ranks: u32, with_types: bool) -> Result<Vec<CollectiveJob>> {
        let all = Sweep::from_values(self.sizes)?;
        let middle = Sweep::single(self.sizes[self.sizes.len() / 2].max(u64::from(ranks) * 8));
        let mut jobs = vec![self.job("sizes", ops, &all)];
        if with_types {
            let mut job = self.job("types", ops, &middle);
            job.call.dtype = Some(self.entry.dtypes.to_vec().into());
            if ops.iter().any(|op| op.reduces()) {
                job.call.reduce = Some(self.entry.reductions.to_vec().into());
            }
            // Even a library that the user named may lack some types or reductions.
            job.skipping.optional = true;
            jobs.push(job);
        }
        let rooted: Vec<_> = ops.iter().copied().filter(|op| op.is_rooted()).collect();
        if !rooted.is_empty() && ranks > 1 {
            let mut job = self.job("another root", &rooted, &middle);
            job.call.root = Some(Count(u64::from(ranks) - 1));
            jobs.push(job);
        }
        for &op in ops {
            jobs.extend(self.in_place(op, &middle));
            if self.entry.has_algorithms {
                jobs.push(self.by_algorithms(op, &all));
            }
        }
        Ok(jobs)
    }

    /// Returns a job that runs the operation in place, with every algorithm that supports this.
    fn in_place(&self, op: Collective, sizes: &Sweep) -> Option<CollectiveJob> {
        if self.entry.in_place_always.contains(&op) || check_in_place(op, true).is_err() {
            return None;
        }
        let mut job = self.job("in place", &[op], sizes);
        job.call.in_place = true;
        job.call.algorithm = self.ways(op, true);
        Some(job)
    }

    fn by_algorithms(&self, op: Collective, sizes: &Sweep) -> CollectiveJob {
        let mut job = self.job("algorithms", &[op], sizes);
        job.call.algorithm = self.ways(op, false);
        job.call.chunk = Some(Sweep::single(CHUNK_BYTES));
        job
    }

    fn ways(&self, op: Collective, in_place: bool) -> Option<Many<Algorithm>> {
        let all = algorithms(op).iter().copied();
        let ways: Vec<_> = all
            .filter(|&way| check(op, way, in_place).is_ok())
            .collect();
        self.entry.has_algorithms.then(|| ways.into())
    }

    /// Creates a job with a label. The label distinguishes jobs of the same size.
    fn job(&self, label: &str, ops: &[Collective], sizes: &Sweep) -> CollectiveJob {
        CollectiveJob {
            call: CallOptions {
                label: Some(label.to_owned()),
                backend: Some(vec![self.name.to_owned()].into()),
                op: Some(ops.to_vec().into()),
                sizes: Some(sizes.clone()),
                python: self.python.cloned(),
                ..CallOptions::default()
            },
            check: CheckOptions {
                verify: true,
                bound: Some(BoundChoice::None),
                ..CheckOptions::default()
            },
            length: LengthOptions {
                trials: Some(Count(1)),
                iters: Some(CALLS),
                warmup: Some(Nanos(0)),
                ..LengthOptions::default()
            },
            skipping: SkippingOptions {
                optional: self.is_optional,
            },
        }
    }
}

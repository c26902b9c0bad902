//! Properties that all points of a file job share: all except engine, block, transfer and depth.

use super::names::{ReadShift, StripeCount, Verify};
use super::options::{
    BOUND_DEFAULT, DATA_DEFAULT, FSYNC_DEFAULT, FileJob, LAYOUT_DEFAULT, ORDER_DEFAULT,
    SEED_DEFAULT, SEGMENTS_DEFAULT, THREADS_DEFAULT, TRIALS_DEFAULT,
};
use super::point::{FileLayout, FileOrder, FilePoint, Fsync, Phase, ReadFrom, Stonewall, Striping};
use crate::bounds::THREADS_MAX;
use crate::conflicts::Conflict;
use crate::options::{Many, pairs};
use crate::point::PointNotes;
use crate::refuse::{mover_count, repetition_count, time_within, usage_error};
use tonnage_engine::EngineOptions;
use tonnage_units::Result;
use tonnage_units::names::quote;
use tonnage_units::{Bytes, Count, Nanos};

const TRIALS_MAX: u64 = 100_000;
const MILLISECOND_NS: u64 = 1_000_000;
const DAY_NS: u64 = 24 * 3_600_000_000_000;
const WEEK_NS: u64 = 7 * DAY_NS;

/// Longest path, and longest name within a path, that Linux accepts.
const PATH_BYTES_MAX: usize = 4095;
const NAME_BYTES_MAX: usize = 255;

/// Stripe sizes must be multiples of this.
const STRIPE_UNIT_BYTES: u64 = 64 << 10;

/// Returns a point with the values that all cells of the job share.
pub(super) fn base_point(job: &FileJob, ranks: u32) -> Result<FilePoint> {
    let layout = job.files.layout.unwrap_or(LAYOUT_DEFAULT);
    check_paths(job, layout)?;
    let phases = phases(job)?;
    check_together(job, layout, &phases)?;
    check_effects(job, &phases)?;
    // Fits: at most `TRIALS_MAX`.
    let Count(trials) = job.length.trials.unwrap_or(TRIALS_DEFAULT);
    let trials = repetition_count("trials", trials, TRIALS_MAX)? as u32;
    Ok(FilePoint {
        label: job.files.label.clone(),
        engine: String::new(),
        engine_options: EngineOptions::new(),
        hints: pairs::map(&job.how.hints),
        ranks,
        threads: mover_count(
            "threads",
            job.how.threads.unwrap_or(THREADS_DEFAULT).0,
            THREADS_MAX,
        )?,
        paths: job.files.path.clone(),
        layout,
        directory_per_rank: job.files.directory_per_rank,
        file_per_trial: job.files.file_per_trial,
        block_bytes: 0,
        transfer_bytes: 0,
        segments: segments(job)?,
        order: job.work.order.unwrap_or(ORDER_DEFAULT),
        seed: job.work.seed.unwrap_or(SEED_DEFAULT).0,
        read_percent: read_percent(job, &phases)?,
        read_from: read_from(job, ranks)?,
        fsync: job.how.fsync.unwrap_or(FSYNC_DEFAULT),
        direct: job.how.direct,
        collective: job.how.collective,
        file_view: job.how.file_view,
        barriers: job.how.barriers,
        keep: job.files.keep,
        existing: job.files.existing,
        depth: 1,
        stonewall: stonewall(job)?,
        status_file: status_file(job, &phases)?,
        prefill: job.files.prefill,
        data: job.data.data.unwrap_or(DATA_DEFAULT),
        data_seed: job.data.data_seed.map(|Count(seed)| seed),
        verify_after: verify_after(job, &phases)?,
        drop_caches: job.how.drop_caches,
        striping: striping(job, &phases)?,
        trials,
        delay_ns: optional_time("delay", job.length.delay, 0, DAY_NS)?.unwrap_or(0),
        max_duration_ns: optional_time(
            "max-duration",
            job.length.max_duration,
            MILLISECOND_NS,
            WEEK_NS,
        )?,
        bound: job.results.bound.unwrap_or(BOUND_DEFAULT),
        phases,
    })
}

/// Returns facts for readers of the results. They hold for all points of the job.
pub(super) fn point_notes(job: &FileJob) -> Result<PointNotes> {
    check_published(job, &phases(job)?)?;
    Ok(PointNotes {
        optional: job.skipping.optional,
        published: job.results.published.clone(),
        outlier_ns: optional_time("outlier", job.results.outlier, 1, DAY_NS)?,
        ..PointNotes::default()
    })
}

fn check_paths(job: &FileJob, layout: FileLayout) -> Result<()> {
    if job.files.path.is_empty() {
        return usage_error("--path is required, e.g. --path data/file");
    }
    for path in &job.files.path {
        if path.is_empty() || path.contains('\0') {
            return usage_error(format!(
                "--path {} cannot be the name of a file: e.g. --path data/file",
                quote(path)
            ));
        }
        let longest = path.split('/').map(str::len).max().unwrap_or(0);
        if path.len() > PATH_BYTES_MAX || longest > NAME_BYTES_MAX {
            return usage_error(format!(
                "--path {} is too long: a path has at most {PATH_BYTES_MAX} bytes, and a name in it {NAME_BYTES_MAX}",
                quote(path)
            ));
        }
        if path.ends_with('/') {
            return usage_error(format!(
                "--path {path} is a directory, and files need a name: use --path {path}file"
            ));
        }
    }
    if job.files.path.len() > 1 && layout == FileLayout::Shared {
        return usage_error(format!(
            "--layout shared has one file and there are {} paths: leave {} of them out, or use --layout \
             per-process, where the ranks take the paths in turn",
            job.files.path.len(),
            job.files.path.len() - 1
        ));
    }
    Ok(())
}

fn phases(job: &FileJob) -> Result<Vec<Phase>> {
    let asked = Many::all(&job.work.phases);
    let phases = match (asked, job.work.read_percent) {
        ([], None) => vec![Phase::Write, Phase::Read],
        ([], Some(_)) => vec![Phase::Mixed],
        (given, _) => given.to_vec(),
    };
    match first_repeated(&phases) {
        Some(twice) => usage_error(format!(
            "--phases has {} twice: leave one of them out, or repeat everything with --trials 2",
            twice.name()
        )),
        None => Ok(phases),
    }
}

fn first_repeated(phases: &[Phase]) -> Option<Phase> {
    let again = |(at, phase): &(usize, &Phase)| phases[..*at].contains(phase);
    phases
        .iter()
        .enumerate()
        .find(again)
        .map(|(_, phase)| *phase)
}

/// Refuses options without another option that they need, and options that cannot be combined.
fn check_together(job: &FileJob, layout: FileLayout, phases: &[Phase]) -> Result<()> {
    let shared = layout == FileLayout::Shared;
    let mixed = phases.contains(&Phase::Mixed);
    let threads = job.how.threads.is_some_and(|Count(threads)| threads > 1);
    let why = match () {
        () if job.files.directory_per_rank && shared => {
            "--directory-per-rank needs a file for each rank: add --layout per-process, or leave it out"
        }
        () if job.how.collective && !shared => {
            "--collective needs one file for all ranks: use --layout shared, or leave --collective out"
        }
        () if job.how.file_view && !shared => {
            "--file-view shows each rank its parts of one file: use --layout shared, or leave --file-view out"
        }
        () if job.how.collective && mixed => {
            "--collective and --phases mixed are mutually exclusive, because all ranks make each transfer together, \
             and in a mixed phase each chooses independently between read and write: leave --collective out, or use \
             --phases write,read"
        }
        () if job.how.collective && threads => {
            "--collective and --threads are mutually exclusive, because a rank takes part in a collective transfer \
             once: leave --threads out, or use more ranks"
        }
        () => return Ok(()),
    };
    usage_error(why)
}

/// Refuses options that would have no effect in these phases.
fn check_effects(job: &FileJob, phases: &[Phase]) -> Result<()> {
    let reads = phases.iter().any(|phase| phase.reads());
    let writes = phases.iter().any(|phase| phase.writes());
    let fills = writes || job.files.prefill;
    let verifies = job.data.verify.is_some();
    let shifted = !matches!(job.work.read_shift, None | Some(ReadShift::Ranks(0)));
    let by_chance = job.work.order == Some(FileOrder::Shuffled) || phases.contains(&Phase::Mixed);
    let why = match () {
        () if job.how.drop_caches && !reads => {
            "--drop-caches is for phases that read, and there is none: leave it out, or add read to --phases"
        }
        () if (shifted || job.work.read_shuffled.is_some()) && !reads => {
            "--read-shift and --read-shuffled are for phases that read, and there is none: leave them out, or add \
             read to --phases"
        }
        () if job.how.fsync.is_some_and(|fsync| fsync != Fsync::None) && !writes => {
            "--fsync is for phases that write, and there is none: leave it out, or add write to --phases"
        }
        () if job.files.existing && !fills => {
            "--existing is about files that will be written, and there are none: leave it out, or add write to \
             --phases"
        }
        () if job.data.data.is_some() && !fills && !verifies => {
            "--data applies to bytes that are written or verified, and there are none: leave it out, or add --verify"
        }
        () if job.data.data_seed.is_some() && !fills && !verifies => {
            "--data-seed applies to bytes that are written or verified, and there are none: leave it out, or add \
             --verify"
        }
        () if job.work.seed.is_some() && !by_chance => {
            "--seed is for --order shuffled and for --phases mixed, and neither is asked for: leave it out, or add \
             --order shuffled"
        }
        () => return Ok(()),
    };
    usage_error(why)
}

fn check_published(job: &FileJob, phases: &[Phase]) -> Result<()> {
    for figure in &job.results.published {
        let name = figure.phase.name();
        if !phases.contains(&figure.phase) {
            return usage_error(format!(
                "--published has a figure of phase {name}, which is not measured: move it to the experiment that \
                 measures it"
            ));
        }
        let given = [figure.bandwidth_mib_per_s, figure.operations_per_s];
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let percent = figure.percent_of_earlier.is_none_or(positive);
        let any = given.iter().any(Option::is_some);
        if !any || !percent || !given.into_iter().flatten().all(positive) {
            return usage_error(format!(
                "published of phase {name} needs figures above 0: write bandwidth-mib-per-s or operations-per-s"
            ));
        }
    }
    Ok(())
}

/// Checks the number of segments alone. Its products with sizes are checked when the sizes are known.
fn segments(job: &FileJob) -> Result<u64> {
    match job.work.segments.unwrap_or(SEGMENTS_DEFAULT) {
        Count(0) => usage_error("--segments 0 would move nothing: the fewest is --segments 1"),
        Count(segments) => Ok(segments),
    }
}

fn read_percent(job: &FileJob, phases: &[Phase]) -> Result<Option<u32>> {
    let mixed = phases.contains(&Phase::Mixed);
    match job.work.read_percent {
        None if mixed => usage_error(
            "--phases mixed needs to know how many of 100 transfers are reads: add --read-percent 70",
        ),
        None => Ok(None),
        Some(Count(percent)) if !mixed => usage_error(format!(
            "--read-percent {percent} is for --phases mixed, which is not asked for: leave --phases out, or use \
             --phases mixed"
        )),
        Some(Count(percent)) => match u32::try_from(percent) {
            Ok(percent @ 1..=99) => Ok(Some(percent)),
            _ => usage_error(format!(
                "--read-percent {percent} mixes nothing: use 1 to 99, or use --phases write or --phases read"
            )),
        },
    }
}

pub(super) const CONFLICTS: &[Conflict] = &[Conflict::both(
    "read-shift",
    "read-shuffled",
    "both choose the rank that wrote the data",
    "leave one of them out",
)];

fn read_from(job: &FileJob, ranks: u32) -> Result<ReadFrom> {
    match (job.work.read_shift, job.work.read_shuffled) {
        (None | Some(ReadShift::Ranks(0)), None) => Ok(ReadFrom::Own),
        (_, _) if ranks == 1 => usage_error(
            "with one rank there is no other rank's data to read: use --ranks 2, or leave --read-shift and \
             --read-shuffled out",
        ),
        (_, Some(Count(seed))) => Ok(ReadFrom::Shuffled { seed }),
        // A distance in nodes is converted to ranks when the ranks have joined. Until then, a node counts as one rank.
        (Some(ReadShift::Nodes(nodes)), None) => Ok(ReadFrom::Shift {
            ranks: ranks_of_node_shift(nodes, 1, ranks).unwrap_or(1),
        }),
        (Some(ReadShift::Ranks(shift)), None) => match u32::try_from(shift) {
            Ok(shift) if shift < ranks => Ok(ReadFrom::Shift { ranks: shift }),
            _ => usage_error(format!(
                "--read-shift {shift} wraps around {ranks} ranks: use --read-shift {} or less, or use more --ranks",
                ranks - 1
            )),
        },
    }
}

/// Converts a distance of `nodes` nodes to ranks, by IOR's rule. Returns `None` if the distance leads back to the rank
/// itself. The conversion must wait until the ranks have joined, because a rank learns from its launcher only the
/// number of ranks on its own host. If hosts differ in this number, the ranks' plans would differ.
pub(super) fn ranks_of_node_shift(nodes: u64, ranks_of_node: u32, ranks: u32) -> Option<u32> {
    let ranks = u64::from(ranks.max(1));
    // Both factors are below 2^32.
    let shift = (nodes % ranks) * (u64::from(ranks_of_node) % ranks) % ranks;
    u32::try_from(shift).ok().filter(|&shift| shift > 0)
}

fn stonewall(job: &FileJob) -> Result<Option<Stonewall>> {
    let after_ns = optional_time("stonewall", job.length.stonewall, MILLISECOND_NS, WEEK_NS)?;
    let Some(after_ns) = after_ns else {
        return match (job.length.wear_out, job.length.wear_out_transfers) {
            (false, None) => Ok(None),
            _ => usage_error(
                "--wear-out needs a stonewall: add --stonewall 30s, or leave --wear-out out",
            ),
        };
    };
    let transfers_min = match job.length.wear_out_transfers {
        Some(_) if !job.length.wear_out => {
            return usage_error(
                "--wear-out-transfers bounds --wear-out, which is not given: add --wear-out",
            );
        }
        Some(Count(0)) => {
            return usage_error(
                "--wear-out-transfers 0 bounds nothing: use 1 or more, or leave it out",
            );
        }
        transfers => transfers.map_or(0, |Count(transfers)| transfers),
    };
    Ok(Some(Stonewall {
        after_ns,
        wear_out: job.length.wear_out,
        transfers_min,
    }))
}

/// Checks the path of the status file. A run that writes stores its progress there, and a run that only reads uses it.
fn status_file(job: &FileJob, phases: &[Phase]) -> Result<Option<String>> {
    let Some(path) = &job.length.stonewall_status else {
        return Ok(None);
    };
    if path.is_empty() || path.contains('\0') || path.ends_with('/') {
        return usage_error(format!(
            "--stonewall-status {} cannot be the name of a file: e.g. --stonewall-status written.json",
            quote(path)
        ));
    }
    if job.length.stonewall.is_none() && phases.iter().any(|phase| phase.writes()) {
        return usage_error(
            "--stonewall-status stores how much was written until the stonewall, and there is none: add --stonewall \
             30s, or leave --stonewall-status out",
        );
    }
    Ok(Some(path.clone()))
}

fn verify_after(job: &FileJob, phases: &[Phase]) -> Result<Vec<Phase>> {
    let after = match &job.data.verify {
        None => Vec::new(),
        Some(Verify::Last) => phases.last().copied().into_iter().collect(),
        Some(Verify::After(after)) => after.clone(),
    };
    if let Some(absent) = after.iter().find(|phase| !phases.contains(phase)) {
        let name = absent.name();
        return usage_error(format!(
            "--verify={name} checks a phase that is not measured: add {name} to --phases, or use --verify without a \
             phase"
        ));
    }
    match first_repeated(&after) {
        Some(twice) => usage_error(format!(
            "--verify has phase {} twice: leave one of them out",
            twice.name()
        )),
        None => Ok(after),
    }
}

fn striping(job: &FileJob, phases: &[Phase]) -> Result<Option<Striping>> {
    if job.files.stripe_count.is_none() && job.files.stripe_size.is_none() {
        return Ok(None);
    }
    if !job.files.prefill && !phases.iter().any(|phase| phase.writes()) {
        return usage_error(
            "--stripe-count and --stripe-size apply to new files, and no phase writes: leave them out",
        );
    }
    if let Some(Bytes(size)) = job.files.stripe_size
        && (size == 0 || !size.is_multiple_of(STRIPE_UNIT_BYTES) || size >= 4 << 30)
    {
        return usage_error(format!(
            "--stripe-size {} is not a multiple of {} below 4G: e.g. --stripe-size 1M",
            Bytes(size),
            Bytes(STRIPE_UNIT_BYTES)
        ));
    }
    let count = match job.files.stripe_count {
        Some(StripeCount::Targets(targets)) => Some(targets),
        Some(StripeCount::All) => None,
        // Only the stripe size was requested, so the file system chooses the count.
        None => Some(0),
    };
    Ok(Some(Striping {
        count,
        size_bytes: job.files.stripe_size.map(|Bytes(size)| size),
    }))
}

fn optional_time(what: &str, given: Option<Nanos>, least: u64, most: u64) -> Result<Option<u64>> {
    given
        .map(|Nanos(ns)| time_within(what, "", ns, "", least..=most))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_in_nodes_becomes_one_in_ranks() {
        assert_eq!(ranks_of_node_shift(1, 1, 2), Some(1));
        assert_eq!(ranks_of_node_shift(1, 4, 8), Some(4));
        assert_eq!(ranks_of_node_shift(2, 4, 12), Some(8));
        assert_eq!(ranks_of_node_shift(5, 4, 16), Some(4));
        assert_eq!(ranks_of_node_shift(2, 4, 8), None);
        assert_eq!(ranks_of_node_shift(1, 1, 1), None);
        assert_eq!(ranks_of_node_shift(u64::MAX, u32::MAX, u32::MAX), None);
    }
}

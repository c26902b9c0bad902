//! Properties in which the points of a file job differ: engine, block, depth and transfer.

use super::options::{ENGINE_DEFAULT, FileJob};
use super::point::{FileLayout, FileOrder, FilePoint, Fsync};
use crate::bounds::{MEMORY_BYTES_MAX, SIZE_BYTES_MAX};
use crate::options::{Many, pairs};
use crate::refuse::{usage_error, value_within};
use crate::sweep::Sweep;
use tonnage_engine::calls::FileEntry;
use tonnage_engine::{EngineOptions, Lists, OptionsOwner, check_options};
use tonnage_units::Bytes;
use tonnage_units::Result;

/// Default number of transfers in flight, and the maximum number of bytes that these may have.
const DEPTH_DEFAULT: u64 = 32;
const DEPTH_BYTES_DEFAULT_MAX: u64 = 64 << 20;

/// Maximum number of transfers in flight for one thread: the largest ring that the kernel accepts.
const DEPTH_MAX: u64 = 32_768;

/// Maximum bytes of all ranks together. Up to this, no offset and no sum overflows.
const TOTAL_BYTES_MAX: u64 = 1 << 60;

/// Bytes of the stamp at the beginning of each sector of a file. The stamp identifies the data as tonnage's.
const STAMP_BYTES: u64 = 16;

/// Alignment of direct transfers on every file system that supports them. A file system may require more.
const DIRECT_BYTES: u64 = 512;

/// An engine of a job: its entry, and its options that differ from the defaults.
pub(super) struct JobEngine<'a> {
    pub(super) entry: &'a FileEntry,
    pub(super) options: EngineOptions,
    /// Why the engine cannot run the job; `None` if it can.
    unsupported: Option<String>,
    /// Name of an engine that takes several transfers at a time, for messages.
    queued: Option<&'static str>,
}

/// Returns the engines of a job.
pub(super) fn entries(job: &FileJob, lists: &Lists) -> Result<Vec<JobEngine<'static>>> {
    let default = [ENGINE_DEFAULT.to_owned()];
    let names = match Many::all(&job.how.engine) {
        [] => &default,
        given => given,
    };
    let asked = pairs::map(&job.how.engine_options);
    let named = |name: &String| {
        let entry = lists.file_engine(name)?;
        let options = check_options(OptionsOwner::Engine(entry.name), entry.options, &asked, "")?;
        let supported = check_support(job, entry, lists.file_engines);
        Ok(JobEngine {
            entry,
            options,
            unsupported: supported.err().map(|error| error.to_string()),
            queued: (lists.file_engines.iter())
                .find(|other| other.queues)
                .map(|other| other.name),
        })
    };
    names.iter().map(named).collect()
}

/// Refuses an engine that lacks a capability that the job needs.
fn check_support(job: &FileJob, entry: &FileEntry, engines: &[FileEntry]) -> Result<()> {
    let name = entry.name;
    let instead = |fits: fn(&FileEntry) -> bool| {
        let fitting = engines.iter().find(|entry| fits(entry));
        fitting.map_or(String::new(), |entry| {
            format!(", or use --engine {}", entry.name)
        })
    };
    let together = [
        ("collective", job.how.collective),
        ("file-view", job.how.file_view),
        ("hint", !job.how.hints.is_empty()),
    ];
    if let Some((option, _)) = together.iter().find(|(_, asked)| *asked)
        && !entry.collective
    {
        return usage_error(format!(
            "--engine {name} does not support --{option}, which is for MPI-IO only: leave --{option} out{}",
            instead(|entry| entry.collective)
        ));
    }
    if job.how.direct && !entry.direct {
        return usage_error(format!(
            "--engine {name} cannot bypass the page cache: leave --direct out{}",
            instead(|entry| entry.direct)
        ));
    }
    if !entry.threads && job.how.threads.is_some_and(|threads| threads.0 > 1) {
        return usage_error(format!(
            "--engine {name} supports only one thread in each rank: leave --threads out and use more ranks{}",
            instead(|entry| entry.threads)
        ));
    }
    if entry.queues && job.how.fsync == Some(Fsync::Each) {
        return usage_error(format!(
            "--fsync each waits after every write, and --engine {name} has several in flight: use --fsync end{}",
            instead(|entry| !entry.queues)
        ));
    }
    Ok(())
}

/// Checks and returns the values of an option in bytes. Each value makes its own points.
pub(super) fn sizes(what: &str, asked: &Option<Sweep>, default: u64) -> Result<Vec<u64>> {
    let values = Sweep::values_or(asked, default);
    if values.contains(&0) {
        return usage_error(format!(
            "--{what} 0 would move nothing: use --{what} 4k or more"
        ));
    }
    Ok(values)
}

/// Returns the depths of a job. 0 means the default, which depends on the transfer size and the engine.
pub(super) fn depths(job: &FileJob) -> Result<Vec<u32>> {
    let Some(asked) = &job.how.depth else {
        return Ok(vec![0]);
    };
    // Fits: at most `DEPTH_MAX`.
    let checked = |&depth| value_within("depth", depth, 1..=DEPTH_MAX).map(|it| it as u32);
    asked.values().iter().map(checked).collect()
}

/// Fills in a point's depth, and refuses sizes that do not fit each other, the engine or the rest of the job.
pub(super) fn complete(point: &mut FilePoint, engine: &JobEngine<'_>) -> Result<()> {
    if point.depth == 0 {
        let fitting = DEPTH_BYTES_DEFAULT_MAX / point.transfer_bytes;
        let fitting = fitting.clamp(1, DEPTH_DEFAULT) as u32;
        point.depth = if engine.entry.queues { fitting } else { 1 };
    }
    if let Some(why) = &engine.unsupported {
        return usage_error(why.clone());
    }
    if !engine.entry.queues && point.depth > 1 {
        let other = engine
            .queued
            .map(|other| format!(", or use --engine {other}"));
        return usage_error(format!(
            "--engine {} makes one transfer at a time: leave --depth out{}",
            point.engine,
            other.unwrap_or_default()
        ));
    }
    check_sizes(point, engine.entry)?;
    check_transfers(point)?;
    check_memory(point)
}

fn check_sizes(point: &FilePoint, entry: &FileEntry) -> Result<()> {
    let (block, transfer) = (point.block_bytes, point.transfer_bytes);
    if !block.is_multiple_of(transfer) {
        let below = block / transfer * transfer;
        let nearest = if below == 0 { transfer } else { below };
        return usage_error(format!(
            "--block {} is not a whole number of transfers of {}: use --block {}, or another transfer",
            Bytes(block),
            Bytes(transfer),
            Bytes(nearest)
        ));
    }
    check_stampable(point)?;
    // Operations of a queue have 32 bits for their length.
    if entry.queues && transfer > SIZE_BYTES_MAX.into() {
        return usage_error(format!(
            "--transfer {} is too large for --engine {}: use --transfer {} or less",
            Bytes(transfer),
            entry.name,
            Bytes(SIZE_BYTES_MAX.into())
        ));
    }
    if point.direct && !transfer.is_multiple_of(DIRECT_BYTES) {
        return usage_error(format!(
            "--direct needs transfers that are multiples of {DIRECT_BYTES} bytes, and --transfer is {}: use \
             --transfer {}, or leave --direct out",
            Bytes(transfer),
            Bytes(transfer.next_multiple_of(DIRECT_BYTES))
        ));
    }
    let total = block
        .checked_mul(point.segments)
        .and_then(|bytes| bytes.checked_mul(point.ranks.into()));
    if total.is_none_or(|total| total > TOTAL_BYTES_MAX) {
        return usage_error(format!(
            "--block {} in {} segments on {} ranks is more than {}, which no file system holds: use a smaller \
             --block or fewer --segments",
            Bytes(block),
            point.segments,
            point.ranks,
            Bytes(TOTAL_BYTES_MAX)
        ));
    }
    Ok(())
}

/// Refuses to write files too short for a stamp: tonnage removes only files that it recognises as its own.
fn check_stampable(point: &FilePoint) -> Result<()> {
    let writes = point.prefill || point.phases.iter().any(|phase| phase.writes());
    let blocks = match point.layout {
        FileLayout::Shared => point.segments.saturating_mul(point.ranks.into()),
        FileLayout::PerProcess => point.segments,
    };
    let bytes = point.block_bytes.saturating_mul(blocks);
    if !writes || bytes >= STAMP_BYTES {
        return Ok(());
    }
    let multiple = STAMP_BYTES
        .div_ceil(blocks.max(1))
        .next_multiple_of(point.transfer_bytes);
    usage_error(format!(
        "--block {} makes a file of {}, and tonnage recognises its own files by their first {STAMP_BYTES} bytes: \
         use --block {} or more",
        Bytes(point.block_bytes),
        Bytes(bytes),
        Bytes(multiple)
    ))
}

/// Refuses jobs with too few transfers per rank for a shuffled order, for the threads or for a wear-out.
fn check_transfers(point: &FilePoint) -> Result<()> {
    let transfers = (point.block_bytes / point.transfer_bytes).saturating_mul(point.segments);
    let more = "use a larger block, a smaller transfer or more segments";
    if point.order == FileOrder::Shuffled && transfers < 2 {
        return usage_error(format!(
            "--order shuffled needs two transfers of each rank or more, and there is one: {more}, or leave --order \
             out"
        ));
    }
    if u64::from(point.threads) > transfers {
        return usage_error(format!(
            "--threads {} are more than the {transfers} transfers of each rank: use --threads {transfers} or less, \
             or {more}",
            point.threads
        ));
    }
    let worn = point
        .stonewall
        .map_or(0, |stonewall| stonewall.transfers_min);
    if worn > transfers {
        return usage_error(format!(
            "--wear-out-transfers {worn} are more than the {transfers} transfers of each rank: use \
             --wear-out-transfers {transfers} or less, or {more}"
        ));
    }
    Ok(())
}

fn check_memory(point: &FilePoint) -> Result<()> {
    let (transfer, depth, threads) = (point.transfer_bytes, point.depth, point.threads);
    let at_once = u64::from(depth) * u64::from(threads);
    let bytes = transfer.saturating_mul(at_once);
    if bytes <= MEMORY_BYTES_MAX {
        return Ok(());
    }
    usage_error(format!(
        "--transfer {} with --depth {depth} and --threads {threads} needs more than {} of memory in one rank: use a \
         smaller one of the three",
        Bytes(transfer),
        Bytes(MEMORY_BYTES_MAX)
    ))
}

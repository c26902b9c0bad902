//! Properties in which the points of a file job differ: engine, block, window and transfer.

use super::options::{BLOCK_BYTES_DEFAULT, ENGINE_DEFAULT, FileJob, TRANSFER_BYTES_DEFAULT};
use super::point::{FileLayout, FileOrder, FilePoint, Fsync};
use crate::bounds::{MEMORY_BYTES_MAX, SIZE_BYTES_MAX};
use crate::options::{Many, pairs};
use crate::refuse::usage;
use crate::sweep::Sweep;
use tonnage_engine::calls::FileEntry;
use tonnage_engine::{EngineOptions, Lists, OptionsOf, check_options};
use tonnage_units::Bytes;
use tonnage_units::Result;

/// Transfers in flight where nothing else is said, and the most bytes that these may be.
const WINDOW_DEFAULT: u64 = 32;
const WINDOW_BYTES_DEFAULT_MAX: u64 = 64 << 20;

/// The most transfers in flight for one thread: what the kernel's rings have room for.
pub const WINDOW_MAX: u64 = 32_768;

/// The most bytes of all ranks together, so that no offset and no sum overflows.
pub const TOTAL_BYTES_MAX: u64 = 1 << 60;

/// Bytes of the stamp at the begin of each sector of a file, which names its data.
const STAMP_BYTES: u64 = 16;

/// Alignment of direct transfers on every file system that has them; a file system may ask for more.
const DIRECT_BYTES: u64 = 512;

/// An engine of a job: its entry, and its options that differ from the defaults.
pub(super) struct JobEngine<'a> {
    entry: &'a FileEntry,
    options: EngineOptions,
    /// Reason why it cannot do what the job asks of every engine.
    unsupported: Option<String>,
    /// Another engine, which takes several transfers at a time.
    queued: Option<&'static str>,
}

/// The engines of a job.
///
/// # Errors
/// `Usage` for an unknown engine or option, and where no engine can do what the job asks for.
pub(super) fn entries(job: &FileJob, lists: &Lists) -> Result<Vec<JobEngine<'static>>> {
    let default = [ENGINE_DEFAULT.to_owned()];
    let names = match job.how.engine.as_ref().map(Many::values) {
        None | Some([]) => &default,
        Some(given) => given,
    };
    let asked = pairs::map(&job.how.engine_options);
    let named = |name: &String| {
        let entry = lists.file_engine(name)?;
        let options = check_options(OptionsOf::Engine(entry.name), entry.options, &asked, "")?;
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

/// Refuses an engine that cannot do what the job asks of it.
fn check_support(job: &FileJob, entry: &FileEntry, engines: &[FileEntry]) -> Result<()> {
    let name = entry.name;
    let instead = |fits: fn(&FileEntry) -> bool| {
        let fitting = engines.iter().find(|entry| fits(entry));
        fitting
            .map(|entry| format!(", or use engine {}", entry.name))
            .unwrap_or_default()
    };
    let together = [
        ("collective", job.how.collective),
        ("file-view", job.how.file_view),
        ("hints", !job.how.hints.is_empty()),
    ];
    if let Some((option, _)) = together.iter().find(|(_, asked)| *asked)
        && !entry.collective
    {
        return usage(format!(
            "engine {name} does not take {option}, known only to MPI-IO: leave {option} out{}",
            instead(|entry| entry.collective)
        ));
    }
    if job.how.direct && !entry.direct {
        return usage(format!(
            "engine {name} cannot leave the page cache out: leave direct out{}",
            instead(|entry| entry.direct)
        ));
    }
    if !entry.threads && job.how.threads.is_some_and(|threads| threads.0 > 1) {
        return usage(format!(
            "engine {name} takes one thread in each rank: leave threads out and use more ranks{}",
            instead(|entry| entry.threads)
        ));
    }
    if entry.queues && job.how.fsync == Some(Fsync::Each) {
        return usage(format!(
            "fsync each waits after every write, and engine {name} has several in flight: write fsync end{}",
            instead(|entry| !entry.queues)
        ));
    }
    Ok(())
}

fn windows(job: &FileJob) -> &[u64] {
    job.how.window.as_ref().map_or(&[], Sweep::values)
}

/// The values that a job's points take, beside the engines.
pub(super) struct Axes {
    blocks: Vec<u64>,
    /// `None` for what fits the transfer and the engine.
    windows: Vec<Option<u64>>,
    transfers: Vec<u64>,
}

/// One combination of them.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    block: u64,
    window: Option<u64>,
    transfer: u64,
}

impl Axes {
    /// The values of a job, those left out by default filled in.
    ///
    /// # Errors
    /// `Usage` for values that are out of range by themselves.
    pub fn of(job: &FileJob) -> Result<Self> {
        let sizes = |what: &str, sweep: &Option<Sweep>, default: u64| {
            let values = sweep
                .as_ref()
                .map_or_else(|| vec![default], |sweep| sweep.values().to_vec());
            match values.iter().find(|&&value| value == 0) {
                Some(_) => usage(format!(
                    "{what} 0 would move nothing: write {what} 4k or more"
                )),
                None => Ok(values),
            }
        };
        for &window in windows(job) {
            if window == 0 || window > WINDOW_MAX {
                return usage(format!(
                    "window {window} is not possible: write window 1 to window {WINDOW_MAX}"
                ));
            }
        }
        let windows = match &job.how.window {
            None => vec![None],
            Some(sweep) => sweep.values().iter().copied().map(Some).collect(),
        };
        Ok(Self {
            blocks: sizes("block", &job.work.block, BLOCK_BYTES_DEFAULT)?,
            windows,
            transfers: sizes("transfer", &job.work.transfer, TRANSFER_BYTES_DEFAULT)?,
        })
    }

    /// Number of points with so many engines.
    pub fn count(&self, engines: usize) -> usize {
        let counts = [
            engines,
            self.blocks.len(),
            self.windows.len(),
            self.transfers.len(),
        ];
        counts.into_iter().fold(1, usize::saturating_mul)
    }

    /// All combinations, the transfer varying fastest.
    pub fn cells(&self) -> impl Iterator<Item = Sizes> {
        self.blocks.iter().flat_map(move |&block| {
            self.windows.iter().flat_map(move |&window| {
                self.transfers.iter().map(move |&transfer| Sizes {
                    block,
                    window,
                    transfer,
                })
            })
        })
    }
}

/// The point of one combination, and `Usage` for sizes that do not fit each other, the engine or the rest of the job.
pub(super) fn point(
    base: &FilePoint,
    named: &JobEngine<'_>,
    sizes: Sizes,
) -> (FilePoint, Result<()>) {
    let entry = named.entry;
    let fitting = WINDOW_BYTES_DEFAULT_MAX / sizes.transfer;
    let default = match entry.queues {
        true => fitting.clamp(1, WINDOW_DEFAULT),
        false => 1,
    };
    let window = sizes.window.unwrap_or(default);
    let point = FilePoint {
        engine: entry.name.to_owned(),
        engine_options: named.options.clone(),
        block_bytes: sizes.block,
        transfer_bytes: sizes.transfer,
        // Below its bound, which fits.
        window: u32::try_from(window).unwrap_or(u32::MAX),
        ..base.clone()
    };
    (point, check(base, named, sizes, window))
}

fn check(base: &FilePoint, named: &JobEngine<'_>, sizes: Sizes, window: u64) -> Result<()> {
    if let Some(why) = &named.unsupported {
        return usage(why.clone());
    }
    if !named.entry.queues && window > 1 {
        let other = named.queued.map(|other| format!(", or use engine {other}"));
        return usage(format!(
            "engine {} makes one transfer at a time: leave window out{}",
            named.entry.name,
            other.unwrap_or_default()
        ));
    }
    check_sizes(base, named.entry, sizes)?;
    check_transfers(
        base,
        (sizes.block / sizes.transfer).saturating_mul(base.segments),
    )?;
    check_memory(base, sizes.transfer, window)
}

fn check_sizes(base: &FilePoint, entry: &FileEntry, sizes: Sizes) -> Result<()> {
    let Sizes {
        block, transfer, ..
    } = sizes;
    if !block.is_multiple_of(transfer) {
        let below = block / transfer * transfer;
        let nearest = if below == 0 { transfer } else { below };
        return usage(format!(
            "block {} is no whole number of transfers of {}: write block {}, or another transfer",
            Bytes(block),
            Bytes(transfer),
            Bytes(nearest)
        ));
    }
    check_recognisable(base, sizes)?;
    // Operations of a queue carry their length in 32 bits.
    if entry.queues && transfer > SIZE_BYTES_MAX.into() {
        return usage(format!(
            "transfer {} is too large for engine {}: write transfer {} or less",
            Bytes(transfer),
            entry.name,
            Bytes(SIZE_BYTES_MAX.into())
        ));
    }
    if base.direct && !transfer.is_multiple_of(DIRECT_BYTES) {
        return usage(format!(
            "direct needs transfers that are multiples of {DIRECT_BYTES} bytes, and transfer is {}: write transfer {}, \
             or leave direct out",
            Bytes(transfer),
            Bytes(transfer.next_multiple_of(DIRECT_BYTES))
        ));
    }
    let total = block
        .checked_mul(base.segments)
        .and_then(|bytes| bytes.checked_mul(base.ranks.into()));
    if total.is_none_or(|total| total > TOTAL_BYTES_MAX) {
        return usage(format!(
            "block {} in {} segments on {} ranks is more than {}, which no file system holds: use a smaller block or \
             fewer segments",
            Bytes(block),
            base.segments,
            base.ranks,
            Bytes(TOTAL_BYTES_MAX)
        ));
    }
    Ok(())
}

/// Refuses files that are written and are too short to be recognised as tonnage's, because they could not be removed.
fn check_recognisable(base: &FilePoint, sizes: Sizes) -> Result<()> {
    let writes = base.prefill || base.phases.iter().any(|phase| phase.writes());
    let blocks = match base.layout {
        FileLayout::Shared => base.segments.saturating_mul(base.ranks.into()),
        FileLayout::PerProcess => base.segments,
    };
    let bytes = sizes.block.saturating_mul(blocks);
    if !writes || bytes >= STAMP_BYTES {
        return Ok(());
    }
    let multiple = STAMP_BYTES
        .div_ceil(blocks.max(1))
        .next_multiple_of(sizes.transfer);
    usage(format!(
        "block {} makes a file of {}, and tonnage recognises its own files by their first {STAMP_BYTES} bytes: write \
         block {} or more",
        Bytes(sizes.block),
        Bytes(bytes),
        Bytes(multiple)
    ))
}

/// Refuses numbers of transfers of a rank that are too small for what is asked.
fn check_transfers(base: &FilePoint, transfers: u64) -> Result<()> {
    let more = "use a larger block, a smaller transfer or more segments";
    if base.order == FileOrder::Shuffled && transfers < 2 {
        return usage(format!(
            "order shuffled needs two transfers of each rank or more, and there is one: {more}, or leave order out"
        ));
    }
    if u64::from(base.threads) > transfers {
        return usage(format!(
            "threads {} are more than the {transfers} transfers of each rank: write threads {transfers} or less, or \
             {more}",
            base.threads
        ));
    }
    let worn = base
        .stonewall
        .map_or(0, |stonewall| stonewall.transfers_min);
    if worn > transfers {
        return usage(format!(
            "wear-out-transfers {worn} are more than the {transfers} transfers of each rank: write \
             wear-out-transfers {transfers} or less, or {more}"
        ));
    }
    Ok(())
}

fn check_memory(base: &FilePoint, transfer: u64, window: u64) -> Result<()> {
    let bytes = transfer
        .saturating_mul(window)
        .saturating_mul(base.threads.into());
    if bytes <= MEMORY_BYTES_MAX {
        return Ok(());
    }
    usage(format!(
        "transfer {} with window {window} and threads {} needs more than {} of memory in one rank: use a smaller one \
         of the three",
        Bytes(transfer),
        base.threads,
        Bytes(MEMORY_BYTES_MAX)
    ))
}

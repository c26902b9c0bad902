//! Batches: how many are in flight at once, how they are posted, and whether adjacent operations are merged.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::point::{Pacing, TransferPoint};
use super::slots::Access;
use crate::bounds::DEPTH_MAX;
use crate::options::{Group, SWEEP, one_of, with_default};
use crate::point::is_default;
use crate::refuse::usage_error;
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::Result;

tonnage_units::names! {
    /// Calls that hand a batch over.
    pub enum CallsPerBatch: "batch-call" {
        /// One call with all operations.
        One = "one",
        /// One call for each operation.
        Many = "many",
    }
}

tonnage_units::names! {
    /// Owner of a batch.
    pub enum BatchOf: "owner of batches", default Thread {
        /// Each thread has batches of its own.
        Thread = "thread" | "worker",
        /// Each batch is divided among the threads of a rank.
        Rank = "rank",
    }
}

tonnage_units::names! {
    /// Whether adjacent operations of a batch are merged.
    pub enum BatchMerge: "merge" {
        /// Operations stay apart.
        Off = "off",
        /// Operations that are adjacent at both ends become one.
        On = "on",
    }
}

/// Batches of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Owner of a batch.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of: BatchOf,
    /// Batches in flight together.
    pub in_flight: u32,
    /// Calls that hand a batch over.
    pub call: CallsPerBatch,
    /// Whether adjacent operations are merged.
    pub merge: BatchMerge,
}

impl Default for Batching {
    /// Returns one batch at a time, posted in one call, without merging.
    fn default() -> Self {
        Self {
            of: BatchOf::Thread,
            in_flight: 1,
            call: CallsPerBatch::One,
            merge: BatchMerge::Off,
        }
    }
}

/// Maximum number of batches in flight at once.
pub const BATCHES_MAX: u64 = 1024;

/// Options of batches.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Batches", mut_args = with_default::<Self>)]
pub struct BatchingOptions {
    /// Give each thread its own batches, or share each batch among the threads of a rank. The latency of a shared batch
    /// is that of all its parts together.
    #[arg(long, value_name = "OWNER", value_parser = one_of::<BatchOf>())]
    pub batch_of: Option<BatchOf>,

    /// Keep this many batches of each thread, or rank, in flight: a value or a sweep. With 1, a batch begins when the
    /// previous one has ended.
    #[arg(long, value_name = SWEEP)]
    pub batches_in_flight: Option<Sweep>,

    /// Hand over the operations of a batch in one call, or in one call for each.
    #[arg(long, value_name = "CALLS", value_parser = one_of::<CallsPerBatch>())]
    pub batch_call: Option<CallsPerBatch>,

    /// Merge operations of a batch that are adjacent at both ends into one.
    #[arg(long, value_name = "WHETHER", value_parser = one_of::<BatchMerge>())]
    pub merge: Option<BatchMerge>,
}

impl Group for BatchingOptions {
    fn defaults() -> Self {
        Self {
            batch_of: Some(BatchOf::Thread),
            batches_in_flight: Some(Sweep::single(1)),
            batch_call: Some(CallsPerBatch::One),
            merge: Some(BatchMerge::Off),
        }
    }
}

/// Returns the batch settings to measure, one for each number of batches in flight.
pub(super) fn batchings(options: &BatchingOptions, has_batches: bool) -> Result<Vec<Batching>> {
    let named = [
        ("batch-of", options.batch_of.is_some()),
        ("batches-in-flight", options.batches_in_flight.is_some()),
        ("batch-call", options.batch_call.is_some()),
        ("merge", options.merge.is_some()),
    ];
    if let Some((name, _)) = named.iter().find(|(_, named)| *named && !has_batches) {
        return usage_error(format!(
            "--{name} applies to batches, and there are none: leave it out, or use --batch 64"
        ));
    }
    let with = |in_flight| Batching {
        of: options.batch_of.unwrap_or(BatchOf::Thread),
        in_flight,
        call: options.batch_call.unwrap_or(CallsPerBatch::One),
        merge: options.merge.unwrap_or(BatchMerge::Off),
    };
    let checked = |&value: &u64| match u32::try_from(value) {
        Ok(0) => usage_error("--batches-in-flight 0 would move nothing: the smallest is 1"),
        Ok(number) if value <= BATCHES_MAX => Ok(with(number)),
        _ => usage_error(format!(
            "--batches-in-flight {value} is too large: the largest is {BATCHES_MAX}"
        )),
    };
    match &options.batches_in_flight {
        Some(numbers) => numbers.values().iter().map(checked).collect(),
        None => Ok(vec![with(1)]),
    }
}

/// Refuses more operations in flight than there are tags, a shared batch with fewer operations than threads, and
/// merging if nothing is adjacent.
pub(super) fn check_batching(point: &TransferPoint) -> Result<()> {
    let Pacing::Batch { batch } = point.pacing else {
        return Ok(());
    };
    let in_flight = point.batching.in_flight;
    let share = point.batch_share_max();
    if u64::from(share) * u64::from(in_flight) > u64::from(DEPTH_MAX) {
        return usage_error(format!(
            "{in_flight} batches of {batch} are more operations in flight than {DEPTH_MAX} for each thread: use \
             --batches-in-flight {} or less, or a smaller batch",
            DEPTH_MAX / share
        ));
    }
    if point.batching.of == BatchOf::Rank && batch < point.threads {
        let threads = point.threads;
        return usage_error(format!(
            "--batch {batch} shared out to {threads} threads leaves some without an operation: use --batch \
             {threads} or more, --threads {batch} or less, or leave --batch-of rank out"
        ));
    }
    match point.batching.merge {
        BatchMerge::Off => Ok(()),
        BatchMerge::On => check_merge(point),
    }
}

fn check_merge(point: &TransferPoint) -> Result<()> {
    let (local, remote) = point.slots.orders();
    match point.op {
        Verb::WriteImm => usage_error(
            "--merge on and --op write-imm are mutually exclusive, because each operation has its own arrival: use \
             --op write, or leave --merge out",
        ),
        Verb::Send => usage_error(
            "--merge on and --op send are mutually exclusive, because each operation takes its own receive: use \
             --op write, or leave --merge out",
        ),
        Verb::FetchAdd | Verb::CompareSwap => usage_error(
            "--merge on and atomic operations are mutually exclusive, because each changes one word: use --op \
             write, or leave --merge out",
        ),
        Verb::Write | Verb::Read if point.slots.count() == 1 || point.batch_share_max() == 1 => {
            usage_error(
                "--merge on finds no adjacent operations, because a thread's part of a batch or its footprint has \
                 one operation: use --batch 64, or leave --merge out",
            )
        }
        Verb::Write | Verb::Read if point.slots.gap_bytes() > 0 => usage_error(format!(
            "--merge on finds no adjacent operations, because {} bytes lie between slots of {}: use --gap 0, or \
             leave --merge out",
            point.slots.gap_bytes(),
            point.slots.size_bytes
        )),
        Verb::Write | Verb::Read if (local, remote) != (Access::Sequential, Access::Sequential) => {
            usage_error(format!(
                "--merge on finds no adjacent operations with --access {} and --local-access {}: use sequential for \
                 both, or leave --merge out",
                remote.name(),
                local.name()
            ))
        }
        Verb::Write | Verb::Read => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options, transfers};

    #[test]
    fn each_number_in_flight_is_measured_and_the_rest_is_common() {
        let plain = batchings(&BatchingOptions::default(), false).unwrap();
        assert_eq!(plain, [Batching::default()]);
        let asked =
            "batch-of = 'rank'\nbatches-in-flight = '1,4'\nbatch-call = 'many'\nmerge = 'on'";
        let expected = [1, 4].map(|in_flight| Batching {
            of: BatchOf::Rank,
            in_flight,
            call: CallsPerBatch::Many,
            merge: BatchMerge::On,
        });
        assert_eq!(batchings(&options(asked), true).unwrap(), expected);
    }

    #[test]
    fn options_without_batches_and_numbers_out_of_range_are_refused() {
        for (lines, part) in cases([
            "batches-in-flight = 2 => --batches-in-flight applies to batches, and there are none: leave it out, or \
             use --batch 64",
            "batch-call = 'one' => batch-call applies to batches",
            "batch-of = 'thread' => batch-of applies to batches",
            "merge = 'off' => merge applies to batches",
        ]) {
            batchings(&options(lines), false).refused(part);
        }
        batchings(&options("batches-in-flight = 0"), true).refused("the smallest is 1");
        batchings(&options("batches-in-flight = 1025"), true).refused("the largest is 1024");
    }

    #[test]
    fn a_batch_of_a_rank_is_divided_completely() {
        let points = |batch: u32, threads: u32, more: &str| {
            let shared = format!("batch = {batch}\nthreads = {threads}\nbatch-of = 'rank'\n{more}");
            transfers(
                &format!("engine = 'shm'\nop = 'write'\nsizes = 8\n{shared}"),
                2,
            )
        };
        for (batch, threads, most) in [(128, 4, 32), (7, 3, 3), (3, 3, 1), (9, 1, 9)] {
            let point = points(batch, threads, "batches-in-flight = 2")
                .unwrap()
                .remove(0);
            let shares: Vec<u32> = (0..threads).map(|it| point.batch_share(it)).collect();
            assert_eq!(shares.iter().sum::<u32>(), batch);
            assert_eq!(shares.iter().max(), Some(&most), "{shares:?}");
            assert_eq!((point.batch_share_max(), point.depth()), (most, 2 * most));
            assert_eq!(point.batches_to_a_peer(), 2);
            // Each thread has slots only for its own part of the batch.
            assert_eq!(point.slots.count(), u64::from(2 * most));
            let own = TransferPoint {
                batching: Batching {
                    of: BatchOf::Thread,
                    ..point.batching
                },
                ..point
            };
            assert_eq!((own.batch_share(0), own.depth()), (batch, 2 * batch));
            assert_eq!(own.batches_to_a_peer(), 2 * threads);
        }
        points(2, 3, "").refused("use batch 3 or more, threads 2 or less");
        points(3, 3, "merge = 'on'").refused("a thread's part of a batch");
    }
}

//! Converts a record to IOR's figures, by IOR's definitions.
//!
//! Bandwidth is bytes over the time from first open to last close. IOPS are transfers over the time from first to last
//! transfer. Only the latency differs from IOR: IOR prints the mean of the fastest rank, and this block prints the mean
//! over all ranks.

use tonnage_plan::files::Phase;
use tonnage_record::FileRecord;
use tonnage_record::files::{PhaseRecord, PhaseTrial};
use tonnage_units::number_list;

use crate::options::IorOptions;

/// Bytes in IOR's binary unit.
pub const MIB: f64 = 1_048_576.0;
/// Bytes in IOR's decimal unit.
pub const MB: f64 = 1e6;

/// All figures of the result block.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockFigures {
    /// One write or read of one repetition each, in the order in which they ran.
    pub passes: Vec<Pass>,
    /// Summaries over the repetitions, for each measured phase.
    pub summaries: Vec<SummaryRow>,
    /// Number of hosts.
    pub nodes: u64,
    /// Number of ranks on rank 0's host.
    pub tasks_on_node_0: u64,
}

/// One row of the result table.
#[derive(Debug, Clone, PartialEq)]
pub struct Pass {
    /// `write` or `read`.
    pub access: &'static str,
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Bandwidth in MiB/s.
    pub bandwidth_mib_per_s: f64,
    /// Transfers per second.
    pub operations_per_s: f64,
    /// Time per transfer, averaged over the ranks.
    pub latency_s: f64,
    /// Time from the first rank's start of opening to the last rank's end of opening.
    pub open_s: f64,
    /// Time from the first rank's first transfer to the last rank's last transfer.
    pub transfer_s: f64,
    /// Time from the first rank's start of closing to the last rank's end of closing.
    pub close_s: f64,
    /// Time from the first open to the last close.
    pub total_s: f64,
}

/// One row of the summary table.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    /// `write` or `read`.
    pub access: &'static str,
    /// Spread of the bandwidth, in bytes per second.
    pub bandwidth: RepetitionSpread,
    /// Spread of transfers per second of total time. The IOPS of the result table exclude opening and closing.
    pub operations: RepetitionSpread,
    /// Mean of the total time in seconds.
    pub total_s_mean: f64,
    /// With wear-out: the mean time of the stonewall in seconds, and the mean bandwidth per rank until then in bytes
    /// per second. If the last transfer ended before the stonewall, the time of that transfer counts.
    pub stonewall: Option<(f64, f64)>,
    /// Bytes moved in the first repetition.
    pub bytes: u64,
}

/// Spread over repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepetitionSpread {
    /// Largest.
    pub max: f64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population, as in IOR.
    pub stddev: f64,
}

impl BlockFigures {
    /// Computes the figures of one record.
    pub fn new(options: &IorOptions, record: FileRecord<'_>) -> Self {
        let tasks = record.body.point.ranks;
        let all = record.body.phases.iter().flat_map(|phase| {
            let trials = phase.trials.iter();
            trials.map(|trial| pass(phase.phase, trial, tasks))
        });
        let mut passes: Vec<Pass> = all.collect();
        // The sort is stable, so the write of each repetition stays before its read.
        passes.sort_by_key(|pass| pass.repetition);
        let measured = record
            .body
            .phases
            .iter()
            .filter(|phase| !phase.trials.is_empty());
        let summaries = measured.map(|phase| summary(options, phase, tasks));
        let hosts = record.environment.iter().flat_map(|group| &group.hosts);
        let hosts: Vec<_> = hosts.map(|host| host.ranks.as_str()).collect();
        let (nodes, tasks_on_node_0) = nodes(&hosts, tasks);
        Self {
            passes,
            summaries: summaries.collect(),
            nodes,
            tasks_on_node_0,
        }
    }

    /// Returns the summary of one kind of access, if it was measured.
    pub fn summary(&self, access: &str) -> Option<&SummaryRow> {
        self.summaries
            .iter()
            .find(|summary| summary.access == access)
    }
}

/// Every phase is a write or a read here, because no IOR command line creates a mixed phase.
fn access(phase: Phase) -> &'static str {
    if phase.writes() { "write" } else { "read" }
}

fn pass(phase: Phase, trial: &PhaseTrial, tasks: u32) -> Pass {
    let of_rank = trial.operations as f64 / f64::from(tasks.max(1));
    Pass {
        access: access(phase),
        repetition: trial.trial,
        bandwidth_mib_per_s: trial.bandwidth_bytes_per_s / MIB,
        operations_per_s: trial.operations_per_s,
        latency_s: ratio(trial.transfer_of_rank.ns_mean / 1e9, of_rank),
        open_s: seconds(trial.open_ns),
        transfer_s: seconds(trial.transfer_ns),
        close_s: seconds(trial.close_ns),
        total_s: seconds(trial.total_ns),
    }
}

fn summary(options: &IorOptions, phase: &PhaseRecord, tasks: u32) -> SummaryRow {
    let trials = &phase.trials;
    let over_total = |amount: fn(&PhaseTrial) -> u64| {
        let each = trials.iter();
        spread(each.map(|trial| ratio(amount(trial) as f64, seconds(trial.total_ns))))
    };
    let worn_out = options.wear_out;
    let walls = trials.iter().filter_map(|trial| {
        let wall = trial.stonewall.filter(|_| worn_out)?;
        // If all transfers ended before the stonewall, the time of the last transfer counts, as in IOR.
        Some((wall.after_ns.min(trial.last_done_ns), wall.payload_bytes))
    });
    let walls: Vec<_> = walls.collect();
    let after_s: f64 = walls.iter().map(|(after_ns, _)| seconds(*after_ns)).sum();
    let bytes: f64 = walls.iter().map(|(_, bytes)| *bytes as f64).sum();
    let of_rank = ratio(bytes / f64::from(tasks.max(1)), after_s);
    let total_s: f64 = trials.iter().map(|trial| seconds(trial.total_ns)).sum();
    SummaryRow {
        access: access(phase.phase),
        bandwidth: over_total(|trial| trial.payload_bytes),
        operations: over_total(|trial| trial.operations),
        total_s_mean: ratio(total_s, trials.len() as f64),
        stonewall: (!walls.is_empty()).then(|| (after_s / walls.len() as f64, of_rank)),
        bytes: trials.first().map_or(0, |trial| trial.payload_bytes),
    }
}

fn spread(values: impl Iterator<Item = f64>) -> RepetitionSpread {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = ratio(values.iter().sum(), count);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    RepetitionSpread {
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        mean,
        stddev: ratio(squares, count).sqrt(),
    }
}

/// Returns the number of hosts, and the number of ranks on rank 0's host. Each item of `hosts` lists the ranks of one
/// host. If `hosts` is empty, all ranks count as one host's.
fn nodes(hosts: &[&str], ranks: u32) -> (u64, u64) {
    let first = hosts.iter().find_map(|ranks| {
        let ranks = number_list::parse(ranks).ok()?;
        ranks.contains(&0).then_some(ranks.len())
    });
    let on_node_0 = first.unwrap_or(ranks as usize);
    (hosts.len().max(1) as u64, on_node_0 as u64)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn ratio(amount: f64, over: f64) -> f64 {
    if over > 0.0 { amount / over } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::nodes;

    #[test]
    fn nodes_are_counted_with_the_tasks_of_the_first() {
        assert_eq!(nodes(&[], 2), (1, 2));
        assert_eq!(nodes(&["0-3"], 4), (1, 4));
        assert_eq!(nodes(&["4-5", "0-2", "3,6-7"], 8), (3, 3));
    }
}

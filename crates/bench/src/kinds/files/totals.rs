//! Sums over the threads of a phase, first within a rank, then over the ranks. The control tree adds up on the way to
//! its root, so a phase of 44,000 ranks costs each of them one small message. Times are nanoseconds since the common
//! start, which is the same instant on all hosts.

use serde::{Deserialize, Serialize};

use tonnage_loops::files::drive::Samples;
use tonnage_loops::files::timeline::Timeline;
use tonnage_machine::cpu_time::SchedTime;
use tonnage_plan::files::{FilePoint, Phase};
use tonnage_ranks::RankInfo;
use tonnage_record::files::{Outlier, PhaseTrial, RankTimes, Series, StonewallFigures};
use tonnage_units::{Nanos, Reduce};

/// Number of slowest ranks that are recorded individually.
const SLOWEST: usize = 8;

/// A rank is an outlier if its transfers took more than this many times the mean time. A threshold from the user
/// replaces this.
const OUTLIER_FACTOR: f64 = 1.25;

/// Start and end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Earliest start of any thread.
    pub begin_ns: u64,
    /// Latest end of any thread.
    pub end_ns: u64,
}

impl Span {
    /// Returns the time from the earliest start to the latest end.
    pub fn ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    fn merge(&mut self, other: &Self) {
        self.begin_ns = self.begin_ns.min(other.begin_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
    }
}

/// Figures of one thread in a phase, in addition to its samples.
#[derive(Debug, Clone, Copy)]
pub struct ThreadFigures {
    /// Opening the file.
    pub open: Span,
    /// All transfers, and the syncs after them.
    pub transfer: Span,
    /// End of the last transfer, without the sync after it.
    pub done_ns: u64,
    /// Time spent in syncs.
    pub sync_ns: u64,
    /// Closing the file.
    pub close: Span,
    /// CPU time that the thread had used before the common start.
    pub cpu_begin_ns: u64,
    /// CPU time from open to close.
    pub cpu_ns: u64,
    /// CPU time of transfers and syncs.
    pub transfer_cpu_ns: u64,
    /// CPU time, and time without a CPU, from open to close. `None` if the kernel does not count them.
    pub sched: Option<SchedTime>,
}

/// One duration, combined over several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct DurationTotals {
    min_ns: u64,
    sum_ns: u64,
    max_ns: u64,
    slowest: u32,
    ranks: u64,
}

impl DurationTotals {
    fn new(rank: u32, ns: u64) -> Self {
        Self {
            min_ns: ns,
            sum_ns: ns,
            max_ns: ns,
            slowest: rank,
            ranks: 1,
        }
    }

    fn merge(&mut self, other: &Self) {
        // If two ranks are equally slow, the lower one is recorded, so that the order of merging does not matter.
        if (other.max_ns, self.slowest) > (self.max_ns, other.slowest) {
            (self.max_ns, self.slowest) = (other.max_ns, other.slowest);
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.sum_ns += other.sum_ns;
        self.ranks += other.ranks;
    }

    fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.ranks.max(1) as f64
    }

    fn record(&self) -> RankTimes {
        RankTimes {
            ns_min: self.min_ns,
            ns_mean: self.mean_ns(),
            ns_max: self.max_ns,
            slowest: self.slowest,
        }
    }
}

/// Sums of a phase over one or more ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseTotals {
    transfers: u64,
    reads: u64,
    before_wall: u64,
    before_wall_min: u64,
    before_wall_max: u64,
    open: Span,
    transfer: Span,
    close: Span,
    done_first_ns: u64,
    done_last_ns: u64,
    open_times: DurationTotals,
    transfer_times: DurationTotals,
    sync_times: DurationTotals,
    close_times: DurationTotals,
    slowest: Vec<(u64, u32)>,
    cpu_ns: u64,
    transfer_cpu_ns: u64,
    in_flight_max: u32,
    timeline: Timeline,
}

impl PhaseTotals {
    /// Adds up the threads of one rank. Returns `None` without threads.
    pub fn from_threads<'a>(
        rank: u32,
        threads: impl Iterator<Item = (&'a ThreadFigures, &'a Samples)>,
    ) -> Option<Self> {
        let mut all: Option<Self> = None;
        for (figures, samples) in threads {
            let one = Self::from_thread(rank, figures, samples);
            match &mut all {
                Some(all) => all.merge_thread(one),
                None => all = Some(one),
            }
        }
        // A rank's own durations are known only after all its threads are merged.
        all.map(|mut all| {
            all.open_times = DurationTotals::new(rank, all.open.ns());
            all.transfer_times = DurationTotals::new(rank, all.transfer.ns());
            all.close_times = DurationTotals::new(rank, all.close.ns());
            (all.before_wall_min, all.before_wall_max) = (all.before_wall, all.before_wall);
            all.done_first_ns = all.done_last_ns;
            all.slowest = vec![(all.transfer.ns(), rank)];
            all
        })
    }

    fn from_thread(rank: u32, figures: &ThreadFigures, samples: &Samples) -> Self {
        Self {
            transfers: samples.transfers,
            reads: samples.reads,
            before_wall: samples.before_wall,
            before_wall_min: 0,
            before_wall_max: 0,
            open: figures.open,
            transfer: figures.transfer,
            close: figures.close,
            done_first_ns: figures.done_ns,
            done_last_ns: figures.done_ns,
            open_times: DurationTotals::new(rank, 0),
            transfer_times: DurationTotals::new(rank, 0),
            sync_times: DurationTotals::new(rank, figures.sync_ns),
            close_times: DurationTotals::new(rank, 0),
            slowest: Vec::new(),
            cpu_ns: figures.cpu_ns,
            transfer_cpu_ns: figures.transfer_cpu_ns,
            in_flight_max: samples.in_flight_max,
            timeline: samples.timeline.clone(),
        }
    }

    /// Adds another thread of the same rank.
    fn merge_thread(&mut self, other: Self) {
        self.add_counts(&other);
        // Threads sync at the same time, so the slowest one's time counts.
        let sync_ns = self.sync_times.max_ns.max(other.sync_times.max_ns);
        self.sync_times = DurationTotals::new(self.sync_times.slowest, sync_ns);
        self.timeline.merge(other.timeline);
    }

    /// Adds the figures that are added up in the same way over threads and over ranks.
    fn add_counts(&mut self, other: &Self) {
        self.transfers += other.transfers;
        self.reads += other.reads;
        self.before_wall += other.before_wall;
        self.open.merge(&other.open);
        self.transfer.merge(&other.transfer);
        self.close.merge(&other.close);
        self.done_first_ns = self.done_first_ns.min(other.done_first_ns);
        self.done_last_ns = self.done_last_ns.max(other.done_last_ns);
        self.cpu_ns += other.cpu_ns;
        self.transfer_cpu_ns += other.transfer_cpu_ns;
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
    }

    /// Returns why nothing was measured, if no rank made any transfer.
    pub fn why_empty(&self, point: &FilePoint, phase: Phase, trial: u32) -> Option<String> {
        if self.transfers > 0 {
            return None;
        }
        let which = format!("the {} phase of repetition {}", phase.name(), trial + 1);
        Some(match point.stonewall {
            Some(wall) if wall.after_ns <= self.transfer.end_ns => format!(
                "{which} moved nothing: its stonewall came {} after the start, when no rank had ended a transfer (files \
                 were open after {:.1} ms); give it more time",
                Nanos(wall.after_ns),
                self.open.end_ns as f64 / 1e6
            ),
            _ => format!(
                "{which} moved nothing: less had been written before than one transfer of each rank"
            ),
        })
    }

    /// Converts the sums to an entry of the record. Figures from before or after the phase are added later.
    pub fn trial(
        &self,
        point: &FilePoint,
        outlier_ns: Option<u64>,
        trial: u32,
        infos: &[RankInfo],
    ) -> PhaseTrial {
        let payload_bytes = self.transfers * point.transfer_bytes;
        let total_ns = self.close.end_ns.saturating_sub(self.open.begin_ns);
        PhaseTrial {
            trial,
            operations: self.transfers,
            reads: self.reads,
            payload_bytes,
            total_ns,
            bandwidth_bytes_per_s: per_second(payload_bytes, total_ns),
            transfer_ns: self.transfer.ns(),
            operations_per_s: per_second(self.transfers, self.transfer.ns()),
            open_ns: self.open.ns(),
            close_ns: self.close.ns(),
            open_of_rank: self.open_times.record(),
            transfer_of_rank: self.transfer_times.record(),
            sync_of_rank: (self.sync_times.max_ns > 0).then(|| self.sync_times.record()),
            close_of_rank: self.close_times.record(),
            outliers: self.outliers(outlier_ns, infos),
            cpu_ns: self.cpu_ns,
            transfer_cpu_ns: self.transfer_cpu_ns,
            in_flight_max: Some(self.in_flight_max),
            first_done_ns: self.done_first_ns,
            first_done_bytes: self
                .timeline
                .bytes_at(self.done_first_ns, self.done_last_ns),
            last_done_ns: self.done_last_ns,
            stonewall: self.stonewall(point),
            series: Series {
                interval_ns: self.timeline.interval_ns(),
                bytes: self.timeline.intervals().to_vec(),
            },
            cache: None,
            verified_bytes: None,
            data_seed: None,
        }
    }

    fn outliers(&self, outlier_ns: Option<u64>, infos: &[RankInfo]) -> Vec<Outlier> {
        let mean_ns = self.transfer_times.mean_ns();
        let most_ns = match outlier_ns {
            Some(ns) => mean_ns + ns as f64,
            None => mean_ns * OUTLIER_FACTOR,
        };
        let slow = self.slowest.iter().filter(|(ns, _)| *ns as f64 > most_ns);
        slow.map(|&(ns, rank)| Outlier {
            rank,
            host: infos
                .get(rank as usize)
                .map(|info| info.host.to_string())
                .unwrap_or_default(),
            ns,
        })
        .collect()
    }

    fn stonewall(&self, point: &FilePoint) -> Option<StonewallFigures> {
        let wall = point.stonewall?;
        let payload_bytes = self.before_wall * point.transfer_bytes;
        // All ranks may have finished before the stonewall.
        let until_ns = wall.after_ns.min(self.transfer.end_ns);
        let ns = until_ns.saturating_sub(self.transfer.begin_ns);
        Some(StonewallFigures {
            after_ns: wall.after_ns,
            operations: self.before_wall,
            payload_bytes,
            rank_bytes_min: self.before_wall_min * point.transfer_bytes,
            rank_bytes_max: self.before_wall_max * point.transfer_bytes,
            bandwidth_bytes_per_s: per_second(payload_bytes, ns),
            worn_out_transfers: wall
                .wear_out
                .then(|| self.transfers / u64::from(point.ranks.max(1))),
        })
    }
}

impl Reduce for PhaseTotals {
    fn merge(&mut self, other: Self) {
        self.add_counts(&other);
        self.before_wall_min = self.before_wall_min.min(other.before_wall_min);
        self.before_wall_max = self.before_wall_max.max(other.before_wall_max);
        self.open_times.merge(&other.open_times);
        self.transfer_times.merge(&other.transfer_times);
        self.sync_times.merge(&other.sync_times);
        self.close_times.merge(&other.close_times);
        self.slowest.extend(other.slowest);
        self.slowest
            .sort_unstable_by_key(|&(ns, rank)| (std::cmp::Reverse(ns), rank));
        self.slowest.truncate(SLOWEST);
        self.timeline.merge(other.timeline);
    }
}

fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 / (ns.max(1) as f64 / 1e9)
}

#[cfg(test)]
pub(super) mod tests;

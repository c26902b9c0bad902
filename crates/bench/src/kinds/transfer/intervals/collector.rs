//! Rank 0's part of intervals: combines the ticks of all clients.

use std::collections::VecDeque;

use super::ticker::Tick;
use tonnage_record::transfer::{
    ClientSeries, IntervalExtremes, IntervalLatency, SERIES_CLIENTS_MAX, Standstill, TrialSeries,
};
use tonnage_units::Result;
use tonnage_units::histogram::LatencyHistogram;

/// Maximum number of standstills in the list.
const STANDSTILLS_MAX: usize = 1024;

/// Number of latest intervals that still accept latencies. Later latencies are added to the oldest of these intervals.
const OPEN_MAX: usize = 4;

/// Extremes of an interval that no client has reported yet.
const NO_EXTREMES: IntervalExtremes = IntervalExtremes {
    slowest_rank: 0,
    slowest_operations: u64::MAX,
    fastest_rank: 0,
    fastest_operations: 0,
};

/// The intervals of one trial up to now.
#[derive(Clone)]
pub(super) struct IntervalCollector {
    trial: u64,
    clients: Vec<InitiatorTicks>,
    series: TrialSeries,
    /// Histograms of the latest intervals. The first one belongs to interval `open_from`.
    open: VecDeque<LatencyHistogram>,
    open_from: usize,
}

/// The ticks of one initiating rank, combined.
#[derive(Clone, Default)]
struct InitiatorTicks {
    rank: u32,
    /// Number of operations that its ticks have reported.
    reported: u64,
    /// Number of intervals that its ticks have reported.
    passed: usize,
    is_driven: bool,
    /// The first interval that was reported after all workers of the rank had driven their flows.
    driven_from: Option<usize>,
    is_over: bool,
    /// First of the current consecutive intervals in which the rank moved nothing; `None` if it moved something in the
    /// last one.
    still_from: Option<usize>,
}

/// Operations of a client in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OperationsInInterval {
    pub(super) rank: u32,
    pub(super) operations: u64,
    /// True if the rank was not done and either moved nothing or has not reported the interval.
    pub(super) is_silent: bool,
}

impl IntervalCollector {
    pub(super) fn new(trial: u64, interval_ns: u64, ranks: impl Iterator<Item = u32>) -> Self {
        let client = |rank| InitiatorTicks {
            rank,
            ..InitiatorTicks::default()
        };
        let clients: Vec<InitiatorTicks> = ranks.map(client).collect();
        let kept = |client: &InitiatorTicks| ClientSeries {
            rank: client.rank,
            operations: Vec::new(),
        };
        let few = clients.len() <= SERIES_CLIENTS_MAX;
        let series = TrialSeries {
            interval_ns,
            clients: clients.iter().filter(|_| few).map(kept).collect(),
            ..TrialSeries::default()
        };
        Self {
            trial,
            clients,
            series,
            open: VecDeque::new(),
            open_from: 0,
        }
    }

    /// Adds a tick of a rank. A tick of another trial is ignored.
    pub(super) fn add_tick(&mut self, rank: u32, tick: &Tick) -> Result<()> {
        let known = self
            .clients
            .binary_search_by_key(&rank, |client| client.rank);
        let (Ok(at), true) = (known, tick.trial == self.trial) else {
            return Ok(());
        };
        let client = &mut self.clients[at];
        let first = client.passed;
        // The last tick may come in the middle of an interval, and may report no further operations.
        let end = (tick.passed as usize).max(first + usize::from(tick.is_last));
        let moved = tick.operations.saturating_sub(client.reported);
        (client.reported, client.passed) = (client.reported.max(tick.operations), end);
        for interval in first..end {
            // A rank that was delayed reports several intervals at once. It moved its operations before the delay, so
            // they count in the first one.
            let operations = if interval == first { moved } else { 0 };
            self.count_operations(at, interval, operations, tick.is_driven);
        }
        let client = &mut self.clients[at];
        if tick.is_driven {
            client.driven_from.get_or_insert(first);
        }
        client.is_driven |= tick.is_driven;
        client.is_over |= tick.is_last;
        match tick.latencies[..] {
            [] => Ok(()),
            _ => {
                // Latencies in the last tick may belong to the interval that this tick ended.
                let at = first.min(tick.passed as usize);
                self.latencies(at).merge_encoded(&tick.latencies)
            }
        }
    }

    fn count_operations(&mut self, at: usize, interval: usize, operations: u64, is_driven: bool) {
        self.extend_to(interval);
        let client = &mut self.clients[at];
        self.series.operations[interval] += operations;
        match self.series.clients.get_mut(at) {
            Some(series) => series.operations[interval] = operations,
            None => {
                let extremes = &mut self.series.extremes[interval];
                if operations < extremes.slowest_operations {
                    extremes.slowest_rank = client.rank;
                    extremes.slowest_operations = operations;
                }
                if operations >= extremes.fastest_operations {
                    extremes.fastest_rank = client.rank;
                    extremes.fastest_operations = operations;
                }
            }
        }
        if operations == 0 && !is_driven {
            client.still_from.get_or_insert(interval);
        } else if let Some(from) = client.still_from.take() {
            let rank = client.rank;
            self.add_standstill(rank, from, interval);
        }
    }

    fn add_standstill(&mut self, rank: u32, from: usize, end: usize) {
        if self.series.standstills.len() == STANDSTILLS_MAX {
            self.series.more_standstills += 1;
            return;
        }
        self.series.standstills.push(Standstill {
            rank,
            begin_ns: from as u64 * self.series.interval_ns,
            end_ns: end as u64 * self.series.interval_ns,
        });
    }

    /// Extends the series so that it includes `interval`.
    fn extend_to(&mut self, interval: usize) {
        let series = &mut self.series;
        while series.operations.len() <= interval {
            series.operations.push(0);
            for client in &mut series.clients {
                client.operations.push(0);
            }
            if series.clients.is_empty() {
                series.extremes.push(NO_EXTREMES);
            }
        }
    }

    /// Returns the histogram of an interval. If the interval no longer accepts latencies, returns the oldest that does.
    fn latencies(&mut self, interval: usize) -> &mut LatencyHistogram {
        let last = interval.max(self.open_from);
        while self.open_from + self.open.len() <= last {
            let next = if self.open.len() == OPEN_MAX {
                // Reuses the memory of the oldest histogram.
                let mut oldest = self.close_oldest();
                oldest.clear();
                oldest
            } else {
                LatencyHistogram::new()
            };
            self.open.push_back(next);
        }
        &mut self.open[last - self.open_from]
    }

    fn close_oldest(&mut self) -> LatencyHistogram {
        let oldest = self.open.pop_front().unwrap_or_default();
        self.open_from += 1;
        self.series.latencies.push(interval_latency(&oldest));
        oldest
    }

    /// Returns whether all clients have reported `passed` intervals.
    pub(super) fn have_all_reported(&self, passed: u64) -> bool {
        let mut clients = self.clients.iter();
        clients.all(|client| client.is_over || client.passed as u64 >= passed)
    }

    /// Returns the operations of each client in an interval. Some clients may not have reported the interval yet.
    pub(super) fn operations_by_client(
        &self,
        interval: usize,
    ) -> impl Iterator<Item = OperationsInInterval> {
        let all = self.clients.iter().enumerate();
        all.map(move |(at, client)| {
            let series = self.series.clients.get(at);
            let operations = series.and_then(|series| series.operations.get(interval));
            let operations = operations.copied().unwrap_or(0);
            let is_reported = client.passed > interval;
            let is_still = match series {
                Some(_) => operations == 0,
                None => client.still_from.is_some_and(|from| from <= interval),
            };
            let is_done = client.driven_from.is_some_and(|from| from <= interval);
            OperationsInInterval {
                rank: client.rank,
                operations,
                is_silent: !is_done && !client.is_over && (!is_reported || is_still),
            }
        })
    }

    /// Returns the slowest and the fastest client of an interval. `None` if each client has a series of its own.
    pub(super) fn extremes(&self, interval: usize) -> Option<IntervalExtremes> {
        if !self.series.clients.is_empty() {
            return None;
        }
        let mut known = self
            .series
            .extremes
            .get(interval)
            .copied()
            .unwrap_or(NO_EXTREMES);
        // A client without a report counts as the slowest.
        let lost = |client: &&InitiatorTicks| client.passed <= interval && !client.is_over;
        if let Some(client) = self.clients.iter().find(lost) {
            (known.slowest_rank, known.slowest_operations) = (client.rank, 0);
        }
        Some(known).filter(|known| known.slowest_operations < u64::MAX)
    }

    /// Returns the operations of all clients in an interval.
    pub(super) fn operations(&self, interval: usize) -> u64 {
        self.series.operations.get(interval).copied().unwrap_or(0)
    }

    /// Returns the latencies of an interval; `None` if it has no samples.
    pub(super) fn latency(&self, interval: usize) -> Option<IntervalLatency> {
        let known = match interval.checked_sub(self.open_from) {
            Some(at) => interval_latency(self.open.get(at)?),
            None => *self.series.latencies.get(interval)?,
        };
        (known.samples > 0).then_some(known)
    }

    /// Returns the number of clients.
    pub(super) fn clients_count(&self) -> u32 {
        self.clients.len() as u32
    }

    /// Ends a trial of `window_ns`, and returns the number of its intervals. Operations shortly after the last whole
    /// interval count in that interval.
    pub(super) fn close(&mut self, window_ns: u64) -> usize {
        let count = interval_count(window_ns, self.series.interval_ns);
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            // Either the client moved nothing at the end, or its ticks are missing.
            let is_lost = !client.is_over && !client.is_driven && client.passed < count;
            let from = client.still_from.or(is_lost.then_some(client.passed));
            let rank = client.rank;
            if let Some(from) = from {
                self.add_standstill(rank, from, count);
            }
        }
        self.extend_to(count - 1);
        self.close_latencies(count);
        let series = &mut self.series;
        merge_rest_into_last(&mut series.operations, count);
        for client in &mut series.clients {
            merge_rest_into_last(&mut client.operations, count);
        }
        series.extremes.truncate(count);
        let whole_ns = window_ns.max(1);
        series
            .standstills
            .retain(|known| known.begin_ns < known.end_ns.min(whole_ns));
        for standstill in &mut series.standstills {
            standstill.end_ns = standstill.end_ns.min(whole_ns);
        }
        series
            .standstills
            .sort_by_key(|known| (known.begin_ns, known.rank));
        count
    }

    /// Closes the histograms of all intervals. Histograms after the last interval are merged into the last one.
    fn close_latencies(&mut self, count: usize) {
        while self.open.len() > 1 && self.open_from + self.open.len() > count {
            if let (Some(behind), Some(last)) = (self.open.pop_back(), self.open.back_mut()) {
                last.merge(&behind);
            }
        }
        while !self.open.is_empty() {
            self.close_oldest();
        }
        let latencies = &mut self.series.latencies;
        if !latencies.is_empty() {
            latencies.resize(count, IntervalLatency::default());
        }
    }

    /// Returns the number of whole intervals that at least one client has reported.
    pub(super) fn intervals_reported(&self) -> u64 {
        let passed = self.clients.iter().map(|client| client.passed as u64);
        passed.max().unwrap_or(0)
    }

    /// Returns the series of a running trial up to now.
    pub(super) fn so_far(&self, elapsed_ns: u64) -> TrialSeries {
        let mut copy = self.clone();
        copy.close(elapsed_ns);
        copy.series()
    }

    /// Returns the series of a closed trial.
    pub(super) fn series(&mut self) -> TrialSeries {
        let known = (0..self.series.extremes.len()).map(|at| {
            self.extremes(at).unwrap_or(IntervalExtremes {
                slowest_operations: 0,
                ..NO_EXTREMES
            })
        });
        let extremes = known.collect();
        TrialSeries {
            extremes,
            ..std::mem::take(&mut self.series)
        }
    }
}

/// Returns the number of intervals in a trial of `window_ns`. A remainder shorter than a tenth of an interval belongs
/// to the last interval.
fn interval_count(window_ns: u64, interval_ns: u64) -> usize {
    let (whole, tail_ns) = (window_ns / interval_ns, window_ns % interval_ns);
    let count = whole + u64::from(tail_ns * 10 >= interval_ns);
    count.max(1) as usize
}

/// Shortens the list to `count` intervals, and adds the operations of later intervals to the last one kept.
fn merge_rest_into_last(operations: &mut Vec<u64>, count: usize) {
    let behind: u64 = operations.iter().skip(count).sum();
    operations.resize(count, 0);
    if let Some(last) = operations.last_mut() {
        *last += behind;
    }
}

fn interval_latency(latencies: &LatencyHistogram) -> IntervalLatency {
    let quantile = |part| latencies.quantile_ns(part).unwrap_or(0);
    IntervalLatency {
        samples: latencies.count(),
        latency_ns_p50: quantile(0.5),
        latency_ns_p99: quantile(0.99),
        latency_ns_max: latencies.max_ns().unwrap_or(0),
        lower_bounds: latencies.lower_bounds(),
    }
}

#[cfg(test)]
mod tests;

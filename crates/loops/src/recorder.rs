//! Recorders of latencies: one discards them, the others fill histograms. Loops are compiled once per recorder, so that
//! discarding latencies costs no clock read.

use tonnage_sys::clock::Clock;

use tonnage_units::histogram::LatencyHistogram;

/// Supplies the time and takes the latencies of operations.
pub trait Recorder {
    /// The current time, or 0 if latencies are not recorded.
    fn now_ns(&self) -> u64;
    /// Records one latency.
    fn sample(&mut self, latency_ns: u64);
    /// Records the phases of one batch. Only loops with batches call it.
    #[inline]
    fn phases(&mut self, _times: PhaseTimes) {}
    /// Reports the number of operations completed so far, once for operations that complete together.
    #[inline]
    fn progress(&mut self, _completed: u64) {}
    /// Histogram of the latencies, if they are recorded.
    fn latencies(&mut self) -> Option<&mut LatencyHistogram> {
        None
    }
}

/// Times of the phases of a batch, which make up its latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Building the batch's operations.
    pub prepare_ns: u64,
    /// Posting the batch's operations, including waits for room.
    pub post_ns: u64,
    /// Waiting for the batch's last completion, after posting.
    pub complete_ns: u64,
}

/// Records nothing and never reads the clock.
pub struct Silent;

impl Recorder for Silent {
    #[inline]
    fn now_ns(&self) -> u64 {
        0
    }

    #[inline]
    fn sample(&mut self, _latency_ns: u64) {}
}

/// Records every latency in a histogram.
pub struct PerOperation<'a> {
    /// The worker's clock.
    pub clock: Clock,
    /// Destination of latencies; preallocated.
    pub histogram: &'a mut LatencyHistogram,
}

impl Recorder for PerOperation<'_> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    #[inline]
    fn sample(&mut self, latency_ns: u64) {
        self.histogram.record(latency_ns);
    }

    fn latencies(&mut self) -> Option<&mut LatencyHistogram> {
        Some(self.histogram)
    }
}

/// Latencies of the phases of batches.
#[derive(Debug, Clone, Default)]
pub struct PhaseHistograms {
    /// Building operations.
    pub prepare: LatencyHistogram,
    /// Posting the batch's operations.
    pub post: LatencyHistogram,
    /// Waiting for the batch's last completion.
    pub complete: LatencyHistogram,
}

impl PhaseHistograms {
    /// Records the phases of a batch.
    #[inline]
    pub fn record(&mut self, times: PhaseTimes) {
        self.prepare.record(times.prepare_ns);
        self.post.record(times.post_ns);
        self.complete.record(times.complete_ns);
    }

    /// Adds the histograms of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.prepare.merge(&other.prepare);
        self.post.merge(&other.post);
        self.complete.merge(&other.complete);
    }

    /// Clears all histograms.
    pub fn clear(&mut self) {
        self.prepare.clear();
        self.post.clear();
        self.complete.clear();
    }
}

/// Records the latency of every batch and of its phases.
pub struct PerBatch<'a> {
    /// Latencies.
    pub whole: PerOperation<'a>,
    /// Destination of the phases; preallocated.
    pub phases: &'a mut PhaseHistograms,
}

impl Recorder for PerBatch<'_> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.whole.now_ns()
    }

    #[inline]
    fn sample(&mut self, latency_ns: u64) {
        self.whole.sample(latency_ns);
    }

    #[inline]
    fn phases(&mut self, times: PhaseTimes) {
        self.phases.record(times);
    }

    fn latencies(&mut self) -> Option<&mut LatencyHistogram> {
        self.whole.latencies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_recorder_reads_no_clock_and_a_histogram_has_every_latency() {
        assert_eq!(Silent.now_ns(), 0);
        let clock = Clock::new();
        let mut histogram = LatencyHistogram::new();
        let mut recorder = PerOperation {
            clock,
            histogram: &mut histogram,
        };
        let before_ns = clock.now_ns();
        let now_ns = recorder.now_ns();
        assert!((before_ns..=clock.now_ns()).contains(&now_ns));
        recorder.sample(7);
        recorder.sample(9);
        assert_eq!(histogram.count(), 2);
        assert_eq!((histogram.min_ns(), histogram.max_ns()), (Some(7), Some(9)));
    }
}

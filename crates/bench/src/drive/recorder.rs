//! Recorders of the time of each operation: nothing, or a histogram. A loop is compiled once for each, so that the
//! first costs no clock read.

use tonnage_sys::clock::Clock;

use tonnage_record::histogram::LatencyHistogram;

/// Takes the time and the latency of operations.
pub trait Recorder {
    /// Now, or 0 where nobody asks.
    fn now_ns(&self) -> u64;
    /// One latency.
    fn sample(&mut self, latency_ns: u64);
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
}

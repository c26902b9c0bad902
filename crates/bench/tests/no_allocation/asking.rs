//! A recorder as the program has it, whose latencies are asked for now and then.

use tonnage_bench::drive::pulse::Pulse;
use tonnage_bench::drive::recorder::{PerBatch, PhaseTimes, Recorder};
use tonnage_record::histogram::LatencyHistogram;

/// Work that is counted, beside the loop itself.
#[derive(Clone, Copy, PartialEq)]
pub enum Extra {
    Nothing,
    /// One allocation for each sample, which the counts must show.
    OneForEachSample,
}

/// Records as the program does, asks for the latencies now and then, and allocates if asked to.
pub struct Asking<'a> {
    pub inner: PerBatch<'a>,
    pub pulse: &'a Pulse,
    pub extra: Extra,
}

impl Recorder for Asking<'_> {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn sample(&mut self, latency_ns: u64) {
        if self.extra == Extra::OneForEachSample {
            drop(std::hint::black_box(Box::new(latency_ns)));
        }
        self.inner.sample(latency_ns);
        if self.inner.whole.histogram.count() == 500 {
            self.pulse.ask();
        }
    }

    fn phases(&mut self, times: PhaseTimes) {
        self.inner.phases(times);
    }

    fn latencies(&mut self) -> Option<&mut LatencyHistogram> {
        self.inner.latencies()
    }
}

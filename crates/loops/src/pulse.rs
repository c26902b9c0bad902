//! The pulse of a worker: the progress of its loop, for another thread that samples it occasionally.
//!
//! The loop stores a number whenever operations have completed. On request, once per interval, the loop hands over its
//! latencies by swapping its histogram for an empty one. The loop touches no bin, never waits for a lock, and needs no
//! additional clock reads. The requesting thread merges and clears the histogram.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use super::CachePadded;
use super::recorder::{PhaseTimes, Recorder};
use tonnage_engine::carried::{BinnedLatencies, CarriedProgress};
use tonnage_units::histogram::LatencyHistogram;
use tonnage_units::lock::lock;

/// Progress of a worker's loop in a trial.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Written by the worker, so it has its own cache lines.
    completed: CachePadded<AtomicU64>,
    /// Number of requests for latencies. It changes only once per interval, so it stays in the worker's cache.
    asked: CachePadded<AtomicU64>,
    /// The last request that the worker has answered.
    answered: AtomicU64,
    /// Latencies that the worker has handed over.
    latencies: Mutex<HandedOverLatencies>,
    /// Progress of a trial that is carried out elsewhere, while it runs.
    followed: Mutex<Option<FollowedTrial>>,
}

/// Latencies that a worker has handed over.
#[derive(Debug, Default)]
struct HandedOverLatencies {
    /// Latencies not taken yet. While this is empty, the worker may swap it for its own histogram.
    interval: LatencyHistogram,
    /// Latencies of the trial that were taken.
    taken: LatencyHistogram,
}

/// A trial that is carried out elsewhere.
#[derive(Debug)]
struct FollowedTrial {
    progress: Arc<dyn CarriedProgress>,
    /// Bin counts that were already handed over.
    told: Vec<u64>,
}

impl FollowedTrial {
    fn hand_over(&mut self, latencies: &BinnedLatencies, into: &Mutex<HandedOverLatencies>) {
        lock(into).interval.add_counts(&latencies.bins, &self.told);
        self.told.clone_from(&latencies.bins);
    }
}

impl Pulse {
    /// Begins a trial.
    pub fn restart(&self) {
        self.completed.0.store(0, Ordering::Relaxed);
        let mut latencies = lock(&self.latencies);
        latencies.interval.clear();
        latencies.taken.clear();
        *lock(&self.followed) = None;
    }

    /// From now on, reports the progress of a trial that is carried out elsewhere.
    pub fn follow(&self, progress: Arc<dyn CarriedProgress>) {
        let told = Vec::new();
        *lock(&self.followed) = Some(FollowedTrial { progress, told });
    }

    /// Stops following a trial and takes over its results.
    pub fn end_following(&self, operations: u64, latencies: Option<&BinnedLatencies>) {
        // The count and the latencies are updated under one lock. Readers therefore see the trial either before its end
        // or complete.
        let mut following = lock(&self.followed);
        self.completed.0.fetch_max(operations, Ordering::Relaxed);
        if let (Some(mut followed), Some(latencies)) = (following.take(), latencies) {
            followed.hand_over(latencies, &self.latencies);
        }
    }

    /// Returns the number of operations completed in this trial.
    pub fn completed(&self) -> u64 {
        let followed = lock(&self.followed);
        let told = followed.as_ref().and_then(|it| it.progress.operations());
        // If the trial reports no number, the last reported one remains valid.
        match told {
            Some(told) => self
                .completed
                .0
                .fetch_max(told, Ordering::Relaxed)
                .max(told),
            None => self.completed.0.load(Ordering::Relaxed),
        }
    }

    /// Requests the latencies that the worker has recorded since the last request.
    pub fn request_latencies(&self) {
        let asked = self.asked.0.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(followed) = lock(&self.followed).as_mut() {
            if let Some(latencies) = followed.progress.latencies() {
                followed.hand_over(&latencies, &self.latencies);
            }
            self.answered.store(asked, Ordering::Release);
        }
    }

    /// Returns whether the worker has answered the last request.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire) == self.asked.0.load(Ordering::Relaxed)
    }

    /// Moves the latencies that the worker has handed over into `into`.
    pub fn take_latencies(&self, into: &mut LatencyHistogram) {
        let HandedOverLatencies { interval, taken } = &mut *lock(&self.latencies);
        into.merge(interval);
        taken.merge(interval);
        interval.clear();
    }
}

/// The worker's side of a pulse, with memory for the latencies of an interval.
pub struct WorkerPulse {
    /// The pulse, which another thread reads.
    pub pulse: Arc<Pulse>,
    /// Latencies not handed over yet.
    pub latencies: LatencyHistogram,
}

impl WorkerPulse {
    /// Allocates the histogram.
    pub fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            latencies: LatencyHistogram::new(),
        }
    }

    /// Clears the latencies of an earlier trial. Called before the clock starts.
    pub fn begin(&mut self) {
        self.latencies.clear();
        lock(&self.pulse.latencies).taken.clear();
    }

    /// Hands over the latencies of the last interval, including those that `more` adds. Called after the clock was
    /// stopped. `whole` receives the latencies of all intervals.
    pub fn finish(
        &mut self,
        whole: &mut LatencyHistogram,
        more: impl FnOnce(&mut LatencyHistogram),
    ) {
        more(&mut self.latencies);
        let mut handed_over = lock(&self.pulse.latencies);
        handed_over.interval.merge(&self.latencies);
        self.latencies.clear();
        whole.merge(&handed_over.taken);
        whole.merge(&handed_over.interval);
    }
}

/// Records like `inner`, and updates a pulse.
pub struct PulseRecorder<'a, R> {
    /// Records the latencies of an interval.
    inner: R,
    pulse: &'a Pulse,
    answered: u64,
}

impl<'a, R: Recorder> PulseRecorder<'a, R> {
    /// Creates a recorder that updates `pulse`. [`WorkerPulse::finish`] hands over the remaining latencies at the end.
    pub fn new(inner: R, pulse: &'a Pulse) -> Self {
        let answered = pulse.asked.0.load(Ordering::Relaxed);
        pulse.answered.store(answered, Ordering::Release);
        Self {
            inner,
            pulse,
            answered,
        }
    }

    /// Hands latencies over if the previous ones have been taken and the lock is free. Otherwise a later call does so.
    #[cold]
    fn answer_request(&mut self, asked: u64) {
        let pulse = self.pulse;
        let is_handed_over = match pulse.latencies.try_lock() {
            Ok(mut latencies) => self.hand_over(&mut latencies),
            Err(TryLockError::Poisoned(poisoned)) => self.hand_over(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => false,
        };
        if is_handed_over {
            self.answered = asked;
            pulse.answered.store(asked, Ordering::Release);
        }
    }

    fn hand_over(&mut self, handed_over: &mut HandedOverLatencies) -> bool {
        let is_free = handed_over.interval.count() == 0;
        if let (true, Some(latencies)) = (is_free, self.inner.latencies()) {
            std::mem::swap(&mut handed_over.interval, latencies);
        }
        is_free
    }
}

impl<R: Recorder> Recorder for PulseRecorder<'_, R> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    #[inline]
    fn sample(&mut self, latency_ns: u64) {
        self.inner.sample(latency_ns);
    }

    #[inline]
    fn phases(&mut self, times: PhaseTimes) {
        self.inner.phases(times);
    }

    #[inline]
    fn progress(&mut self, completed: u64) {
        self.pulse.completed.0.store(completed, Ordering::Relaxed);
        let asked = self.pulse.asked.0.load(Ordering::Relaxed);
        if asked != self.answered {
            self.answer_request(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use tonnage_sys::clock::{Clock, thread_cpu_ns};

    use super::super::recorder::{PerOperation, Silent};
    use super::*;
    use crate::testing::Counter;

    #[test]
    fn latencies_are_handed_over_once_and_all_are_in_the_total() {
        let mut felt = WorkerPulse::new(Arc::new(Pulse::default()));
        let (pulse, mut whole) = (Arc::clone(&felt.pulse), LatencyHistogram::new());
        pulse.request_latencies();
        felt.latencies.record(5);
        felt.begin();
        let inner = PerOperation {
            clock: Clock::new(),
            histogram: &mut felt.latencies,
        };
        let mut counted = PulseRecorder::new(inner, &pulse);
        let mut taken = Vec::new();
        let mut take = |pulse: &Pulse| {
            let mut latencies = LatencyHistogram::new();
            pulse.take_latencies(&mut latencies);
            taken.push((latencies.count(), latencies.max_ns()));
        };
        counted.sample(10);
        counted.progress(1);
        // A request from before the trial must not be answered.
        take(&pulse);
        counted.sample(20);
        pulse.request_latencies();
        assert!(!pulse.is_answered());
        take(&pulse);
        counted.progress(2);
        assert!(pulse.is_answered());
        // Until these latencies are taken, the worker keeps the later ones.
        counted.sample(25);
        pulse.request_latencies();
        counted.progress(3);
        assert!(!pulse.is_answered());
        take(&pulse);
        assert_eq!(pulse.completed(), 3);
        let reading = lock(&pulse.latencies);
        counted.progress(3);
        drop(reading);
        take(&pulse);
        counted.progress(3);
        assert!(pulse.is_answered());
        take(&pulse);
        counted.sample(40);
        felt.finish(&mut whole, |last| last.record(30));
        take(&pulse);
        assert_eq!(
            taken,
            [
                (0, None),
                (0, None),
                (2, Some(20)),
                (0, None),
                (1, Some(25)),
                (2, Some(40))
            ]
        );
        assert_eq!(
            (whole.count(), whole.min_ns(), whole.max_ns()),
            (5, Some(10), Some(40))
        );
        // The next trial has none of these latencies.
        felt.begin();
        let mut next = LatencyHistogram::new();
        felt.finish(&mut next, |_| {});
        assert_eq!(next.count(), 0);
        pulse.restart();
        assert_eq!(pulse.completed(), 0);
    }

    /// At an interval boundary the loop touches no bin, so it costs far less than merging two histograms. Thread CPU
    /// time excludes other threads, and the minimum of several measurements excludes disturbances.
    #[test]
    fn at_a_boundary_the_loop_touches_no_bins() {
        let (pulse, clock) = (Pulse::default(), Clock::new());
        let mut histogram = LatencyHistogram::new();
        let mut counted = PulseRecorder::new(
            PerOperation {
                clock,
                histogram: &mut histogram,
            },
            &pulse,
        );
        let (mut boundary_ns, mut merge_ns) = (u64::MAX, u64::MAX);
        let mut all = LatencyHistogram::new();
        for at in 1..=20 {
            counted.sample(1000 * at);
            pulse.request_latencies();
            let began_ns = thread_cpu_ns();
            counted.progress(at);
            boundary_ns = boundary_ns.min(thread_cpu_ns() - began_ns);
            assert!(pulse.is_answered());
            let began_ns = thread_cpu_ns();
            pulse.take_latencies(&mut all);
            merge_ns = merge_ns.min(thread_cpu_ns() - began_ns);
        }
        assert_eq!(all.count(), 20);
        assert!(
            boundary_ns < merge_ns / 4,
            "a boundary takes {boundary_ns} ns, and merging the histogram {merge_ns} ns"
        );
    }

    #[test]
    fn progress_is_reported_without_latencies_too() {
        let pulse = Pulse::default();
        let mut counted = PulseRecorder::new(Silent, &pulse);
        pulse.request_latencies();
        counted.progress(7);
        assert!(pulse.is_answered());
        assert_eq!(pulse.completed(), 7);
    }

    /// Reports these numbers one after the other, last first.
    #[derive(Debug)]
    struct ScriptedProgress(Mutex<Vec<Option<u64>>>);

    impl CarriedProgress for ScriptedProgress {
        fn operations(&self) -> Option<u64> {
            lock(&self.0).pop().flatten()
        }

        fn latencies(&self) -> Option<BinnedLatencies> {
            None
        }
    }

    /// Reports bin counts of a trial in progress.
    #[derive(Debug)]
    struct Bins(Mutex<Vec<u64>>);

    impl CarriedProgress for Bins {
        fn operations(&self) -> Option<u64> {
            Some(lock(&self.0).iter().sum())
        }

        fn latencies(&self) -> Option<BinnedLatencies> {
            let bins = lock(&self.0).clone();
            Some(BinnedLatencies {
                bins,
                ..BinnedLatencies::default()
            })
        }
    }

    #[test]
    fn latencies_of_a_followed_trial_are_handed_over_once_and_completely() {
        let (pulse, bins) = (Pulse::default(), Arc::new(Bins(Mutex::new(vec![0, 2]))));
        let taken = |pulse: &Pulse| {
            let mut latencies = LatencyHistogram::new();
            pulse.take_latencies(&mut latencies);
            latencies.recorded_bins().collect::<Vec<_>>()
        };
        pulse.follow(bins.clone());
        pulse.request_latencies();
        assert!(pulse.is_answered());
        assert_eq!(taken(&pulse), [(1, 2)]);
        *lock(&bins.0) = vec![0, 2, 0, 1];
        pulse.request_latencies();
        pulse.request_latencies();
        assert!(pulse.is_answered());
        assert_eq!(taken(&pulse), [(3, 1)]);
        *lock(&bins.0) = vec![0, 3, 0, 1];
        pulse.end_following(9, bins.latencies().as_ref());
        assert_eq!((pulse.completed(), taken(&pulse)), (9, vec![(1, 1)]));
        // Nothing is followed any more, so there is no answer.
        pulse.request_latencies();
        assert!(!pulse.is_answered());
        assert_eq!(taken(&pulse), []);
    }

    #[test]
    fn a_pulse_does_not_change_the_recorded_latencies() {
        let pulse = Pulse::default();
        let times = PhaseTimes {
            prepare_ns: 1,
            post_ns: 2,
            complete_ns: 3,
        };
        let mut counted = PulseRecorder::new(Counter::default(), &pulse);
        let readings = [counted.now_ns(), counted.now_ns(), counted.now_ns()];
        assert_eq!(readings, [1, 2, 3]);
        counted.sample(7);
        counted.phases(times);
        let Counter {
            samples, phases, ..
        } = &counted.inner;
        assert_eq!((samples, phases), (&vec![7], &vec![times]));
    }

    #[test]
    fn the_progress_of_a_followed_trial_never_decreases() {
        let pulse = Pulse::default();
        let numbers = vec![Some(7), None, Some(5)];
        pulse.follow(Arc::new(ScriptedProgress(Mutex::new(numbers))));
        let seen: Vec<u64> = (0..4).map(|_| pulse.completed()).collect();
        assert_eq!(seen, [5, 5, 7, 7]);
        // A failed trial reports no operations.
        pulse.end_following(0, None);
        assert_eq!(pulse.completed(), 7);
        pulse.restart();
        assert_eq!(pulse.completed(), 0);
    }
}

//! The progress of a worker's loop, for another thread that samples it occasionally.
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
pub struct LoopProgress {
    /// Written by the worker, so it has its own cache lines.
    completed: CachePadded<AtomicU64>,
    /// Number of requests for latencies. It changes only once per interval, so it stays in the worker's cache.
    asked: CachePadded<AtomicU64>,
    /// The last request that the worker has answered.
    answered: AtomicU64,
    /// Latencies that the worker has handed over.
    latencies: Mutex<HandedOverLatencies>,
    /// Progress of a running trial that the engine itself carries out, without the loop.
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

/// A trial that the engine itself carries out.
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

impl LoopProgress {
    /// Begins a trial.
    pub fn begin_trial(&self) {
        self.completed.0.store(0, Ordering::Relaxed);
        let mut latencies = lock(&self.latencies);
        latencies.interval.clear();
        latencies.taken.clear();
        *lock(&self.followed) = None;
    }

    /// From now on, reports the progress of a trial that the engine itself carries out.
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

/// The worker's side of its loop progress, with memory for the latencies of an interval.
pub struct WorkerProgress {
    /// The progress, which another thread reads.
    pub loop_progress: Arc<LoopProgress>,
    /// Latencies not handed over yet.
    pub latencies: LatencyHistogram,
}

impl WorkerProgress {
    /// Allocates the histogram.
    pub fn new(loop_progress: Arc<LoopProgress>) -> Self {
        Self {
            loop_progress,
            latencies: LatencyHistogram::new(),
        }
    }

    /// Clears the latencies of an earlier trial. Called before the clock starts.
    pub fn begin(&mut self) {
        self.latencies.clear();
        lock(&self.loop_progress.latencies).taken.clear();
    }

    /// Hands over the latencies of the last interval, including those that `more` adds. Called after the clock was
    /// stopped. `whole` receives the latencies of all intervals.
    pub fn finish(
        &mut self,
        whole: &mut LatencyHistogram,
        more: impl FnOnce(&mut LatencyHistogram),
    ) {
        more(&mut self.latencies);
        let mut handed_over = lock(&self.loop_progress.latencies);
        handed_over.interval.merge(&self.latencies);
        self.latencies.clear();
        whole.merge(&handed_over.taken);
        whole.merge(&handed_over.interval);
    }
}

/// Records like `inner`, and updates the loop's progress.
pub struct ProgressRecorder<'a, R> {
    /// Records the latencies of an interval.
    inner: R,
    loop_progress: &'a LoopProgress,
    answered: u64,
}

impl<'a, R: Recorder> ProgressRecorder<'a, R> {
    /// Creates a recorder that updates `loop_progress`. [`WorkerProgress::finish`] hands over the remaining latencies at the end.
    pub fn new(inner: R, loop_progress: &'a LoopProgress) -> Self {
        let answered = loop_progress.asked.0.load(Ordering::Relaxed);
        loop_progress.answered.store(answered, Ordering::Release);
        Self {
            inner,
            loop_progress,
            answered,
        }
    }

    /// Hands latencies over if the previous ones have been taken and the lock is free. Otherwise a later call does so.
    #[cold]
    fn answer_request(&mut self, asked: u64) {
        let loop_progress = self.loop_progress;
        let is_handed_over = match loop_progress.latencies.try_lock() {
            Ok(mut latencies) => self.hand_over(&mut latencies),
            Err(TryLockError::Poisoned(poisoned)) => self.hand_over(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => false,
        };
        if is_handed_over {
            self.answered = asked;
            loop_progress.answered.store(asked, Ordering::Release);
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

impl<R: Recorder> Recorder for ProgressRecorder<'_, R> {
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
        self.loop_progress
            .completed
            .0
            .store(completed, Ordering::Relaxed);
        let asked = self.loop_progress.asked.0.load(Ordering::Relaxed);
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
        let mut worker = WorkerProgress::new(Arc::new(LoopProgress::default()));
        let (loop_progress, mut whole) =
            (Arc::clone(&worker.loop_progress), LatencyHistogram::new());
        loop_progress.request_latencies();
        worker.latencies.record(5);
        worker.begin();
        let inner = PerOperation {
            clock: Clock::new(),
            histogram: &mut worker.latencies,
        };
        let mut counted = ProgressRecorder::new(inner, &loop_progress);
        let mut taken = Vec::new();
        let mut take = |loop_progress: &LoopProgress| {
            let mut latencies = LatencyHistogram::new();
            loop_progress.take_latencies(&mut latencies);
            taken.push((latencies.count(), latencies.max_ns()));
        };
        counted.sample(10);
        counted.progress(1);
        // A request from before the trial must not be answered.
        take(&loop_progress);
        counted.sample(20);
        loop_progress.request_latencies();
        assert!(!loop_progress.is_answered());
        take(&loop_progress);
        counted.progress(2);
        assert!(loop_progress.is_answered());
        // Until these latencies are taken, the worker keeps the later ones.
        counted.sample(25);
        loop_progress.request_latencies();
        counted.progress(3);
        assert!(!loop_progress.is_answered());
        take(&loop_progress);
        assert_eq!(loop_progress.completed(), 3);
        let reading = lock(&loop_progress.latencies);
        counted.progress(3);
        drop(reading);
        take(&loop_progress);
        counted.progress(3);
        assert!(loop_progress.is_answered());
        take(&loop_progress);
        counted.sample(40);
        worker.finish(&mut whole, |last| last.record(30));
        take(&loop_progress);
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
        worker.begin();
        let mut next = LatencyHistogram::new();
        worker.finish(&mut next, |_| {});
        assert_eq!(next.count(), 0);
        loop_progress.begin_trial();
        assert_eq!(loop_progress.completed(), 0);
    }

    /// At an interval boundary the loop touches no bin, so it costs far less than merging two histograms. Thread CPU
    /// time excludes other threads, and the minimum of several measurements excludes disturbances.
    #[test]
    fn at_a_boundary_the_loop_touches_no_bins() {
        let (loop_progress, clock) = (LoopProgress::default(), Clock::new());
        let mut histogram = LatencyHistogram::new();
        let mut counted = ProgressRecorder::new(
            PerOperation {
                clock,
                histogram: &mut histogram,
            },
            &loop_progress,
        );
        let (mut boundary_ns, mut merge_ns) = (u64::MAX, u64::MAX);
        let mut all = LatencyHistogram::new();
        for at in 1..=20 {
            counted.sample(1000 * at);
            loop_progress.request_latencies();
            let began_ns = thread_cpu_ns();
            counted.progress(at);
            boundary_ns = boundary_ns.min(thread_cpu_ns() - began_ns);
            assert!(loop_progress.is_answered());
            let began_ns = thread_cpu_ns();
            loop_progress.take_latencies(&mut all);
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
        let loop_progress = LoopProgress::default();
        let mut counted = ProgressRecorder::new(Silent, &loop_progress);
        loop_progress.request_latencies();
        counted.progress(7);
        assert!(loop_progress.is_answered());
        assert_eq!(loop_progress.completed(), 7);
    }

    /// Reports these numbers one by one, from the last to the first.
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
        let (loop_progress, bins) = (
            LoopProgress::default(),
            Arc::new(Bins(Mutex::new(vec![0, 2]))),
        );
        let taken = |loop_progress: &LoopProgress| {
            let mut latencies = LatencyHistogram::new();
            loop_progress.take_latencies(&mut latencies);
            latencies.recorded_bins().collect::<Vec<_>>()
        };
        loop_progress.follow(bins.clone());
        loop_progress.request_latencies();
        assert!(loop_progress.is_answered());
        assert_eq!(taken(&loop_progress), [(1, 2)]);
        *lock(&bins.0) = vec![0, 2, 0, 1];
        loop_progress.request_latencies();
        loop_progress.request_latencies();
        assert!(loop_progress.is_answered());
        assert_eq!(taken(&loop_progress), [(3, 1)]);
        *lock(&bins.0) = vec![0, 3, 0, 1];
        loop_progress.end_following(9, bins.latencies().as_ref());
        assert_eq!(
            (loop_progress.completed(), taken(&loop_progress)),
            (9, vec![(1, 1)])
        );
        // Nothing is followed any more, so there is no answer.
        loop_progress.request_latencies();
        assert!(!loop_progress.is_answered());
        assert_eq!(taken(&loop_progress), []);
    }

    #[test]
    fn publishing_progress_does_not_change_the_recorded_latencies() {
        let loop_progress = LoopProgress::default();
        let times = PhaseTimes {
            prepare_ns: 1,
            post_ns: 2,
            complete_ns: 3,
        };
        let mut counted = ProgressRecorder::new(Counter::default(), &loop_progress);
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
        let loop_progress = LoopProgress::default();
        let numbers = vec![Some(7), None, Some(5)];
        loop_progress.follow(Arc::new(ScriptedProgress(Mutex::new(numbers))));
        let seen: Vec<u64> = (0..4).map(|_| loop_progress.completed()).collect();
        assert_eq!(seen, [5, 5, 7, 7]);
        // A failed trial reports no operations.
        loop_progress.end_following(0, None);
        assert_eq!(loop_progress.completed(), 7);
        loop_progress.begin_trial();
        assert_eq!(loop_progress.completed(), 0);
    }
}

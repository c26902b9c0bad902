//! Ticks that arrive in time, late, or never.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn tick(passed: u64, operations: u64) -> Tick {
    Tick {
        trial: 1,
        passed,
        operations,
        latencies: Vec::new(),
        is_driven: false,
        is_last: false,
    }
}

fn last(passed: u64, operations: u64) -> Tick {
    Tick {
        is_driven: true,
        is_last: true,
        ..tick(passed, operations)
    }
}

/// Returns the tick with one latency.
fn with(latency_ns: u64, tick: Tick) -> Tick {
    let mut latencies = LatencyHistogram::new();
    latencies.record(latency_ns);
    Tick {
        latencies: latencies.encode(),
        ..tick
    }
}

fn collected(ranks: u32, ticks: &[(u32, Tick)]) -> IntervalCollector {
    let mut collector = IntervalCollector::new(1, 100 * MS, 0..ranks);
    for (rank, tick) in ticks {
        collector.add_tick(*rank, tick).unwrap();
    }
    collector
}

impl IntervalCollector {
    fn ended(mut self, window_ns: u64) -> TrialSeries {
        self.close(window_ns);
        self.series()
    }
}

#[test]
fn operations_are_in_the_interval_in_which_they_completed() {
    let ticks = [
        (0, tick(1, 10)),
        (1, tick(1, 20)),
        (0, tick(2, 15)),
        (1, tick(2, 50)),
        (1, last(2, 60)),
        (0, last(2, 21)),
    ];
    let series = collected(2, &ticks).ended(250 * MS);
    assert_eq!(series.operations, [30, 35, 16]);
    assert_eq!(series.clients[0].operations, [10, 5, 6]);
    assert_eq!(series.clients[1].operations, [20, 30, 10]);
    assert_eq!((series.standstills, series.latencies), (vec![], vec![]));
}

#[test]
fn operations_just_after_the_last_interval_belong_to_it() {
    let ticks = [(0, tick(1, 10)), (0, tick(2, 20)), (0, last(2, 23))];
    let series = collected(1, &ticks).ended(200 * MS + 1000);
    assert_eq!(series.operations, [10, 13]);
    let short = collected(1, &[(0, last(0, 5))]).ended(MS);
    assert_eq!(short.operations, [5]);
}

/// A rank that was stopped reports several intervals at once. It moved something only in the first one.
#[test]
fn a_late_rank_stood_still_and_a_finished_one_did_not() {
    let later = |passed| Tick {
        is_driven: true,
        ..tick(passed, 40)
    };
    let ticks = [
        (0, tick(1, 10)),
        (1, tick(1, 30)),
        (1, later(2)),
        (1, later(3)),
        (0, tick(5, 14)),
        (1, later(5)),
        (0, tick(6, 25)),
        (0, last(6, 25)),
        (1, last(5, 40)),
    ];
    let collector = collected(2, &ticks);
    let silent = |at: usize| {
        let silent = collector
            .operations_by_client(at)
            .filter(|moved| moved.is_silent);
        silent.map(|moved| moved.rank).collect::<Vec<_>>()
    };
    assert_eq!((silent(1), silent(5)), (vec![], vec![]));
    let series = collector.ended(600 * MS);
    assert_eq!(series.operations, [40, 14, 0, 0, 0, 11]);
    let stood = Standstill {
        rank: 0,
        begin_ns: 200 * MS,
        end_ns: 500 * MS,
    };
    assert_eq!(series.standstills, [stood]);
}

#[test]
fn a_missing_rank_is_silent_now_and_stood_still_in_the_end() {
    let mut collector = collected(2, &[(0, tick(1, 9)), (1, tick(1, 9)), (1, tick(2, 18))]);
    assert!(collector.have_all_reported(1) && !collector.have_all_reported(2));
    let silent: Vec<_> = collector
        .operations_by_client(1)
        .map(|moved| moved.is_silent)
        .collect();
    assert_eq!(silent, [true, false]);
    collector.add_tick(1, &tick(3, 27)).unwrap();
    // If all ranks stop reporting, it is unknown what they moved. Only rank 0, which stopped before the other one,
    // stood still.
    assert_eq!(collector.intervals_reported(), 3);
    let series = collector.ended(300 * MS);
    assert_eq!(series.operations, [18, 9, 9]);
    let [of_rank_0] = &series.standstills[..] else {
        panic!("{series:?}");
    };
    assert_eq!((of_rank_0.rank, of_rank_0.begin_ns), (0, 100 * MS));
    assert_eq!(of_rank_0.end_ns, 300 * MS);
}

#[test]
fn many_clients_are_reduced_to_their_extremes() {
    let ticks: Vec<_> = (0..20)
        .map(|rank| (rank, tick(1, 100 + u64::from(rank))))
        .collect();
    let collector = collected(20, &ticks);
    let known = collector.extremes(0).unwrap();
    assert_eq!((known.slowest_rank, known.slowest_operations), (0, 100));
    assert_eq!((known.fastest_rank, known.fastest_operations), (19, 119));
    assert_eq!(collector.extremes(1).unwrap().slowest_operations, 0);
    let series = collector.ended(200 * MS);
    assert!(series.clients.is_empty());
    assert_eq!(series.extremes.len(), 2);
    // No client reported the second interval, so all stood still.
    assert_eq!(series.standstills.len(), 20);
}

#[test]
fn latencies_of_all_clients_are_merged() {
    let mut ticks = vec![(0, with(10, tick(1, 1))), (1, with(30, tick(1, 1)))];
    for passed in 2..9 {
        ticks.push((0, with(passed * 100, tick(passed, passed))));
    }
    // When this tick arrives, its own interval no longer accepts latencies.
    ticks.push((1, with(7, tick(2, 2))));
    let collector = collected(2, &ticks);
    assert_eq!(collector.latency(7).unwrap().latency_ns_max, 800);
    assert_eq!(collector.latency(0).unwrap().latency_ns_max, 30);
    assert_eq!(collector.latency(9), None);
    let series = collector.ended(800 * MS);
    let samples: Vec<u64> = series.latencies.iter().map(|known| known.samples).collect();
    assert_eq!(samples, [2, 1, 1, 1, 2, 1, 1, 1]);
    assert_eq!(series.latencies[0].latency_ns_max, 30);
    assert_eq!(series.latencies[4].latency_ns_p50, 7);
}

#[test]
fn latencies_just_after_the_last_interval_belong_to_it() {
    let ticks = [
        (0, with(10, tick(1, 1))),
        (0, with(20, tick(2, 2))),
        (0, with(900, last(2, 3))),
    ];
    let series = collected(1, &ticks).ended(205 * MS);
    assert_eq!((series.operations, series.latencies.len()), (vec![1, 2], 2));
    let last = &series.latencies[1];
    assert_eq!((last.samples, last.latency_ns_max), (2, 900));
}

proptest! {
    /// Ticks may arrive in any order. No operations must be lost or counted twice.
    #[test]
    fn all_operations_are_in_the_series(
        ticks in proptest::collection::vec((0u32..3, 0u64..12, 0u64..50), 0..40),
        window_ms in 1u64..1500,
    ) {
        let mut collector = IntervalCollector::new(1, 100 * MS, 0..3);
        let mut sums = [0u64; 3];
        let mut passed = [0u64; 3];
        for (rank, further, moved) in ticks {
            let at = rank as usize;
            sums[at] += moved;
            passed[at] += further + 1;
            collector.add_tick(rank, &tick(passed[at], sums[at])).unwrap();
        }
        for rank in 0..3u32 {
            let at = rank as usize;
            sums[at] += 5;
            collector.add_tick(rank, &last(passed[at], sums[at])).unwrap();
        }
        let series = collector.ended(window_ms * MS);
        prop_assert_eq!(series.operations.iter().sum::<u64>(), sums.iter().sum::<u64>());
        for (client, sum) in series.clients.iter().zip(sums) {
            prop_assert_eq!(client.operations.iter().sum::<u64>(), sum);
            prop_assert_eq!(client.operations.len(), series.operations.len());
        }
    }
}

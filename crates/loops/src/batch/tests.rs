use super::*;
use crate::testing::{Counter, LONG, flow, mock, silent_port};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tonnage_engine::testing::{TestEngine, failing_after};
use tonnage_ranks::Sleepers;

const PLAIN: BatchLoop = BatchLoop {
    size: 8,
    in_flight: 1,
    one_call: true,
    merged_bytes_max: None,
};

/// Runs batches on two flows; returns the result and the samples.
fn run(
    mock: &mut TestEngine,
    batching: &BatchLoop,
    batches: u64,
    room: usize,
) -> (BatchCounts, Vec<u64>) {
    let (batched, recorder) = recorded(mock, batching, batches, room);
    (batched, recorder.samples)
}

fn recorded(
    mock: &mut TestEngine,
    batching: &BatchLoop,
    batches: u64,
    room: usize,
) -> (BatchCounts, Counter) {
    let stop = AtomicBool::new(false);
    let mut recorder = Counter::default();
    let mut flows = [flow(0, 1), flow(1, 2)];
    let batched = run_batch_loop(
        &mut silent_port(mock, &stop),
        &mut flows,
        batching,
        &mut Scratch::new(2, 1).with_batches(batching.in_flight, room),
        BatchPart::Whole(&mut Until::operations(batches)),
        &mut recorder,
    );
    let issued = batches * u64::from(batching.size);
    assert_eq!(flows.map(|flow| flow.issued), [issued; 2]);
    (batched.unwrap(), recorder)
}

#[test]
fn each_batch_is_complete_before_the_next_and_timed_once() {
    for size in [1, 3, 64, 1000] {
        // An engine that accepts seven operations at a time.
        let mut mock = mock(7);
        let batching = BatchLoop { size, ..PLAIN };
        let (batched, samples) = run(&mut mock, &batching, 5, 2 * size as usize);
        let operations = 5 * 2 * u64::from(size);
        assert_eq!(batched.completed, operations);
        assert_eq!(batched.handed_over, operations);
        // Each latency is three clock ticks: one reading after building, one after posting and one at the end.
        assert_eq!(samples, [3; 5]);
        assert!(mock.lock().most_in_flight <= 2 * size as usize);
    }
}

/// The counting clock advances by one per reading. A batch built in n passes therefore spends n ticks in Prepare, n in
/// Post and 1 in Complete.
#[test]
fn phases_make_up_the_latency() {
    for (room, prepare_ns) in [(16, 1), (8, 2), (6, 3)] {
        let mut mock = mock(7);
        let (_, recorder) = recorded(&mut mock, &PLAIN, 4, room);
        assert_eq!(recorder.phases.len(), 4);
        for (times, latency_ns) in recorder.phases.iter().zip(&recorder.samples) {
            let PhaseTimes {
                prepare_ns: built_ns,
                post_ns,
                complete_ns,
            } = *times;
            assert_eq!(built_ns, prepare_ns, "{room}");
            assert_eq!((post_ns, complete_ns), (prepare_ns, 1), "{room}");
            assert_eq!(built_ns + post_ns + complete_ns, *latency_ns, "{room}");
        }
    }
}

#[test]
fn a_batch_is_one_call_or_one_for_each_operation() {
    for (one_call, calls, most) in [(true, 5, 16), (false, 5 * 16, 1)] {
        let mut mock = mock(usize::MAX);
        let batching = BatchLoop { one_call, ..PLAIN };
        let (batched, _) = run(&mut mock, &batching, 5, 16);
        assert_eq!(batched.completed, 5 * 16);
        let script = mock.lock();
        assert_eq!(
            (script.posts, script.most_handed),
            (calls, most),
            "{one_call}"
        );
    }
    // A batch larger than the buffer needs several calls.
    let mut mock = mock(usize::MAX);
    let (batched, samples) = run(&mut mock, &PLAIN, 5, 6);
    let script = mock.lock();
    assert_eq!((script.posts, script.most_handed), (5 * 3, 6));
    assert_eq!((batched.completed, samples.len()), (5 * 16, 5));
}

#[test]
fn the_requested_batches_are_in_flight_and_each_is_timed() {
    for (in_flight, batches) in [(1, 40), (2, 40), (3, 41), (64, 5)] {
        let mut mock = mock(usize::MAX);
        let batching = BatchLoop { in_flight, ..PLAIN };
        let (batched, samples) = run(&mut mock, &batching, batches, 16);
        assert_eq!(batched.completed, batches * 16);
        assert_eq!(samples.len() as u64, batches);
        let together = u64::from(in_flight).min(batches) as usize;
        let most = mock.lock().most_in_flight;
        assert!(most <= together * 16, "{most} of {together}");
        // The loop polls once after each batch that it begins, and each poll completes five operations.
        assert!(
            most + 5 * together > (together - 1) * 16,
            "{most} of {together}"
        );
    }
}

#[test]
fn adjacent_operations_are_merged_up_to_the_engines_maximum() {
    // Each flow cycles through 8 slots of 8 bytes. The ninth operation uses the first slot again, so it isn't adjacent
    // to the eighth.
    for (size, bytes_max, each) in [
        (4, u32::MAX, 1),
        (8, u32::MAX, 1),
        (16, u32::MAX, 2),
        (8, 24, 3),
    ] {
        let mut mock = mock(usize::MAX);
        let batching = BatchLoop {
            size,
            merged_bytes_max: Some(bytes_max),
            ..PLAIN
        };
        let (batched, samples) = run(&mut mock, &batching, 4, 64);
        assert_eq!(batched.completed, 4 * 2 * u64::from(size));
        assert_eq!(batched.handed_over, 4 * 2 * each, "{size} {bytes_max}");
        assert_eq!(mock.lock().posted, batched.handed_over);
        assert_eq!(samples.len(), 4);
    }
}

#[test]
fn only_operations_adjacent_at_both_ends_are_merged() {
    let op = |lane, local, remote| Op {
        lane: tonnage_engine::Lane(lane),
        tag: 0,
        local,
        remote,
        len: 8,
        imm: 0,
    };
    let last = op(1, 0, 100);
    assert!(is_contiguous(&last, &op(1, 8, 108), 16));
    assert!(!is_contiguous(&last, &op(1, 8, 108), 15));
    assert!(!is_contiguous(&last, &op(2, 8, 108), 16));
    assert!(!is_contiguous(&last, &op(1, 16, 108), 16));
    assert!(!is_contiguous(&last, &op(1, 8, 116), 16));
    assert!(!is_contiguous(&last, &op(1, 0, 108), 16));
}

/// Each worker's share of a batch of 8 operations per flow.
const SHARES: [u32; 3] = [3, 3, 2];

/// Runs batches that three workers share, each on its own thread and engine; returns each worker's result.
fn shared_by(
    sleepers: Option<Arc<Sleepers>>,
    (shares, in_flight, batches): ([u32; 3], u32, u64),
    mocks: &mut [TestEngine; 3],
    stop: &AtomicBool,
) -> [(Result<BatchCounts>, Counter); 3] {
    let shared = Arc::new(SharedBatches::new(3, in_flight, sleepers.clone()));
    let work = |worker: u32, mock: &mut TestEngine| {
        let batching = BatchLoop {
            size: shares[worker as usize],
            in_flight,
            ..PLAIN
        };
        let mut recorder = Counter::default();
        let mut until = Until::operations(batches);
        let part = match worker {
            0 => BatchPart::Lead(&shared, &mut until),
            _ => BatchPart::Follow(&shared),
        };
        let mut port = Port::new(mock, tonnage_sys::clock::Clock::new(), stop, true);
        if let Some(sleepers) = &sleepers {
            port = port.with_sleeper(sleepers.add_sleeper().unwrap());
        }
        let batched = run_batch_loop(
            &mut port,
            &mut [flow(0, 1), flow(1, 2)],
            &batching,
            &mut Scratch::new(2, 1).with_batches(in_flight, 6),
            part,
            &mut recorder,
        );
        if let Err(error) = &batched {
            shared.abandon(worker, error);
        }
        (batched, recorder)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let [one, two, three] = mocks;
        let others = [
            scope.spawn(move || work(1, two)),
            scope.spawn(move || work(2, three)),
        ];
        let first = work(0, one);
        let [two, three] = others.map(|other| other.join().unwrap());
        [first, two, three]
    })
}

#[test]
fn workers_divide_batches_and_the_first_one_times_them() {
    for (shares, in_flight, batches) in [
        (SHARES, 1, 200),
        (SHARES, 2, 201),
        (SHARES, 7, 40),
        // Fewer operations than workers.
        ([1, 1, 0], 1, 50),
        ([1, 0, 0], 3, 50),
    ] {
        let mut mocks = [1, 7, 64].map(mock);
        let stop = AtomicBool::new(false);
        let ends = shared_by(None, (shares, in_flight, batches), &mut mocks, &stop);
        let samples = ends.each_ref().map(|(_, recorder)| recorder.samples.len());
        assert_eq!(samples, [batches as usize, 0, 0]);
        assert_eq!(ends[0].1.phases.len(), batches as usize);
        for ((batched, _), (share, mock)) in ends.iter().zip(shares.iter().zip(&mocks)) {
            let operations = batches * 2 * u64::from(*share);
            let expected = BatchCounts {
                completed: operations,
                handed_over: operations,
            };
            assert_eq!(*batched.as_ref().unwrap(), expected);
            assert_eq!(mock.lock().posted, operations);
            assert!(mock.lock().most_in_flight as u32 <= in_flight * 2 * share);
        }
    }
}

/// If one worker's engine completes nothing, the other workers may begin only `in_flight` batches.
#[test]
fn no_batch_begins_before_the_last_share_of_the_one_before_is_done() {
    for (slow, in_flight) in [(0, 1), (1, 1), (2, 1), (2, 3)] {
        let mut mocks = [64, 64, 64].map(mock);
        mocks[slow].lock().ends = None;
        let posted = Arc::new(AtomicU32::new(0));
        for mock in &mocks {
            let posted = Arc::clone(&posted);
            mock.lock().takes = Some(Box::new(move |_| {
                posted.fetch_add(1, Ordering::Relaxed);
                true
            }));
        }
        let stop = AtomicBool::new(false);
        let ends = std::thread::scope(|scope| {
            scope.spawn(|| {
                let began = Instant::now();
                let all = in_flight * 2 * SHARES.iter().sum::<u32>();
                while posted.load(Ordering::Relaxed) < all && began.elapsed() < LONG {
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Wait a little longer, so that a batch that wrongly begins is counted.
                std::thread::sleep(Duration::from_millis(50));
                stop.store(true, Ordering::Release);
            });
            shared_by(None, (SHARES, in_flight, 1000), &mut mocks, &stop)
        });
        for (batched, _) in &ends {
            let error = batched.as_ref().unwrap_err().to_string();
            assert!(error.contains("the run was stopped"), "{error}");
        }
        assert!(ends[0].1.samples.is_empty());
        for (mock, share) in mocks.iter().zip(SHARES) {
            assert_eq!(
                mock.lock().posted,
                u64::from(in_flight * 2 * share),
                "{slow}"
            );
        }
    }
}

#[test]
fn a_worker_that_fails_ends_the_loops_of_the_others() {
    for failing in [0, 2] {
        let mut mocks = [64, 64, 64].map(mock);
        mocks[failing].lock().ends = Some(failing_after(40, 77));
        let stop = AtomicBool::new(false);
        let ends = shared_by(None, (SHARES, 2, 1000), &mut mocks, &stop);
        for (worker, (batched, _)) in ends.iter().enumerate() {
            let error = batched.as_ref().unwrap_err().to_string();
            assert!(error.contains("77"), "{error}");
            let named = error.contains(&format!("thread {failing}: "));
            assert_eq!(named, worker != failing, "{error}");
        }
    }
}

/// Sleeping workers must be woken for each share and for the end of the loop. Otherwise each batch would take at least
/// one nap of 10 ms.
#[test]
fn workers_that_sleep_between_batches_are_woken() {
    let mut mocks = [64, 64, 64].map(|room| mock(room).sleeping());
    let stop = AtomicBool::new(false);
    let sleepers = Some(Arc::new(Sleepers::default()));
    let began = Instant::now();
    let ends = shared_by(sleepers, (SHARES, 1, 400), &mut mocks, &stop);
    assert!(ends.iter().all(|(batched, _)| batched.is_ok()));
    assert!(
        mocks.iter().all(|mock| mock.lock().slept > 0),
        "no thread slept"
    );
    assert!(began.elapsed() < Duration::from_secs(2));
}

//! Workers that are killed or hang, and calls that raise exceptions.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tonnage_collective::Collective;

use super::*;
use crate::kinds::collective::torch::{RunOrder, failure};

const LONG: RunOrder = RunOrder {
    iterations: 1_000_000,
    align: false,
    refill_each: false,
    slot: 0,
    poison: false,
};

/// Timeout for a call that is meant to hang.
const SHORT: Duration = Duration::from_secs(4);

fn pid(worker: &mut TorchWorker) -> Pid {
    Pid::from_raw(worker.process_id() as i32).unwrap()
}

fn is_there(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid).is_ok()
}

/// Repeats all-reduce until the worker of rank 1 gets the signal `fault`. For each rank, returns the error, the elapsed
/// time and the worker's process ID.
fn fault(timeout: Duration, fault: Signal) -> Option<Vec<(String, Duration, Pid)>> {
    with_workers(2, timeout, move |rank, mut worker| {
        let call = call(Collective::AllReduce, 2, 2);
        worker.probe(rank, &call).unwrap();
        worker.prepare(&call, 1).map_err(text).unwrap();
        let pid = pid(&mut worker);
        let is_faulty = rank.id() == 1;
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            if is_faulty {
                kill_process(pid, fault).unwrap();
            }
        });
        let began = Instant::now();
        let ran = worker.run(LONG);
        let error = failure::agree(rank, "run", ran, TIMEOUT).unwrap_err();
        killer.join().unwrap();
        drop(worker);
        (error.to_string(), began.elapsed(), pid)
    })
}

#[test]
fn a_worker_that_is_killed_or_stopped_is_named_on_all_ranks() {
    for (timeout, signal, how) in [
        (TIMEOUT, Signal::KILL, "was killed by signal 9 (SIGKILL"),
        (SHORT, Signal::STOP, "has been stopped by a signal"),
    ] {
        for (error, took, pid) in fault(timeout, signal).into_iter().flatten() {
            assert!(
                error.starts_with("rank 1 on ") && error.contains(how),
                "{error}"
            );
            let most = timeout.min(Duration::from_secs(5)) + Duration::from_secs(5);
            assert!(took < most, "{took:?}");
            assert!(!is_there(pid));
        }
    }
}

#[test]
fn a_call_that_hangs_shows_pythons_stack() {
    let errors = with_workers(2, SHORT, |rank, mut worker| {
        let call = call(Collective::AllReduce, 2, 2);
        worker.probe(rank, &call).unwrap();
        worker.prepare(&call, 1).map_err(text).unwrap();
        let began = Instant::now();
        // Rank 1 does not make the call, so rank 0 waits in it.
        let ran = match rank.id() {
            0 => worker.run(LONG),
            _ => Ok(()),
        };
        let error = failure::agree(rank, "run", ran, TIMEOUT).unwrap_err();
        (error.to_string(), began.elapsed())
    });
    for (error, took) in errors.into_iter().flatten() {
        assert!(error.starts_with("rank 0 on "), "{error}");
        for part in [
            "iteration 1 of 1000000",
            "Python's stack",
            "<tonnage>/calls.py",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(took < SHORT + Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn an_exception_comes_with_its_traceback() {
    let errors = with_workers(2, TIMEOUT, |rank, mut worker| {
        let mut call = call(Collective::Broadcast, 2, 2);
        // The plan would reject this root. The test uses it as an example of a mistake in the worker.
        call.shape.root = 7;
        worker.probe(rank, &call).unwrap_err().to_string()
    });
    for error in errors.into_iter().flatten() {
        assert!(error.starts_with("rank 0 on "), "{error}");
        for part in ["raised IndexError", "<tonnage>/calls.py", "self.root = "] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn a_worker_that_dies_during_init_is_named() {
    let Some(python) = python() else { return };
    let errors = run(2, move |mut rank| {
        let settings = settings(&python, TorchBackend::Gloo);
        let mut worker = TorchWorker::start(&rank, settings, &|_| None).unwrap();
        if rank.id() == 1 {
            kill_process(pid(&mut worker), Signal::KILL).unwrap();
        }
        let began = Instant::now();
        let error = worker.init(&mut rank).unwrap_err();
        rank.close().unwrap();
        (error.to_string(), began.elapsed())
    });
    for (error, took) in errors {
        assert!(error.starts_with("rank 1 on "), "{error}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_worker_ends_with_the_thread_that_started_it() {
    let Some(python) = python() else { return };
    let mut workers = run(1, move |rank| {
        let settings = settings(&python, TorchBackend::Null);
        let worker = TorchWorker::start(&rank, settings, &|_| None).unwrap();
        rank.close().unwrap();
        worker
    });
    let error = text(workers.remove(0).close().unwrap_err());
    assert!(error.contains("was killed by signal 9"), "{error}");
}

#[test]
fn an_order_given_too_early_raises_an_exception() {
    let errors = with_workers(1, TIMEOUT, |_, mut worker| {
        // No call was prepared, so fetching its result raises an exception.
        worker.fetch().map_err(text).unwrap_err()
    });
    for error in errors.into_iter().flatten() {
        assert!(error.contains("raised AttributeError"), "{error}");
    }
}

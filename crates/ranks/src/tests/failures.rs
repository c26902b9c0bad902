//! Ranks that are killed, stopped, stuck or lost, and how the other ranks report them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use super::*;

#[test]
fn a_lost_rank_is_named_everywhere_within_a_second() {
    let size = 13;
    let (gone, when) = mpsc::channel();
    let outcomes = run(size, move |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        if rank.id() == 5 {
            let error = Error::Failed("its disk is full".into());
            rank.fail(&error);
            drop(rank);
            gone.send(Instant::now()).unwrap();
            return None;
        }
        let error = rank.barrier("never", SOON).unwrap_err();
        let now = Instant::now();
        assert!(rank.stop_flag().load(Ordering::Acquire));
        assert_eq!(rank.why_stopped().unwrap().to_string(), error.to_string());
        let later = rank.barrier("later", SOON).unwrap_err();
        assert_eq!(later.to_string(), error.to_string());
        assert_eq!(rank.claims_report(), rank.id() == 0);
        assert!(!rank.claims_report(), "the report is claimed only once");
        Some((error.to_string(), now))
    });
    let when = when.recv().unwrap();
    for (text, at) in outcomes.into_iter().flatten() {
        assert_eq!(text, "rank 5 on h5: its disk is full");
        assert!(at.saturating_duration_since(when) < Duration::from_secs(1));
    }
}

/// Runs ranks as if a launcher had started them. Returns whether each has claimed the report by its end.
fn claims_under_a_launcher(size: u32, body: impl Fn(&mut Rank) + Copy + Send) -> Vec<bool> {
    let (listener, address) = door();
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let begin = |number: u32| {
            let identity = launched(number, size, address);
            let mut options = options(&identity);
            options.listener = listener.take_if(|_| number == 0);
            scope.spawn(move || {
                let mut rank = Rank::join(identity, options).unwrap();
                rank.barrier("begin", SOON).unwrap();
                body(&mut rank);
                let (shared, _) = rank.parts();
                let has_claimed = rank.claims_report();
                drop(rank);
                // If a child claims the report while it leaves, its control thread prints it. Rank 0 then claims the
                // report only to prevent its own.
                has_claimed || number != 0 && !shared.claim_report()
            })
        };
        let ranks: Vec<_> = (0..size).map(begin).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn until_told(rank: &Rank) {
    let since = Instant::now();
    while rank.why_stopped().is_none() && since.elapsed() < SOON {
        sleep(Duration::from_millis(1));
    }
}

/// The children must stay silent: they report only if rank 0 is lost.
#[test]
fn a_failure_of_rank_0_is_reported_by_rank_0_alone() {
    let claims = claims_under_a_launcher(5, |rank| match rank.id() {
        0 => rank.fail(&Error::Failed("its disk is full".into())),
        _ => until_told(rank),
    });
    assert_eq!(claims, [true, false, false, false, false]);
}

/// The rank that first ends the run is rank 0, one of its children, or a grandchild.
#[test]
fn an_agreed_failure_of_rank_0_is_reported_by_rank_0_alone() {
    for first in [0, 1, 2, 4] {
        let claims = claims_under_a_launcher(5, move |rank| {
            let mine = match rank.id() {
                0 => Err(Error::Failed("its disk is full".into())),
                _ => Ok(()),
            };
            let failure = rank.agree("open", mine, SOON).unwrap_err();
            if rank.id() != first {
                sleep(Duration::from_millis(20));
            }
            rank.fail(&failure);
            until_told(rank);
        });
        assert_eq!(claims, [true, false, false, false, false], "{first}");
    }
}

/// An engine may notice the loss of rank 0 before the control channel does.
#[test]
fn a_failure_unknown_to_rank_0_is_reported_by_its_child() {
    let claims = claims_under_a_launcher(2, |rank| match rank.id() {
        0 => rank.parts().1.keep_for(Duration::from_millis(1500)),
        _ => {
            sleep(Duration::from_millis(100));
            rank.fail(&Error::Rank {
                rank: 0,
                host: "h0".into(),
                message: "it does not answer".into(),
            });
            until_told(rank);
        }
    });
    assert!(claims[1], "{claims:?}");
}

/// A rank in another process. Dropping it kills the process without a last message, like a crash.
struct Doomed {
    child: std::process::Child,
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts rank 1 of 3 as a process of its own, by running an ignored test of this program.
fn other_process(address: SocketAddr) -> Doomed {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "tests::failures::rank_one_of_three"])
        .env("TONNAGE_TEST_RANK", address.to_string())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    Doomed { child }
}

#[test]
#[ignore = "it is the other process of tests that stop or kill a rank"]
fn rank_one_of_three() {
    let Ok(address) = std::env::var("TONNAGE_TEST_RANK") else {
        println!("skip: only another test starts this one");
        return;
    };
    let identity = identity(1, 3, address.parse().unwrap());
    let mut rank = Rank::join(identity.clone(), options(&identity)).unwrap();
    rank.barrier("begin", SOON).unwrap();
    let since = Instant::now();
    while !rank.stop_flag().load(Ordering::Acquire) && since.elapsed() < 3 * SOON {
        sleep(Duration::from_millis(10));
    }
}

/// Runs ranks 0 and 2, with rank 1 in another process. When all have joined, `act` is called with that process's ID.
fn with_other_process(timeout: Duration, act: impl Fn(u32) + Send + 'static) -> Vec<Error> {
    let (listener, address) = door();
    let other = other_process(address);
    let pid = other.child.id();
    let change = |options: &mut JoinOptions| options.heartbeat_timeout = timeout;
    let zero = start(0, 3, (Some(listener), address), change, move |rank| {
        let mut rank = rank.unwrap();
        rank.barrier("begin", SOON).unwrap();
        act(pid);
        rank.barrier("end", SOON).unwrap_err()
    });
    let two = start(2, 3, (None, address), change, |rank| {
        let mut rank = rank.unwrap();
        rank.barrier("begin", SOON).unwrap();
        rank.barrier("end", SOON).unwrap_err()
    });
    vec![zero.join().unwrap(), two.join().unwrap()]
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_killed_process_is_named() {
    for error in with_other_process(SOON, |pid| signal(pid, rustix::process::Signal::KILL)) {
        assert_eq!(blamed(&error), (1, "h1".into()));
        says(&error, &["without saying goodbye"]);
    }
}

/// Without the extra time for ranks that share a CPU, each of these ranks would count as lost at once.
#[test]
fn ranks_that_share_a_cpu_are_waited_for_longer() {
    let crowded = |rank: u32, options: &mut JoinOptions| {
        options.heartbeat_timeout = Duration::ZERO;
        options.network_timeout = Duration::ZERO;
        options.crowd_timeout = SOON;
        // Two ranks have their own CPUs, and five share the next one.
        options.cpus = vec![if rank < 2 { rank } else { 2 }];
    };
    for network_timeout in run_with(7, crowded, |rank| {
        let mut rank = rank.unwrap();
        rank.barrier("begin", SOON).unwrap();
        let network_timeout = rank.network_timeout();
        rank.close().unwrap();
        network_timeout
    }) {
        assert_eq!(network_timeout, 4 * SOON);
    }
}

#[test]
fn a_stopped_process_is_named_by_its_silence() {
    let begun = Instant::now();
    for error in with_other_process(Duration::from_secs(2), |pid| {
        signal(pid, rustix::process::Signal::STOP);
    }) {
        assert_eq!(blamed(&error), (1, "h1".into()));
        says(&error, &["has heard nothing from it"]);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_rank_that_does_not_arrive_is_named_with_its_phase() {
    let outcomes = run(13, |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        if rank.id() == 11 {
            rank.set_phase("stuck in a library");
            let since = Instant::now();
            while !rank.stop_flag().load(Ordering::Acquire) {
                assert!(since.elapsed() < SOON);
                sleep(Duration::from_millis(5));
            }
            return rank.why_stopped().unwrap();
        }
        let waited = rank.barrier("cards", Duration::from_millis(300));
        waited.unwrap_err()
    });
    for error in outcomes {
        assert_eq!(blamed(&error), (11, "h11".into()), "{error}");
        says(&error, &["\"cards\"", "stuck in a library"]);
    }
}

#[test]
fn a_rank_that_just_ends_is_named() {
    let outcomes = run(4, |mut rank| {
        rank.barrier("begin", SOON).unwrap();
        (rank.id() != 3).then(|| rank.barrier("end", SOON).unwrap_err())
    });
    for error in outcomes.into_iter().flatten() {
        assert_eq!(blamed(&error), (3, "h3".into()));
        says(&error, &["ended before the run did"]);
    }
}

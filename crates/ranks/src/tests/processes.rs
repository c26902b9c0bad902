//! Whole runs with processes under a supervisor: how they end, what they report, and that no process is left behind.
//!
//! A test starts this program again as a supervisor, and the supervisor starts it again as ranks. Ignored tests are the
//! entry points of both. An environment variable selects the scenario.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::*;
use crate::spawn::local::{end_with_supervisor, start_local};

const PLAY: &str = "TONNAGE_TEST_PLAY";

fn supervisor(play: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "tests::processes::as_supervisor",
        ])
        .env(PLAY, play)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "it is the supervisor of other tests"]
fn as_supervisor() {
    if std::env::var(PLAY).is_err() {
        println!("skip: only another test starts this one");
        return;
    }
    let name = "tests::processes::as_rank";
    let args = ["--exact", "--ignored", "--nocapture", name].map(Into::into);
    let program = std::env::current_exe().unwrap();
    let supervisor = start_local(&|_| None, 3, &program, &args, &[]).unwrap();
    for pid in supervisor.pids() {
        println!("pid {pid}");
    }
    std::process::exit(i32::from(supervisor.wait().unwrap()));
}

#[test]
#[ignore = "it is a rank of other tests"]
fn as_rank() {
    let env = |name: &str| std::env::var(name).ok();
    let Some(play) = env(PLAY) else {
        println!("skip: only another test starts this one");
        return;
    };
    end_with_supervisor(&env).unwrap();
    let identity = detect(&env, None).unwrap().unwrap();
    let secret = Secret::find(&env).unwrap();
    let options = JoinOptions::new(&env, &identity, secret, "plan".into()).unwrap();
    let mut rank = Rank::join(identity, options).unwrap();
    rank.barrier("begin", SOON).unwrap();
    let me = rank.id();
    let send = |signal| kill_process(rustix::process::getpid(), signal).unwrap();
    let stuck = || sleep(Duration::from_secs(60));
    match (play.as_str(), me) {
        ("close", _) => rank.close().unwrap(),
        ("kill 1", 1) | ("kill 0", 0) => send(Signal::KILL),
        ("interrupt 2", 2) => {
            send(Signal::INT);
            stuck();
        }
        // Behaves like a rank that is stuck inside a library call.
        _ => stuck(),
    }
    std::process::exit(0);
}

fn given(play: &str) -> (Output, String, Duration) {
    let begun = Instant::now();
    let output = supervisor(play).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said, begun.elapsed())
}

#[test]
fn a_closed_run_ends_with_0_and_reports_nothing() {
    let (output, said, _) = given("close");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("error:"), "{said}");
}

#[test]
fn a_killed_rank_ends_ranks_that_are_stuck_and_is_reported_once() {
    for (play, rank) in [("kill 1", "rank 1 on "), ("kill 0", "rank 0 on ")] {
        let (output, said, took) = given(play);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains(rank), "{said}");
        assert!(took < Duration::from_secs(15), "{took:?}");
    }
}

#[test]
fn a_signal_to_one_rank_ends_all_with_its_code() {
    let (output, said, _) = given("interrupt 2");
    assert_eq!(output.status.code(), Some(130), "{said}");
    let host = tonnage_sys::host::name();
    let wanted = format!("rank 2 on {host}: interrupted by signal 2 (SIGINT)");
    assert!(said.contains(&wanted), "{said}");
}

/// Starts a supervisor of stuck ranks. Returns it with the ranks' PIDs, which its first lines contain.
///
/// The reader is returned too, because ranks would fail if their output were closed.
fn stuck() -> (Child, Vec<Pid>, BufReader<ChildStdout>) {
    let mut child = supervisor("stuck");
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut pids = Vec::new();
    let mut line = String::new();
    while pids.len() < 3 && reader.read_line(&mut line).unwrap() > 0 {
        let pid = line
            .split_once("pid ")
            .and_then(|(_, pid)| pid.trim().parse().ok());
        pids.extend(pid.and_then(Pid::from_raw));
        line.clear();
    }
    assert_eq!(pids.len(), 3);
    sleep(Duration::from_millis(300));
    (child, pids, reader)
}

/// Returns whether a process is running. A zombie does not count as running.
fn is_running(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let zombie = std::fs::read_to_string(path).is_ok_and(|stat| stat.contains(") Z "));
    test_kill_process(pid).is_ok() && !zombie
}

fn all_gone(pids: &[Pid], time: Duration) -> bool {
    let since = Instant::now();
    while pids.iter().any(|pid| is_running(*pid)) {
        if since.elapsed() > time {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn signals_to_the_supervisor_reach_the_ranks() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (child, pids, _reader) = stuck();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(all_gone(&pids, Duration::from_secs(1)));
    }
}

#[test]
fn a_killed_supervisor_leaves_nothing_behind() {
    let (mut child, pids, _reader) = stuck();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(all_gone(&pids, Duration::from_secs(8)));
}

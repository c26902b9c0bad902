//! Promises that hold after any fault.

use std::time::Duration;

use tonnage_record::Outcome;

use super::cases::{Case, Fault, POINTS, Whom};
use super::support::launchers::MPICH;

/// Time limit, from the signal until all processes of a run have ended, on an otherwise idle machine.
pub const SOON: Duration = Duration::from_secs(5);

/// Time limit, in these tests, for joining under a launcher. Until all ranks have joined, the others know only that one
/// is missing.
pub const JOIN_SECONDS: u64 = 8;

/// Length of a run. A run continues to its end even after its results file was removed, because it still prints its
/// table.
const RUN_TIME: Duration = Duration::from_secs(10);

/// Grace period that a launcher grants to processes that it ends.
const LAUNCHER_TIME: Duration = Duration::from_secs(3);

/// Texts with which launchers report that they ended a run. They report every abnormal end this way, and do not name
/// the ranks that survived.
const LAUNCHERS_WORDS: [&str; 4] = [
    "BAD TERMINATION",
    "exited on signal",
    "non-zero exit code",
    // Hydra reports an internal error if a process ends while Hydra still starts others.
    "[mpiexec@",
];

/// Texts about crashes, which no fault of these tests causes.
const CRASHES: [&str; 2] = ["signal 11", "signal 6"];

/// Beginning of the text about a run that took too long.
pub const LATE: &str = "it took ";

/// Traces that a run with a fault left behind.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The process that received the signal; `None` if the run had ended before.
    pub struck_pid: Option<i32>,
    /// Exit code as in a shell: 128 + n if signal n ended the program.
    pub code: i32,
    /// Standard error, without debug output.
    pub stderr: String,
    /// Standard output, on which some launchers print why they end a run.
    pub stdout: String,
    /// Whether any rank had joined when the run ended.
    pub has_joined: bool,
    /// Time from the signal to the end of the last process.
    pub took: Duration,
    /// Outcomes of the records in the results file, or why it could not be read.
    pub records: Result<Vec<Outcome>, String>,
    /// Names in the working directory, except the results file.
    pub left_in_dir: Vec<String>,
    /// Names in /dev/shm that appeared during the run.
    pub left_in_memory: Vec<String>,
}

/// Returns the broken promises. `soon` is the time limit for the end of the run.
pub fn broken(case: &Case, host: &str, seen: &Seen, soon: Duration) -> Vec<String> {
    let mut broken = Vec::new();
    if seen.took > soon + grace(case, seen) {
        broken.push(format!("{LATE}{:?} to end", seen.took));
    }
    // A launcher that is killed, or that detects a killed rank, kills all ranks at once. The data file then remains
    // until the next run.
    let is_launchers = case.launcher().is_some() && case.fault == Fault::Kill;
    broken.extend(traces(seen, |names| is_launchers && *names == ["t"]));
    let records = seen.records.as_deref().unwrap_or_default();
    // The run may have ended before the signal arrived.
    if is_done(records) && seen.code == 0 && seen.stderr.is_empty() {
        return broken;
    }
    if seen.struck_pid.is_none() {
        let (code, stderr) = (seen.code, &seen.stderr);
        broken.push(format!(
            "it ended with {code} before its signal came: {stderr:?}"
        ));
    } else {
        broken.extend(wrong_code(case, seen.code));
        broken.extend(wrong_cause(case, host, seen));
    }
    broken
}

/// Whether all points of a run were measured.
pub fn is_done(records: &[Outcome]) -> bool {
    let is_measured = |record: &&Outcome| **record == Outcome::Measured;
    records.iter().filter(is_measured).count() == POINTS
}

/// Returns traces that no run may leave: new names, output about crashes, and records that are torn or were not
/// requested. New names for which `may_stay` returns true are allowed.
pub fn traces(seen: &Seen, may_stay: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (place, left) in [
        ("the working directory", &seen.left_in_dir),
        ("/dev/shm", &seen.left_in_memory),
    ] {
        if !left.is_empty() && !may_stay(left) {
            found.push(format!("{left:?} left in {place}"));
        }
    }
    if seen.stderr.contains("panicked") {
        found.push("it panicked".to_owned());
    }
    let said = [&seen.stderr, &seen.stdout];
    for words in CRASHES {
        if said.iter().any(|text| text.contains(words)) {
            found.push(format!("a process ended by {words}: {said:?}"));
        }
    }
    let is_skipped = |record: &Outcome| matches!(record, Outcome::Skipped { .. });
    match &seen.records {
        Ok(records) if records.iter().any(is_skipped) || records.len() > POINTS => {
            found.push(format!("records that were not requested: {records:?}"));
        }
        Ok(_) => {}
        Err(why) => found.push(format!("the results file: {why}")),
    }
    found
}

/// Returns the time that is allowed in addition to the promised limit.
fn grace(case: &Case, seen: &Seen) -> Duration {
    match case.launcher() {
        // This fault never occurs in cases with a launcher.
        None if case.fault == Fault::Remove => RUN_TIME,
        None => Duration::ZERO,
        Some(_) if case.fault == Fault::Stop && !seen.has_joined => {
            LAUNCHER_TIME + Duration::from_secs(JOIN_SECONDS)
        }
        Some(_) => LAUNCHER_TIME,
    }
}

fn wrong_code(case: &Case, code: i32) -> Option<String> {
    if let Some(launcher) = case.launcher() {
        // A launcher that gets a signal to end may exit with 0, regardless of the exit codes of its processes.
        let is_its_own = launcher == MPICH && case.whom == Whom::Supervisor;
        return (code == 0 && !is_its_own).then(|| "its exit code is 0".to_owned());
    }
    let is_lost_rank =
        case.whom != Whom::Supervisor && !matches!(case.fault, Fault::Term | Fault::Int);
    let promised = match is_lost_rank {
        true => 1,
        false => 128 + case.fault.signal().as_raw(),
    };
    (code != promised).then(|| format!("its exit code is {code}, not {promised}"))
}

/// Requires exactly one error line about the fault, which names the victim.
fn wrong_cause(case: &Case, host: &str, seen: &Seen) -> Option<String> {
    if case.launcher().is_some() {
        return wrong_cause_under_launcher(case, host, seen);
    }
    let cause = match case.whom {
        Whom::Rank(_) if case.fault == Fault::KillAll => format!(" on {host}"),
        Whom::Rank(_) if case.fault == Fault::Remove => "r.jsonl".to_owned(),
        Whom::Rank(rank) => format!("rank {rank} on {host}"),
        // If the supervisor is killed, no process must report it, although ranks may.
        Whom::Supervisor if case.fault == Fault::Kill => return None,
        Whom::Supervisor => format!("interrupted by signal {}", case.fault.signal().as_raw()),
    };
    // A signal that arrives before the program installs its handlers ends it silently.
    if seen.stderr.is_empty() && case.whom == Whom::Supervisor {
        return None;
    }
    let lines = seen.stderr.lines();
    let mut errors: Vec<_> = lines.filter(|line| line.contains("error: ")).collect();
    // At the very end of joining, both the victim and rank 0, which has joined, may report it with the same line.
    errors.dedup();
    let told = errors.iter().filter(|line| line.contains(&cause)).count();
    match (told, errors.len()) {
        (1, 1) => None,
        // Known limitation: while ranks join, they cannot tell a signal to all ranks from a signal to themselves, and
        // each reports it.
        (told, all) if told == all && told > 0 && case.whom == Whom::Supervisor => None,
        // All ranks were killed, and there is one report for each.
        (told, all)
            if told == all && all == case.ranks as usize && case.fault == Fault::KillAll =>
        {
            None
        }
        _ => Some(format!(
            "not exactly one error with {cause:?}: {:?}",
            seen.stderr
        )),
    }
}

/// Requires exactly one error line that names the victim. If a rank was killed, the launcher may report it first and
/// end the other ranks before they can.
fn wrong_cause_under_launcher(case: &Case, host: &str, seen: &Seen) -> Option<String> {
    let Whom::Rank(rank) = case.whom else {
        return None;
    };
    let name = format!("rank {rank} on {host}");
    let lines = seen.stderr.lines();
    let mut errors: Vec<_> = lines.filter(|line| line.contains("error: ")).collect();
    // At the very end of joining, both the victim and rank 0, which has joined, may report it with the same line.
    errors.dedup();
    let told = errors.iter().filter(|line| line.contains(&name)).count();
    let all = [&seen.stderr, &seen.stdout];
    let is_said = |words: &str| all.iter().any(|text| text.contains(words));
    let is_fine = match (told, case.fault) {
        (1, _) => true,
        (2.., _) => false,
        // Before the ranks have joined, no process knows which rank is missing.
        (0, _) if !seen.has_joined => {
            is_said("not all ranks came") || LAUNCHERS_WORDS.iter().any(|words| is_said(words))
        }
        (0, Fault::Kill) => {
            let pid = seen.struck_pid.unwrap_or_default();
            is_said(&format!("process rank {rank} "))
                || is_said(&format!("PID {pid} "))
                // Hydra kills the other ranks too. It reports the first rank, by number, that a signal ended.
                || case.launcher() == Some(MPICH) && is_said("Killed (signal 9)")
        }
        // A launcher passes the signal on to all ranks, so no single rank is to blame.
        (0, fault @ (Fault::Term | Fault::Int)) => is_said(&format!(
            "interrupted by signal {}",
            fault.signal().as_raw()
        )),
        (0, _) => false,
    };
    (!is_fine).then(|| format!("no one error about {name}: {all:?}"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::cases::{Moment, Work};
    use crate::support::launchers::OPEN_MPI;

    fn case() -> Case {
        Case {
            work: Work::Transfer("null", "write", "pair", ""),
            ranks: 2,
            moment: Moment::After(0),
            fault: Fault::Kill,
            whom: Whom::Rank(1),
        }
    }

    pub fn kept() -> Seen {
        Seen {
            struck_pid: Some(7),
            code: 1,
            stderr: "error: rank 1 on h: killed\n".to_owned(),
            stdout: String::new(),
            has_joined: true,
            took: Duration::from_secs(1),
            records: Ok(vec![Outcome::Measured]),
            left_in_dir: Vec::new(),
            left_in_memory: Vec::new(),
        }
    }

    /// Returns the promises that a case has broken, judged by what was seen of it.
    fn found(case: &Case, seen: &Seen) -> Vec<String> {
        broken(case, "h", seen, SOON)
    }

    #[test]
    fn each_broken_promise_is_found() {
        assert_eq!(found(&case(), &kept()), Vec::<String>::new());
        type Change = fn(&mut Seen);
        let changes: [(&str, Change); 12] = [
            ("before its signal came", |seen| seen.struck_pid = None),
            ("it took 6s", |seen| seen.took = Duration::from_secs(6)),
            ("exit code is 0", |seen| seen.code = 0),
            ("exit code is 137", |seen| seen.code = 137),
            ("rank 1 on h", |seen| {
                seen.stderr = "error: rank 0 on h: killed".to_owned()
            }),
            ("rank 1 on h", |seen| seen.stderr.clear()),
            ("rank 1 on h", |seen| {
                seen.stderr.push_str("error: rank 1 on h: lost\n")
            }),
            ("panicked", |seen| {
                seen.stderr.push_str("thread 'main' panicked\n")
            }),
            ("ended by signal 11", |seen| {
                seen.stdout.push_str("rank 0 on node h exited on signal 11")
            }),
            ("results file: torn", |seen| {
                seen.records = Err("torn".to_owned())
            }),
            ("left in the working directory", |seen| {
                seen.left_in_dir.push("t.0".to_owned())
            }),
            ("left in /dev/shm", |seen| {
                seen.left_in_memory.push("1:x".to_owned())
            }),
        ];
        for (expected, change) in changes {
            let mut seen = kept();
            change(&mut seen);
            let found = found(&case(), &seen);
            let is_found = found.len() == 1 && found[0].contains(expected);
            assert!(is_found, "{expected}: {found:?}");
        }
    }

    /// Such a run may take as long as a complete run, but not longer.
    #[test]
    fn without_its_results_file_a_run_comes_to_its_end() {
        let case = Case {
            fault: Fault::Remove,
            whom: Whom::Rank(0),
            ..case()
        };
        let mut seen = kept();
        seen.stderr = "error: r.jsonl was removed\n".to_owned();
        seen.took = SOON + RUN_TIME;
        assert_eq!(found(&case, &seen), Vec::<String>::new());
        seen.took += Duration::from_millis(1);
        assert_eq!(found(&case, &seen).len(), 1);
    }

    #[test]
    fn a_run_that_was_done_before_is_fine_with_all_its_records_only() {
        let mut seen = kept();
        seen.code = 0;
        seen.stderr.clear();
        seen.records = Ok(vec![Outcome::Measured; POINTS]);
        assert_eq!(found(&case(), &seen), Vec::<String>::new());
        seen.records = Ok(vec![Outcome::Measured; POINTS - 1]);
        assert_eq!(found(&case(), &seen).len(), 2);
    }

    #[test]
    fn a_launcher_has_its_own_code_and_messages_and_must_end_every_rank() {
        let case = Case {
            work: Work::Mpi(OPEN_MPI, ""),
            fault: Fault::Stop,
            ..case()
        };
        let mut seen = kept();
        (seen.code, seen.took) = (137, SOON + LAUNCHER_TIME);
        assert_eq!(found(&case, &seen), Vec::<String>::new());
        seen.stderr.push_str("error: rank 1 on h: lost\n");
        assert_eq!(found(&case, &seen).len(), 1);
        // The launcher notices that a rank was killed, but not that a rank was stopped.
        seen.stderr = "process rank 1 with PID 7 on node h exited on signal 9".to_owned();
        assert_eq!(found(&case, &seen).len(), 1);
        let killed = Case {
            fault: Fault::Kill,
            ..case.clone()
        };
        assert_eq!(found(&killed, &seen), Vec::<String>::new());
        seen.stderr = "BAD TERMINATION\n=   PID 7 RUNNING AT h".to_owned();
        assert_eq!(found(&killed, &seen), Vec::<String>::new());
        seen.stderr = "BAD TERMINATION\n=   PID 8 RUNNING AT h".to_owned();
        assert_eq!(found(&killed, &seen).len(), 1);
        seen.stderr += "\nKilled (signal 9)";
        assert_eq!(found(&killed, &seen).len(), 1);
        let by_mpich = Case {
            work: Work::Mpi(MPICH, ""),
            ..killed.clone()
        };
        (seen.code, seen.took) = (9, SOON);
        assert_eq!(found(&by_mpich, &seen), Vec::<String>::new());
        seen.stderr = "error: rank 0 of 2 on h: not all ranks came to".to_owned();
        (seen.code, seen.took) = (0, SOON + 2 * LAUNCHER_TIME);
        assert_eq!(found(&case, &seen).len(), 3);
        seen.left_in_dir.push("t".to_owned());
        assert_eq!(found(&case, &seen).len(), 4);
        seen.left_in_dir.clear();
        // The same output is accepted for a rank that has not joined.
        seen.has_joined = false;
        assert_eq!(found(&case, &seen).len(), 1);
    }

    #[test]
    fn an_interruption_has_its_code_and_its_cause() {
        let case = Case {
            fault: Fault::Int,
            whom: Whom::Supervisor,
            ..case()
        };
        let mut seen = kept();
        assert_eq!(found(&case, &seen).len(), 2);
        seen.code = 130;
        seen.stderr = "error: interrupted by signal 2 (SIGINT)\n".to_owned();
        assert_eq!(found(&case, &seen), Vec::<String>::new());
    }
}

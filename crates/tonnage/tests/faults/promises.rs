//! Promises that hold whatever befalls a run.

use std::time::Duration;

use tonnage_record::Outcome;

use super::cases::{Case, Fault, POINTS, Whom};

/// Everything that belongs to a run has ended so long after the signal, on a machine that has nothing else to do.
pub const SOON: Duration = Duration::from_secs(5);

/// Beginning of the text about a run that took too long.
pub const LATE: &str = "it took ";

/// Traces of a run that a signal came to.
#[derive(Debug, Clone)]
pub struct Seen {
    /// False where the run had ended before its moment came.
    pub is_struck: bool,
    /// Exit code as a shell gives it: 128 + n where signal n ended the program.
    pub code: i32,
    /// Standard error, but for what only who debugs asks for.
    pub stderr: String,
    /// Time from the signal to the end of the last process.
    pub took: Duration,
    /// Outcomes of the records in the results file; or the reason why it could not be read.
    pub records: Result<Vec<Outcome>, String>,
    /// Names in the working directory, the results file excepted.
    pub left_in_dir: Vec<String>,
    /// Names in /dev/shm that came with the run.
    pub left_in_memory: Vec<String>,
}

/// Returns the promises that were broken, with `soon` for the end.
pub fn broken(case: &Case, host: &str, seen: &Seen, soon: Duration) -> Vec<String> {
    let mut broken = Vec::new();
    // Without its results file a run goes on to its end for the table's sake.
    if seen.took > soon && case.fault != Fault::Remove {
        broken.push(format!("{LATE}{:?} to end", seen.took));
    }
    for (place, left) in [
        ("the working directory", &seen.left_in_dir),
        ("/dev/shm", &seen.left_in_memory),
    ] {
        if !left.is_empty() {
            broken.push(format!("{left:?} left in {place}"));
        }
    }
    if seen.stderr.contains("panicked") {
        broken.push("it panicked".to_owned());
    }
    let records = match &seen.records {
        Ok(records) => records.as_slice(),
        Err(why) => {
            broken.push(format!("the results file: {why}"));
            &[]
        }
    };
    let is_skipped = |record: &Outcome| matches!(record, Outcome::Skipped { .. });
    if records.iter().any(is_skipped) || records.len() > POINTS {
        broken.push(format!("records that nobody asked for: {records:?}"));
    }
    let measured = records
        .iter()
        .filter(|record| **record == Outcome::Measured);
    let is_done = measured.count() == POINTS;
    // The end of the run may have been faster than the signal.
    if is_done && seen.code == 0 && seen.stderr.is_empty() {
        return broken;
    }
    if !seen.is_struck {
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

fn wrong_code(case: &Case, code: i32) -> Option<String> {
    let is_lost_rank =
        case.whom != Whom::Supervisor && !matches!(case.fault, Fault::Term | Fault::Int);
    let promised = match is_lost_rank {
        true => 1,
        false => 128 + case.fault.signal().as_raw(),
    };
    (code != promised).then(|| format!("its exit code is {code}, not {promised}"))
}

/// One line says it, and names who was hit.
fn wrong_cause(case: &Case, host: &str, seen: &Seen) -> Option<String> {
    let cause = match case.whom {
        Whom::Rank(_) if case.fault == Fault::KillAll => format!(" on {host}"),
        Whom::Rank(_) if case.fault == Fault::Remove => "r.jsonl".to_owned(),
        Whom::Rank(rank) => format!("rank {rank} on {host}"),
        // Nobody is left to say it, but for ranks that notice.
        Whom::Supervisor if case.fault == Fault::Kill => return None,
        Whom::Supervisor => format!("interrupted by signal {}", case.fault.signal().as_raw()),
    };
    // A signal that is faster than the program's first words ends it without any.
    if seen.stderr.is_empty() && case.whom == Whom::Supervisor {
        return None;
    }
    let lines = seen.stderr.lines();
    let mut errors: Vec<_> = lines.filter(|line| line.contains("error: ")).collect();
    // At the very end of joining the rank that was hit and rank 0, which has joined, may both say it.
    errors.dedup();
    let told = errors.iter().filter(|line| line.contains(&cause)).count();
    match (told, errors.len()) {
        (1, 1) => None,
        // Not promised yet: while ranks join, they cannot tell a signal to all from one to them alone: each says it.
        (told, all) if told == all && told > 0 && case.whom == Whom::Supervisor => None,
        // Each of the ranks is told of.
        (told, all)
            if told == all && all == case.ranks as usize && case.fault == Fault::KillAll =>
        {
            None
        }
        _ => Some(format!(
            "no one error that says {cause:?}: {:?}",
            seen.stderr
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Moment, Work};

    fn case() -> Case {
        Case {
            work: Work::Transfer("null", "write", "pair", ""),
            ranks: 2,
            moment: Moment::After(0),
            fault: Fault::Kill,
            whom: Whom::Rank(1),
        }
    }

    fn kept() -> Seen {
        Seen {
            is_struck: true,
            code: 1,
            stderr: "error: rank 1 on h: killed\n".to_owned(),
            took: Duration::from_secs(1),
            records: Ok(vec![Outcome::Measured]),
            left_in_dir: Vec::new(),
            left_in_memory: Vec::new(),
        }
    }

    #[test]
    fn each_broken_promise_is_found() {
        assert_eq!(broken(&case(), "h", &kept(), SOON), Vec::<String>::new());
        type Change = fn(&mut Seen);
        let changes: [(&str, Change); 11] = [
            ("before its signal came", |seen| seen.is_struck = false),
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
            let found = broken(&case(), "h", &seen, SOON);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn a_run_that_was_done_before_is_fine_with_all_its_records_only() {
        let mut seen = kept();
        seen.code = 0;
        seen.stderr.clear();
        seen.records = Ok(vec![Outcome::Measured; POINTS]);
        assert_eq!(broken(&case(), "h", &seen, SOON), Vec::<String>::new());
        seen.records = Ok(vec![Outcome::Measured; POINTS - 1]);
        assert_eq!(broken(&case(), "h", &seen, SOON).len(), 2);
    }

    #[test]
    fn an_interruption_has_its_code_and_its_cause() {
        let case = Case {
            fault: Fault::Int,
            whom: Whom::Supervisor,
            ..case()
        };
        let mut seen = kept();
        assert_eq!(broken(&case, "h", &seen, SOON).len(), 2);
        seen.code = 130;
        seen.stderr = "error: interrupted by signal 2 (SIGINT)\n".to_owned();
        assert_eq!(broken(&case, "h", &seen, SOON), Vec::<String>::new());
    }
}

//! Work for which the agent of a host has started this process: a rank of a run, or a check of the host. A start
//! message on standard input describes the work.

use std::process::ExitCode;

use tonnage_plan::Plan;
use tonnage_sys::out_of_memory;
use tonnage_units::{Error, Nanos, Result};

use super::check::task::{CheckTask, TimeBudget};
use super::check::this_host::report_to_caller;
use super::job::Job;
use super::letter::{HostJob, RankLetter};
use super::measure::participate::participate_remotely;
use crate::args::common::LogLevel;
use crate::args::passed_on::RankWords;

/// Work for which an agent has started this process.
pub struct RemoteWork {
    /// Log level.
    pub log_level: LogLevel,
    task: RemoteTask,
}

enum RemoteTask {
    Rank(Box<Job>),
    Check(Box<CheckTask>, TimeBudget),
}

/// Reads the start message of this process. After that, a panic message names the rank or the check.
pub fn read() -> Result<RemoteWork> {
    let host = tonnage_sys::host::name();
    let (letter, said) = match HostJob::from_input()? {
        HostJob::Rank(letter, said) => {
            out_of_memory::introduce_rank(format!("rank {} on {host}", letter.identity().rank));
            (letter, said)
        }
        HostJob::Check(text) => {
            out_of_memory::introduce_rank(format!("the check of {host}"));
            let (task, time, log_level) = CheckTask::from_letter(&text)?;
            return Ok(RemoteWork {
                log_level,
                task: RemoteTask::Check(Box::new(task), time),
            });
        }
    };
    let words = RankWords::read(&said.ranks)?;
    let job = Job {
        require_path: said.require_path,
        runs: said.runs,
        time_limit: said.time_limit_ns.map(Nanos),
        letter: Some(letter),
        ..Job::new(Plan::from_toml(&said.plan, "the plan")?, words.ranks)
    };
    Ok(RemoteWork {
        log_level: words.log_level,
        task: RemoteTask::Rank(Box::new(job)),
    })
}

impl RemoteWork {
    /// Runs the rank, or checks the host.
    pub fn work(&self) -> Result<ExitCode> {
        let job = match &self.task {
            RemoteTask::Rank(job) => job,
            RemoteTask::Check(task, time) => return report_to_caller(task, *time),
        };
        let identity = job.letter.as_ref().map(RankLetter::identity);
        let identity = identity.ok_or_else(|| Error::Usage("a rank without a letter".into()))?;
        participate_remotely(job, identity)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tonnage_ranks::spawn::remote::messages::{SecretText, StartLetter, write_line};

    use super::super::letter::{JobLetter, job_of_check};
    use super::*;
    use crate::last_resort;

    /// Variable that makes a process of this test read a start message.
    const HAS_A_LETTER: &str = "TONNAGE_TEST_HAS_A_LETTER";

    fn letter(job: String) -> StartLetter {
        StartLetter {
            rank: 3,
            size: 4,
            local_rank: 0,
            local_size: 1,
            parent: std::process::id(),
            secret: SecretText("of nobody".into()),
            meeting: ([127, 0, 0, 1], 1).into(),
            listener: None,
            records: None,
            job,
        }
    }

    /// Starts a process that gets a start message with this job and then panics. Returns its standard error.
    fn stderr_of_a_panic(job: String) -> String {
        let this = "command::remote_rank::tests::a_panic_names_the_rank_or_check_of_an_agent";
        let mut process = Command::new(std::env::current_exe().unwrap());
        process
            .args(["--exact", this, "--nocapture"])
            .env(HAS_A_LETTER, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = process.spawn().unwrap();
        write_line(&mut process.stdin.take().unwrap(), &letter(job)).unwrap();
        let ended = process.wait_with_output().unwrap();
        String::from_utf8(ended.stderr).unwrap()
    }

    #[test]
    fn a_panic_names_the_rank_or_check_of_an_agent() {
        if std::env::var_os(HAS_A_LETTER).is_some() {
            // Only the beginning of the start message must be valid.
            last_resort::prepare();
            drop(read());
            panic!("a bug");
        }
        let host = tonnage_sys::host::name();
        let rank = JobLetter {
            ranks: Vec::new(),
            plan: "no plan".into(),
            require_path: false,
            runs: None,
            time_limit_ns: None,
            before: String::new(),
        };
        for (job, who) in [
            (
                serde_json::to_string(&rank).unwrap(),
                format!("rank 3 on {host}"),
            ),
            (job_of_check("no check"), format!("the check of {host}")),
        ] {
            let said = stderr_of_a_panic(job);
            let line = said.lines().next().unwrap_or_default();
            assert!(
                line.starts_with(&format!("error: {who}: internal error at "))
                    && line.contains(": a bug. "),
                "{said}"
            );
        }
    }
}

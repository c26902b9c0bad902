//! Work that the agent of a host has started: a rank of a run, or a check of its host. What it is stands in a letter.

use std::process::ExitCode;

use tonnage_plan::Plan;
use tonnage_sys::out_of_memory;
use tonnage_units::{Error, Result};

use super::check::own::for_elsewhere;
use super::check::task::{CheckTask, LetterTime};
use super::job::Job;
use super::letter::{HostJob, RankLetter};
use super::measure::be_a_remote_rank;
use crate::args::common::LogLevel;
use crate::args::passed_on::RankWords;

/// Work for an agent.
pub struct RemoteWork {
    /// Level of messages.
    pub log_level: LogLevel,
    task: RemoteTask,
}

enum RemoteTask {
    Rank(Box<Job>),
    Check(Box<CheckTask>, LetterTime),
}

/// Reads the letter to this process.
///
/// # Errors
/// [`Error::Usage`] when there is none.
pub fn read() -> Result<RemoteWork> {
    let (letter, said) = match HostJob::from_input()? {
        HostJob::Rank(letter, said) => (letter, said),
        HostJob::Check(text) => {
            let (task, time, log_level) = CheckTask::of_letter(&text)?;
            return Ok(RemoteWork {
                log_level,
                task: RemoteTask::Check(Box::new(task), time),
            });
        }
    };
    let words = RankWords::read(&said.ranks)?;
    let job = Job {
        plan: Plan::from_toml(&said.plan, "the plan")?,
        ranks: words.ranks,
        output: None,
        format: None,
        require_path: said.require_path,
        times: said.times,
        block: None,
        letter: Some(letter),
    };
    Ok(RemoteWork {
        log_level: words.log_level,
        task: RemoteTask::Rank(Box::new(job)),
    })
}

impl RemoteWork {
    /// Takes part in the run, or checks the host.
    ///
    /// # Errors
    /// A wrong request, or what ended the run.
    pub fn work(&self) -> Result<ExitCode> {
        let host = tonnage_sys::host::name();
        let job = match &self.task {
            RemoteTask::Rank(job) => job,
            RemoteTask::Check(task, time) => {
                out_of_memory::introduce_rank(format!("the check of {host}"));
                return for_elsewhere(task, *time);
            }
        };
        let identity = job.letter.as_ref().map(RankLetter::identity);
        let identity = identity.ok_or_else(|| Error::Usage("a rank without a letter".into()))?;
        out_of_memory::introduce_rank(format!("rank {} on {host}", identity.rank));
        be_a_remote_rank(job, identity)
    }
}

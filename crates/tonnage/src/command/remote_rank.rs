//! A rank that the agent of a host has started: its job is in a letter.

use std::process::ExitCode;

use tonnage_plan::Plan;
use tonnage_units::{Error, Result};

use super::job::Job;
use super::letter::RankLetter;
use super::measure::be_a_remote_rank;
use crate::args::common::LogLevel;
use crate::args::passed_on::RankWords;

/// Reads the letter to this rank.
///
/// # Errors
/// [`Error::Usage`] when there is none.
pub fn read() -> Result<(LogLevel, Job)> {
    let (letter, said) = RankLetter::from_input()?;
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
    Ok((words.log_level, job))
}

/// Takes part in the run.
///
/// # Errors
/// A wrong request, or what ended the run.
pub fn be_a_rank(job: &Job) -> Result<ExitCode> {
    let identity = job.letter.as_ref().map(RankLetter::identity);
    let identity = identity.ok_or_else(|| Error::Usage("a rank without a letter".into()))?;
    be_a_remote_rank(job, identity)
}

//! The request for a check, with the contents of the files that it names. Another host may not have these files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tonnage_judge::baseline::Baseline;
use tonnage_judge::check::ExitStyle;
use tonnage_plan::Plan;
use tonnage_ranks::Identity;
use tonnage_units::{Error, Nanos, Result};

use crate::args::check::CheckArgs;
use crate::args::common::LogLevel;
use crate::args::hosts::HostArgs;
use crate::args::passed_on::{RankWords, words, words_with_hosts};
use crate::command::baseline::text_of;
use crate::command::measure::resolve::identity_of;

/// Options that set this process's rank in a launcher's run.
const OF_A_RANK: [&str; 3] = ["--rank=", "--world-size=", "--master="];

/// A check, as requested from this process.
pub struct CheckTask {
    /// The options.
    pub args: CheckArgs,
    /// The baseline.
    pub baseline: Baseline,
    /// The baseline's name.
    pub baseline_name: String,
    /// The baseline's text.
    pub baseline_text: String,
    /// Plan that limits the measured points, with its name.
    pub plan: Option<(String, Plan)>,
    /// Options for the ranks that this process starts.
    pub words: Vec<String>,
    /// This process's rank, if a launcher's ranks measure together.
    pub identity: Option<Identity>,
    /// True if runs must not find the processes that a launcher has started.
    pub is_alone: bool,
}

impl CheckTask {
    /// Returns the check of this process's command line.
    pub fn from_command_line(args: &CheckArgs) -> Result<Self> {
        let baseline_text = text_of(&args.baseline)?;
        let baseline_name = args.baseline.display().to_string();
        let plan = args.plan.as_ref().map(|path| {
            let plan = Plan::load(path)?;
            Ok::<_, Error>((path.display().to_string(), plan))
        });
        let (words, identity) = if args.each_host {
            (words(std::env::args_os())?, None)
        } else {
            (
                words_with_hosts(std::env::args_os())?,
                identity_of(&args.ranks)?,
            )
        };
        let task = Self {
            args: args.clone(),
            baseline: Baseline::from_toml(&baseline_text, &baseline_name)?,
            baseline_name,
            baseline_text,
            plan: plan.transpose()?,
            words: for_runs(words),
            identity,
            is_alone: args.each_host,
        };
        Ok(if args.each_host { task.alone() } else { task })
    }

    /// Returns the check of one host only, without anything that refers to other hosts.
    fn alone(mut self) -> Self {
        let ranks = &mut self.args.ranks;
        (ranks.rank, ranks.world_size, ranks.master) = (None, None, None);
        ranks.hosts = HostArgs::default();
        self.words
            .retain(|word| !OF_A_RANK.iter().any(|begin| word.starts_with(begin)));
        self
    }

    /// Serializes the check for another host, where [`CheckTask::from_letter`] parses it.
    pub fn letter(&self, time: TimeBudget) -> Result<String> {
        let plan = self.plan.as_ref().map(|(name, plan)| {
            let text = plan.to_toml()?;
            Ok::<_, Error>((name.clone(), text))
        });
        let mut ranks = self.words.clone();
        let level = log::max_level().to_string().to_lowercase();
        ranks.push(format!("--log-level={level}"));
        let letter = CheckLetter {
            ranks,
            time,
            baseline_name: self.baseline_name.clone(),
            baseline_text: self.baseline_text.clone(),
            plan: plan.transpose()?,
            only: self.args.only.clone(),
            retest: self.args.retest,
            cache_ns: self.args.cache.map(|cache| cache.0),
            state: self.args.state.clone(),
        };
        serde_json::to_string(&letter)
            .map_err(|error| Error::Failed(format!("the check cannot be written: {error}")))
    }

    /// Parses a check from another host: the task, its time budget and its log level.
    pub fn from_letter(text: &str) -> Result<(Self, TimeBudget, LogLevel)> {
        let letter: CheckLetter = serde_json::from_str(text)
            .map_err(|error| Error::Usage(format!("the letter of a check: {error}")))?;
        letter.task()
    }
}

/// Removes the log level, because the runs of a check have a different one.
fn for_runs(mut words: Vec<String>) -> Vec<String> {
    words.retain(|word| !word.starts_with("--log-level"));
    words
}

/// Time budget of a check in a message to another host.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct TimeBudget {
    /// Budget that the user gave, in nanoseconds.
    pub asked_ns: u64,
    /// Part of the budget that is left, in nanoseconds.
    pub budget_ns: u64,
}

/// A check in a message to another host.
#[derive(Debug, Serialize, Deserialize)]
struct CheckLetter {
    /// Options of [`RankWords`].
    ranks: Vec<String>,
    time: TimeBudget,
    baseline_name: String,
    baseline_text: String,
    /// Name and text of the plan.
    plan: Option<(String, String)>,
    only: Vec<String>,
    retest: u32,
    cache_ns: Option<u64>,
    state: Option<PathBuf>,
}

impl CheckLetter {
    fn task(self) -> Result<(CheckTask, TimeBudget, LogLevel)> {
        let words = RankWords::read(&self.ranks)?;
        let plan = self
            .plan
            .map(|(name, text)| Plan::from_toml(&text, &name).map(|plan| (name, plan)));
        let task = CheckTask {
            args: CheckArgs {
                baseline: PathBuf::from(&self.baseline_name),
                budget: Nanos(self.time.budget_ns),
                exit: ExitStyle::Plain,
                plan: None,
                only: self.only,
                retest: self.retest,
                cache: self.cache_ns.map(Nanos),
                state: self.state,
                output: None,
                force: false,
                nodelist: None,
                each_host: true,
                ranks: words.ranks,
            },
            baseline: Baseline::from_toml(&self.baseline_text, &self.baseline_name)?,
            baseline_name: self.baseline_name,
            baseline_text: self.baseline_text,
            plan: plan.transpose()?,
            words: for_runs(self.ranks),
            identity: None,
            is_alone: true,
        };
        Ok((task.alone(), self.time, words.log_level))
    }
}

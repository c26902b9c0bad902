//! A job: a plan with everything that a command needs to run it.

use std::path::PathBuf;

use tonnage_bench::settings::Numa;
use tonnage_machine::CpuChoice;
use tonnage_plan::Plan;
use tonnage_report::Format;

use super::block::Block;
use super::letter::RankLetter;
use crate::args::common::RankArgs;

/// A plan with everything that a command needs to run it.
pub struct Job {
    /// Plan to measure.
    pub plan: Plan,
    /// Ranks and where they run.
    pub ranks: RankArgs,
    /// File for records, and whether those already there count.
    pub output: Option<(PathBuf, bool)>,
    /// Format of standard output; `None` for nothing.
    pub format: Option<Format>,
    /// True when points whose path is not proven make the run fail.
    pub require_path: bool,
    /// Number of times that everything is measured, where that was asked for.
    pub runs: Option<u32>,
    /// IOR's result block, where it is asked for; it stands before everything else.
    pub block: Option<Block>,
    /// Letter to this rank, where the agent of a host has started it.
    pub letter: Option<RankLetter>,
}

impl Job {
    /// A plan by these ranks, measured once, with nothing shown or written.
    pub fn new(plan: Plan, ranks: RankArgs) -> Self {
        Self {
            plan,
            ranks,
            output: None,
            format: None,
            require_path: false,
            runs: None,
            block: None,
            letter: None,
        }
    }

    /// Choice of where workers and their memory are to be.
    pub fn placement(&self) -> (CpuChoice, Numa) {
        (self.ranks.cpus.clone().unwrap_or_default(), self.ranks.numa)
    }
}

//! A job: a plan with everything that a command needs to run it.

use std::path::PathBuf;

use tonnage_bench::settings::Numa;
use tonnage_machine::CpuChoice;
use tonnage_plan::Plan;
use tonnage_report::Format;
use tonnage_report::view::View;
use tonnage_units::Nanos;

use super::block::Block;
use super::letter::RankLetter;
use crate::args::common::RankArgs;

pub struct Job {
    /// Plan to measure.
    pub plan: Plan,
    /// Ranks and their placement.
    pub ranks: RankArgs,
    /// Records file, if any. The flag is true if points in the file are skipped.
    pub output: Option<(PathBuf, bool)>,
    /// Format of standard output; `None` prints nothing.
    pub format: Option<Format>,
    /// How tables are printed.
    pub view: View,
    /// True if the run must fail if a point lacks proof of its path.
    pub require_path: bool,
    /// Number of repetitions of the whole plan, if requested.
    pub runs: Option<u32>,
    /// Time limit of the whole run, if there is one.
    pub time_limit: Option<Nanos>,
    /// IOR's result block, if requested. It is printed before all other results.
    pub block: Option<Block>,
    /// Start message to this rank, if the agent of a host has started it.
    pub letter: Option<RankLetter>,
}

impl Job {
    /// Creates a job that runs a plan once on these ranks, without printing or storing anything.
    pub fn new(plan: Plan, ranks: RankArgs) -> Self {
        Self {
            plan,
            ranks,
            output: None,
            format: None,
            view: View::default(),
            require_path: false,
            runs: None,
            time_limit: None,
            block: None,
            letter: None,
        }
    }

    /// Returns the CPUs for threads and the NUMA node for their memory, as requested.
    pub fn placement(&self) -> (CpuChoice, Numa) {
        (self.ranks.cpus.clone().unwrap_or_default(), self.ranks.numa)
    }
}

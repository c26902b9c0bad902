//! Verdicts of several hosts for the process that tells them.

use tonnage_judge::check::each_host::{EachHostFacts, EachHostReport, HostVerdict};
use tonnage_judge::check::{CheckReport, CheckVerdict};

use super::super::clock::{BudgetClock, unix_ns};
use super::super::task::CheckTask;
use crate::command::program;

/// Outcome of checks of several hosts for one process.
pub enum EachOutcome {
    /// All verdicts.
    All(Box<EachHostReport>),
    /// Only that of this host: nobody else will tell it.
    Own(Box<CheckReport>),
    /// The verdict of all, which another process tells.
    Elsewhere(CheckVerdict),
}

/// The report of these verdicts.
pub fn report(task: &CheckTask, each: Vec<HostVerdict>, clock: &BudgetClock) -> EachHostReport {
    let facts = EachHostFacts {
        program: program().version,
        baseline: task.baseline_name.clone(),
        time_unix_ns: unix_ns(),
        budget_s: clock.budget_s(),
        took_s: clock.elapsed_s(),
    };
    EachHostReport::of(facts, each)
}

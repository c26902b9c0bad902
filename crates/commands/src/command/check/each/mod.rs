//! Checks of several hosts, each by itself: all are checked at once, and one process tells the verdicts of all.
//!
//! | file | whose hosts |
//! | --- | --- |
//! | [`by_ssh`] | those of `--hosts`, on which this process starts a check each |
//! | [`by_launcher`] | those on which a launcher has started this command |

mod by_launcher;
mod by_ssh;

use tonnage_judge::check::each_host::{EachHostFacts, EachHostReport, HostVerdict};
use tonnage_judge::check::{CheckReport, CheckVerdict};
use tonnage_ranks::Identity;
use tonnage_units::{Error, Result};

use super::clock::{BudgetClock, unix_ns};
use super::task::CheckTask;
use crate::args::check::CheckArgs;
use crate::args::hosts::listed;
use crate::command::{env, program};

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
fn report(task: &CheckTask, each: Vec<HostVerdict>, clock: &BudgetClock) -> EachHostReport {
    let facts = EachHostFacts {
        program: program().version,
        baseline: task.baseline_name.clone(),
        time_unix_ns: unix_ns(),
        budget_s: clock.budget_s(),
        took_s: clock.elapsed_s(),
    };
    EachHostReport::of(facts, each)
}

/// Returns whether another of a launcher's processes tells what is found.
pub fn is_not_first(args: &CheckArgs) -> Result<bool> {
    let place = identity(args)?;
    Ok(place.is_some_and(|identity| identity.rank != 0))
}

fn identity(args: &CheckArgs) -> Result<Option<Identity>> {
    tonnage_ranks::detect(&env, args.ranks.explicit())
}

/// Checks all hosts.
pub fn check(task: &CheckTask, args: &CheckArgs, clock: &BudgetClock) -> Result<EachOutcome> {
    let hosts = &args.ranks.hosts;
    let hosts = listed(&hosts.hosts, hosts.hostfile.as_ref())?;
    match (hosts, identity(args)?) {
        (Some(_), Some(identity)) => Err(Error::Usage(format!(
            "--each-host takes the hosts of --hosts or those of {}: leave --hosts out, or start tonnage outside of the \
             launcher",
            identity.source
        ))),
        (Some(hosts), None) => {
            let each = by_ssh::check(task, args, &hosts, clock)?;
            Ok(EachOutcome::All(Box::new(report(task, each, clock))))
        }
        (None, Some(identity)) => by_launcher::check(task, args, identity, clock),
        // One process alone, as a launcher starts it for one host.
        (None, None) => {
            let host = tonnage_sys::host::name();
            let each = vec![by_launcher::own_verdict(task, host, clock)];
            Ok(EachOutcome::All(Box::new(report(task, each, clock))))
        }
    }
}

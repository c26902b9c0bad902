//! Checks several hosts: each is checked separately, all at the same time, and one process reports all verdicts.
//!
//! | file | hosts |
//! | --- | --- |
//! | [`by_ssh`] | the hosts of `--hosts`; this process starts a check on each |
//! | [`by_launcher`] | hosts on which a launcher has started this command |

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

/// Outcome of the checks of several hosts, in one process.
pub enum EachOutcome {
    /// All verdicts. This process reports them.
    All(Box<EachHostReport>),
    /// Only the verdict of this host, because no other process will print it.
    Own(Box<CheckReport>),
    /// The overall verdict, because another process prints the report.
    Elsewhere(CheckVerdict),
}

/// Combines the verdicts into a report.
fn report(task: &CheckTask, each: Vec<HostVerdict>, clock: &BudgetClock) -> EachHostReport {
    let facts = EachHostFacts {
        program: program().version,
        baseline: task.baseline_name.clone(),
        time_unix_ns: unix_ns(),
        budget_s: clock.budget_s(),
        took_s: clock.elapsed_s(),
    };
    EachHostReport::new(facts, each)
}

/// Returns whether a different process of the launcher prints the findings.
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
        // A single process, as in a launcher's allocation with one host.
        (None, None) => {
            let host = tonnage_sys::host::name();
            let each = vec![by_launcher::own_verdict(task, host, clock)];
            Ok(EachOutcome::All(Box::new(report(task, each, clock))))
        }
    }
}

//! Checks hosts by ssh. A process on each host checks it and prints a report, without waiting for other hosts.

use std::time::{Duration, Instant};

use tonnage_judge::check::CheckReport;
use tonnage_judge::check::each_host::HostVerdict;
use tonnage_ranks::spawn::RankExit;
use tonnage_ranks::spawn::remote::host_processes::{HostProcess, HostProcessStart};
use tonnage_ranks::spawn::remote::hosts::RemoteHosts;
use tonnage_ranks::spawn::remote::list::{HostPlacement, HostSlots};
use tonnage_units::{Error, Result};

use super::super::clock::BudgetClock;
use super::super::task::{CheckTask, TimeBudget};
use crate::args::check::CheckArgs;
use crate::command::letter::job_of_check;
use crate::command::remote::{settings, variables};

/// Checks the hosts in a list.
pub fn check(
    task: &CheckTask,
    args: &CheckArgs,
    hosts: &[HostSlots],
    clock: &BudgetClock,
) -> Result<Vec<HostVerdict>> {
    let given = &args.ranks.hosts;
    if given.per_host.is_some() || hosts.iter().any(|host| host.slots.is_some()) {
        return Err(Error::Usage(
            "--each-host starts as many ranks on a host as a point of the baseline has: leave --per-host and numbers \
             behind hosts out; --ranks N chooses among points"
                .to_owned(),
        ));
    }
    let placement = HostPlacement::new(hosts, None)?;
    clock.step("checking the hosts");
    let settings = settings(&given.ssh, Some(clock.connect_time()?))?;
    // A host that answers early has more time for its check than a late one.
    let job = || {
        let time = TimeBudget {
            asked_ns: task.args.budget.0,
            budget_ns: u64::try_from(clock.left().as_nanos()).unwrap_or(u64::MAX),
        };
        task.letter(time).map(|letter| job_of_check(&letter))
    };
    let directory =
        std::env::current_dir().map_err(|error| Error::io("the working directory", error))?;
    let start = HostProcessStart {
        directory: directory.to_string_lossy().into_owned(),
        variables: variables(given, std::env::vars_os())?,
        job: &job,
        is_answer: &|line| report_in(line).is_some(),
    };
    let complain = |host: &str, line: &str| log::info!("{host}: {line}");
    let left = clock.left();
    let until = Instant::now() + left;
    let (party, found) =
        RemoteHosts::run_process_per_host(settings, &placement.hosts, &start, until, complain)?;
    let each = found.iter().zip(&placement.hosts).enumerate();
    let each = each
        .map(|(host, (process, listed))| verdict(party.name_of(host), &listed.name, process, left));
    Ok(each.collect())
}

/// Parses a line as the report of a host. Returns `None` for other lines.
fn report_in(line: &str) -> Option<CheckReport> {
    serde_json::from_str(line).ok()
}

fn verdict(name: String, listed: &str, process: &HostProcess, time: Duration) -> HostVerdict {
    if let Some(report) = process.answer.as_deref().and_then(report_in) {
        return HostVerdict::from_report(name, report);
    }
    // The host's watchdog has printed the step that took too long.
    let said = process.lines.iter().rev();
    let said = { said }.find_map(|line| line.strip_prefix("error: "));
    let why = said.or(process.error.as_deref()).map(str::to_owned);
    let why = why.or_else(|| process.lost.clone());
    let why = why.unwrap_or_else(|| match process.exit {
        Some(RankExit::Signal(signal)) => format!("its check was ended by signal {signal}"),
        Some(RankExit::Code(code)) => format!("its check ended with code {code} and no verdict"),
        Some(RankExit::Lost) | None => format!("no verdict within {:.0} s", time.as_secs_f64()),
    });
    // Errors of ssh begin with the host's name, which the verdict already has.
    let listed = why.split_once(": ").filter(|(host, _)| *host == listed);
    let why = listed.map_or(why.as_str(), |(_, rest)| rest);
    HostVerdict::error(name, why)
}

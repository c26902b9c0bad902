//! Hosts that ssh reaches: a process on each checks it and prints its report, and none waits for another.

use std::time::{Duration, Instant};

use tonnage_judge::check::CheckReport;
use tonnage_judge::check::each_host::HostVerdict;
use tonnage_ranks::spawn::RankExit;
use tonnage_ranks::spawn::remote::apart::{ApartProcess, ApartStart};
use tonnage_ranks::spawn::remote::list::{HostPlacement, HostSlots};
use tonnage_units::{Error, Result};

use super::super::clock::BudgetClock;
use super::super::task::CheckTask;
use crate::args::check::CheckArgs;
use crate::command::letter::job_of_check;
use crate::command::remote::{gather_until, variables};

/// Checks the hosts of a list.
///
/// # Errors
/// `Usage` for hosts that are one machine and for numbers of ranks in the list; when ssh cannot be started.
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
    clock.step("reaching the hosts");
    // Hosts that do not answer must leave the others time to be checked.
    let answer_until = Instant::now() + clock.left() / 2;
    let mut party = gather_until(&placement.hosts, &given.ssh, Some(answer_until))?;
    if let Some((one, other)) = party.twins().first() {
        let [one, other] = [one, other].map(|host| placement.hosts[*host].name.as_str());
        return Err(Error::Usage(format!(
            "{one} and {other} are one machine, whose checks would disturb each other: name it once"
        )));
    }
    clock.step("checking the hosts");
    let left = clock.left();
    let budget_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    let letter = task.letter(budget_ns)?;
    let directory =
        std::env::current_dir().map_err(|error| Error::io("the working directory", error))?;
    let start = ApartStart {
        directory: directory.to_string_lossy().into_owned(),
        variables: variables(given, std::env::vars_os())?,
        job: job_of_check(&letter),
    };
    let complain = |host: &str, line: &str| log::info!("{host}: {line}");
    let found = party.run_apart(&start, Instant::now() + left, complain)?;
    let each = found.iter().zip(&placement.hosts).enumerate();
    let each = each
        .map(|(host, (process, listed))| verdict(party.name_of(host), &listed.name, process, left));
    Ok(each.collect())
}

fn verdict(name: String, listed: &str, process: &ApartProcess, time: Duration) -> HostVerdict {
    let mut lines = process.lines.iter();
    if let Some(report) = lines.find_map(|line| serde_json::from_str::<CheckReport>(line).ok()) {
        return HostVerdict::of(name, report);
    }
    // Its watchdog prints the step that it has waited for.
    let said = process.lines.iter().rev();
    let said = { said }.find_map(|line| line.strip_prefix("error: "));
    let why = said.or(process.error.as_deref()).map(str::to_owned);
    let why = why.or_else(|| process.lost.clone());
    let why = why.unwrap_or_else(|| match process.exit {
        Some(RankExit::Signal(signal)) => format!("its check was ended by signal {signal}"),
        Some(RankExit::Code(code)) => format!("its check ended with code {code} and no verdict"),
        Some(RankExit::Lost) | None => format!("no verdict within {:.0} s", time.as_secs_f64()),
    });
    // Words about ssh begin with the host, which the verdict names itself.
    let listed = why.split_once(": ").filter(|(host, _)| *host == listed);
    let why = listed.map_or(why.as_str(), |(_, rest)| rest);
    HostVerdict::error(name, why)
}

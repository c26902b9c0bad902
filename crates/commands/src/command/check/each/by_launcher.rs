//! Checks hosts on which a launcher has started this command. The first process on each host checks the host, and rank
//! 0 gets all verdicts.
//!
//! If the processes do not find each other, or one is lost, each process prints the verdict of its own host.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_judge::check::CheckVerdict;
use tonnage_judge::check::each_host::HostVerdict;
use tonnage_ranks::bootstrap::LauncherDisconnect;
use tonnage_ranks::{Identity, Rank};
use tonnage_units::reduce::Reduce;
use tonnage_units::{Error, Result};

use super::super::clock::BudgetClock;
use super::super::task::CheckTask;
use super::super::this_host::check_this_host;
use super::{EachOutcome, report};
use crate::args::check::CheckArgs;
use crate::command::env;

/// Time at the end that is reserved for gathering the verdicts.
const GATHERING: Duration = Duration::from_secs(2);

/// The processes have the remaining time divided by this number to find each other.
const JOINING_PART: u32 = 4;

/// Variable that limits how long a process waits for others.
const JOIN_TIMEOUT: &str = "TONNAGE_JOIN_TIMEOUT";

/// Checks this host. On rank 0, also reports on all hosts.
pub fn check(
    task: &CheckTask,
    args: &CheckArgs,
    identity: Identity,
    clock: &BudgetClock,
) -> Result<EachOutcome> {
    clock.step("waiting for the other hosts");
    let (place, size) = (identity.rank, identity.size);
    let is_first_by_launcher = identity.local_rank == 0;
    let own_host = tonnage_sys::host::name();
    let joined = match join(task, args, identity, clock) {
        // A signal to this process must end its own check too.
        Err(error @ Error::Interrupted { .. }) => return Err(error),
        joined => joined,
    };
    let checks = match &joined {
        Ok(JoinedProcess { rank, .. }) => rank.hosts().host(rank.id()) == Some(rank.id()),
        Err(_) => is_first_by_launcher,
    };
    // Other processes may have started earlier, and then end earlier.
    let least_left = match &joined {
        Ok(together) => together.least_left,
        Err(_) => clock.left_to_end(),
    };
    let time = clock.ending_before(least_left, GATHERING);
    let own = checks.then(|| own_verdict(task, own_host, &time));
    clock.step("waiting for the verdicts of other hosts");
    let gathered = joined.and_then(|together| gather(together, own.as_ref(), clock));
    match (gathered, place) {
        (Ok(Gathered::All(each)), _) => Ok(EachOutcome::All(Box::new(report(task, each, clock)))),
        (Ok(Gathered::Overall(verdict)), _) => Ok(EachOutcome::Elsewhere(verdict)),
        (Err(error), 0) => {
            log::warn!(
                "no verdicts of other hosts arrived, so they are missing from the list of failed hosts: {error}"
            );
            let others = match size - 1 {
                1 => "the other process".to_owned(),
                more => format!("{more} other processes"),
            };
            let lost = HostVerdict::error(others, &error.to_string());
            let each = own.into_iter().chain([lost]).collect();
            Ok(EachOutcome::All(Box::new(report(task, each, clock))))
        }
        (Err(error), _) => {
            log::warn!("only this host's verdict is printed: {error}");
            match own.and_then(|own| own.report) {
                Some(report) => Ok(EachOutcome::Own(Box::new(report))),
                None => Err(error),
            }
        }
    }
}

/// Returns the verdict on this host only.
pub fn own_verdict(task: &CheckTask, host: String, clock: &BudgetClock) -> HostVerdict {
    match check_this_host(task, clock) {
        Ok(Some(report)) => HostVerdict::from_report(host, report),
        Ok(None) => HostVerdict::error(host, "it was not checked"),
        Err(error) => HostVerdict::error(host, &error.to_string()),
    }
}

/// This process after it has joined the others.
struct JoinedProcess {
    rank: Rank,
    /// Time until the first of the processes ends.
    least_left: Duration,
    /// Kept until the end, so that the launcher sees this process leave only when all processes are done.
    leave: LauncherDisconnect,
}

fn join(
    task: &CheckTask,
    args: &CheckArgs,
    identity: Identity,
    clock: &BudgetClock,
) -> Result<JoinedProcess> {
    let time = clock.left() / JOINING_PART;
    // This timeout also limits the launcher's own exchange of addresses.
    let env = |name: &str| match (name, env(name)) {
        (JOIN_TIMEOUT, None) => Some(format!("{:.3}", time.as_secs_f64())),
        (_, value) => value,
    };
    let interface = args.ranks.control_interface.as_deref();
    let mut met = tonnage_ranks::meet(&env, identity, interface, |_| Ok(()))?;
    let hash = tonnage_ranks::plan_hash(&format!("check\n{}", task.baseline_text))?;
    let mut options = met.options(&env, hash)?;
    options.interface.clone_from(&args.ranks.control_interface);
    // A lost host must not end the checks of other hosts.
    options.end_process = false;
    options.close_timeout = GATHERING;
    // Keep the connection to the launcher even if a process does not join. Otherwise the launcher would end the other
    // processes and their checks.
    let leave = met.leave;
    let mut rank = Rank::join(met.identity, options).map_err(|failure| failure.error)?;
    let left = clock.left_to_end();
    let mine = LeastLeft(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
    let LeastLeft(least_ns) = rank.reduce("the time of all", mine, left)?;
    Ok(JoinedProcess {
        rank,
        least_left: Duration::from_nanos(least_ns),
        leave,
    })
}

/// Minimum time left over all processes, in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct LeastLeft(u64);

impl Reduce for LeastLeft {
    fn merge(&mut self, other: Self) {
        self.0 = self.0.min(other.0);
    }
}

enum Gathered {
    All(Vec<HostVerdict>),
    /// Rank 0 has all verdicts, and has broadcast the overall verdict.
    Overall(CheckVerdict),
}

fn gather(
    together: JoinedProcess,
    own: Option<&HostVerdict>,
    clock: &BudgetClock,
) -> Result<Gathered> {
    let JoinedProcess {
        mut rank,
        leave: _leave,
        ..
    } = together;
    let mine = own.map(|own| serde_json::to_string(own).unwrap_or_default());
    let all = rank.collect("verdicts of hosts", &mine, clock.left_to_end())?;
    let each: Vec<HostVerdict> = all
        .iter()
        .flatten()
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect();
    let counts = CheckVerdict::combine(each.iter().map(|one| one.verdict));
    let told = (rank.id() == 0).then(|| counts.name().as_bytes().to_vec());
    let told = rank.broadcast("the verdict that counts", told, clock.left_to_end())?;
    let is_root = rank.id() == 0;
    // All processes have their data, so an error while closing does not matter.
    if let Err(failure) = rank.close() {
        log::debug!("{}", failure.error);
    }
    if is_root {
        return Ok(Gathered::All(each));
    }
    let told = String::from_utf8_lossy(&told);
    let verdict = told.parse();
    verdict
        .map(Gathered::Overall)
        .map_err(|_| Error::Failed(format!("unknown verdict {told:?} from rank 0")))
}

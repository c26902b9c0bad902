//! Everything that a rank needs to join a run, except its identity.

use std::net::TcpListener;
use std::time::Duration;

use super::launcher_process::LauncherProcess;
use super::secret::Secret;
use super::variables::Env;
use crate::RankInfo;
use crate::shared_cpu_time::{EACH_RANK, extra_time_here, own_cpus};
use crate::signals::Signals;
use tonnage_units::identity::{Identity, Meeting};
use tonnage_units::{Error, Result};

/// Variable that sets both the heartbeat and the network time-out, in seconds.
const HEARTBEAT_VARIABLE: &str = "TONNAGE_HEARTBEAT_TIMEOUT";

/// Variable that bounds every wait of ranks for each other between steps, in seconds.
const STEP_VARIABLE: &str = "TONNAGE_STEP_TIMEOUT";

/// Silence after which a rank on this machine counts as hanging.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time to wait for ranks that this program started on this machine.
const LOCAL_JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence after which a rank behind a network counts as lost. It must be long enough that a cable pulled for two
/// seconds does not end a run. A switch takes another second to forward again, and TCP retries at growing intervals, so
/// the first message may arrive after twice the outage.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(7);

/// Options for joining and for watching other ranks.
#[derive(Debug)]
pub struct JoinOptions {
    /// Secret of the run, the same on all ranks.
    pub secret: Secret,
    /// [`super::secret::plan_hash`] of the plan. Ranks with different hashes refuse to run together.
    pub plan_hash: String,
    /// Listen on this network interface instead of the one that `MASTER_ADDR` belongs to.
    pub interface: Option<String>,
    /// Time to wait for the other ranks.
    pub join_timeout: Duration,
    /// A rank that is silent for this long counts as lost.
    pub heartbeat_timeout: Duration,
    /// A rank behind a network that is silent for this long counts as lost. This time is longer than
    /// `heartbeat_timeout`, because networks may be interrupted.
    pub network_timeout: Duration,
    /// Time that each additional rank on the same CPU adds to both time-outs.
    pub crowd_timeout: Duration,
    /// CPUs that this process may run on.
    pub cpus: Vec<u32>,
    /// Longest time for a connection to authenticate and introduce itself.
    pub stranger_timeout: Duration,
    /// Longest time that [`crate::Rank::close`] waits for the other ranks.
    pub close_timeout: Duration,
    /// Time that the main thread gets to end when the run ends early.
    pub grace: Duration,
    /// Number of children of each node of the tree.
    pub fanout: u32,
    /// End the process if the main thread does not end within `grace`. The thread may be stuck inside a library.
    pub end_process: bool,
    /// The launcher process, if this rank must end together with it.
    pub launcher: Option<LauncherProcess>,
    /// Let SIGINT and SIGTERM end the run.
    pub handle_signals: bool,
    /// SIGINT and SIGTERM, if [`super::rendezvous::meet`] already catches them; `handle_signals` is then ignored.
    pub signals: Option<Signals>,
    /// This host's name.
    pub host: String,
    /// Identifies this boot of the host, as in [`crate::RankInfo::boot_id`].
    pub boot_id: String,
    /// This process's time namespace; empty if the system does not provide it.
    pub time_namespace: String,
    /// This process's [`crate::RankInfo::network_namespace`].
    pub network_namespace: String,
    /// This process's [`crate::RankInfo::pid_namespace`].
    pub pid_namespace: String,
    /// For rank 0: the socket to listen on, instead of one at the identity's address.
    pub listener: Option<TcpListener>,
}

impl JoinOptions {
    /// Creates the default options for this identity. `TONNAGE_JOIN_TIMEOUT` and `TONNAGE_HEARTBEAT_TIMEOUT` (seconds)
    /// override the defaults.
    pub fn new(
        env: Env<'_>,
        identity: &Identity,
        secret: Secret,
        plan_hash: String,
    ) -> Result<Self> {
        // Ranks that tonnage itself started are ready at once, but a launcher may still be starting containers.
        let join_usual = match identity.meeting {
            Meeting::Master { .. } => Duration::from_secs(60),
            Meeting::Local { .. } => LOCAL_JOIN_TIMEOUT + extra_time_here(identity.size),
            _ => LOCAL_JOIN_TIMEOUT,
        };
        let asked = read_seconds(env, HEARTBEAT_VARIABLE)?;
        Ok(Self {
            secret,
            plan_hash,
            interface: None,
            join_timeout: join_timeout(env)?.unwrap_or(join_usual),
            heartbeat_timeout: asked.unwrap_or(HEARTBEAT_TIMEOUT),
            network_timeout: asked.unwrap_or(NETWORK_TIMEOUT),
            crowd_timeout: asked.map_or(EACH_RANK, |_| Duration::ZERO),
            cpus: own_cpus(),
            stranger_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(60),
            // Together with the time for the last messages on its connections, the process ends within two seconds.
            grace: Duration::from_millis(1800),
            fanout: 32,
            end_process: true,
            launcher: LauncherProcess::find(env),
            handle_signals: true,
            signals: None,
            host: tonnage_sys::host::name(),
            boot_id: tonnage_sys::host::boot_id(),
            time_namespace: tonnage_sys::host::time_namespace(),
            network_namespace: tonnage_sys::host::network_namespace(),
            pid_namespace: tonnage_sys::host::pid_namespace(),
            listener: None,
        })
    }

    /// Returns the name of this process's clock. Processes with the same name read the same `CLOCK_MONOTONIC`. Empty if
    /// the system has no boot ID.
    pub(crate) fn clock_name(&self) -> String {
        match self.boot_id.as_str() {
            "" => String::new(),
            boot => format!("{boot} {}", self.time_namespace),
        }
    }

    /// Returns the description of this rank that the other ranks get.
    pub(crate) fn info(&self, identity: &Identity) -> RankInfo {
        RankInfo {
            rank: identity.rank,
            host: self.host.as_str().into(),
            pid: std::process::id(),
            boot_id: self.boot_id.as_str().into(),
            network_namespace: self.network_namespace.as_str().into(),
            pid_namespace: self.pid_namespace.as_str().into(),
            local_rank: identity.local_rank,
            local_size: identity.local_size,
        }
    }
}

/// Reads `TONNAGE_JOIN_TIMEOUT`, if set.
pub(crate) fn join_timeout(env: Env<'_>) -> Result<Option<Duration>> {
    read_seconds(env, "TONNAGE_JOIN_TIMEOUT")
}

/// Reads `TONNAGE_STEP_TIMEOUT`, if set: the longest wait of ranks for each other once they have joined.
pub fn step_timeout(env: Env<'_>) -> Result<Option<Duration>> {
    read_seconds(env, STEP_VARIABLE)
}

/// Returns the silence after which a rank counts as hanging, if `ranks` ranks share this machine. It is
/// `TONNAGE_HEARTBEAT_TIMEOUT`, or else three seconds plus the extra time of [`crate::shared_cpu_time`].
pub(crate) fn heartbeat_timeout(env: Env<'_>, ranks: u32) -> Result<Duration> {
    let usual = || HEARTBEAT_TIMEOUT + extra_time_here(ranks);
    Ok(read_seconds(env, HEARTBEAT_VARIABLE)?.unwrap_or_else(usual))
}

fn read_seconds(env: Env<'_>, name: &str) -> Result<Option<Duration>> {
    let Some(text) = env(name) else {
        return Ok(None);
    };
    // The limit of a year ensures that adding the time to an instant cannot overflow.
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 366.0 * 86400.0 => {
            Ok(Some(Duration::from_secs_f64(seconds)))
        }
        _ => Err(Error::Usage(format!(
            "{name}={text} is not a number of seconds above 0"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_come_from_the_environment() {
        let read = |text: &str| {
            let text = text.to_owned();
            read_seconds(&move |_: &str| Some(text.clone()), "TONNAGE_JOIN_TIMEOUT")
        };
        assert_eq!(read("1.5").unwrap(), Some(Duration::from_millis(1500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e99", "soon"] {
            assert_eq!(read(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        assert_eq!(read_seconds(&|_: &str| None, "X").unwrap(), None);
    }

    #[test]
    fn a_given_timeout_is_not_extended() {
        let own = own_cpus().len() as u32;
        let of = |text: Option<&str>, ranks| {
            let text = text.map(str::to_owned);
            heartbeat_timeout(&move |_: &str| text.clone(), ranks).unwrap()
        };
        assert_eq!(of(None, own), HEARTBEAT_TIMEOUT);
        assert_eq!(of(None, 101 * own), Duration::from_secs(6));
        assert_eq!(of(Some("2"), 101 * own), Duration::from_secs(2));
    }
}

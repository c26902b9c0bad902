//! Lets ranks that a launcher has started agree on a meeting place and a secret.
//!
//! With PMIx or PMI-1, every rank first publishes a description of its host. Rank 0 then listens where all ranks can
//! reach it, and publishes the address with a new secret. So nothing has to be configured. The secret is safe, because
//! only the job's processes can read the launcher's channel.
//!
//! Plain `srun` has no such channel: the address follows from its variables, and the secret is the user's. A user's
//! secret serves many runs. If the run has a name, a key for this run is derived from the secret and the name.
//!
//! The result is always a [`Meeting::Master`], from which `join` continues.

use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use super::advert::{Advert, listening_address, refuse_mixed_secrets};
use super::first_host::first_host;
use super::launch_watch::{LaunchDeadline, run_watched, thread_start_error, with_rank_name};
use super::options::{JoinOptions, join_timeout};
use super::pmi1::VALUE_BYTES_MAX;
use super::secret::{Secret, generate_text};
use super::slurm;
use super::store::{LauncherDisconnect, LauncherStore, exchange_error};
use super::variables::{Env, read_port};
use crate::join::address::listen_on;
use crate::signals::Signals;
use tonnage_units::identity::{AddressSource, Exchange, Identity, Meeting};
use tonnage_units::{Error, Result};

/// Prefix of rank 0's random text if the user gave a secret. With this prefix, the text is only the name of the run.
/// Without it, the text is also the secret of the run.
const GIVEN: &str = "given-";
/// Published instead of a host or an address if this rank fails.
const FAILED: &str = "failed";
/// Key under which rank 0 publishes its address and random text.
const MEETING: &str = "tonnage-meeting";

/// The agreed meeting place.
#[derive(Debug)]
pub struct Rendezvous {
    /// This rank's identity. Its meeting is now [`Meeting::Master`], and the mechanism of the meeting is appended to
    /// its source.
    pub identity: Identity,
    /// The run's secret.
    pub secret: Secret,
    /// Rank 0's listening socket, if it is already open.
    pub listener: Option<TcpListener>,
    /// SIGINT and SIGTERM, if they are already caught.
    pub signals: Option<Signals>,
    /// Keeps the connection to the launcher; must be kept until the end of the run.
    pub leave: LauncherDisconnect,
}

impl Rendezvous {
    /// Creates a rendezvous for ranks that know their meeting place before they start.
    pub fn new(mut identity: Identity, secret: Secret, listener: Option<TcpListener>) -> Self {
        identity.source.push_str(", ssh");
        Self {
            identity,
            secret,
            listener,
            signals: None,
            leave: LauncherDisconnect::default(),
        }
    }

    /// Returns the options for joining, which take over the secret, listener and signals. Call it once.
    pub fn options(&mut self, env: Env<'_>, plan_hash: String) -> Result<JoinOptions> {
        let options = JoinOptions::new(env, &self.identity, self.secret.clone(), plan_hash)?;
        Ok(JoinOptions {
            listener: self.listener.take(),
            signals: self.signals.take(),
            ..options
        })
    }
}

/// Agrees with the other ranks on a meeting place, unless the launcher has already set one. `before` runs first.
///
/// # Errors
/// Those of `before`. [`Error::Unavailable`] when a library is missing or the launcher does not answer.
/// [`Error::Usage`] when the other ranks cannot reach this host, or this host lacks the interface. [`Error::Failed`]
/// when a rank does not arrive.
pub fn meet(
    env: Env<'_>,
    mut identity: Identity,
    interface: Option<&str>,
    before: impl FnOnce(&Identity) -> Result<()>,
) -> Result<Rendezvous> {
    if let Meeting::Exchange(exchange) = identity.meeting.clone() {
        let limit = LaunchDeadline::from_now(join_timeout(env)?, identity.size);
        // From here on, every step may wait for other ranks, so signals are watched.
        let mut signals = Signals::for_termination()?;
        match exchange {
            Exchange::Pmix => run_watched(&mut signals, &identity, &limit, || before(&identity))??,
            // With PMI-1, `before` does not wait for other ranks, so it needs no watch.
            Exchange::Pmi1 { .. } => before(&identity)?,
        }
        return meet_by_exchange(env, identity, &exchange, interface, signals, limit);
    }
    before(&identity)?;
    let mut secret = Secret::find(env)?;
    // If all ranks know a name of the run, a key for this run alone is derived.
    if let Some(name) = run_name(env, &identity.meeting) {
        secret = secret.derive_for_run(&name)?;
    }
    let mut listener = None;
    match identity.meeting.clone() {
        Meeting::Exchange(_) | Meeting::Alone | Meeting::Local { .. } => {}
        Meeting::Master { source, .. } => {
            // If the address is from the command line, the source already contains the option's name.
            identity.source.push_str(match source {
                AddressSource::Variable => ", MASTER_ADDR",
                AddressSource::TrainJob => ", PET_MASTER_ADDR",
                AddressSource::Option | AddressSource::Launcher | AddressSource::Step => "",
            });
        }
        Meeting::FirstHost { host, port, others } => {
            identity.source.push_str(", SLURM_STEP_NODELIST");
            let (host, own) = first_host(&host, port, others, &identity, interface)?;
            listener = own;
            identity.meeting = Meeting::Master {
                host,
                port,
                source: AddressSource::Step,
            };
        }
    }
    Ok(Rendezvous {
        secret,
        identity,
        listener,
        signals: None,
        leave: LauncherDisconnect::default(),
    })
}

/// Returns the run's name. `None` if the ranks were started by hand, or by separate launchers that do not know each
/// other.
fn run_name(env: Env<'_>, meeting: &Meeting) -> Option<String> {
    match meeting {
        Meeting::FirstHost { .. } => slurm::step_name(env).map(|step| format!("slurm {step}")),
        Meeting::Master {
            source: AddressSource::Variable,
            ..
        } => env("TORCHELASTIC_RUN_ID").map(|id| format!("torchelastic {id}")),
        _ => None,
    }
}

fn meet_by_exchange(
    env: Env<'_>,
    mut identity: Identity,
    exchange: &Exchange,
    interface: Option<&str>,
    mut signals: Signals,
    limit: LaunchDeadline,
) -> Result<Rendezvous> {
    let task = ExchangeTask {
        exchange: exchange.clone(),
        identity: identity.clone(),
        interface: interface.map(str::to_owned),
        port: read_port(env, "TONNAGE_PORT")?.unwrap_or(0),
        given: env("TONNAGE_SECRET").is_some() || env("TONNAGE_SECRET_FILE").is_some(),
    };
    // A launcher's library waits for all ranks without a deadline. If a rank does not arrive, the library's thread is
    // abandoned.
    let (sender, receiver) = mpsc::channel();
    let (here, there) =
        UnixStream::pair().map_err(|error| Error::io("cannot make a pair of sockets", error))?;
    std::thread::Builder::new()
        .name("meeting".into())
        .spawn(move || {
            // Sending fails only after the deadline, when the receiver is gone and the process ends.
            let _ = sender.send(task.run());
            let _ = there.shutdown(Shutdown::Both);
        })
        .map_err(|error| thread_start_error(&error, &identity))?;
    let come = limit.wait(&mut signals, &here, "the launcher's exchange");
    come.map_err(|error| with_rank_name(error, &identity, &tonnage_sys::host::name()))?;
    let outcome = receiver
        .recv()
        .map_err(|_| Error::Failed("the thread of the launcher's exchange panicked".into()))??;
    identity.source.push_str(match exchange {
        Exchange::Pmix => ", PMIx",
        Exchange::Pmi1 { .. } => ", PMI-1",
    });
    identity.meeting = Meeting::Master {
        host: outcome.address.ip().to_string(),
        port: outcome.address.port(),
        source: AddressSource::Launcher,
    };
    Ok(Rendezvous {
        identity,
        secret: match &outcome.secret {
            SharedSecret::Secret(text) => Secret::from_text(text)?,
            SharedSecret::Name(name) => Secret::find(env)?.derive_for_run(name)?,
        },
        listener: outcome.listener,
        signals: Some(signals),
        leave: LauncherDisconnect {
            _store: Some(outcome.store),
        },
    })
}

/// Arguments of the exchange, which runs on its own thread.
struct ExchangeTask {
    exchange: Exchange,
    identity: Identity,
    interface: Option<String>,
    /// TCP port; 0 lets the system choose.
    port: u16,
    /// Whether the user gave the ranks a secret.
    given: bool,
}

/// Result of the exchange.
struct ExchangeResult {
    address: SocketAddr,
    secret: SharedSecret,
    listener: Option<TcpListener>,
    store: LauncherStore,
}

/// Random text generated by rank 0.
#[derive(Debug, PartialEq, Eq)]
enum SharedSecret {
    /// The secret itself.
    Secret(String),
    /// The run's name. The key is derived from this name and the user's secret.
    Name(String),
}

impl ExchangeTask {
    fn run(&self) -> Result<ExchangeResult> {
        let mut store = LauncherStore::open(&self.exchange, &self.identity)?;
        let rank = self.identity.rank;
        let advert = Advert::for_this_process(self.interface.as_deref(), self.given);
        let text = advert.as_ref().map_or(FAILED.to_owned(), Advert::encode);
        if text.len() > VALUE_BYTES_MAX {
            return Err(exchange_error(format!("{} bytes are too many", text.len())));
        }
        store
            .publish(&host_key(rank), Some(&text))
            .map_err(exchange_error)?;
        // If rank 0 fails, it publishes the failure before it ends, so that the other ranks do not wait.
        let opened = advert.and_then(|advert| match rank {
            0 => self.listen_and_publish(&advert, &mut store).map(Some),
            _ => Ok(None),
        });
        let word = match (&opened, rank) {
            (Ok(opened), _) => opened.as_ref().map(|(_, word)| word.as_str()),
            (Err(_), 0) => Some(FAILED),
            (Err(_), _) => None,
        };
        store.publish(MEETING, word).map_err(exchange_error)?;
        let opened = opened?;
        let word = match &opened {
            Some((_, word)) => word.clone(),
            None => store.fetch(0, MEETING).map_err(exchange_error)?,
        };
        let (address, secret) = parse_root_value(&word)?;
        Ok(ExchangeResult {
            address,
            secret,
            listener: opened.map(|(listener, _)| listener),
            store,
        })
    }

    /// Opens rank 0's listening socket. Returns it with the text to publish.
    fn listen_and_publish(
        &self,
        mine: &Advert,
        store: &mut LauncherStore,
    ) -> Result<(TcpListener, String)> {
        let mut others = Vec::new();
        for rank in 1..self.identity.size {
            let text = store.fetch(rank, &host_key(rank)).map_err(exchange_error)?;
            let message = "it ended before it published its host: look at its output";
            others.push(Advert::parse(&text).ok_or_else(|| Error::Rank {
                rank,
                host: "unknown host".into(),
                message: message.into(),
            })?);
        }
        refuse_mixed_secrets(mine, &others)?;
        let ip = listening_address(mine, &others, self.interface.as_deref())?;
        let to = SocketAddr::new(ip, self.port);
        let listener = listen_on(to, &ip.to_string(), AddressSource::Launcher)?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::io("address of the listening socket", error))?;
        log::info!("rank 0 listens on {address} and publishes that through the launcher");
        let prefix = if self.given { GIVEN } else { "" };
        Ok((listener, format!("{address}/{prefix}{}", generate_text()?)))
    }
}

fn host_key(rank: u32) -> String {
    format!("tonnage-host-{rank}")
}

fn parse_root_value(word: &str) -> Result<(SocketAddr, SharedSecret)> {
    if word == FAILED {
        return Err(Error::Rank {
            rank: 0,
            host: "unknown host".into(),
            message: "it cannot let the others in: look at its output".into(),
        });
    }
    let parts = word.split_once('/');
    let (address, secret) = parts
        .and_then(|(address, secret)| Some((address.parse().ok()?, secret)))
        .ok_or_else(|| {
            exchange_error("cannot decode the meeting place of rank 0; do all hosts have the same version of tonnage?".into())
        })?;
    let word = match secret.strip_prefix(GIVEN) {
        Some(name) => SharedSecret::Name(name.to_owned()),
        None => SharedSecret::Secret(secret.to_owned()),
    };
    Ok((address, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{env, identity};

    #[test]
    fn the_text_of_rank_0_is_parsed() {
        let (address, secret) = parse_root_value("10.0.0.1:7/0123").unwrap();
        assert_eq!(
            (address.port(), secret),
            (7, SharedSecret::Secret("0123".into()))
        );
        let (address, secret) = parse_root_value("[fd00::2]:7/given-0123").unwrap();
        assert!(address.is_ipv6());
        assert_eq!(secret, SharedSecret::Name("0123".into()));
        for wrong in ["", "failed", "10.0.0.1:7", "10.0.0.1/x", "x:1/y"] {
            let error = parse_root_value(wrong).unwrap_err();
            assert_eq!(error.exit_code(), 1, "{wrong}");
        }
    }

    fn meeting_by(source: AddressSource) -> Meeting {
        Meeting::Master {
            host: "a".into(),
            port: 7,
            source,
        }
    }

    #[test]
    fn a_run_has_a_name_if_all_its_ranks_know_it() {
        let step = env("SLURM_JOB_ID=7 SLURM_STEP_ID=0 TONNAGE_SECRET=0123456789abcdef");
        let first_host = Meeting::FirstHost {
            host: "n1".into(),
            port: 7,
            others: true,
        };
        assert_eq!(run_name(&step, &first_host).unwrap(), "slurm 7.0");
        // Ranks started by hand may run in several steps or in none, so a step does not name their run.
        assert_eq!(run_name(&step, &meeting_by(AddressSource::Option)), None);
        assert_eq!(run_name(&step, &meeting_by(AddressSource::Variable)), None);
        let torchrun = env("TORCHELASTIC_RUN_ID=x");
        let named = run_name(&torchrun, &meeting_by(AddressSource::Variable));
        assert_eq!(named.unwrap(), "torchelastic x");
        let with = |meeting: Meeting| Identity {
            meeting,
            ..identity(1, 2, "127.0.0.1:1".parse().unwrap())
        };
        let plain = Secret::find(&step).unwrap();
        let by_variable = with(meeting_by(AddressSource::Variable));
        let met = meet(&step, by_variable, None, |_| Ok(())).unwrap();
        assert_eq!(met.secret.key(), plain.key());
        assert_eq!(met.identity.source, "test, MASTER_ADDR");
        let alone = Meeting::FirstHost {
            host: "n1".into(),
            port: 7,
            others: false,
        };
        let met = meet(&step, with(alone), None, |_| Ok(())).unwrap();
        assert_eq!(
            met.secret.key(),
            plain.derive_for_run("slurm 7.0").unwrap().key()
        );
    }
}

//! How ranks that a launcher has started agree on a place to meet and on a secret.
//!
//! With PMIx or PMI-1 every rank first says which host it is on. Rank 0 then listens where all can reach it, and says
//! the address, together with a secret that it has just made: nothing has to be configured. The launcher's own channel,
//! which only the job's processes have, is what keeps that secret. Plain `srun` passes nothing on, so that the address
//! follows from its variables and the secret is the user's. In all cases what comes out is a [`Meeting::Master`], which
//! `join` and its neighbours take from there.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use tonnage_sys::pmix::{Client as Pmix, NoClient};

use super::address::listen_on;
use super::card::{Card, listening_address};
use super::detect::{Env, Exchange, Identity, Meeting, port};
use super::options::{host_name, join_timeout};
use super::pmi1::{Client as Pmi1, VALUE_BYTES_MAX};
use super::secret::{Secret, generate_text};
use super::slurm;
use crate::{Error, Result};

/// How long a launcher may take to bring all ranks up.
const PATIENCE: Duration = Duration::from_secs(60);
/// In place of a secret: everybody uses the one that was given to all.
const GIVEN: &str = "given";
/// In place of a host or an address: this rank ends with an error.
const FAILED: &str = "failed";
/// The key of what rank 0 says.
const MEETING: &str = "tonnage-meeting";

/// What ranks know when they have agreed on where to meet.
#[derive(Debug)]
pub struct Met {
    /// Who this is, with [`Meeting::Master`] in place of another way to meet, which is added to its source.
    pub identity: Identity,
    /// The run's secret.
    pub secret: Secret,
    /// Rank 0 only, and where it listens already.
    pub listener: Option<TcpListener>,
    /// Keep it until the end of the run.
    pub leave: Leave,
}

/// Takes leave of the launcher when it is dropped. To do so at the end lets the launcher notice a rank that dies, and
/// is what an MPI that is loaded in between needs.
#[derive(Debug)]
pub struct Leave {
    _store: Option<Store>,
}

/// Agrees with the other ranks on where to meet, as far as the launcher has not said it.
///
/// # Errors
/// [`Error::Unavailable`] when the library for it is missing or the launcher does not answer, [`Error::Usage`] when this
/// host cannot be reached by the others or has no such interface, [`Error::Failed`] when a rank does not come.
pub fn meet(env: Env<'_>, mut identity: Identity, interface: Option<&str>) -> Result<Met> {
    match identity.meeting.clone() {
        Meeting::Exchange(exchange) => {
            return by_exchange(env, identity, &exchange, interface);
        }
        Meeting::Alone | Meeting::Local { .. } => {}
        // What the command line says has its option's name in its source already.
        Meeting::Master { .. } if identity.source.contains("--master") => {}
        Meeting::Master { .. } => identity.source.push_str(", MASTER_ADDR"),
        Meeting::FirstHost { host, port, others } => {
            identity.source.push_str(", SLURM_STEP_NODELIST");
            let (host, listener) = first_host(&host, port, others, &identity, interface)?;
            identity.meeting = Meeting::Master { host, port };
            return Ok(Met {
                identity,
                secret: Secret::find(env)?,
                listener,
                leave: Leave { _store: None },
            });
        }
    }
    Ok(Met {
        identity,
        secret: Secret::find(env)?,
        listener: None,
        leave: Leave { _store: None },
    })
}

/// Rank 0's own address of the first host's name; what the others connect to.
fn first_host(
    host: &str,
    port: u16,
    others: bool,
    identity: &Identity,
    interface: Option<&str>,
) -> Result<(String, Option<TcpListener>)> {
    if !others {
        return Ok(("127.0.0.1".into(), None));
    }
    let reachable = |name: &str| -> Vec<IpAddr> {
        let found = (name, port).to_socket_addrs().into_iter().flatten();
        // Debian lists a host's own name as 127.0.1.1 in /etc/hosts, which means nothing to others.
        found
            .map(|address| address.ip())
            .filter(|ip| !ip.is_loopback())
            .collect()
    };
    if identity.rank == 0 && interface.is_some() {
        return Ok((host.to_owned(), None));
    }
    let mut name = host.to_owned();
    let mut addresses = reachable(&name);
    if addresses.is_empty() {
        name = slurm::node_address(host)?;
        addresses = reachable(&name);
        log::info!("the name {host} leads nowhere; Slurm says that its address is {name}");
    }
    if identity.rank > 0 {
        return Ok((name, None));
    }
    let mut last = None;
    for ip in addresses {
        match listen_on(SocketAddr::new(ip, port), host) {
            Ok(listener) => return Ok((name, Some(listener))),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::Usage(format!(
            "rank 0 on {} finds no address under the name {name} that other hosts can reach: give --interface NAME",
            host_name()
        ))
    }))
}

/// The launcher's store of words.
#[derive(Debug)]
enum Store {
    Pmix(Box<Pmix>),
    Pmi1(Pmi1),
}

impl Store {
    fn open(exchange: &Exchange, identity: &Identity) -> Result<Self> {
        match exchange {
            Exchange::Pmix => {
                let client = Pmix::start().map_err(|why| no_pmix(identity, why))?;
                refuse_other_job(identity, client.rank(), client.job_size().map_err(broken)?)?;
                Ok(Self::Pmix(Box::new(client)))
            }
            Exchange::Pmi1 { fd } => {
                Pmi1::start(*fd)
                    .map(Self::Pmi1)
                    .map_err(|why| Error::Unavailable {
                        what: what(identity, "PMI"),
                        why,
                        how: "Start tonnage by mpirun or srun itself rather than by a script or shell that closes open \
                          files; or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
                            .into(),
                    })
            }
        }
    }

    /// Says a word under a key, and waits until all have said theirs.
    fn say(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        match self {
            Self::Pmix(client) => {
                value.map_or(Ok(()), |value| client.put(key, value))?;
                client.fence()
            }
            Self::Pmi1(client) => {
                value.map_or(Ok(()), |value| client.put(key, value))?;
                client.barrier()
            }
        }
    }

    fn hear(&mut self, rank: u32, key: &str) -> Result<String, String> {
        match self {
            Self::Pmix(client) => client.get(rank, key),
            Self::Pmi1(client) => client.get(key),
        }
    }
}

fn what(identity: &Identity, name: &str) -> String {
    let rank = identity.rank;
    format!(
        "{name}, by which rank {rank} on {} finds the others,",
        host_name()
    )
}

fn no_pmix(identity: &Identity, why: NoClient) -> Error {
    let what = what(identity, "PMIx");
    match why {
        NoClient::Library(why) => Error::Unavailable {
            what,
            why,
            how: "Install it (Debian, Ubuntu: apt-get install libpmix2; RHEL: dnf install pmix), or add the folder of the \
                  launcher's own libpmix.so.2 to LD_LIBRARY_PATH; or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
                .into(),
        },
        NoClient::Launcher(why) => Error::Unavailable {
            what,
            why,
            how: "Is PMIX_NAMESPACE left over from a launcher that has ended? Start tonnage by mpirun or srun itself; or \
                  export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
                .into(),
        },
    }
}

fn broken(why: String) -> Error {
    Error::Failed(format!(
        "{}: the launcher did not pass on where the ranks meet: {why}. Look at what the launcher and the other ranks say",
        host_name()
    ))
}

fn refuse_other_job(identity: &Identity, rank: u32, size: u32) -> Result<()> {
    if (rank, size) == (identity.rank, identity.size) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} says rank {} of {}, but PMIx says rank {rank} of {size}: unset the variables that do not belong to this run",
        identity.source, identity.rank, identity.size
    )))
}

fn by_exchange(
    env: Env<'_>,
    mut identity: Identity,
    exchange: &Exchange,
    interface: Option<&str>,
) -> Result<Met> {
    let task = Task {
        exchange: exchange.clone(),
        identity: identity.clone(),
        interface: interface.map(str::to_owned),
        port: port(env, "TONNAGE_PORT")?.unwrap_or(0),
        given: env("TONNAGE_SECRET").is_some() || env("TONNAGE_SECRET_FILE").is_some(),
    };
    let patience = join_timeout(env)?.unwrap_or(PATIENCE);
    // A launcher's library waits for all ranks, however long. Its thread is given up when one does not come.
    let (sender, receiver) = mpsc::channel();
    std::thread::Builder::new()
        .name("meeting".into())
        .spawn(move || {
            // Nobody listens any more when the time is over, and then the process ends.
            let _ = sender.send(task.run());
        })
        .map_err(|error| Error::io("cannot start a thread", error))?;
    let outcome = receiver.recv_timeout(patience).map_err(|_| {
        Error::Failed(format!(
            "rank {} of {} on {}: not all ranks came to the launcher's exchange within {patience:.0?}: look at the output \
             of the others; TONNAGE_JOIN_TIMEOUT=seconds gives them more time",
            identity.rank,
            identity.size,
            host_name()
        ))
    })??;
    identity.source.push_str(match exchange {
        Exchange::Pmix => ", PMIx",
        Exchange::Pmi1 { .. } => ", PMI-1",
    });
    identity.meeting = Meeting::Master {
        host: outcome.address.ip().to_string(),
        port: outcome.address.port(),
    };
    Ok(Met {
        identity,
        secret: match &outcome.secret {
            Some(text) => Secret::from_text(text)?,
            None => Secret::find(env)?,
        },
        listener: outcome.listener,
        leave: Leave {
            _store: Some(outcome.store),
        },
    })
}

/// What the exchange needs, on a thread of its own.
struct Task {
    exchange: Exchange,
    identity: Identity,
    interface: Option<String>,
    /// 0 for any.
    port: u16,
    /// Whether the user gave the ranks a secret.
    given: bool,
}

/// What the exchange gives.
struct Outcome {
    address: SocketAddr,
    /// `None` for the one that the user gave.
    secret: Option<String>,
    listener: Option<TcpListener>,
    store: Store,
}

impl Task {
    fn run(&self) -> Result<Outcome> {
        let mut store = Store::open(&self.exchange, &self.identity)?;
        let rank = self.identity.rank;
        let card = Card::mine(self.interface.as_deref());
        let text = card.as_ref().map_or(FAILED.to_owned(), Card::text);
        if text.len() > VALUE_BYTES_MAX {
            return Err(broken(format!("{} bytes are too many", text.len())));
        }
        store.say(&host_key(rank), Some(&text)).map_err(broken)?;
        // The others are told of a failure before it ends this process, so that they do not wait.
        let opened = card.and_then(|card| match rank {
            0 => self.open(&card, &mut store).map(Some),
            _ => Ok(None),
        });
        let word = match (&opened, rank) {
            (Ok(opened), _) => opened.as_ref().map(|(_, word)| word.as_str()),
            (Err(_), 0) => Some(FAILED),
            (Err(_), _) => None,
        };
        store.say(MEETING, word).map_err(broken)?;
        let opened = opened?;
        let word = match &opened {
            Some((_, word)) => word.clone(),
            None => store.hear(0, MEETING).map_err(broken)?,
        };
        let (address, secret) = read_word(&word)?;
        Ok(Outcome {
            address,
            secret,
            listener: opened.map(|(listener, _)| listener),
            store,
        })
    }

    /// Rank 0's socket, and what the others are told about it.
    fn open(&self, mine: &Card, store: &mut Store) -> Result<(TcpListener, String)> {
        let mut others = Vec::new();
        for rank in 1..self.identity.size {
            let text = store.hear(rank, &host_key(rank)).map_err(broken)?;
            others.push(
                Card::parse(&text).ok_or_else(|| Error::Rank {
                    rank,
                    host: "unknown host".into(),
                    message:
                        "it did not get as far as to say which host it is on: look at its output"
                            .into(),
                })?,
            );
        }
        let ip = listening_address(mine, &others, self.interface.as_deref())?;
        let listener = listen_on(SocketAddr::new(ip, self.port), &ip.to_string())?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::io("address of the listening socket", error))?;
        log::info!("rank 0 listens on {address} and says so by the launcher");
        let secret = if self.given {
            GIVEN.to_owned()
        } else {
            generate_text()?
        };
        Ok((listener, format!("{address}/{secret}")))
    }
}

fn host_key(rank: u32) -> String {
    format!("tonnage-host-{rank}")
}

fn read_word(word: &str) -> Result<(SocketAddr, Option<String>)> {
    if word == FAILED {
        return Err(Error::Rank {
            rank: 0,
            host: "unknown host".into(),
            message: "it cannot listen for the others: look at its output".into(),
        });
    }
    let parts = word.split_once('/');
    let (address, secret) = parts
        .and_then(|(address, secret)| Some((address.parse().ok()?, secret)))
        .ok_or_else(|| {
            broken("what rank 0 said is unreadable; do all hosts have the same tonnage?".into())
        })?;
    Ok((address, (secret != GIVEN).then(|| secret.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rank_0_says_is_read() {
        let (address, secret) = read_word("10.0.0.1:7/0123").unwrap();
        assert_eq!((address.port(), secret.as_deref()), (7, Some("0123")));
        let (address, secret) = read_word("[fd00::2]:7/given").unwrap();
        assert!(address.is_ipv6() && secret.is_none());
        for wrong in ["", "failed", "10.0.0.1:7", "10.0.0.1/x", "x:1/y"] {
            let error = read_word(wrong).unwrap_err();
            assert_eq!(error.exit_code(), 1, "{wrong}");
        }
    }

    #[test]
    fn another_job_of_pmix_is_refused_with_both_numbers() {
        let identity = Identity {
            rank: 1,
            size: 2,
            local_rank: 0,
            local_size: None,
            source: "OMPI_COMM_WORLD_*".into(),
            meeting: Meeting::Exchange(Exchange::Pmix),
        };
        refuse_other_job(&identity, 1, 2).unwrap();
        for (rank, size) in [(0, 1), (0, 2), (1, 3)] {
            let error = refuse_other_job(&identity, rank, size).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(
                text.contains("rank 1 of 2") && text.contains(&format!("rank {rank} of {size}")),
                "{text}"
            );
        }
    }
}

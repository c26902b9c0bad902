//! A launcher's key-value store, accessed by PMIx or PMI-1, and the end of the connection to the launcher.
//!
//! [`super::rendezvous`] defines the keys and values.

use tonnage_sys::pmix::{Client as Pmix, NoClient};

use super::pmi1::Pmi1Client;
use tonnage_units::identity::{Exchange, Identity};
use tonnage_units::{Error, Result};

/// Finalizes the connection to the launcher when dropped. Keep it until the end of the run, because the launcher
/// notices a dead rank only while the connection exists. An MPI library that is loaded meanwhile must also end before
/// the connection does.
#[derive(Debug, Default)]
pub struct LauncherDisconnect {
    pub(super) _store: Option<LauncherStore>,
}

impl LauncherDisconnect {
    /// Does not finalize, so that the launcher ends the rest of the job when this process ends.
    pub fn skip(self) {
        std::mem::forget(self);
    }
}

/// The launcher's key-value store.
#[derive(Debug)]
pub(super) enum LauncherStore {
    Pmix(Box<Pmix>),
    Pmi1(Pmi1Client),
}

impl LauncherStore {
    pub(super) fn open(exchange: &Exchange, identity: &Identity) -> Result<Self> {
        match exchange {
            Exchange::Pmix => {
                let client = Pmix::start().map_err(|why| pmix_error(identity, why))?;
                refuse_other_job(
                    identity,
                    client.rank(),
                    client
                        .job_size()
                        .map_err(|error| exchange_error(error.into()))?,
                )?;
                Ok(Self::Pmix(Box::new(client)))
            }
            Exchange::Pmi1 { fd } => {
                let started = Pmi1Client::start(*fd).map(Self::Pmi1);
                let how = "Start tonnage by mpirun or srun itself rather than by a script or shell that closes open \
                           files; or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
                started.map_err(|why| unavailable(identity, "PMI", why, how))
            }
        }
    }

    /// Stores a value, if there is one, and waits until all ranks have stored theirs.
    pub(super) fn publish(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        match self {
            Self::Pmix(client) => {
                value.map_or(Ok(()), |value| client.put(key, value))?;
                Ok(client.fence()?)
            }
            Self::Pmi1(client) => {
                value.map_or(Ok(()), |value| client.put(key, value))?;
                client.barrier()
            }
        }
    }

    pub(super) fn fetch(&mut self, rank: u32, key: &str) -> Result<String, String> {
        match self {
            Self::Pmix(client) => Ok(client.get(rank, key)?),
            Self::Pmi1(client) => client.get(key),
        }
    }
}

fn unavailable(identity: &Identity, name: &str, why: String, how: &str) -> Error {
    Error::Unavailable {
        what: format!(
            "{name}, by which rank {} on {} finds the others,",
            identity.rank,
            tonnage_sys::host::name()
        ),
        why,
        how: how.into(),
    }
}

fn pmix_error(identity: &Identity, why: NoClient) -> Error {
    let (why, how) = match why {
        NoClient::Library(why) => (
            why,
            "Install it (Debian, Ubuntu: apt-get install libpmix2; RHEL: dnf install pmix), or add the folder of the \
             launcher's own libpmix.so.2 to LD_LIBRARY_PATH; or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        ),
        NoClient::Launcher(why) => (
            why,
            "Is PMIX_NAMESPACE left over from a launcher that has ended? Start tonnage by mpirun or srun itself; or \
             export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        ),
    };
    unavailable(identity, "PMIx", why.into(), how)
}

pub(super) fn exchange_error(why: String) -> Error {
    Error::Failed(format!(
        "{}: the launcher did not pass on where the ranks meet: {why}. Look at the output of the launcher and of the \
         other ranks",
        tonnage_sys::host::name()
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

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_units::identity::Meeting;

    #[test]
    fn another_job_of_pmix_is_refused_with_both_numbers() {
        let identity = Identity {
            meeting: Meeting::Exchange(Exchange::Pmix),
            ..crate::testing::identity(1, 2, "127.0.0.1:1".parse().unwrap())
        };
        refuse_other_job(&identity, 1, 2).unwrap();
        for (rank, size) in [(0, 1), (0, 2), (1, 3)] {
            let error = refuse_other_job(&identity, rank, size).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains("rank 1 of 2"), "{text}");
            assert!(text.contains(&format!("rank {rank} of {size}")), "{text}");
        }
    }
}

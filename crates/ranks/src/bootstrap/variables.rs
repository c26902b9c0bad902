//! Reads the variables that identify this process: numbers, ports, and `MASTER_ADDR` with its port. The meaning of
//! launchers' variables is in [`super::launchers`].
//!
//! [`super::detect`] decides which variables count.

use std::net::Ipv6Addr;
use std::num::NonZeroU16;
use std::str::FromStr;

pub use tonnage_sys::process::Env;
use tonnage_units::identity::{AddressSource, Meeting};
use tonnage_units::{Error, Result};

/// Fails if the rank is not below the number of ranks.
pub(crate) fn check_range(rank: u32, size: u32, source: &str) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{source} says rank {rank} of {size}: ranks count from 0 to the size less one"
    )))
}

/// Returns rank 0's address. With `TORCHELASTIC_USE_AGENT_STORE=True`, torchrun itself listens on `MASTER_PORT`, so the
/// next port is used. `TONNAGE_PORT` overrides both.
pub(crate) fn meeting_at_master(env: Env<'_>, source: &str) -> Result<Meeting> {
    let (host, port) = read_address(env, source, ["MASTER_ADDR", "MASTER_PORT"])?;
    let listens = env("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
    let at = |port| Meeting::Master {
        host: host.clone(),
        port,
        source: AddressSource::Variable,
    };
    if !listens || env("TONNAGE_PORT").is_some() {
        return Ok(at(port));
    }
    let next = port.checked_add(1).ok_or_else(|| {
        Error::Usage(format!("torchrun uses MASTER_PORT={port} itself and there is no port after it: set TONNAGE_PORT"))
    })?;
    log::info!(
        "torchrun listens on MASTER_PORT={port} itself, so the ranks meet on port {next}; TONNAGE_PORT overrides"
    );
    Ok(at(next))
}

/// Returns rank 0's address from the variables that a TrainJob sets for torchrun. torchrun does not run there, so its
/// port is free.
pub(crate) fn meeting_at_first_pod(env: Env<'_>, source: &str) -> Result<Meeting> {
    let (host, port) = read_address(env, source, ["PET_MASTER_ADDR", "PET_MASTER_PORT"])?;
    Ok(Meeting::Master {
        host,
        port,
        source: AddressSource::TrainJob,
    })
}

/// Returns host and port from these two variables. Both must be set, but `TONNAGE_PORT` replaces the port.
fn read_address(
    env: Env<'_>,
    source: &str,
    [host_name, port_name]: [&str; 2],
) -> Result<(String, u16)> {
    let missing = |name: &str, what: &str| {
        Error::Usage(format!(
            "{source} says that there are several ranks, but {name} is not set: export {what}"
        ))
    };
    let host = env(host_name)
        .filter(|host| !host.is_empty())
        .ok_or_else(|| missing(host_name, "the host name or address of rank 0"))?;
    check_scope(host_name, &host)?;
    let port = match read_port(env, "TONNAGE_PORT")? {
        Some(port) => port,
        None => read_port(env, port_name)?
            .ok_or_else(|| missing(port_name, "a TCP port that is free on rank 0"))?,
    };
    Ok((host, port))
}

/// Fails for a link-local IPv6 address without an interface, because every interface has such addresses.
pub(crate) fn check_scope(name: &str, host: &str) -> Result<()> {
    match host.parse::<Ipv6Addr>() {
        Ok(address) if address.is_unicast_link_local() => Err(Error::Usage(format!(
            "{name}: {host} is an address of one link and does not say which: add this host's interface to it, as in \
             {host}%eth0, or take another address of rank 0"
        ))),
        _ => Ok(()),
    }
}

/// Returns the error for two sources that contradict each other.
pub(super) fn disagreement_error(one: &str, other: &str) -> Error {
    Error::Usage(format!(
        "{one} and {other} disagree: unset the ones that do not belong to this run"
    ))
}

/// Returns the local rank and the number of local ranks. If either variable is missing, the ranks are counted after
/// they have joined.
pub(super) fn local_rank_and_size(
    env: Env<'_>,
    rank_name: &str,
    size_name: &str,
) -> Result<(u32, Option<u32>)> {
    let (Some(rank), Some(size)) = (read_number(env, rank_name)?, read_number(env, size_name)?)
    else {
        return Ok((0, None));
    };
    check_range(rank, size, &format!("{rank_name}/{size_name}"))?;
    Ok((rank, Some(size)))
}

/// Parses a variable; `None` if it is not set. `what` describes a valid value, for the error.
pub(super) fn read_value<T: FromStr>(env: Env<'_>, name: &str, what: &str) -> Result<Option<T>> {
    let Some(text) = env(name) else {
        return Ok(None);
    };
    let wrong = |_| Error::Usage(format!("{name}={text} is not {what}"));
    text.trim().parse().map(Some).map_err(wrong)
}

/// Parses a number, if the variable is set.
pub(super) fn read_number(env: Env<'_>, name: &str) -> Result<Option<u32>> {
    read_value(env, name, "a whole number")
}

/// Parses a TCP port, if the variable is set.
pub(crate) fn read_port(env: Env<'_>, name: &str) -> Result<Option<u16>> {
    let port = read_value::<NonZeroU16>(env, name, "a TCP port (1 to 65535)")?;
    Ok(port.map(NonZeroU16::get))
}

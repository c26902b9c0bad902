//! Reading the variables that say who this process is: numbers, ports, and `MASTER_ADDR` with its port.
//!
//! Which of them counts is decided in [`super::detect`], what a launcher's mean in [`super::launchers`].

pub use tonnage_sys::process::Env;
use tonnage_units::identity::{AddressSource, Meeting};
use tonnage_units::{Error, Result};

/// Refuses a rank that is not below the size.
pub(crate) fn check_range(rank: u32, size: u32, source: &str) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{source} says rank {rank} of {size}: ranks count from 0 to the size less one"
    )))
}

/// The address where rank 0 listens. torchrun with `TORCHELASTIC_USE_AGENT_STORE=True` listens on `MASTER_PORT` itself,
/// so the next port is taken then; `TONNAGE_PORT` overrides both.
pub(crate) fn master(env: Env<'_>, source: &str) -> Result<Meeting> {
    let missing = |name: &str, what: &str| {
        Error::Usage(format!(
            "{source} says that there are several ranks, but {name} is not set: export {what}"
        ))
    };
    let host = env("MASTER_ADDR")
        .filter(|host| !host.is_empty())
        .ok_or_else(|| missing("MASTER_ADDR", "the host name or address of rank 0"))?;
    let at = |port| Meeting::Master {
        host: host.clone(),
        port,
        source: AddressSource::Variable,
    };
    if let Some(port) = port(env, "TONNAGE_PORT")? {
        return Ok(at(port));
    }
    let port = port(env, "MASTER_PORT")?
        .ok_or_else(|| missing("MASTER_PORT", "a TCP port that is free on rank 0"))?;
    if env("TORCHELASTIC_USE_AGENT_STORE").is_none_or(|value| value != "True") {
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

/// A number that must be there.
pub(crate) fn required(env: Env<'_>, name: &str, source: &str) -> Result<u32> {
    number(env, name)?
        .ok_or_else(|| Error::Usage(format!("{source} is incomplete: {name} is not set")))
}

/// A number, where the variable is set.
pub(crate) fn number(env: Env<'_>, name: &str) -> Result<Option<u32>> {
    env(name)
        .map(|text| {
            text.trim()
                .parse()
                .map_err(|_| Error::Usage(format!("{name}={text} is not a whole number")))
        })
        .transpose()
}

/// A TCP port, where the variable is set.
pub(crate) fn port(env: Env<'_>, name: &str) -> Result<Option<u16>> {
    let Some(text) = env(name) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(Error::Usage(format!(
            "{name}={text} is not a TCP port (1 to 65535)"
        ))),
    }
}

//! Detection of a process's rank: which rank of how many, and where the ranks meet.
//!
//! Sources, first match: the variables of a rank that tonnage itself started, the command line, `RANK` and
//! `WORLD_SIZE`, Open MPI's, Slurm's and PMI's variables, the index of a Kubernetes Indexed Job; else there is one
//! host. Launchers' variables are read in `launchers`, single variables in `variables`. Nothing is sent and no library
//! is loaded here: a [`Meeting`] only says how the ranks will find each other, which [`super::rendezvous`] then does.

pub use tonnage_units::identity::{AddressSource, Exchange, Identity, Meeting};

use super::launchers::{Claim, claims, identity_of, refuse_disagreement, refuse_hidden_launcher};
use super::variables::{Env, check_range, check_scope, master, number, required};
use tonnage_units::{Error, Result};

/// A place in the run that the command line states.
#[derive(Debug, Clone)]
pub struct Explicit {
    /// 0 .. `size`.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Host name or address of rank 0.
    pub host: String,
    /// TCP port of rank 0.
    pub port: u16,
    /// The options' names, for messages and records.
    pub source: String,
}

/// Finds this process's place in the run; `None` when nothing says that there are other ranks.
///
/// # Errors
/// [`Error::Usage`] when a source is incomplete, cannot be read, contradicts itself or another launcher's variables, or
/// when a launcher has started several processes and this one cannot know it is one of them.
pub fn detect(env: Env<'_>, explicit: Option<Explicit>) -> Result<Option<Identity>> {
    if env("TONNAGE_RANK").is_some() && explicit.is_none() {
        return from_supervisor(env).map(Some);
    }
    let claims = claims(env)?;
    let identity = if let Some(explicit) = explicit {
        let identity = from_explicit(explicit)?;
        // A shell inside a step of one task says nothing about ranks that are started by hand from there.
        let several: Vec<&Claim> = claims.iter().filter(|claim| claim.several()).collect();
        refuse_disagreement(env, &identity, &several)?;
        refuse_other_rank(env, &identity)?;
        identity
    } else if env("RANK").is_some() || has_only_a_world_size(env, &claims) {
        let identity = from_rank_and_world_size(env)?;
        // A launcher of one process may have started a shell, in which the variables were set by hand.
        let others: Vec<&Claim> = claims.iter().filter(|claim| !claim.alone()).collect();
        refuse_disagreement(env, &identity, &others)?;
        identity
    } else {
        refuse_other_size(env, &claims)?;
        match identity_of(env, &claims)? {
            Some(identity) => identity,
            None => {
                refuse_hidden_launcher(env, None)?;
                return Ok(None);
            }
        }
    };
    refuse_hidden_launcher(env, Some(&identity))?;
    Ok(Some(identity))
}

/// WORLD_SIZE without RANK means something only where no launcher says the rank: batch scripts export the number for
/// all, and leave the rank to srun or mpirun.
fn has_only_a_world_size(env: Env<'_>, claims: &[Claim]) -> bool {
    env("WORLD_SIZE").is_some()
        && env("JOB_COMPLETION_INDEX").is_none()
        && !claims.iter().any(Claim::several)
}

/// A WORLD_SIZE that a script exported for ranks of a launcher must be the launcher's number.
fn refuse_other_size(env: Env<'_>, claims: &[Claim]) -> Result<()> {
    if env("JOB_COMPLETION_INDEX").is_some() {
        return Ok(());
    }
    let Some(size) = number(env, "WORLD_SIZE")? else {
        return Ok(());
    };
    match claims.iter().find(|claim| !claim.is_of(size)) {
        Some(claim) => Err(Error::Usage(format!(
            "WORLD_SIZE={size} and {} disagree: unset the ones that do not belong to this run",
            claim.text()
        ))),
        None => Ok(()),
    }
}

/// RANK and WORLD_SIZE, when both are there and mean several ranks, must say what the command line says.
fn refuse_other_rank(env: Env<'_>, identity: &Identity) -> Result<()> {
    let (Some(rank), Some(size)) = (number(env, "RANK")?, number(env, "WORLD_SIZE")?) else {
        return Ok(());
    };
    if size <= 1 || (rank, size) == (identity.rank, identity.size) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{} (rank {} of {}) and RANK={rank} WORLD_SIZE={size} disagree: unset the ones that do not belong to this run",
        identity.source, identity.rank, identity.size
    )))
}

fn from_explicit(explicit: Explicit) -> Result<Identity> {
    let Explicit {
        rank,
        size,
        host,
        port,
        source,
    } = explicit;
    check_range(rank, size, &source)?;
    check_scope("--master", &host)?;
    let meeting = if size == 1 {
        Meeting::Alone
    } else {
        Meeting::Master {
            host,
            port,
            source: AddressSource::Option,
        }
    };
    Ok(Identity {
        rank,
        size,
        local_rank: 0,
        local_size: None,
        source,
        meeting,
    })
}

fn from_supervisor(env: Env<'_>) -> Result<Identity> {
    let source = "tonnage --ranks";
    let rank = required(env, "TONNAGE_RANK", source)?;
    let size = required(env, "TONNAGE_SIZE", source)?;
    check_range(rank, size, "TONNAGE_RANK/TONNAGE_SIZE")?;
    let control = env("TONNAGE_CONTROL").ok_or_else(|| {
        Error::Usage(format!(
            "TONNAGE_RANK={rank} is set, but TONNAGE_CONTROL is not"
        ))
    })?;
    let control = control.parse().map_err(|_| {
        Error::Usage(format!(
            "TONNAGE_CONTROL={control} is not an address with a port"
        ))
    })?;
    Ok(Identity {
        rank,
        size,
        local_rank: rank,
        local_size: Some(size),
        source: source.to_owned(),
        meeting: Meeting::Local { control },
    })
}

/// One of two variables that mean something together.
fn half(env: Env<'_>, name: &str, other: &str) -> Result<u32> {
    number(env, name)?.ok_or_else(|| {
        Error::Usage(format!(
            "RANK/WORLD_SIZE is incomplete: {name} is not set. Run `unset {other}` where it is left over from another job, or \
             export {name}"
        ))
    })
}

fn from_rank_and_world_size(env: Env<'_>) -> Result<Identity> {
    let source = "RANK/WORLD_SIZE";
    let rank = half(env, "RANK", "WORLD_SIZE")?;
    let size = half(env, "WORLD_SIZE", "RANK")?;
    check_range(rank, size, source)?;
    let local_size = number(env, "LOCAL_WORLD_SIZE")?;
    let local_rank = number(env, "LOCAL_RANK")?;
    if let (Some(local_rank), Some(local_size)) = (local_rank, local_size) {
        check_range(local_rank, local_size, "LOCAL_RANK/LOCAL_WORLD_SIZE")?;
    }
    // One without the other is counted again when the ranks have joined.
    let (local_rank, local_size) = match (local_rank, local_size) {
        (Some(local_rank), Some(local_size)) => (local_rank, Some(local_size)),
        _ => (0, None),
    };
    let meeting = if size == 1 {
        Meeting::Alone
    } else {
        master(env, source)?
    };
    Ok(Identity {
        rank,
        size,
        local_rank,
        local_size,
        source: source.to_owned(),
        meeting,
    })
}

#[cfg(test)]
mod tests;

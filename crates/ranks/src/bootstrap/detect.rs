//! Detects this process's rank, the number of ranks, and how the ranks will meet.
//!
//! The first matching source counts:
//!
//! 1. the variables of a rank that tonnage started
//! 2. the command line
//! 3. `RANK` and `WORLD_SIZE`
//! 4. the variables of Open MPI, Slurm, PMI and TrainJobs
//! 5. the index of a Kubernetes Indexed Job
//!
//! If none matches, no launcher started this process.
//!
//! `launchers` reads the variables of launchers, and `variables` reads all others. Nothing is sent and no library is
//! loaded here. A [`Meeting`] only describes how the ranks will meet; [`super::rendezvous`] carries it out.

pub use tonnage_units::identity::{AddressSource, Exchange, Identity, Meeting};

use super::launchers::{
    LauncherClaim, identity_from_claims, read_claims, refuse_disagreement, refuse_hidden_launcher,
};
use super::variables::{
    Env, check_range, check_scope, disagreement_error, local_rank_and_size, meeting_at_master,
    read_number,
};
use tonnage_units::{Error, Result};

/// A rank given on the command line.
#[derive(Debug, Clone)]
pub struct ExplicitRank {
    /// 0 .. `size`.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Host name or address of rank 0.
    pub host: String,
    /// TCP port of rank 0.
    pub port: u16,
    /// Names of the options, for messages and records.
    pub source: String,
}

/// Finds this process's identity. `None` if nothing indicates other ranks.
///
/// # Errors
/// [`Error::Usage`] when a source is incomplete, cannot be parsed, or contradicts itself or another launcher's
/// variables. Also when a launcher has started several processes, but the variables of this one do not give its rank.
pub fn detect(env: Env<'_>, explicit: Option<ExplicitRank>) -> Result<Option<Identity>> {
    if env("TONNAGE_RANK").is_some() && explicit.is_none() {
        return from_supervisor(env).map(Some);
    }
    let claims = read_claims(env)?;
    let identity = if let Some(explicit) = explicit {
        let identity = from_explicit(explicit)?;
        // A launcher that started one process, such as a shell in a step, knows nothing about ranks that the user
        // starts there by hand.
        let several: Vec<&LauncherClaim> = claims
            .iter()
            .filter(|claim| claim.counts_several_ranks())
            .collect();
        refuse_disagreement(env, &identity, &several)?;
        let (rank, size) = (identity.rank, identity.size);
        // If RANK and WORLD_SIZE are both set and mean several ranks, they must match the command line.
        if let (Some(other_rank), Some(other_size)) =
            (read_number(env, "RANK")?, read_number(env, "WORLD_SIZE")?)
            && other_size > 1
            && (other_rank, other_size) != (rank, size)
        {
            let explicit = format!("{} (rank {rank} of {size})", identity.source);
            let variables = format!("RANK={other_rank} WORLD_SIZE={other_size}");
            return Err(disagreement_error(&explicit, &variables));
        }
        identity
    } else if env("RANK").is_some() || has_only_world_size(env, &claims) {
        let identity = from_rank_and_world_size(env)?;
        // A launcher of one process may have started a shell in which the user set these variables. So its number
        // of ranks is not compared.
        let others: Vec<&LauncherClaim> = claims
            .iter()
            .filter(|claim| !claim.counts_one_rank())
            .collect();
        refuse_disagreement(env, &identity, &others)?;
        identity
    } else {
        // A script may export WORLD_SIZE for a launcher's ranks. It must then match the launcher's number.
        if env("JOB_COMPLETION_INDEX").is_none()
            && let Some(size) = read_number(env, "WORLD_SIZE")?
            && let Some(claim) = claims.iter().find(|claim| !claim.agrees_on_size(size))
        {
            return Err(disagreement_error(
                &format!("WORLD_SIZE={size}"),
                &claim.describe(),
            ));
        }
        let Some(identity) = identity_from_claims(env, &claims)? else {
            refuse_hidden_launcher(env, None)?;
            return Ok(None);
        };
        identity
    };
    refuse_hidden_launcher(env, Some(&identity))?;
    Ok(Some(identity))
}

/// Returns whether WORLD_SIZE is set without RANK, and no launcher provides the rank. Batch scripts export the number
/// of ranks, and leave each rank's own number to srun or mpirun.
fn has_only_world_size(env: Env<'_>, claims: &[LauncherClaim]) -> bool {
    env("WORLD_SIZE").is_some()
        && env("JOB_COMPLETION_INDEX").is_none()
        && !claims.iter().any(LauncherClaim::counts_several_ranks)
}

fn from_explicit(explicit: ExplicitRank) -> Result<Identity> {
    let ExplicitRank {
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
    let required = |name| {
        read_number(env, name)?
            .ok_or_else(|| Error::Usage(format!("{source} is incomplete: {name} is not set")))
    };
    let (rank, size) = (required("TONNAGE_RANK")?, required("TONNAGE_SIZE")?);
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

fn from_rank_and_world_size(env: Env<'_>) -> Result<Identity> {
    let source = "RANK/WORLD_SIZE";
    let half = |name, other| {
        read_number(env, name)?.ok_or_else(|| {
            Error::Usage(format!(
                "{source} is incomplete: {name} is not set. Run `unset {other}` where it is left over from another job, or \
                 export {name}"
            ))
        })
    };
    let (rank, size) = (half("RANK", "WORLD_SIZE")?, half("WORLD_SIZE", "RANK")?);
    check_range(rank, size, source)?;
    let (local_rank, local_size) = local_rank_and_size(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")?;
    let meeting = if size == 1 {
        Meeting::Alone
    } else {
        meeting_at_master(env, source)?
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

//! Launchers that say how many ranks there are, but not where they meet: Open MPI, PMI, Slurm.
//!
//! What they say is compared with `RANK` and `WORLD_SIZE`, see [`super::detect`].

use super::detect::{Env, Identity, number};
use crate::{Error, Result};

/// What another launcher's variables say.
pub(super) struct Claim {
    rank_name: &'static str,
    size_name: &'static str,
    rank: Option<u32>,
    size: Option<u32>,
    how: &'static str,
}

impl Claim {
    fn text(&self) -> String {
        let shown =
            |value: Option<u32>| value.map_or("(not set)".to_owned(), |value| value.to_string());
        format!(
            "{}={} {}={}",
            self.rank_name,
            shown(self.rank),
            self.size_name,
            shown(self.size)
        )
    }

    fn agrees(&self, rank: u32, size: u32) -> bool {
        self.rank.is_none_or(|mine| mine == rank) && self.size.is_none_or(|mine| mine == size)
    }
}

/// Other launchers that speak here, the innermost first.
pub(super) fn other_launchers(env: Env<'_>) -> Result<Vec<Claim>> {
    let table = [
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "mpirun … sh -c 'RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec tonnage …'",
        ),
        (
            "PMI_RANK",
            "PMI_SIZE",
            "mpiexec … sh -c 'RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE exec tonnage …'",
        ),
        (
            "SLURM_PROCID",
            "SLURM_NTASKS",
            "srun … sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec tonnage …'",
        ),
    ];
    let mut claims = Vec::new();
    for (rank_name, size_name, how) in table {
        // A batch script or an salloc shell has the variables too, but it is not a task of a step.
        if rank_name == "SLURM_PROCID" && env("SLURM_STEP_ID").is_none() {
            continue;
        }
        let (rank, size) = (number(env, rank_name)?, number(env, size_name)?);
        if rank.is_some() || size.is_some() {
            claims.push(Claim {
                rank_name,
                size_name,
                rank,
                size,
                how,
            });
        }
    }
    Ok(claims)
}

pub(super) fn refuse_silent_singletons(others: &[Claim]) -> Result<()> {
    match others
        .iter()
        .find(|claim| claim.size.is_some_and(|size| size > 1))
    {
        None => Ok(()),
        Some(claim) => Err(Error::Usage(format!(
            "{} says that there are several ranks, but not where they meet: export RANK, WORLD_SIZE, MASTER_ADDR (host of \
             rank 0) and MASTER_PORT (a free port there), such as MASTER_ADDR=… MASTER_PORT=… {}",
            claim.text(),
            claim.how
        ))),
    }
}

/// RANK and WORLD_SIZE must agree with the innermost other launcher; one further out (srun around mpirun) counts its own
/// processes. torchrun is always the innermost, because it sets RANK itself.
pub(super) fn refuse_disagreement(
    env: Env<'_>,
    identity: &Identity,
    others: &[Claim],
) -> Result<()> {
    let Identity { rank, size, .. } = identity;
    if env("TORCHELASTIC_RUN_ID").is_some() {
        return Ok(());
    }
    match others.first() {
        Some(claim) if !claim.agrees(*rank, *size) => Err(Error::Usage(format!(
            "RANK={rank} WORLD_SIZE={size} and {} disagree: unset the ones that do not belong to this run",
            claim.text()
        ))),
        _ => Ok(()),
    }
}

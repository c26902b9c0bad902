//! `mpiio`: files by MPI's own calls, which ranks make independently or collectively. It uses the MPI library that fits
//! the launcher.
//!
//! | file | contents |
//! | --- | --- |
//! | `mod` | the list row, and refusals |
//! | `calls` | opening, transfers, sync and closing |
//! | `hints` | the requested hints, and whether they have an effect |
//!
//! Loading MPI and all `unsafe` code are in `tonnage_sys::mpi`. [`crate::mpi_world`] chooses the library and checks
//! that it knows the ranks of this run.

mod calls;
mod hints;

use std::sync::Arc;

use tonnage_engine::calls::{
    FileCalls, FileDomain, FileEntry, FileLayout, FileOrder, FileUse, Fsync, OpenFiles,
};
use tonnage_engine::{EngineOption, EngineReport};
use tonnage_sys::mapping::Arena;
use tonnage_sys::mpi::CALL_BYTES_MAX;
use tonnage_units::{Error, Result};

use crate::mpi_world::{MPI_LIBRARY, MPI_LIFECYCLE, MpiUser, MpiWorld};

/// This engine's row in the list of file engines.
pub const ENTRY: FileEntry = FileEntry {
    name: "mpiio",
    about: "MPI-IO, independent or collective (--collective), by the MPI library of the launcher",
    options: &OPTIONS,
    queues: false,
    threads: false,
    collective: true,
    direct: false,
    libraries: &[MPI_LIBRARY],
    lifecycle: MPI_LIFECYCLE,
    open,
};

const PREALLOCATE: &str = "preallocate";

static OPTIONS: [EngineOption; 1] = [EngineOption::choice(
    PREALLOCATE,
    &["off", "on"],
    "allocates the whole file when it is opened for writing, with MPI_File_preallocate",
)];

/// Refuses unsupported uses, and uses that would hang because all ranks must sync together.
fn check(usage: &FileUse) -> Result<()> {
    if usage.threads > 1 {
        return Err(Error::Usage(format!(
            "engine mpiio makes all calls on one thread of a rank, but {} threads were requested: leave --threads out \
             and start more ranks, or use engine posix",
            usage.threads
        )));
    }
    if usage.file_view && usage.order == FileOrder::Shuffled {
        return Err(Error::Usage(
            "in a shuffled order, each rank uses the whole shared file, but a file view shows only its own blocks: use \
             --order sequential, or leave --file-view out"
                .into(),
        ));
    }
    let each = usage.fsync == Fsync::Each && usage.layout == FileLayout::Shared;
    if each && usage.stonewalled && !usage.collective {
        return Err(Error::Usage(
            "with engine mpiio, all ranks sync a shared file together, but a stonewall lets them make different \
             numbers of writes: use --fsync end, --collective, or leave --stonewall out"
                .into(),
        ));
    }
    Ok(())
}

fn open(request: &OpenFiles<'_>) -> Result<Arc<dyn FileDomain>> {
    let usage = request.usage;
    check(usage)?;
    let user = MpiUser {
        what: "engine mpiio",
        instead: "use engine posix",
    };
    let ranks = (request.rank, usage.ranks);
    Ok(Arc::new(MpiDomain {
        mpi: MpiWorld::start_for_ranks(user, request.libraries, ranks)?,
        usage: usage.clone(),
    }))
}

/// MPI as one rank uses it for one point.
struct MpiDomain {
    mpi: MpiWorld,
    usage: FileUse,
}

impl FileDomain for MpiDomain {
    fn report(&self) -> EngineReport {
        let usage = &self.usage;
        let calls = match usage.collective {
            true => "collective",
            false => "independent",
        };
        EngineReport {
            name: "mpiio".to_owned(),
            library: Some(self.mpi.library()),
            facts: self
                .mpi
                .facts()
                .with_fact("calls", calls)
                .with_fact("call_bytes_max", CALL_BYTES_MAX)
                .with_fact("file_view", usage.file_view)
                .with_fact("preallocate", self.preallocate().is_some()),
            ..EngineReport::default()
        }
    }

    fn thread(&self, thread: u32, memory: Arc<Arena>) -> Result<Box<dyn FileCalls>> {
        if thread > 0 {
            return Err(Error::Failed(
                "engine mpiio supports only the main thread of a rank".into(),
            ));
        }
        Ok(Box::new(calls::MpiFileCalls::new(
            Arc::clone(&self.mpi.world),
            &self.usage,
            self.preallocate(),
            memory,
        )))
    }
}

impl MpiDomain {
    /// Returns the number of bytes to preallocate for each file, if requested.
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

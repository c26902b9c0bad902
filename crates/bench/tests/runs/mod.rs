//! Whole runs of tests: the conductor on as many threads as there are ranks, and the records that rank 0 kept.

use std::path::PathBuf;

use tonnage_bench::conductor::run;
use tonnage_bench::observer::{Observer, Progress};
use tonnage_bench::settings::{Numa, Settings};
use tonnage_engine::{Libraries, Lists};
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::{Planned, Point};
use tonnage_ranks::testing::run_with;
use tonnage_ranks::{JoinOptions, Rank};
use tonnage_record::{Program, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

struct Kept(Vec<Record>);

impl Observer for Kept {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}

    fn progress(&mut self, _: &Progress) {}

    fn record(&mut self, record: Record) -> Result<()> {
        self.0.push(record);
        Ok(())
    }
}

/// Measures points by the engines and memories of a list, and returns the records of rank 0.
///
/// # Errors
/// The error of the lowest rank that has one.
pub fn records(
    ranks: u32,
    planned: Vec<Planned>,
    lists: Lists,
    cpus: CpuChoice,
) -> Result<Vec<Record>> {
    let embedded = ("libfabric".to_owned(), PathBuf::from("embedded"));
    records_with(ranks, planned, lists, cpus, Libraries::from([embedded]))
}

/// Does so with some files of libraries.
///
/// # Errors
/// The error of the lowest rank that has one.
pub fn records_with(
    ranks: u32,
    planned: Vec<Planned>,
    lists: Lists,
    cpus: CpuChoice,
    libraries: Libraries,
) -> Result<Vec<Record>> {
    let here = |_: u32, options: &mut JoinOptions| options.host = "here".into();
    records_on(here, ranks, planned, lists, cpus, libraries)
}

/// Does so on hosts as they are given to the ranks.
///
/// # Errors
/// The error of the lowest rank that has one.
pub fn records_on(
    host: impl Fn(u32, &mut JoinOptions),
    ranks: u32,
    planned: Vec<Planned>,
    lists: Lists,
    cpus: CpuChoice,
    libraries: Libraries,
) -> Result<Vec<Record>> {
    records_by(Clock::new(), host, ranks, planned, lists, cpus, libraries)
}

/// Does so by a clock that is given.
///
/// # Errors
/// The error of the lowest rank that has one.
pub fn records_by(
    clock: Clock,
    host: impl Fn(u32, &mut JoinOptions),
    ranks: u32,
    planned: Vec<Planned>,
    lists: Lists,
    cpus: CpuChoice,
    libraries: Libraries,
) -> Result<Vec<Record>> {
    let settings = Settings {
        lists,
        plan: "test".into(),
        topology: Topology::read().into(),
        cpus,
        numa: Numa::None,
        devices: Default::default(),
        gpus: Vec::new(),
        link_bytes_per_s: None,
        libraries,
        clock,
        program: Program {
            version: "0".into(),
            git_revision: "unknown".into(),
        },
        repetition: None,
        ledger: None,
    };
    let body = move |rank: Result<Rank>| {
        let (mut rank, mut kept) = (rank?, Kept(Vec::new()));
        run(&planned, &mut rank, &settings, &mut kept)?;
        rank.close()?;
        Ok(kept.0)
    };
    let all = run_with(ranks, host, body);
    let mut all = all.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(all.swap_remove(0))
}

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

/// Run of a test, but for its points.
pub struct Run {
    pub cpus: CpuChoice,
    pub libraries: Libraries,
    pub clock: Clock,
    /// The hosts of the ranks.
    pub host: fn(u32, &mut JoinOptions),
}

impl Default for Run {
    /// Ranks of one host, which are pinned nowhere.
    fn default() -> Self {
        Self {
            cpus: CpuChoice::None,
            libraries: Libraries::from([("libfabric".to_owned(), PathBuf::from("embedded"))]),
            clock: Clock::new(),
            host: |_, options| options.host = "here".into(),
        }
    }
}

/// Measures points by the engines and memories of a list, and returns the records of rank 0, or the error of the lowest
/// rank that has one.
pub fn records(
    ranks: u32,
    planned: Vec<Planned>,
    lists: Lists,
    cpus: CpuChoice,
) -> Result<Vec<Record>> {
    let run = Run {
        cpus,
        ..Run::default()
    };
    run.records(ranks, planned, lists)
}

impl Run {
    pub fn records(self, ranks: u32, planned: Vec<Planned>, lists: Lists) -> Result<Vec<Record>> {
        let settings = Settings {
            lists,
            plan: "test".into(),
            topology: Topology::read().into(),
            cpus: self.cpus,
            numa: Numa::None,
            devices: Default::default(),
            gpus: Vec::new(),
            link_bytes_per_s: None,
            libraries: self.libraries,
            clock: self.clock,
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
        let all = run_with(ranks, self.host, body);
        let mut all = all.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(all.swap_remove(0))
    }
}

//! Whole runs for tests. Each rank is a thread that runs the conductor, and rank 0 collects the records.

use std::path::PathBuf;

use tonnage_bench::conductor::run;
use tonnage_bench::observer::{Observer, Progress};
use tonnage_bench::settings::{Numa, Settings};
use tonnage_engine::{Libraries, Lists};
use tonnage_machine::{CpuChoice, Topology};
use tonnage_plan::{Plan, Planned, Point};
use tonnage_ranks::testing::run_with;
use tonnage_ranks::{JoinOptions, Rank};
use tonnage_record::{Outcome, Program, Record};
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

struct KeptRecords(Vec<Record>);

impl Observer for KeptRecords {
    fn begin(&mut self, _: usize, _: usize, _: &Point) {}

    fn progress(&mut self, _: &Progress) {}

    fn record(&mut self, record: Record) -> Result<()> {
        self.0.push(record);
        Ok(())
    }
}

/// Settings of a test run. Its points are passed separately.
pub struct Run {
    pub lists: Lists,
    pub cpus: CpuChoice,
    pub libraries: Libraries,
    pub clock: Clock,
    /// Function that sets the host of a rank.
    pub host: fn(u32, &mut JoinOptions),
}

impl Default for Run {
    /// Ranks on one host that are not pinned, with the program's own engines.
    fn default() -> Self {
        Self {
            lists: tonnage_engines::LISTS,
            cpus: CpuChoice::None,
            libraries: Libraries::from([("libfabric".to_owned(), PathBuf::from("embedded"))]),
            clock: Clock::new(),
            host: |_, options| options.host = "here".into(),
        }
    }
}

/// A run with the engines and memories of `lists`.
pub fn over(lists: Lists) -> Run {
    Run {
        lists,
        ..Run::default()
    }
}

impl Run {
    /// Returns the points of a plan with these tables.
    pub fn points(&self, ranks: u32, tables: &str) -> Result<Vec<Planned>> {
        let text = format!("name = 'test'\n{tables}");
        Plan::from_toml(&text, "test.toml")?.points(ranks, &self.lists)
    }

    /// Measures the points of a plan with these tables.
    pub fn tables(self, ranks: u32, tables: &str) -> Result<Vec<Record>> {
        let points = self.points(ranks, tables)?;
        self.records(ranks, points)
    }

    /// Measures points. Returns rank 0's records, or the error of the lowest rank that failed.
    pub fn records(self, ranks: u32, planned: Vec<Planned>) -> Result<Vec<Record>> {
        let settings = Settings {
            lists: self.lists,
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
            time_limit: None,
            repetition: None,
            ledger: None,
        };
        let body = move |rank: Result<Rank>| {
            let (mut rank, mut kept) = (rank?, KeptRecords(Vec::new()));
            run(&planned, &mut rank, &settings, &mut kept)?;
            rank.close()?;
            Ok(kept.0)
        };
        let all = run_with(ranks, self.host, body);
        let mut all = all.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(all.swap_remove(0))
    }
}

/// Returns the reason of a skipped point.
pub fn why_skipped(record: &Record) -> &str {
    match &record.outcome {
        Outcome::Skipped { why } => why,
        other => panic!("{other:?}"),
    }
}

/// Returns the reason of a failed point.
pub fn why_failed(record: &Record) -> &str {
    match &record.outcome {
        Outcome::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

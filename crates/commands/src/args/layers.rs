//! `tonnage layers`: moves the same bytes by an engine's writes, by tonnage's collectives over that engine, and by
//! libraries.

use clap::Args;
use tonnage_collective::Collective;
use tonnage_engine::{Entry, Lists, Verb};
use tonnage_plan::collective::{CallOptions, CheckOptions, CollectiveJob};
use tonnage_plan::point::BoundChoice;
use tonnage_plan::skipping::SkippingOptions;
use tonnage_plan::sweep::Sweep;
use tonnage_plan::transfer::{
    LengthOptions, MeasureOptions, OperationOptions, PacingOptions, Transfer,
};
use tonnage_plan::{Experiment, Plan};
use tonnage_units::{Count, Error, Nanos, Result};

use super::common::{RankArgs, ResultArgs};
use super::verify::Ranks;

const SIZE_DEFAULT: u64 = 100_000_000;
const ROUNDS_DEFAULT: u32 = 5;
const ROUNDS_MAX: u32 = 1000;
const TRIAL_TIME_DEFAULT: Nanos = Nanos(200_000_000);
const WARMUP_DEFAULT: Nanos = Nanos(50_000_000);

/// `tonnage layers`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct LayersArgs {
    /// Bytes of one write, and of each rank in a collective: a value or a sweep. [default: 100MB]
    #[arg(
        short,
        long,
        alias = "size",
        value_name = "SWEEP",
        allow_hyphen_values = true,
        value_delimiter = ','
    )]
    pub sizes: Vec<Sweep>,

    /// Engines at the bottom, joined by commas. [default: all that every machine has and that can carry collectives]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Vec<String>,

    /// Libraries on top, joined by commas. [default: torch:gloo, and mpi where its launcher started the ranks]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub backend: Vec<String>,

    /// Python with PyTorch, for torch backends. [default: python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,

    /// Rounds in which every layer has its turn, so that changes over time affect all layers.
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    pub rounds: u32,

    /// Time for which each layer is measured in each round.
    #[arg(long, value_name = "TIME", default_value_t = TRIAL_TIME_DEFAULT)]
    pub trial_time: Nanos,

    /// Placement of ranks. There are two by default.
    #[command(flatten)]
    pub ranks: RankArgs,

    /// Destination and format of results.
    #[command(flatten)]
    pub results: ResultArgs,
}

impl LayersArgs {
    /// Creates the plan. Each round first has writes by every engine. Then send-recv-pairs and all-reduce follow, by
    /// every backend that supports them, with alternating trials.
    pub fn to_plan(&self, lists: &Lists, ranks: Ranks) -> Result<Plan> {
        if !ranks.size.is_multiple_of(2) {
            return Err(Error::Usage(format!(
                "layers need pairs of ranks, and {} is odd: use --ranks {}",
                ranks.size,
                ranks.size + 1
            )));
        }
        let asked: Vec<u64> = self.sizes.iter().flat_map(Sweep::values).copied().collect();
        let sizes = if asked.is_empty() {
            Sweep::single(SIZE_DEFAULT)
        } else {
            Sweep::from_values(&asked)?
        };
        let engines = self.engines(lists);
        let backends = self.backends(lists, ranks, &engines)?;
        let of_round = |round: u32| -> [Experiment; 2] {
            let label = Some(format!("round {round}"));
            [
                self.writes(label.clone(), &engines, &sizes).into(),
                self.calls(label, &backends, &sizes).into(),
            ]
        };
        Ok(Plan {
            name: tonnage_report::layers::PLAN.to_owned(),
            ranks: Some(ranks.size),
            experiments: (1..=self.rounds).flat_map(of_round).collect(),
            ..Plan::default()
        })
    }

    fn engines(&self, lists: &Lists) -> Vec<String> {
        if !self.engine.is_empty() {
            return self.engine.clone();
        }
        let carrying = lists.engines.iter().filter(|it| it.carries_collectives());
        carrying.flat_map(Entry::names_everywhere).collect()
    }

    /// Returns the native backends over the engines, followed by the libraries.
    fn backends(&self, lists: &Lists, ranks: Ranks, engines: &[String]) -> Result<Vec<String>> {
        let is_library = |name: &str| {
            let row = lists.backend(name);
            row.map(|(entry, _)| !entry.has_algorithms)
        };
        for name in &self.backend {
            if !is_library(name)? {
                return Err(Error::Usage(format!(
                    "backend {name} stands on an engine: name the engine by --engine, and libraries by --backend"
                )));
            }
        }
        let libraries = if self.backend.is_empty() {
            lists.usual_backends(ranks.launched)
        } else {
            self.backend.clone()
        };
        let libraries = libraries
            .into_iter()
            .filter(|name| is_library(name).unwrap_or(true));
        let native = engines
            .iter()
            .flat_map(|engine| lists.native_backends(engine));
        Ok(native.chain(libraries).collect())
    }

    fn writes(&self, label: Option<String>, engines: &[String], sizes: &Sweep) -> Transfer {
        Transfer {
            what: OperationOptions {
                label,
                engine: Some(engines.to_vec().into()),
                op: Some(vec![Verb::Write].into()),
                sizes: Some(sizes.clone()),
                ..OperationOptions::default()
            },
            pacing: PacingOptions {
                // One write at a time, because calls of a collective do not overlap either.
                depth: Some(Sweep::single(1)),
                ..PacingOptions::default()
            },
            measure: MeasureOptions {
                latency: Some(false),
                ..MeasureOptions::default()
            },
            skipping: optional_if(self.engine.is_empty()),
            length: self.length(),
            ..Transfer::default()
        }
    }

    fn calls(&self, label: Option<String>, backends: &[String], sizes: &Sweep) -> CollectiveJob {
        CollectiveJob {
            call: CallOptions {
                label,
                backend: Some(backends.to_vec().into()),
                op: Some(vec![Collective::SendRecvPairs, Collective::AllReduce].into()),
                sizes: Some(sizes.clone()),
                python: self.python.clone(),
                ..CallOptions::default()
            },
            // Only the writes are compared with a bound.
            check: CheckOptions {
                bound: Some(BoundChoice::None),
                ..CheckOptions::default()
            },
            // If the user named a missing engine, its writes fail already, so its collectives may be skipped.
            skipping: optional_if(self.backend.is_empty()),
            length: self.length(),
        }
    }

    fn length(&self) -> LengthOptions {
        LengthOptions {
            trials: Some(Count(1)),
            trial_time: Some(self.trial_time),
            warmup: Some(WARMUP_DEFAULT),
            ..LengthOptions::default()
        }
    }
}

/// A missing engine or library is a failure only if the user named it.
fn optional_if(unnamed: bool) -> SkippingOptions {
    SkippingOptions { optional: unnamed }
}

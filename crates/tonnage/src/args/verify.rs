//! `tonnage verify`: a batch of four of every operation of every engine at many sizes, every byte checked.

use std::path::PathBuf;

use clap::Args;
use tonnage_engine::{Entry, Verb};
use tonnage_plan::Plan;
use tonnage_plan::options::one_of;
use tonnage_plan::point::{LimitChoice, Traffic};
use tonnage_plan::sweep::Sweep;
use tonnage_plan::transfer::{
    LengthOptions, MeasureOptions, OperationOptions, PacingOptions, Transfer,
};

use tonnage_units::{Count, Error, Nanos, Result};

use super::common::RankArgs;

/// Ranks where nothing else is said.
pub const RANKS_DEFAULT: u32 = 2;

/// `tonnage verify`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct VerifyArgs {
    /// Engines to check, joined by commas. [default: all that move bytes]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub engine: Vec<String>,

    /// Operations to check, joined by commas. [default: all that the engine can do]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = one_of::<Verb>())]
    pub op: Vec<Verb>,

    /// Payload bytes of one operation: a value or a sweep. [default: 1 B, odd sizes, and around words, cache lines,
    /// pages, 64k and 1M]
    #[arg(
        long,
        value_name = "SWEEP",
        allow_hyphen_values = true,
        value_delimiter = ','
    )]
    pub sizes: Vec<Sweep>,

    /// Traffic pattern. [default: pair, or all-to-all for an odd number of ranks]
    #[arg(long, value_name = "PATTERN", value_parser = one_of::<Traffic>())]
    pub traffic: Option<Traffic>,

    /// Append one JSON line for each point to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print the plan as TOML instead of running it.
    #[arg(long)]
    pub print_plan: bool,

    /// Placement of ranks; two of them by default.
    #[command(flatten)]
    pub ranks: RankArgs,
}

impl VerifyArgs {
    /// The plan: one operation of each kind and size, in four places, checked. A verb or engine that was named is in it
    /// even if it cannot be done, so that expanding the plan says why. `ranks` decides who talks to whom where nothing
    /// was said.
    ///
    /// # Errors
    /// `Usage`; none for the sizes that tonnage chooses itself.
    pub fn to_plan(&self, engines: &[Entry], ranks: u32) -> Result<Plan> {
        let asked: Vec<u64> = self.sizes.iter().flat_map(Sweep::values).copied().collect();
        let sizes = match asked.is_empty() {
            false => Sweep::list(&asked)?,
            true => default_sizes()?,
        };
        let names: Vec<String> = match self.engine.is_empty() {
            true => engines
                .iter()
                .filter(|entry| entry.moves_bytes)
                .flat_map(everywhere)
                .collect(),
            false => self.engine.clone(),
        };
        if let Some(still) = names.iter().find(|name| !moves_bytes(engines, name)) {
            return Err(Error::Usage(format!(
                "engine {still} moves no bytes, so there is nothing to verify: name another --engine"
            )));
        }
        // Pairs leave nobody out only where the number is even.
        let traffic = self.traffic.unwrap_or(match ranks % 2 {
            0 => Traffic::Pair,
            _ => Traffic::AllToAll,
        });
        let experiments = names
            .into_iter()
            .map(|name| self.transfer(name, &sizes, engines, traffic).into())
            .collect();
        Ok(Plan {
            name: "verify".to_owned(),
            ranks: Some(ranks),
            experiments,
            ..Plan::default()
        })
    }

    fn transfer(
        &self,
        engine: String,
        sizes: &Sweep,
        engines: &[Entry],
        traffic: Traffic,
    ) -> Transfer {
        let known = tonnage_engine::find(engines, &engine).ok();
        let op = match known {
            // An unknown engine is refused when the plan is expanded, whatever the verb.
            _ if !self.op.is_empty() => self.op.clone(),
            Some(entry) => entry.verbs.to_vec(),
            None => vec![Verb::Write],
        };
        Transfer {
            what: OperationOptions {
                engine: Some(vec![engine].into()),
                op: Some(op.into()),
                sizes: Some(sizes.clone()),
                traffic: Some(traffic),
                ..OperationOptions::default()
            },
            pacing: PacingOptions {
                // Several slots, so that a swapped one shows.
                batch: Some(Sweep::one(4)),
                ..PacingOptions::default()
            },
            measure: MeasureOptions {
                verify: true,
                latency: Some(false),
                limit: Some(LimitChoice::None),
                ..MeasureOptions::default()
            },
            length: LengthOptions {
                trials: Some(Count(1)),
                iters: Some(Count(1)),
                warmup: Some(Nanos(0)),
                ..LengthOptions::default()
            },
            ..Transfer::default()
        }
    }
}

/// The names of an engine's variants that every machine has; just its name when it has no variants.
fn everywhere(entry: &Entry) -> Vec<String> {
    match entry.variant {
        None => vec![entry.name.to_owned()],
        Some(variant) => variant
            .everywhere
            .iter()
            .map(|name| format!("{}:{name}", entry.name))
            .collect(),
    }
}

/// Sizes at which copies go wrong: one byte, odd ones, and those around a word, a cache line, a page and more.
fn default_sizes() -> Result<Sweep> {
    let page = rustix::param::page_size() as u64;
    let mut sizes = vec![
        1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 63, 64, 65, 127, 129, 1000,
    ];
    for edge in [page, 64 << 10, 1 << 20] {
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    sizes.push((2 << 20) + 7);
    sizes.sort_unstable();
    sizes.dedup();
    Sweep::list(&sizes)
}
/// Returns whether an engine moves bytes. One that is unknown is refused when the plan is expanded.
fn moves_bytes(engines: &[Entry], name: &str) -> bool {
    tonnage_engine::find(engines, name).map_or(true, |entry| entry.moves_bytes)
}

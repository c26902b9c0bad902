//! The options of a stress. `expand` checks their combinations.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::options::{Group, Many, Pair, SWEEP, many_of, pairs, with_default};
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::{Bytes, Count, Nanos};

/// One experiment that draws random transfers and verifies the contents of every slot after each transfer.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct Stress {
    /// Transfers to draw.
    #[command(flatten)]
    pub what: DrawOptions,
    /// Length of the experiment.
    #[command(flatten)]
    pub length: StressLength,
}

crate::options::groups! { Stress: "stress", "a stress", needs &[("engine", "shm")]; what, length }

/// Transfers to draw.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Draws", mut_args = with_default::<Self>)]
pub struct DrawOptions {
    /// Heading under which tables put the point.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Engine that moves the bytes, such as shm or fabric:tcp; several, joined by commas, are open at once and take
    /// turns draw by draw. `tonnage engines` lists them.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub engine: Option<Many<String>>,

    /// An option of the engine's own, such as completion=delivery for fabric; may be repeated. `tonnage engines
    /// NAME` lists them.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    #[serde(with = "pairs")]
    pub engine_options: Vec<Pair>,

    /// Operations to draw from, joined by commas. [default: all that the engine can do]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<Verb>(), value_delimiter = ',')]
    pub op: Option<Many<Verb>>,

    /// Largest payload of an operation; sizes are drawn from 1 byte up to it, with every magnitude equally likely.
    #[arg(long, value_name = "BYTES")]
    pub max_size: Option<Bytes>,

    /// Pinned threads in each rank to draw from: a value or a sweep.
    #[arg(long, alias = "workers", value_name = SWEEP)]
    #[serde(alias = "workers")]
    pub threads: Option<Sweep>,

    /// Memories to draw from, for both ends of a transfer; several are joined by commas. `tonnage engines` lists
    /// them. [default: host]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub memory: Option<Many<String>>,

    /// Seed of the draws: the same seed gives the same draws on every machine.
    #[arg(long, value_name = "N")]
    pub seed: Option<Count>,
}

pub(super) const MAX_SIZE_DEFAULT: Bytes = Bytes(1 << 20);
pub(super) const THREADS_DEFAULT: u64 = 1;
pub(super) const SEED_DEFAULT: Count = Count(1);

impl Group for DrawOptions {
    fn defaults() -> Self {
        Self {
            max_size: Some(MAX_SIZE_DEFAULT),
            threads: Some(Sweep::single(THREADS_DEFAULT)),
            seed: Some(SEED_DEFAULT),
            ..Self::default()
        }
    }
}

/// Length of the experiment.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Length", mut_args = with_default::<Self>)]
pub struct StressLength {
    /// Time after which no further transfer is drawn.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}

pub(super) const DURATION_DEFAULT: Nanos = Nanos(10_000_000_000);

impl Group for StressLength {
    fn defaults() -> Self {
        Self {
            duration: Some(DURATION_DEFAULT),
        }
    }
}

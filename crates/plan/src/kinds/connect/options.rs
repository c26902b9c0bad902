//! The options of an experiment with connections. `expand` checks their combinations.

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::options::{Group, Many, Pair, SWEEP, many_of, one_of_these, pairs, with_default};
use crate::point::Traffic;
use crate::skipping::SkippingOptions;
use crate::sweep::Sweep;
use tonnage_units::{Count, Nanos, PairPlace};

/// One experiment that sets up connections and takes them down again.
#[derive(Debug, Clone, PartialEq, Default, Args)]
pub struct Connect {
    /// Connections to set up.
    #[command(flatten)]
    pub what: ConnectionOptions,
    /// Length of the measurement.
    #[command(flatten)]
    pub length: ConnectLength,
    /// Whether missing hardware or libraries fail the run.
    #[command(flatten)]
    pub skipping: SkippingOptions,
}

crate::options::groups! { Connect: "connect", "an experiment with connections", needs &[("engine", "shm")]; what, length, skipping }

/// Connections to set up.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Connections", mut_args = with_default::<Self>)]
pub struct ConnectionOptions {
    /// Heading under which tables put the points.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Engine to connect by, such as shm or fabric:tcp; several are joined by commas. `tonnage engines` lists them.
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub engine: Option<Many<String>>,

    /// An option of the engine's own, such as completion=delivery for fabric; may be repeated. `tonnage engines
    /// NAME` lists them.
    #[arg(long = "engine-option", value_name = "NAME=VALUE", value_parser = pairs::engine_option)]
    #[serde(with = "pairs")]
    pub engine_options: Vec<Pair>,

    /// Pattern of the connections.
    #[arg(long, value_name = "PATTERN", value_parser = one_of_these(|it| TRAFFICS.contains(it)))]
    pub traffic: Option<Traffic>,

    /// Pinned threads in each rank, each with a connection to each of its peers: a value or a sweep.
    #[arg(long, alias = "workers", value_name = SWEEP)]
    #[serde(alias = "workers")]
    pub threads: Option<Sweep>,

    /// Sockets of threads that exchange bytes, on one host; several are joined by commas. [default: near, unless that
    /// leaves cores unused]
    #[arg(long, value_name = "NAMES", value_parser = many_of::<PairPlace>(), value_delimiter = ',')]
    pub place: Option<Many<PairPlace>>,

    /// Bytes of memory that each thread registers for its connections: a value or a sweep.
    #[arg(long, value_name = SWEEP)]
    pub register: Option<Sweep>,

    /// Memory to register; several are joined by commas. `tonnage engines` lists them. [default: host]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub memory: Option<Many<String>>,
}

/// Patterns in which connections can be set up.
pub(super) const TRAFFICS: [Traffic; 2] = [Traffic::Pair, Traffic::FanIn];

pub(super) const TRAFFIC_DEFAULT: Traffic = Traffic::Pair;
pub(super) const THREADS_DEFAULT: u64 = 1;
pub(super) const REGISTER_BYTES_DEFAULT: u64 = 4 << 10;

impl Group for ConnectionOptions {
    fn defaults() -> Self {
        Self {
            traffic: Some(TRAFFIC_DEFAULT),
            threads: Some(Sweep::single(THREADS_DEFAULT)),
            register: Some(Sweep::single(REGISTER_BYTES_DEFAULT)),
            ..Self::default()
        }
    }
}

/// Length of the measurement.
#[derive(Debug, Clone, PartialEq, Default, Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Length", mut_args = with_default::<Self>)]
pub struct ConnectLength {
    /// Measured time of each point, split evenly over its trials.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,

    /// Timed repetitions of each point.
    #[arg(long, value_name = "N")]
    pub trials: Option<Count>,
}

pub(super) const DURATION_DEFAULT: Nanos = Nanos(1_000_000_000);
pub(super) const TRIALS_DEFAULT: Count = Count(5);

impl Group for ConnectLength {
    fn defaults() -> Self {
        Self {
            duration: Some(DURATION_DEFAULT),
            trials: Some(TRIALS_DEFAULT),
        }
    }
}

//! What a user asks of memories: `[[transfer]]` tables and `tonnage transfer`, and the points that they expand to.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`point`] | one cell of a sweep, with everything fixed |
//! | `expand` | the points of a transfer, and the checks of engines, verbs and ranks |
//! | `pacing`, `length`, [`layout`] | the checks and defaults of one group of options each |
//!
//! How a point is measured is not known here; see `tonnage_bench`.

pub(crate) mod expand;
pub mod layout;
pub(crate) mod length;
mod pacing;
pub mod point;

use serde::Deserialize;

use crate::point::{LimitChoice, Traffic};
use crate::sweep::Sweep;
use crate::text;
pub use pacing::{DEPTH_MAX, WINDOW_DEFAULT};
pub use point::{Addresses, Length, Pacing, TransferPoint, TrialLength};
use tonnage_engine::{EngineOptions, Verb};
use tonnage_units::{Bytes, Count, Fraction, Nanos, PerSecond};

/// One experiment: a `[[transfer]]` table, or one `tonnage transfer` command line. Each field is the option of the
/// same name; what is absent gets its default when the plan is expanded. Several values multiply.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Transfer {
    /// Heading for its points.
    #[serde(default)]
    pub label: Option<String>,
    /// Names of engines, with what follows their colon.
    #[serde(deserialize_with = "text::one_or_many")]
    pub engine: Vec<String>,
    /// Options of the engines' own, by name; each must be known to all engines of the transfer.
    #[serde(default)]
    pub engine_options: EngineOptions,
    /// What each operation does.
    #[serde(deserialize_with = "text::one_or_many")]
    pub op: Vec<Verb>,
    /// Who talks to whom; `pair` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub traffic: Option<Traffic>,
    /// Payload bytes of one operation.
    #[serde(deserialize_with = "text::sweep")]
    pub sizes: Sweep,
    /// Operations in flight on each lane; 64 by default.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub window: Option<Sweep>,
    /// Operations of one batch: post all, wait for all.
    #[serde(default, deserialize_with = "text::optional_sweep")]
    pub batch: Option<Sweep>,
    /// One operation, then wait for the answer.
    #[serde(default)]
    pub ping_pong: bool,
    /// Open loop: operations per second of each initiating rank.
    #[serde(default, deserialize_with = "text::optional")]
    pub rate: Option<PerSecond>,
    /// Pinned threads in each rank; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub workers: Option<Count>,
    /// Where the bytes live; `host` by default.
    #[serde(default)]
    pub memory: Option<String>,
    /// Bytes over which the operations of one lane walk.
    #[serde(default, deserialize_with = "text::optional")]
    pub footprint: Option<Bytes>,
    /// Distance between the starts of two neighbouring slots.
    #[serde(default, deserialize_with = "text::optional")]
    pub stride: Option<Bytes>,
    /// In which order slots are used; `sequential` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub addresses: Option<Addresses>,
    /// Seeds addresses and data; 1 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub seed: Option<Count>,
    /// Whether latencies are recorded; they are by default.
    #[serde(default)]
    pub latency: Option<bool>,
    /// Whether every trial's bytes are checked, outside the clock.
    #[serde(default)]
    pub verify: bool,
    /// What the bandwidth is set beside; `auto` by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub limit: Option<LimitChoice>,
    /// Timed repetitions of each point; 5 by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub trials: Option<Count>,
    /// Length of one trial; 200 ms by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub trial_time: Option<Nanos>,
    /// Operations of each worker in one trial, instead of a time.
    #[serde(default, deserialize_with = "text::optional")]
    pub iters: Option<Count>,
    /// Measured time of a point, split evenly over its trials.
    #[serde(default, deserialize_with = "text::optional")]
    pub duration: Option<Nanos>,
    /// Untimed operations before the first trial; 50 ms by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub warmup: Option<Nanos>,
    /// Go on until the 95 % confidence interval of the mean bandwidth is this narrow.
    #[serde(default, deserialize_with = "text::optional")]
    pub until_ci: Option<Fraction>,
    /// With `until_ci`: the longest measured time of a point; 60 s by default.
    #[serde(default, deserialize_with = "text::optional")]
    pub max_duration: Option<Nanos>,
}

//! Compares measured hosts with a baseline.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this | the report of a check |
//! | [`entry`] | one baseline entry against new measurements |
//! | [`step`] | all entries of one point |
//! | [`blame`] | slow hosts and pairs in a matrix |
//! | [`each_host`] | verdicts of several hosts that were checked separately |
//! | [`of_records`] | verdicts from existing records |
//! | [`device`] | a host's devices against the baseline's |
//! | [`verdict`] | verdicts and exit codes |
//! | [`reason`] | the one-line reason |
//! | [`nodelist`] | host names, folded as schedulers do |
//!
//! An error is not a failure, because a missing measurement is not evidence about the host. The measurements themselves
//! are made by `tonnage_commands`.

pub mod blame;
pub mod device;
pub mod each_host;
pub mod entry;
pub mod nodelist;
pub mod of_records;
pub mod reason;
pub mod step;
#[cfg(test)]
mod tests;
pub mod verdict;

use serde::{Deserialize, Serialize};

use entry::EntryVerdict;

pub use verdict::{CheckVerdict, ExitStyle};

/// Version of the report's JSON.
pub const CHECK_FORMAT: u32 = 1;

/// Results of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Version of this report format.
    pub format: u32,
    /// Version of the program.
    pub program: String,
    /// Hosts that were measured.
    pub hosts: Vec<String>,
    /// Path of the baseline.
    pub baseline: String,
    /// End of the check, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time budget, in seconds.
    pub budget_s: f64,
    /// Elapsed time, in seconds.
    pub took_s: f64,
    /// Overall verdict.
    pub verdict: CheckVerdict,
    /// One line, at most 80 bytes.
    pub reason: String,
    /// Hosts that failed.
    pub failed_hosts: Vec<String>,
    /// Verdicts of the measured entries and of devices.
    pub entries: Vec<EntryVerdict>,
    /// Names of points left out for lack of time.
    pub not_measured: Vec<String>,
    /// Age of this report in seconds, if it comes from a cache.
    #[serde(default)]
    pub cached_for_s: Option<f64>,
}

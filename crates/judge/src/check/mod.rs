//! Verdicts on hosts that were measured beside a baseline.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this | the report of a check |
//! | [`entry`] | one entry of a baseline beside what was measured now |
//! | [`step`] | the entries of one point |
//! | [`blame`] | hosts and pairs that a matrix calls slow |
//! | [`each_host`] | verdicts of several hosts, each checked by itself |
//! | [`of_records`] | hosts of records that are there already |
//! | [`device`] | devices of a host beside those of the baseline |
//! | [`verdict`] | verdicts and exit codes |
//! | [`reason`] | one line that says why |
//! | [`nodelist`] | names of hosts, folded as schedulers write them |
//!
//! An error is never a failure: what could not be measured says nothing about the host. Nothing here measures; the
//! program does.

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

/// Findings of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Version of this form.
    pub format: u32,
    /// Version of the program.
    pub program: String,
    /// Hosts that were measured.
    pub hosts: Vec<String>,
    /// The baseline's file.
    pub baseline: String,
    /// End of the check, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time that it was given, in seconds.
    pub budget_s: f64,
    /// Time that it took.
    pub took_s: f64,
    /// The verdict of all.
    pub verdict: CheckVerdict,
    /// One line of at most 80 bytes.
    pub reason: String,
    /// Hosts that failed.
    pub failed_hosts: Vec<String>,
    /// Verdicts of the entries that were measured, and of devices.
    pub entries: Vec<EntryVerdict>,
    /// Names of points that there was no time for.
    pub not_measured: Vec<String>,
    /// Age of these verdicts in seconds, where they are told again.
    #[serde(default)]
    pub cached_for_s: Option<f64>,
}

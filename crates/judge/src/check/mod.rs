//! Verdicts on hosts that were measured beside a baseline.
//!
//! | module | what lives there |
//! | --- | --- |
//! | this | verdicts, exit codes, and the report of a check |
//! | [`entry`] | one entry of a baseline beside what was measured now |
//! | [`device`] | devices of a host beside those of the baseline |
//! | [`reason`] | one line that says why |
//! | [`nodelist`] | names of hosts, folded as schedulers write them |
//!
//! An error is never a failure: what could not be measured says nothing about the host. Nothing here measures; the
//! program does.

pub mod device;
pub mod entry;
pub mod nodelist;
pub mod reason;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tonnage_units::names;

use entry::EntryVerdict;

/// Version of the report's JSON.
pub const CHECK_FORMAT: u32 = 1;

names! {
    /// Verdict of a check.
    pub enum CheckVerdict: "verdict" {
        /// Everything that was measured keeps to the baseline.
        Pass = "pass",
        /// Something is beyond the warning.
        Warn = "warn",
        /// The baseline is missed, a device is gone, its link is down or slow, or bytes went another way.
        Fail = "fail",
        /// There was nothing to compare with.
        Skip = "skip",
        /// It could not be measured: a library, a permission, time, this program.
        Error = "error",
    }
}

impl CheckVerdict {
    /// The one that counts of several: a failure before an error, because it was measured, and an error before
    /// everything that might hide it.
    fn weight(self) -> u8 {
        match self {
            Self::Skip => 0,
            Self::Pass => 1,
            Self::Warn => 2,
            Self::Error => 3,
            Self::Fail => 4,
        }
    }

    /// The verdict of several.
    pub fn of(all: impl IntoIterator<Item = Self>) -> Self {
        let all = all.into_iter();
        all.max_by_key(|one| one.weight()).unwrap_or(Self::Skip)
    }
}

names! {
    /// Meaning of exit codes.
    pub enum ExitStyle: "exit style" {
        /// 1 for whatever is neither a pass nor a warning.
        Plain = "plain",
        /// Those of Nagios: 1 warning, 2 critical, 3 unknown.
        Nagios = "nagios",
        /// 1 for a failure alone, for whom another code drains a node.
        Prolog = "prolog",
    }
}

impl ExitStyle {
    /// The code of a verdict.
    pub fn code(self, verdict: CheckVerdict) -> u8 {
        use CheckVerdict::{Error, Fail, Pass, Skip, Warn};
        match (self, verdict) {
            (_, Pass) | (Self::Plain | Self::Prolog, Warn) | (Self::Prolog, Skip | Error) => 0,
            (Self::Nagios, Warn)
            | (Self::Plain | Self::Prolog, Fail)
            | (Self::Plain, Skip | Error) => 1,
            (Self::Nagios, Fail) => 2,
            (Self::Nagios, Skip | Error) => 3,
        }
    }

    /// The code of a wrong request.
    pub fn code_of_wrong_request(self) -> u8 {
        match self {
            Self::Plain => 2,
            Self::Nagios => 3,
            Self::Prolog => 0,
        }
    }
}

/// What a check found.
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

//! Verdicts of checks, what counts of several, and the exit codes that they have for whoever asked.

use tonnage_units::names;

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
    pub(super) fn weight(self) -> u8 {
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

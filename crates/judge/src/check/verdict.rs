//! Verdicts of checks, how several combine, and their exit codes.

use tonnage_units::names;

names! {
    /// Verdict of a check.
    pub enum CheckVerdict: "verdict" {
        /// All measured figures are within the baseline.
        Pass = "pass",
        /// A figure is beyond the warning threshold.
        Warn = "warn",
        /// A figure is beyond the failure threshold, a device is missing, its link is down or slow, or bytes took
        /// another path.
        Fail = "fail",
        /// Nothing could be compared.
        Skip = "skip",
        /// The measurement was not possible: missing library, permission or time, or a fault in this program.
        Error = "error",
    }
}

impl CheckVerdict {
    /// Precedence when verdicts combine. A failure outranks an error, because it was measured. An error outranks the
    /// other verdicts, because they must not hide it.
    pub(super) fn weight(self) -> u8 {
        match self {
            Self::Skip => 0,
            Self::Pass => 1,
            Self::Warn => 2,
            Self::Error => 3,
            Self::Fail => 4,
        }
    }

    /// Combines several verdicts.
    pub fn combine(all: impl IntoIterator<Item = Self>) -> Self {
        let all = all.into_iter();
        all.max_by_key(|one| one.weight()).unwrap_or(Self::Skip)
    }
}

names! {
    /// Exit code convention.
    pub enum ExitStyle: "exit style" {
        /// 1 for anything except a pass or a warning.
        Plain = "plain",
        /// Nagios codes: 1 warning, 2 critical, 3 unknown.
        Nagios = "nagios",
        /// 1 only for a failure: in a prolog any nonzero code drains the node.
        Prolog = "prolog",
    }
}

impl ExitStyle {
    /// Exit code for a verdict.
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

    /// Exit code for an invalid request.
    pub fn code_of_wrong_request(self) -> u8 {
        match self {
            Self::Plain => 2,
            Self::Nagios => 3,
            Self::Prolog => 0,
        }
    }
}

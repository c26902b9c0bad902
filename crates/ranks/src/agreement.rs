//! Reduces the outcomes of all ranks to one that every rank returns.

use serde::{Deserialize, Serialize};

use crate::channel::message::EndCause;
use tonnage_units::{Error, Reduce, Result};

/// A failure and the rank that reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RankOutcome {
    rank: u32,
    host: String,
    cause: EndCause,
}

impl RankOutcome {
    /// Returns the outcome of a rank that failed; `None` if the rank succeeded.
    pub(crate) fn if_failed(rank: u32, host: &str, mine: &Result<()>) -> Option<Self> {
        let error = mine.as_ref().err()?;
        Some(Self {
            rank,
            host: host.to_owned(),
            cause: EndCause::from_error(error, rank, host),
        })
    }

    /// Sort key: a failure comes before a missing feature, because a missing feature only skips the point. Otherwise
    /// the lowest rank comes first.
    fn weight(&self) -> (bool, u32) {
        (
            matches!(self.cause, EndCause::Unavailable { .. }),
            self.rank,
        )
    }
}

impl Reduce for RankOutcome {
    /// Keeps the outcome that all ranks return: a failure before a missing feature, and otherwise the lowest rank's.
    fn merge(&mut self, other: Self) {
        if other.weight() < self.weight() {
            *self = other;
        }
    }
}

impl From<RankOutcome> for Error {
    fn from(verdict: RankOutcome) -> Self {
        let RankOutcome { rank, host, cause } = verdict;
        match cause {
            EndCause::Usage(message) => Self::Rank {
                rank,
                host,
                message,
            },
            EndCause::Unavailable { .. }
            | EndCause::Rank { .. }
            | EndCause::Lost { .. }
            | EndCause::Interrupted { .. }
            | EndCause::TimeLimit { .. } => Self::from(&cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(outcomes: &[(u32, Result<()>)]) -> Result<()> {
        let mut all = None;
        for (rank, mine) in outcomes {
            all.merge(RankOutcome::if_failed(*rank, &format!("h{rank}"), mine));
        }
        all.map_or(Ok(()), |verdict| Err(verdict.into()))
    }

    fn missing(what: &str) -> Result<()> {
        Err(Error::Unavailable {
            what: what.into(),
            why: "no".into(),
            how: "buy".into(),
        })
    }

    fn failed(text: &str) -> Result<()> {
        Err(Error::Failed(text.into()))
    }

    #[test]
    fn the_lowest_failing_rank_is_reported() {
        assert!(agreed(&[(0, Ok(())), (1, Ok(()))]).is_ok());
        let error = agreed(&[(3, failed("c")), (0, Ok(())), (2, failed("b"))]).unwrap_err();
        assert_eq!(error.to_string(), "rank 2 on h2: b");
        let usage = agreed(&[(1, Err(Error::Usage("u".into())))]).unwrap_err();
        assert!(matches!(usage, Error::Rank { rank: 1, .. }));
    }

    #[test]
    fn a_failure_outranks_a_missing_feature() {
        let error = agreed(&[(4, missing("b")), (1, missing("a"))]).unwrap_err();
        assert!(matches!(error, Error::Unavailable { what, .. } if what == "a"));
        let error = agreed(&[(1, missing("a")), (5, failed("x")), (2, missing("b"))]).unwrap_err();
        assert!(matches!(error, Error::Rank { rank: 5, .. }));
    }
}

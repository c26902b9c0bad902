//! Reduces the outcomes of all ranks to one that every rank returns.

use serde::{Deserialize, Serialize};

use crate::channel::message::Cause;
use tonnage_units::{Error, Reduce, Result};

/// A failure and the rank that reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Verdict {
    rank: u32,
    host: String,
    cause: Cause,
}

impl Verdict {
    /// Returns the verdict of one rank, or `None` if it succeeded.
    pub(crate) fn of(rank: u32, host: &str, mine: &Result<()>) -> Option<Self> {
        let error = mine.as_ref().err()?;
        Some(Self {
            rank,
            host: host.to_owned(),
            cause: Cause::of(error, rank, host),
        })
    }

    /// Sort key: a failure comes before something unavailable, because that only skips the point; then the lowest rank.
    fn weight(&self) -> (bool, u32) {
        (matches!(self.cause, Cause::Unavailable { .. }), self.rank)
    }
}

impl Reduce for Verdict {
    /// Keeps the outcome that all ranks return: a failure before something unavailable, then the lowest rank's.
    fn merge(&mut self, other: Self) {
        if other.weight() < self.weight() {
            *self = other;
        }
    }
}

impl From<Verdict> for Error {
    fn from(verdict: Verdict) -> Self {
        let Verdict { rank, host, cause } = verdict;
        match cause {
            Cause::Usage(message) => Self::Rank {
                rank,
                host,
                message,
            },
            Cause::Unavailable { .. }
            | Cause::Rank { .. }
            | Cause::Lost { .. }
            | Cause::Interrupted { .. } => Self::from(&cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(outcomes: &[(u32, Result<()>)]) -> Result<()> {
        let mut all = None;
        for (rank, mine) in outcomes {
            all.merge(Verdict::of(*rank, &format!("h{rank}"), mine));
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
    fn a_failure_outranks_something_unavailable() {
        let error = agreed(&[(4, missing("b")), (1, missing("a"))]).unwrap_err();
        assert!(matches!(error, Error::Unavailable { what, .. } if what == "a"));
        let error = agreed(&[(1, missing("a")), (5, failed("x")), (2, missing("b"))]).unwrap_err();
        assert!(matches!(error, Error::Rank { rank: 5, .. }));
    }
}

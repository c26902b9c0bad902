//! One outcome for all ranks, when some have failed and others have not.

use serde::{Deserialize, Serialize};

use crate::channel::message::Cause;
use tonnage_units::{Error, Result};

/// A failure and the rank that reports it.
#[derive(Serialize, Deserialize)]
struct Verdict {
    rank: u32,
    host: String,
    cause: Cause,
}

impl Verdict {
    /// A missing thing weighs less than a failure: the point is skipped, not failed.
    fn weight(&self) -> (bool, u32) {
        (matches!(self.cause, Cause::Unavailable { .. }), self.rank)
    }
}

/// One rank's outcome as bytes; empty when all is well.
pub(crate) fn write(rank: u32, host: &str, mine: &Result<()>) -> Result<Vec<u8>> {
    let Err(error) = mine else {
        return Ok(Vec::new());
    };
    let verdict = Verdict {
        rank,
        host: host.to_owned(),
        cause: Cause::of(error, rank, host),
    };
    serde_json::to_vec(&verdict)
        .map_err(|error| Error::Failed(format!("an outcome cannot be written: {error}")))
}

/// Keeps the outcome that all ranks will be told: a failure before something missing, then the lowest rank.
pub(crate) fn merge(all: &mut Vec<u8>, one: &[u8]) {
    let Some(new) = read(one) else { return };
    if read(all).is_none_or(|old| new.weight() < old.weight()) {
        all.clear();
        all.extend_from_slice(one);
    }
}

fn read(bytes: &[u8]) -> Option<Verdict> {
    if bytes.is_empty() {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// Reads the outcome that all ranks agreed on.
pub(crate) fn outcome(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let Some(Verdict { rank, host, cause }) = read(bytes) else {
        return Err(Error::Failed(
            "the common outcome of all ranks cannot be read".into(),
        ));
    };
    Err(match &cause {
        Cause::Usage(message) => Error::Rank {
            rank,
            host,
            message: message.clone(),
        },
        Cause::Unavailable { .. } | Cause::Rank { .. } | Cause::Interrupted { .. } => {
            Error::from(&cause)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(outcomes: &[(u32, Result<()>)]) -> Result<()> {
        let mut all = Vec::new();
        for (rank, mine) in outcomes {
            merge(&mut all, &write(*rank, &format!("h{rank}"), mine).unwrap());
        }
        outcome(&all)
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
    fn the_lowest_failing_rank_speaks_for_all() {
        assert!(agreed(&[(0, Ok(())), (1, Ok(()))]).is_ok());
        let error = agreed(&[(3, failed("c")), (0, Ok(())), (2, failed("b"))]).unwrap_err();
        assert_eq!(error.to_string(), "rank 2 on h2: b");
        let usage = agreed(&[(1, Err(Error::Usage("u".into())))]).unwrap_err();
        assert!(matches!(usage, Error::Rank { rank: 1, .. }));
    }

    #[test]
    fn only_what_is_missing_everywhere_is_a_skip() {
        let error = agreed(&[(4, missing("b")), (1, missing("a"))]).unwrap_err();
        assert!(matches!(error, Error::Unavailable { what, .. } if what == "a"));
        let error = agreed(&[(1, missing("a")), (5, failed("x")), (2, missing("b"))]).unwrap_err();
        assert!(matches!(error, Error::Rank { rank: 5, .. }));
    }
}

//! Orders that all ranks give their workers at once, during which workers meet through a store.
//!
//! Entries that a worker writes into the store have to reach all others (`worker/store.py` says why that is enough).
//! While any worker is at such an order, the ranks take part in rounds: each gives what its worker wrote since the
//! last one, gets what all wrote, and passes it on in the order of the ranks. So all workers apply the same entries in
//! the same order, each entry travels once, and nothing travels but what changed. The last round is the one in which
//! all are done and nobody has written anything; every rank sees the same rounds, so all leave together.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_ranks::Rank;
use tonnage_units::Result;

use super::conversation::Conversation;
use super::failure::{WorkerFailure, agree};
use crate::deadlines::DEADLINES;

/// Bytes that a rank gives in one round. The control channel carries 64 KiB of each rank.
const BYTES_MAX: usize = 32 << 10;

/// A rank whose worker has nothing to say enters the next round after this long, and after twice as long each time that
/// nobody said anything, so that waiting costs no CPU that the workers need.
const PAUSE_MIN: Duration = Duration::from_micros(200);

/// Longest of these pauses.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Once a worker has failed, the others have this long to come to an end by themselves: a call that a backend lacks
/// fails in all of them, and then all are still in step.
const GRACE: Duration = Duration::from_secs(2);

/// Contribution of a rank to a round.
#[derive(Debug, Serialize, Deserialize)]
struct RoundPart {
    /// Entries, one a line; the last may go on in the next round.
    writes: Vec<u8>,
    /// The worker has answered, or never will.
    done: bool,
    /// It will not answer as it should.
    failed: bool,
}

/// Takes part in rounds until all workers have done the order that they were given. Every rank gets the failure that is
/// nearest to the cause.
pub(super) fn together(
    worker: &mut Conversation,
    rank: &mut Rank,
    what: &str,
    given: Result<(), WorkerFailure>,
    limit: Duration,
) -> Result<Value> {
    let began = Instant::now();
    let deadline = limit + DEADLINES.step;
    let mut mine = given.err().map(Err);
    let mut partial = vec![Vec::new(); rank.size() as usize];
    let mut pause = PAUSE_MIN;
    let mut failing: Option<Instant> = None;
    loop {
        let late = failing.is_some_and(|since| since.elapsed() > GRACE);
        if mine.is_none() {
            mine = match worker.answer(Instant::now() + pause) {
                Ok(None) if late || began.elapsed() > limit => {
                    Some(Err(worker.overdue(began.elapsed(), "")))
                }
                other => other.transpose(),
            };
        }
        let part = RoundPart {
            writes: worker.take_writes(BYTES_MAX),
            done: mine.is_some(),
            failed: matches!(mine, Some(Err(_))),
        };
        let parts = rank.gather(what, &part, deadline)?;
        let passed = parts
            .iter()
            .zip(&mut partial)
            .try_for_each(|(part, partial)| {
                match &entries(partial, &part.writes)[..] {
                    [] => Ok(()),
                    // Those that are complete, in the order of the ranks.
                    entries => worker.pass_on(entries),
                }
            });
        if let Err(failure) = passed
            && !matches!(mine, Some(Err(_)))
        {
            mine = Some(Err(failure));
        }
        if parts.iter().any(|part| part.failed) {
            failing.get_or_insert_with(Instant::now);
        }
        let silent = parts.iter().all(|part| part.writes.is_empty());
        if silent && parts.iter().all(|part| part.done) {
            break;
        }
        pause = if silent {
            (pause * 2).min(PAUSE_MAX)
        } else {
            PAUSE_MIN
        };
    }
    let mine = mine.unwrap_or(Ok(Value::Null));
    agree(rank, what, mine, deadline)
}

/// Adds bytes to what has come of a rank, and takes its whole lines.
fn entries(partial: &mut Vec<u8>, bytes: &[u8]) -> Vec<String> {
    partial.extend_from_slice(bytes);
    let Some(end) = partial.iter().rposition(|byte| *byte == b'\n') else {
        return Vec::new();
    };
    let rest = partial.split_off(end + 1);
    let whole = std::mem::replace(partial, rest);
    let text = String::from_utf8_lossy(&whole).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_whole_however_they_are_cut() {
        let text = "[\"ä\"]\n[2]\n[3]\n";
        for cut in 0..=text.len() {
            let (one, other) = text.as_bytes().split_at(cut);
            let mut partial = Vec::new();
            let mut all = entries(&mut partial, one);
            all.extend(entries(&mut partial, other));
            assert_eq!(all, ["[\"ä\"]", "[2]", "[3]"], "{cut}");
            assert!(partial.is_empty());
        }
    }
}

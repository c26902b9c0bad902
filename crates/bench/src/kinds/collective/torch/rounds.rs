//! Orders that all ranks give to their workers at the same time. Meanwhile, workers find each other through a store.
//!
//! An entry that a worker writes into the store must reach all other workers (`worker/store.py` explains why that
//! suffices). While any worker is busy with an order, the ranks take part in rounds. In each round, a rank contributes
//! the entries that its worker wrote since the last round. It receives the entries of all ranks, and forwards them to
//! its worker in rank order. Thus all workers apply the same entries in the same order, and each entry is sent once.
//! Rounds end when all workers are done and no rank has contributed entries. All ranks see this in the same round.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonnage_ranks::Rank;
use tonnage_units::Result;

use super::failure::{WorkerFailure, agree};
use super::worker_connection::WorkerConnection;
use crate::deadlines::DEADLINES;

/// Maximum number of bytes that a rank contributes to one round. The control channel limits a message to 64 KiB per
/// rank.
const BYTES_MAX: usize = 32 << 10;

/// Shortest time that a rank waits for its worker before the next round. The time doubles after each round without
/// entries, so that the rounds take little CPU time from the workers.
const PAUSE_MIN: Duration = Duration::from_micros(200);

/// Longest time that a rank waits for its worker before the next round.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// Time that other workers have to finish after one worker has failed. If a backend lacks a call, the call fails in all
/// workers, and all of them stay usable.
const GRACE: Duration = Duration::from_secs(2);

/// A rank's contribution to a round.
#[derive(Debug, Serialize, Deserialize)]
struct RoundPart {
    /// Entries of the store's log, one per line. The last line may continue in the next round.
    writes: Vec<u8>,
    /// Whether the worker has answered or failed.
    done: bool,
    /// Whether the worker failed.
    failed: bool,
}

/// Takes part in rounds until all workers have completed the order. Every rank gets the failure that is closest to the
/// cause.
pub(super) fn complete_on_all_ranks(
    worker: &mut WorkerConnection,
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
            mine = match worker.await_answer(Instant::now() + pause) {
                Ok(None) if late || began.elapsed() > limit => {
                    Some(Err(worker.overdue(began.elapsed(), "")))
                }
                other => other.transpose(),
            };
        }
        let part = RoundPart {
            writes: worker.take_log_entries(BYTES_MAX),
            done: mine.is_some(),
            failed: matches!(mine, Some(Err(_))),
        };
        let parts = rank.gather(what, &part, deadline)?;
        let passed = parts
            .iter()
            .zip(&mut partial)
            .try_for_each(|(part, partial)| {
                match &take_complete_lines(partial, &part.writes)[..] {
                    [] => Ok(()),
                    // Only complete entries are forwarded, in rank order.
                    entries => worker.send_log_entries(entries),
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

/// Appends bytes received from a rank to its incomplete line. Removes and returns all complete lines.
fn take_complete_lines(partial: &mut Vec<u8>, bytes: &[u8]) -> Vec<String> {
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
            let mut all = take_complete_lines(&mut partial, one);
            all.extend(take_complete_lines(&mut partial, other));
            assert_eq!(all, ["[\"ä\"]", "[2]", "[3]"], "{cut}");
            assert!(partial.is_empty());
        }
    }
}

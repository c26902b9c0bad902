//! The socket-stream limit of a point: what plain TCP carries between the very same ranks. Every flow of the point gets
//! one connection for each worker, in the direction in which its payload goes, and all of them run at once.
//!
//! When bytes flow, and the sum of all ranks, are here; the loop that moves them is in [`pump`](mod@pump), making the
//! connections in [`connect`](mod@connect). The upper bound of a figure is chosen
//! in [`crate::limit`].

pub mod connect;
pub mod pump;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tonnage_sys::clock::Clock;

use crate::deadlines::DEADLINES;
use crate::settle::settle;
use pump::BLOCK_BYTES;
pub use pump::{Stream, StreamDirection, Streamed, Window, pump};
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Rank;
use tonnage_units::Result;

/// The longest time that the streams are counted for, after a third of it that is not.
const TIMED_NS_MAX: u64 = 150_000_000;

/// The shortest: a delay of the scheduler must not weigh.
const TIMED_NS_MIN: u64 = 50_000_000;

/// Together with the warm-up, before and after, the streams take at most about a third of the trials' time.
const TRIALS_SHARE: u64 = 8;

/// State that the workers of a rank share: the streams of each until it takes them, and when bytes flow.
#[derive(Debug)]
pub struct Berths {
    /// Streams of each worker.
    streams: Mutex<Vec<Vec<Stream>>>,
    window: Window,
}

impl Berths {
    /// Carries the streams of a worker, on the calling thread; a second call finds none.
    ///
    /// # Errors
    /// As [`pump()`].
    pub fn carry(&self, worker: usize, clock: &Clock) -> Result<Streamed> {
        // The window is in the system's time, from which a counter drifts away.
        let mut clock = *clock;
        clock.resync();
        let mut all = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = all.get_mut(worker).map(std::mem::take).unwrap_or_default();
        drop(all);
        pump(mine, &self.window, &clock)
    }
}

/// Time that the streams of a point are counted for.
fn timed_ns(point: &TransferPoint) -> u64 {
    match point.length.trial {
        TrialLength::DurationNs(ns) => (ns.saturating_mul(u64::from(point.length.trials))
            / TRIALS_SHARE)
            .clamp(TIMED_NS_MIN, TIMED_NS_MAX),
        TrialLength::Iterations(_) => TIMED_NS_MAX,
    }
}

/// Measures once, on all ranks together. `addresses` are those of the engine's devices, for each worker; `carry` lets
/// every worker carry its [`Berths`] at once and adds up what they say.
///
/// `None` when some stream brought nothing within the time, as on a link that is down: no limit is better than a wrong
/// one.
///
/// # Errors
/// When a connection cannot be made or breaks; the message names the pair.
pub fn measure(
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Option<IpAddr>],
    carry: impl FnOnce(&Arc<Berths>) -> Result<Streamed>,
) -> Result<Option<Streamed>> {
    rank.phase("socket-stream limit");
    let (streams, skew_ns) = connect::connect_all(rank, point, addresses)?;
    let start_ns = rank.aligned_start("start of the socket streams", DEADLINES.step)?;
    let berths = Arc::new(Berths {
        streams: Mutex::new(streams),
        window: Window::new(start_ns, timed_ns(point), skew_ns),
    });
    let carried = carry(&berths);
    let mine = settle(rank, "carry the socket streams", carried)?;
    let all = rank.reduce("add up the socket streams", mine, DEADLINES.step)?;
    if all.silent == 0 && all.streams > 0 {
        return Ok(Some(all));
    }
    if rank.id() == 0 {
        log::warn!(
            "{} of {} socket streams brought nothing: this measurement of the limit does not count",
            all.silent,
            all.streams
        );
    }
    Ok(None)
}

/// The limit in words and bytes per second.
pub fn describe(streamed: &Streamed) -> tonnage_record::Limit {
    let who = match streamed.streams {
        1 => "1 TCP connection".to_owned(),
        several => format!("{several} TCP connections at once"),
    };
    tonnage_record::Limit {
        what: format!("socket stream, {who}, blocks of {BLOCK_BYTES} B"),
        bytes_per_s: streamed.bytes_per_s,
    }
}

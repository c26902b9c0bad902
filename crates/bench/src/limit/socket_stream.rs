//! The socket-stream limit of a point: what plain TCP carries between the very same ranks. Every flow of the point gets
//! one connection for each worker, rail that it takes and queue pair, in the direction in which its payload goes, and
//! all of them run at once: one time with workers that block, one time with workers that poll. The faster counts,
//! because a limit is an upper bound.
//!
//! When bytes flow, and the sum of all ranks, are here; the loop that moves them is in [`pump`](mod@pump), making the
//! connections in [`connect`](mod@connect). The upper bound of a figure is chosen
//! in [`crate::limit`].

pub mod connect;
pub mod pump;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tonnage_sys::clock::Clock;

use crate::all_or_none::all_or_none;
use crate::deadlines::DEADLINES;
use pump::BLOCK_BYTES;
pub use pump::{Stream, StreamDirection, Streamed, Waiting, Window, pump};
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Rank;
use tonnage_units::lock::lock;
use tonnage_units::{Reduce, Result};

/// The longest time that the streams are counted for, after a third of it that is not: long trials are for rare
/// operations, and streams are steady before.
const TIMED_NS_MAX: u64 = 1_000_000_000;

/// The shortest: a delay of the scheduler must not weigh.
const TIMED_NS_MIN: u64 = 50_000_000;

/// The time beside trials whose length is a number of operations.
const TIMED_NS: u64 = 200_000_000;

/// State that the workers of a rank share: the streams of each until it takes them, and when bytes flow.
#[derive(Debug)]
pub struct Berths {
    /// Streams of each worker.
    streams: Mutex<Vec<Vec<Stream>>>,
    window: Window,
    waiting: Waiting,
}

/// Streams as they were carried, all of them together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// Their rate.
    pub streamed: Streamed,
    /// Way in which workers waited while nothing moved.
    pub waiting: Waiting,
}

impl Carried {
    /// The faster of two, where there are any.
    pub fn better(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let all = one.into_iter().chain(other);
        all.max_by(|one, other| {
            one.streamed
                .bytes_per_s
                .total_cmp(&other.streamed.bytes_per_s)
        })
    }
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
        let mut all = lock(&self.streams);
        let mine = all.get_mut(worker).map(std::mem::take).unwrap_or_default();
        drop(all);
        pump(mine, &self.window, &clock, self.waiting)
    }
}

/// Time that the streams of a point are counted for: that of a trial, so that they are of the same kind.
fn timed_ns(point: &TransferPoint) -> u64 {
    match point.length.trial {
        TrialLength::DurationNs(ns) => ns.clamp(TIMED_NS_MIN, TIMED_NS_MAX),
        TrialLength::Iterations(_) => TIMED_NS,
    }
}

/// Measures in each way, on all ranks together, and returns the faster. `addresses` are those of the engine's devices,
/// for each rail of each worker; `carry` lets every worker carry its [`Berths`] at once and adds up what they say.
///
/// `None` when some stream brought nothing within the time, as on a link that is down: no limit is better than a wrong
/// one.
///
/// # Errors
/// When a connection cannot be made or breaks; the message names the pair.
pub fn measure(
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Vec<Option<IpAddr>>],
    mut carry: impl FnMut(&Arc<Berths>) -> Result<Streamed>,
) -> Result<Option<Carried>> {
    rank.phase("socket-stream limit");
    let mut best = None;
    for waiting in Waiting::ALL {
        let streamed = measure_in(waiting, rank, point, addresses, &mut carry)?;
        let carried = streamed.map(|streamed| Carried { streamed, waiting });
        best = Carried::better(best, carried);
    }
    Ok(best)
}

/// The most rounds that are measured: of more of them these are evenly spread, as each takes its time to connect.
const ROUNDS_MAX: u32 = 32;

/// Measures in one way, round after round; of several the mean counts, as it does for the point.
fn measure_in(
    waiting: Waiting,
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Vec<Option<IpAddr>>],
    carry: &mut impl FnMut(&Arc<Berths>) -> Result<Streamed>,
) -> Result<Option<Streamed>> {
    let rounds = point.roles().rounds().min(ROUNDS_MAX);
    let timed_ns = (timed_ns(point) / u64::from(rounds)).max(TIMED_NS_MIN);
    let mut mean: Option<Streamed> = None;
    for round in point.roles().sampled_rounds(ROUNDS_MAX) {
        let (streams, skew_ns) = connect::connect_all(rank, point, round, addresses)?;
        let start_ns = rank.aligned_start("start of the socket streams", DEADLINES.step)?;
        let berths = Arc::new(Berths {
            streams: Mutex::new(streams),
            window: Window::new(start_ns, timed_ns, skew_ns),
            waiting,
        });
        let carried = carry(&berths);
        let mine = all_or_none(rank, "carry the socket streams", carried)?;
        let all = rank.reduce("add up the socket streams", mine, DEADLINES.step)?;
        if all.silent > 0 || all.streams == 0 {
            tell_silent(rank, &all, waiting);
            return Ok(None);
        }
        let part = |rate: f64| rate / f64::from(rounds);
        let all = Streamed {
            bytes_per_s: part(all.bytes_per_s),
            parts_bytes_per_s: all.parts_bytes_per_s.map(part),
            ..all
        };
        mean = Some(match mean {
            None => all,
            Some(mut sum) => {
                sum.merge(all);
                Streamed {
                    streams: all.streams,
                    ..sum
                }
            }
        });
    }
    Ok(mean)
}

fn tell_silent(rank: &Rank, all: &Streamed, waiting: Waiting) {
    if rank.id() == 0 {
        log::warn!(
            "{} of {} socket streams brought nothing: this measurement of the limit ({}) does not count",
            all.silent,
            all.streams,
            waiting.name()
        );
    }
}

/// The limit in words and bytes per second.
pub fn describe(carried: &Carried) -> tonnage_record::Limit {
    let Carried { streamed, waiting } = carried;
    let who = match streamed.streams {
        1 => "1 TCP connection".to_owned(),
        several => format!("{several} TCP connections at once"),
    };
    tonnage_record::Limit {
        what: format!(
            "socket stream, {who}, {}, blocks of {BLOCK_BYTES} B",
            waiting.name()
        ),
        bytes_per_s: streamed.bytes_per_s,
        ci95_bytes_per_s: streamed.ci95_bytes_per_s(),
        links: None,
    }
}

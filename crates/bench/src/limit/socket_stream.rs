//! The socket-stream limit of a point: what plain TCP carries between the very same ranks. Every flow of the point gets
//! one connection for each worker, rail that it takes and queue pair, in the direction in which its payload goes, and
//! all of them run at once: one time with workers that block, one time with workers that poll. The faster counts,
//! because a limit is an upper bound. They are counted when they are steady: after some round trips of the path.
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

use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use crate::limit::of_rounds;
use pump::BLOCK_BYTES;
pub use pump::{Stream, StreamDirection, Streamed, Waiting, Window, pump};
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Rank;
use tonnage_units::Result;
use tonnage_units::lock::lock;

/// The longest time that the streams are counted for, after a third of it that is not, unless round trips are long:
/// long trials are for rare operations, and streams are steady before.
const TIMED_NS_MAX: u64 = 1_000_000_000;

/// The shortest: a delay of the scheduler must not weigh.
const TIMED_NS_MIN: u64 = 50_000_000;

/// The time beside trials whose length is a number of operations.
const TIMED_NS: u64 = 200_000_000;

/// Round trips before streams are counted, at least: slow start doubles its window in each, and begins with some 14 kB.
const LEAD_ROUND_TRIPS: u64 = 20;

/// Round trips for which they are counted, at least, so that each part of that time has some.
const TIMED_ROUND_TRIPS: u64 = 10;

/// The longest of both times, however long round trips are.
const ROUND_TRIPS_NS_MAX: u64 = 4_000_000_000;

/// Attempts to find streams steady, each with a lead of [`LEAD_FACTOR`] times the one before.
const ATTEMPTS: u32 = 3;
const LEAD_FACTOR: u64 = 4;

/// The longest lead of any attempt: far below the time that ranks wait for each other.
const LEAD_NS_MAX: u64 = 4 * ROUND_TRIPS_NS_MAX;

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
    /// Number of measurements that this is the best of.
    pub measurements: u32,
}

impl Carried {
    /// The faster of two, where there are any.
    pub fn better(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else {
            return one.or(other);
        };
        let is_faster = one.streamed.bytes_per_s > other.streamed.bytes_per_s;
        Some(Self {
            measurements: one.measurements + other.measurements,
            ..if is_faster { one } else { other }
        })
    }
}

impl Berths {
    /// Carries the streams of a worker, on the calling thread; a second call finds none.
    pub fn carry(&self, worker: usize, clock: &Clock) -> Result<Streamed> {
        let mut all = lock(&self.streams);
        let mine = all.get_mut(worker).map(std::mem::take).unwrap_or_default();
        drop(all);
        pump(mine, &self.window, clock, self.waiting)
    }
}

/// Time that the streams of a point are counted for: that of a trial, so that they are of the same kind.
fn timed_ns(point: &TransferPoint) -> u64 {
    match point.length.trial {
        TrialLength::DurationNs(ns) => ns.clamp(TIMED_NS_MIN, TIMED_NS_MAX),
        TrialLength::Iterations(_) => TIMED_NS,
    }
}

/// Times of streams that need `rtt_ns` for a round trip: before they are counted in the first attempt, and for which
/// they are counted.
fn lead_and_timed_ns(timed_ns: u64, rtt_ns: u64) -> (u64, u64) {
    let round_trips = |count: u64| rtt_ns.saturating_mul(count).min(ROUND_TRIPS_NS_MAX);
    let timed_ns = timed_ns.max(round_trips(TIMED_ROUND_TRIPS));
    ((timed_ns / 3).max(round_trips(LEAD_ROUND_TRIPS)), timed_ns)
}

/// Time from the start of the streams until they are counted. Each attempt, numbered from 0, waits longer.
fn lead_ns(first_ns: u64, attempt: u32) -> u64 {
    (first_ns * LEAD_FACTOR.pow(attempt)).min(LEAD_NS_MAX)
}

/// Measures in each way, on all ranks together, and returns the faster. `addresses` are those of the engine's devices,
/// for each rail of each worker; `carry` lets every worker carry its [`Berths`] at once and adds up what they say.
///
/// `None` when some stream brought nothing within the time, as on a link that is down, or they went on getting faster:
/// no limit is better than a wrong one.
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
        let carried = streamed.map(|streamed| Carried {
            streamed,
            waiting,
            measurements: 1,
        });
        best = Carried::better(best, carried);
    }
    Ok(best)
}

/// The most rounds that are measured: of more of them these are evenly spread, as each takes its time to connect.
const ROUNDS_MAX: u32 = 32;

/// Measures in one way, round after round; several count as those of a trial do.
fn measure_in(
    waiting: Waiting,
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Vec<Option<IpAddr>>],
    carry: &mut impl FnMut(&Arc<Berths>) -> Result<Streamed>,
) -> Result<Option<Streamed>> {
    let mut rounds: Vec<Streamed> = Vec::new();
    for round in point.roles.sampled_rounds(ROUNDS_MAX) {
        match measure_round(waiting, rank, (point, round), addresses, carry)? {
            Some(streamed) => rounds.push(streamed),
            None => return Ok(None),
        }
    }
    let combined = |of: &dyn Fn(&Streamed) -> f64| {
        let rates = rounds
            .iter()
            .map(|streamed| (of(streamed), streamed.streams));
        of_rounds(point.length.trial, rates)
    };
    let last = rounds.last().map(|last| Streamed {
        bytes_per_s: combined(&|streamed| streamed.bytes_per_s),
        parts_bytes_per_s: std::array::from_fn(|part| {
            combined(&|streamed| streamed.parts_bytes_per_s[part])
        }),
        ..*last
    });
    Ok(last)
}

/// Measures a round in one way. Streams that go on getting faster are in slow start, or their receive buffers still
/// grow: they are measured again, later. `None` where they never end to, or some bring nothing.
fn measure_round(
    waiting: Waiting,
    rank: &mut Rank,
    (point, round): (&TransferPoint, u32),
    addresses: &[Vec<Option<IpAddr>>],
    carry: &mut impl FnMut(&Arc<Berths>) -> Result<Streamed>,
) -> Result<Option<Streamed>> {
    let rounds = point.roles.rounds().min(ROUNDS_MAX);
    let of_round_ns = (timed_ns(point) / u64::from(rounds)).max(TIMED_NS_MIN);
    for attempt in 0..ATTEMPTS {
        let connected = connect::connect_all(rank, point, round, addresses)?;
        let (first_ns, timed_ns) = lead_and_timed_ns(of_round_ns, connected.rtt_ns);
        let lead_ns = lead_ns(first_ns, attempt);
        let start_ns = rank.aligned_start("start of the socket streams", DEADLINES.step)?;
        let berths = Arc::new(Berths {
            streams: Mutex::new(connected.streams),
            window: Window::new(start_ns, lead_ns, timed_ns, connected.skew_ns),
            waiting,
        });
        let carried = carry(&berths);
        let mine = all_or_none(rank, "carry the socket streams", carried)?;
        let all = rank.reduce("add up the socket streams", mine, DEADLINES.step)?;
        if all.silent > 0 || all.streams == 0 {
            tell_silent(rank, &all, waiting);
            return Ok(None);
        }
        if !all.is_rising() {
            return Ok(Some(all));
        }
    }
    if rank.id() == 0 {
        log::warn!(
            "socket streams went on getting faster: this measurement of the limit ({}) does not count",
            waiting.name()
        );
    }
    Ok(None)
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
    let Carried {
        streamed, waiting, ..
    } = carried;
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
        ci95_bytes_per_s: streamed.ci95_bytes_per_s(carried.measurements),
        links: None,
    }
}

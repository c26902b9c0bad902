//! The socket-stream bound of a point: the bandwidth of plain TCP between the same ranks. For every flow of the point,
//! each worker gets one connection per used rail and queue pair, in the direction of the payload. All connections run
//! simultaneously, first with blocking workers, then with polling ones. The faster result counts, because the bound is
//! an upper one. Bytes count only after several round trips, when the streams are steady.
//!
//! This module has the times of a measurement and the sum over all ranks. [`pump`](mod@pump) moves the bytes, and
//! [`connect`](mod@connect) makes the connections. [`crate::bound`] chooses the upper bound of a figure.

pub mod connect;
pub mod pump;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tonnage_sys::clock::Clock;

use crate::bound::mean_over_rounds;
use crate::deadlines::DEADLINES;
use crate::failure::all_or_none;
use pump::BLOCK_BYTES;
pub use pump::{Stream, StreamDirection, StreamInterval, StreamedBytes, WaitMethod, pump};
use tonnage_plan::transfer::{TransferPoint, TrialLength};
use tonnage_ranks::Rank;
use tonnage_units::Result;
use tonnage_units::lock::lock;

/// Longest time in which bytes are counted, unless round trips are long. Before that, bytes go uncounted for at least a
/// third of this time. Trials may be longer, to suit points with few operations per second, but streams are steady much
/// earlier.
const TIMED_NS_MAX: u64 = 1_000_000_000;

/// Shortest time in which bytes are counted, so that a delay by the scheduler hardly matters.
const TIMED_NS_MIN: u64 = 50_000_000;

/// Time in which bytes are counted, for trials with a given number of operations.
const TIMED_NS: u64 = 200_000_000;

/// Minimum number of round trips before bytes are counted. Slow start begins with about 14 kB and doubles in each round
/// trip.
const LEAD_ROUND_TRIPS: u64 = 20;

/// Minimum number of round trips while bytes are counted, so that each of the five parts of this time has two.
const TIMED_ROUND_TRIPS: u64 = 10;

/// Long round trips extend the time before counting and the time of counting, each up to this limit.
const ROUND_TRIPS_NS_MAX: u64 = 4_000_000_000;

/// Number of attempts to find the streams steady. Each attempt has [`LEAD_FACTOR`] times the lead of the previous one,
/// up to [`LEAD_NS_MAX`].
const ATTEMPTS: u32 = 3;
const LEAD_FACTOR: u64 = 4;

/// Longest lead of any attempt. It is far below the time that ranks wait for each other.
const LEAD_NS_MAX: u64 = 4 * ROUND_TRIPS_NS_MAX;

/// State that the workers of a rank share: their streams, and the times of the measurement.
#[derive(Debug)]
pub struct SharedStreams {
    /// Streams of each worker, until the worker takes them.
    streams: Mutex<Vec<Vec<Stream>>>,
    window: StreamInterval,
    waiting: WaitMethod,
}

/// Result of a measurement over all streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamMeasurement {
    /// Received bytes and rates.
    pub streamed: StreamedBytes,
    /// How workers waited while none of their streams could move bytes.
    pub waiting: WaitMethod,
    /// Number of measurements. This result is the best of them.
    pub measurements: u32,
}

impl StreamMeasurement {
    /// Returns the faster of two results; `None` if there is none.
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

impl SharedStreams {
    /// Runs this worker's streams on the calling thread. The first call takes the streams; a second one finds none.
    pub fn run_streams_of(&self, worker: usize, clock: &Clock) -> Result<StreamedBytes> {
        let mut all = lock(&self.streams);
        let mine = all.get_mut(worker).map(std::mem::take).unwrap_or_default();
        drop(all);
        pump(mine, &self.window, clock, self.waiting)
    }
}

/// Returns the time to count the bytes of a point's streams. It equals a trial's duration, so that both are comparable.
fn timed_part_ns(point: &TransferPoint) -> u64 {
    match point.length.trial {
        TrialLength::DurationNs(ns) => ns.clamp(TIMED_NS_MIN, TIMED_NS_MAX),
        TrialLength::Iterations(_) => TIMED_NS,
    }
}

/// Returns the lead of the first attempt and the counted time. Both are long enough for round trips of `rtt_ns`.
fn lead_and_timed_ns(timed_ns: u64, rtt_ns: u64) -> (u64, u64) {
    let round_trips = |count: u64| rtt_ns.saturating_mul(count).min(ROUND_TRIPS_NS_MAX);
    let timed_ns = timed_ns.max(round_trips(TIMED_ROUND_TRIPS));
    ((timed_ns / 3).max(round_trips(LEAD_ROUND_TRIPS)), timed_ns)
}

/// Returns the time from the start of the streams until bytes are counted. Later attempts wait longer; the first is 0.
fn lead_ns(first_ns: u64, attempt: u32) -> u64 {
    (first_ns * LEAD_FACTOR.pow(attempt)).min(LEAD_NS_MAX)
}

/// Measures with each method of waiting, on all ranks together, and returns the faster result. `addresses` has the
/// engine's device addresses, per worker and rail. `carry` makes every worker run its part of the [`SharedStreams`]
/// simultaneously, and adds up the results.
///
/// Returns `None` if some stream received nothing in time, for example over a link that is down. Returns `None` too if
/// the streams became faster with every attempt: they had not reached their full rate, and a bound that is too low is
/// worse than none.
///
/// # Errors
/// If a connection cannot be made or breaks; the message names the pair.
pub fn measure(
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Vec<Option<IpAddr>>],
    mut carry: impl FnMut(&Arc<SharedStreams>) -> Result<StreamedBytes>,
) -> Result<Option<StreamMeasurement>> {
    rank.set_phase("socket-stream bound");
    let mut best = None;
    for waiting in WaitMethod::ALL {
        let streamed = measure_in(waiting, rank, point, addresses, &mut carry)?;
        let carried = streamed.map(|streamed| StreamMeasurement {
            streamed,
            waiting,
            measurements: 1,
        });
        best = StreamMeasurement::better(best, carried);
    }
    Ok(best)
}

/// Maximum number of rounds that are measured, because connecting takes time. More rounds are divided into this number
/// of equal parts, and a random round of each part is measured.
const ROUNDS_MAX: u32 = 32;

/// Measures all rounds with one method of waiting, and combines the rounds as a trial does.
fn measure_in(
    waiting: WaitMethod,
    rank: &mut Rank,
    point: &TransferPoint,
    addresses: &[Vec<Option<IpAddr>>],
    carry: &mut impl FnMut(&Arc<SharedStreams>) -> Result<StreamedBytes>,
) -> Result<Option<StreamedBytes>> {
    let mut rounds: Vec<StreamedBytes> = Vec::new();
    for round in point.roles.sampled_rounds(ROUNDS_MAX) {
        match measure_round(waiting, rank, (point, round), addresses, carry)? {
            Some(streamed) => rounds.push(streamed),
            None => return Ok(None),
        }
    }
    let combined = |of: &dyn Fn(&StreamedBytes) -> f64| {
        let rates = rounds
            .iter()
            .map(|streamed| (of(streamed), streamed.streams));
        mean_over_rounds(point.length.trial, rates)
    };
    let last = rounds.last().map(|last| StreamedBytes {
        bytes_per_s: combined(&|streamed| streamed.bytes_per_s),
        parts_bytes_per_s: std::array::from_fn(|part| {
            combined(&|streamed| streamed.parts_bytes_per_s[part])
        }),
        ..*last
    });
    Ok(last)
}

/// Measures one round with one method of waiting. If streams keep getting faster, they are in slow start, or their
/// receive buffers still grow. Such streams are measured again with a longer lead. Returns `None` if they never become
/// steady, or if some receive nothing.
fn measure_round(
    waiting: WaitMethod,
    rank: &mut Rank,
    (point, round): (&TransferPoint, u32),
    addresses: &[Vec<Option<IpAddr>>],
    carry: &mut impl FnMut(&Arc<SharedStreams>) -> Result<StreamedBytes>,
) -> Result<Option<StreamedBytes>> {
    let rounds = point.roles.round_count().min(ROUNDS_MAX);
    let of_round_ns = (timed_part_ns(point) / u64::from(rounds)).max(TIMED_NS_MIN);
    for attempt in 0..ATTEMPTS {
        let connected = connect::connect_all(rank, point, round, addresses)?;
        let (first_ns, timed_ns) = lead_and_timed_ns(of_round_ns, connected.rtt_ns);
        let lead_ns = lead_ns(first_ns, attempt);
        let start_ns = rank.aligned_start("start of the socket streams", DEADLINES.step)?;
        let shared = Arc::new(SharedStreams {
            streams: Mutex::new(connected.streams),
            window: StreamInterval::new(start_ns, lead_ns, timed_ns, connected.skew_ns),
            waiting,
        });
        let carried = carry(&shared);
        let mine = all_or_none(rank, "carry the socket streams", carried)?;
        let all = rank.reduce("add up the socket streams", mine, DEADLINES.step)?;
        if all.silent > 0 || all.streams == 0 {
            warn_silent(rank, &all, waiting);
            return Ok(None);
        }
        if !all.is_rising() {
            return Ok(Some(all));
        }
    }
    if rank.id() == 0 {
        log::warn!(
            "socket streams kept getting faster: this measurement of the bound ({}) does not count",
            waiting.name()
        );
    }
    Ok(None)
}

fn warn_silent(rank: &Rank, all: &StreamedBytes, waiting: WaitMethod) {
    if rank.id() == 0 {
        log::warn!(
            "{} of {} socket streams received nothing: this measurement of the bound ({}) does not count",
            all.silent,
            all.streams,
            waiting.name()
        );
    }
}

/// Returns the bound with its description.
pub fn describe(carried: &StreamMeasurement) -> tonnage_record::Bound {
    let StreamMeasurement {
        streamed, waiting, ..
    } = carried;
    let who = match streamed.streams {
        1 => "1 TCP connection".to_owned(),
        several => format!("{several} TCP connections at once"),
    };
    tonnage_record::Bound {
        what: format!(
            "socket stream, {who}, {}, blocks of {BLOCK_BYTES} B",
            waiting.name()
        ),
        bytes_per_s: streamed.bytes_per_s,
        ci95_bytes_per_s: streamed.ci95_bytes_per_s(carried.measurements),
        links: None,
    }
}

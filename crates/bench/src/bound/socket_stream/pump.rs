//! The loop that moves bytes on one worker's streams and counts received bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tonnage_record::spread::{spread, student_t_quantile};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Reduce, Result};

/// Number of bytes per read or write call.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Time for which senders continue after the receivers' end. The possible error between the clocks is added to it.
const MARGIN_NS: u64 = 100_000_000;

/// Longest sleep of a blocking worker, so that it checks the clock in time.
const NAP: Duration = Duration::from_millis(20);

/// If rates rise steadily and the last part has at least this many times the first part's rate, streams are not steady.
const RISE_MIN: f64 = 1.2;

/// Number of equal parts of the counted time. The variation between them gives the confidence interval.
const PARTS: usize = 5;

/// How a worker waits when no stream can move bytes. Neither method is always faster. Sleeping and waking up costs
/// time, but polling takes CPU time that the kernel needs to move bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMethod {
    /// Sleeps in the kernel.
    Blocking,
    /// Polls again after yielding the CPU.
    Polling,
}

impl WaitMethod {
    /// Both methods.
    pub const ALL: [Self; 2] = [Self::Blocking, Self::Polling];

    /// Returns the name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Polling => "polling",
        }
    }
}

/// Direction of a stream's bytes, as seen from this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDirection {
    /// This rank sends.
    Out,
    /// This rank receives and counts bytes.
    In,
}

/// One connection to a peer.
#[derive(Debug)]
pub struct Stream {
    /// The connection.
    pub socket: TcpStream,
    /// Direction of the stream's bytes.
    pub direction: StreamDirection,
    /// Rank and host at the other end, for messages.
    pub peer: String,
}

/// Times of a measurement, on this host's clock.
#[derive(Debug, Clone, Copy)]
pub struct StreamInterval {
    /// Start of the senders.
    pub start_ns: u64,
    /// Start of counting at the receivers.
    pub from_ns: u64,
    /// End of counting at the receivers, which then close their streams.
    pub until_ns: u64,
    /// Time at which senders stop even if their receiver has not closed. If the clocks' error is unbounded, this is the
    /// maximum value. Senders then continue until the receiver closes, or until the control channel ends the run.
    pub stop_ns: u64,
}

impl StreamInterval {
    /// Creates an interval that counts for `timed_ns`. The first `lead_ns` don't count, because TCP windows still open.
    /// The corrected clocks of both ends may differ by up to `skew_ns`.
    pub fn new(start_ns: u64, lead_ns: u64, timed_ns: u64, skew_ns: u64) -> Self {
        let from_ns = start_ns + lead_ns;
        let until_ns = from_ns + timed_ns;
        Self {
            start_ns,
            from_ns,
            until_ns,
            stop_ns: (until_ns + MARGIN_NS).saturating_add(skew_ns),
        }
    }

    /// Returns the index of the part of the counted time that contains this time.
    pub(super) fn part(&self, now_ns: u64) -> usize {
        let timed_ns = (self.until_ns - self.from_ns).max(1);
        let since_ns = now_ns.saturating_sub(self.from_ns).min(timed_ns - 1);
        (u128::from(since_ns) * PARTS as u128 / u128::from(timed_ns)) as usize
    }

    fn part_ns(&self) -> f64 {
        (self.until_ns - self.from_ns).max(1) as f64 / PARTS as f64
    }
}

/// Bytes received on several streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamedBytes {
    /// Received bytes per second over all streams.
    pub bytes_per_s: f64,
    /// Received bytes per second in each part of the counted time.
    pub parts_bytes_per_s: [f64; PARTS],
    /// Number of receiving streams.
    pub streams: u64,
    /// Number of receiving streams that received nothing.
    pub silent: u64,
}

impl Reduce for StreamedBytes {
    /// Adds streams that were measured elsewhere at the same time.
    fn merge(&mut self, other: Self) {
        self.bytes_per_s += other.bytes_per_s;
        for (mine, other) in self
            .parts_bytes_per_s
            .iter_mut()
            .zip(other.parts_bytes_per_s)
        {
            *mine += other;
        }
        self.streams += other.streams;
        self.silent += other.silent;
    }
}

impl StreamedBytes {
    /// Half width of the rate's confidence interval, from the parts of the counted time. The best of several
    /// measurements tends to be above its true mean. Therefore the interval is widened, so that the intervals of all
    /// `measurements` together are right with a probability of 95 % (Bonferroni).
    pub fn ci95_bytes_per_s(&self, measurements: u32) -> Option<f64> {
        let stddev = spread(&self.parts_bytes_per_s).stddev?;
        let quantile = student_t_quantile(
            1.0 - 0.025 / f64::from(measurements.max(1)),
            PARTS as f64 - 1.0,
        );
        Some(quantile * stddev / (PARTS as f64).sqrt())
    }

    /// Whether each part of the time was faster than the part before it, and the last part much faster than the first.
    pub fn is_rising(&self) -> bool {
        let parts = &self.parts_bytes_per_s;
        parts.is_sorted_by(|one, next| one < next) && parts[PARTS - 1] > RISE_MIN * parts[0]
    }
}

/// Sends and receives on one worker's streams, on the calling thread, and counts received bytes. It makes one call on
/// each stream in turn. If no stream can move bytes, the thread waits by the method `waiting`.
///
/// # Errors
/// If a connection breaks before its receiver has finished counting. The message names the peer.
pub fn pump(
    streams: Vec<Stream>,
    window: &StreamInterval,
    clock: &Clock,
    waiting: WaitMethod,
) -> Result<StreamedBytes> {
    // A single blocking stream sleeps inside its read or write, as a program with one connection would.
    let sleeps_in_calls = waiting == WaitMethod::Blocking && streams.len() == 1;
    for stream in &streams {
        prepare_socket(&stream.socket, sleeps_in_calls)
            .map_err(|error| broken_stream_error(&stream.peer, error))?;
    }
    let mut pump = StreamPump {
        counted: streams
            .iter()
            .map(|stream| (stream.direction == StreamDirection::In).then_some(0))
            .collect(),
        streams: streams.into_iter().map(Some).collect(),
        parts: [0; PARTS],
        block: vec![0x5a; BLOCK_BYTES],
        window,
        clock,
        began_ns: None,
        ended_ns: None,
    };
    while clock.now_ns() < window.start_ns {
        std::hint::spin_loop();
    }
    while pump.streams.iter().any(Option::is_some) {
        let mut moved = false;
        for index in 0..pump.streams.len() {
            moved |= pump.step(index)?;
        }
        match waiting {
            _ if moved || sleeps_in_calls => {}
            WaitMethod::Blocking => pump.sleep()?,
            // Yield, because on busy CPUs the kernel moves bytes in threads of its own, which would otherwise be
            // delayed.
            WaitMethod::Polling => std::thread::yield_now(),
        }
    }
    Ok(pump.result())
}

struct StreamPump<'a> {
    /// The streams; `None` once a stream is closed.
    streams: Vec<Option<Stream>>,
    /// Received bytes of each receiving stream.
    counted: Vec<Option<u64>>,
    /// Received bytes of all streams in each part of the counted time.
    parts: [u64; PARTS],
    block: Vec<u8>,
    window: &'a StreamInterval,
    clock: &'a Clock,
    /// Actual start and end of counting, on this rank's clock.
    began_ns: Option<u64>,
    ended_ns: Option<u64>,
}

impl StreamPump<'_> {
    /// Makes one call on a stream, or closes the stream when its time is over. Returns whether bytes moved.
    fn step(&mut self, index: usize) -> Result<bool> {
        let Some(stream) = &mut self.streams[index] else {
            return Ok(false);
        };
        let now_ns = self.clock.now_ns();
        if now_ns >= self.window.from_ns {
            self.began_ns.get_or_insert(now_ns);
        }
        let moved = match stream.direction {
            StreamDirection::Out if now_ns >= self.window.stop_ns => None,
            StreamDirection::Out => match stream.socket.write(&self.block) {
                Err(error) if is_closed(&error) && self.may_be_over() => None,
                result => Some(result),
            },
            StreamDirection::In if now_ns >= self.window.until_ns => {
                self.ended_ns.get_or_insert(now_ns);
                None
            }
            StreamDirection::In => match stream.socket.read(&mut self.block) {
                // Reads the clock again, because the thread may have been descheduled since the last reading.
                Ok(0) if self.clock.now_ns() >= self.window.until_ns => {
                    self.ended_ns.get_or_insert(now_ns);
                    None
                }
                Ok(0) => Some(Err(ErrorKind::UnexpectedEof.into())),
                result => Some(result),
            },
        };
        let bytes = match moved {
            None => {
                // Dropping the stream closes it, and the peer notices.
                self.streams[index] = None;
                return Ok(false);
            }
            Some(Ok(bytes)) => bytes as u64,
            Some(Err(error)) if is_pause(&error) => 0,
            Some(Err(error)) => return Err(broken_stream_error(self.peer(index), error)),
        };
        if let Some(counted) = &mut self.counted[index]
            && self.began_ns.is_some()
        {
            *counted += bytes;
            self.parts[self.window.part(now_ns)] += bytes;
        }
        Ok(bytes > 0)
    }

    /// Sleeps until one of the streams can move bytes, at most for `NAP`.
    fn sleep(&self) -> Result<()> {
        let mut waited_for: Vec<_> = self
            .streams
            .iter()
            .flatten()
            .map(|stream| {
                let what = match stream.direction {
                    StreamDirection::Out => PollFlags::OUT,
                    StreamDirection::In => PollFlags::IN,
                };
                PollFd::new(&stream.socket, what)
            })
            .collect();
        let nap = Timespec {
            tv_sec: 0,
            tv_nsec: NAP.subsec_nanos().into(),
        };
        match poll(&mut waited_for, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("cannot wait for socket streams", error)),
        }
    }

    /// Whether the receivers may have stopped counting by their own clocks, which may be ahead of this one.
    fn may_be_over(&self) -> bool {
        let early_ns = self.window.stop_ns - self.window.until_ns;
        self.clock.now_ns().saturating_add(early_ns) >= self.window.until_ns
    }

    fn peer(&self, index: usize) -> &str {
        self.streams[index]
            .as_ref()
            .map_or("", |stream| &stream.peer)
    }

    fn result(&self) -> StreamedBytes {
        let counted = self.counted.iter().flatten();
        let ns = match (self.began_ns, self.ended_ns) {
            (Some(began_ns), Some(ended_ns)) => ended_ns.saturating_sub(began_ns).max(1),
            _ => u64::MAX,
        };
        StreamedBytes {
            bytes_per_s: counted.clone().sum::<u64>() as f64 * 1e9 / ns as f64,
            parts_bytes_per_s: self
                .parts
                .map(|bytes| bytes as f64 * 1e9 / self.window.part_ns()),
            streams: counted.clone().count() as u64,
            silent: counted.filter(|&&bytes| bytes == 0).count() as u64,
        }
    }
}

fn prepare_socket(socket: &TcpStream, blocking: bool) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(!blocking)?;
    socket.set_read_timeout(Some(NAP))?;
    socket.set_write_timeout(Some(NAP))
}

pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

fn broken_stream_error(peer: &str, error: io::Error) -> Error {
    Error::io(
        format!("the socket stream with {peer} broke: look at its output, or use --bound none"),
        error,
    )
}

#[cfg(test)]
mod tests;

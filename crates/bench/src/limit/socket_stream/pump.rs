//! The loop that moves the bytes of one worker's streams, and counts what comes in.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tonnage_record::spread::{spread, student};
use tonnage_sys::clock::Clock;
use tonnage_units::{Error, Reduce, Result};

/// Bytes of one call that writes or reads.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Time that senders go on, and for as long as clocks may differ, if their receivers do not close before.
const MARGIN_NS: u64 = 100_000_000;

/// A worker that blocks looks at the clock at least this often.
const NAP: Duration = Duration::from_millis(20);

/// Last part of the time / the first, from which on streams that only got faster are not steady.
const RISE_MIN: f64 = 1.2;

/// Equal parts of the window, which tell how much the streams vary.
const PARTS: usize = 5;

/// Two ways in which a worker can wait for streams on which nothing moves. Neither is always the faster: sleeping and
/// waking up costs time, and polling takes CPU time that the kernel could move bytes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeping in the kernel.
    Blocking,
    /// Asking again at once, as soon as the kernel has had its turn.
    Polling,
}

impl Waiting {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::Blocking, Self::Polling];

    /// The way in a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::Polling => "polling",
        }
    }
}

/// Direction of the bytes of a stream, seen from this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDirection {
    /// This rank sends.
    Out,
    /// This rank receives and counts.
    In,
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    /// The connection.
    pub socket: TcpStream,
    /// Direction of its bytes.
    pub direction: StreamDirection,
    /// Peer at its other end, in words.
    pub peer: String,
}

/// Time window in which bytes flow, on this host's clock.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Senders begin.
    pub start_ns: u64,
    /// Receivers begin to count.
    pub from_ns: u64,
    /// Receivers stop counting, and close.
    pub until_ns: u64,
    /// Senders that still have a receiver stop. Where it is the end of all time, as with clocks that may differ by
    /// anything, they go on until their receivers close or the control channel ends the run.
    pub stop_ns: u64,
}

impl Window {
    /// Streams that are counted for `timed_ns`, after `lead_ns` to let them open their windows. Clocks of the two ends
    /// may differ by `skew_ns`.
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

    /// Part of the counted time in which an instant lies.
    pub(super) fn part(&self, now_ns: u64) -> usize {
        let timed_ns = (self.until_ns - self.from_ns).max(1);
        let since_ns = now_ns.saturating_sub(self.from_ns).min(timed_ns - 1);
        (u128::from(since_ns) * PARTS as u128 / u128::from(timed_ns)) as usize
    }

    fn part_ns(&self) -> f64 {
        (self.until_ns - self.from_ns).max(1) as f64 / PARTS as f64
    }
}

/// Bytes that came in on some streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Streamed {
    /// Received bytes per second, all streams together.
    pub bytes_per_s: f64,
    /// Received bytes per second in each of the equal parts of the time.
    pub parts_bytes_per_s: [f64; PARTS],
    /// Streams that were received from.
    pub streams: u64,
    /// Streams among them that brought nothing.
    pub silent: u64,
}

impl Reduce for Streamed {
    /// Adds what came in elsewhere at the same time.
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

impl Streamed {
    /// Half width of the confidence interval of the rate, over the parts of the time, such that with 95 % those of all
    /// `measurements` hold at once (Bonferroni): the best of several is above its own mean more often than below it.
    pub fn ci95_bytes_per_s(&self, measurements: u32) -> Option<f64> {
        let stddev = spread(&self.parts_bytes_per_s).stddev?;
        let quantile = student(
            1.0 - 0.025 / f64::from(measurements.max(1)),
            PARTS as f64 - 1.0,
        );
        Some(quantile * stddev / (PARTS as f64).sqrt())
    }

    /// Returns whether each part of the time was faster than the one before, and the last much faster than the first.
    pub fn is_rising(&self) -> bool {
        let parts = &self.parts_bytes_per_s;
        parts.is_sorted_by(|one, next| one < next) && parts[PARTS - 1] > RISE_MIN * parts[0]
    }
}

/// Sends and receives on one worker's streams, on the calling thread, and counts what came in. Several streams are
/// served in turn; where nothing moves on any of them, the thread waits as `waiting` says.
///
/// # Errors
/// When a connection breaks before its receiver has counted; the message names the peer.
pub fn pump(
    streams: Vec<Stream>,
    window: &Window,
    clock: &Clock,
    waiting: Waiting,
) -> Result<Streamed> {
    // One that blocks alone sleeps inside the call, as a program with one connection would.
    let sleeps_in_calls = waiting == Waiting::Blocking && streams.len() == 1;
    for stream in &streams {
        prepare(&stream.socket, sleeps_in_calls).map_err(|error| broken(&stream.peer, error))?;
    }
    let mut pump = Pump {
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
            moved |= pump.turn(index)?;
        }
        match waiting {
            _ if moved || sleeps_in_calls => {}
            Waiting::Blocking => pump.sleep()?,
            // Where CPUs are busy the kernel moves bytes by threads of its own, which a loop without a pause keeps
            // waiting.
            Waiting::Polling => std::thread::yield_now(),
        }
    }
    Ok(pump.result())
}

struct Pump<'a> {
    /// Streams; those that have ended are closed.
    streams: Vec<Option<Stream>>,
    /// Bytes of each stream that is received from.
    counted: Vec<Option<u64>>,
    /// Received bytes of each part of the time.
    parts: [u64; PARTS],
    block: Vec<u8>,
    window: &'a Window,
    clock: &'a Clock,
    /// Times at which counting really began and ended.
    began_ns: Option<u64>,
    ended_ns: Option<u64>,
}

impl Pump<'_> {
    /// One call on one stream, or its end; whether bytes moved.
    fn turn(&mut self, index: usize) -> Result<bool> {
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
                // This thread may have been without a CPU since it looked at the clock.
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
                // Closing it tells the other end.
                self.streams[index] = None;
                return Ok(false);
            }
            Some(Ok(bytes)) => bytes as u64,
            Some(Err(error)) if is_pause(&error) => 0,
            Some(Err(error)) => return Err(broken(self.peer(index), error)),
        };
        if let Some(counted) = &mut self.counted[index]
            && self.began_ns.is_some()
        {
            *counted += bytes;
            self.parts[self.window.part(now_ns)] += bytes;
        }
        Ok(bytes > 0)
    }

    /// Sleeps until bytes can move on one of the streams.
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

    /// Returns whether the receivers may have stopped counting by their own clocks.
    fn may_be_over(&self) -> bool {
        let early_ns = self.window.stop_ns - self.window.until_ns;
        self.clock.now_ns().saturating_add(early_ns) >= self.window.until_ns
    }

    fn peer(&self, index: usize) -> &str {
        self.streams[index]
            .as_ref()
            .map_or("", |stream| &stream.peer)
    }

    fn result(&self) -> Streamed {
        let counted = self.counted.iter().flatten();
        let ns = match (self.began_ns, self.ended_ns) {
            (Some(began_ns), Some(ended_ns)) => ended_ns.saturating_sub(began_ns).max(1),
            _ => u64::MAX,
        };
        Streamed {
            bytes_per_s: counted.clone().sum::<u64>() as f64 * 1e9 / ns as f64,
            parts_bytes_per_s: self
                .parts
                .map(|bytes| bytes as f64 * 1e9 / self.window.part_ns()),
            streams: counted.clone().count() as u64,
            silent: counted.filter(|&&bytes| bytes == 0).count() as u64,
        }
    }
}

fn prepare(socket: &TcpStream, blocking: bool) -> io::Result<()> {
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

fn broken(peer: &str, error: io::Error) -> Error {
    Error::io(
        format!("the socket stream with {peer} broke: look at its output, or use --limit none"),
        error,
    )
}

#[cfg(test)]
mod tests;

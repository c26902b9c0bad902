//! The socket between a rank and its worker. It carries lines in both directions, and memory files to the worker.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tonnage_ranks::{Rank, Sleeper};
use tonnage_units::{Error, Result};

use super::worker_connection::WorkerLine;

/// Longest time that a worker may take to read a message. One of its threads only reads messages, so it is quick.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of files in one message.
const FILES_MAX: usize = 1;

/// The rank's end of the socket.
#[derive(Debug)]
pub(super) struct WorkerSocket {
    socket: UnixStream,
    sleeper: Sleeper,
    stopped: Arc<AtomicBool>,
    /// Bytes that were received, but not yet returned as lines.
    unread: Vec<u8>,
}

/// Why a wait for the worker ended.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A line from the worker has arrived.
    Line(WorkerLine),
    /// The worker has closed its end of the socket.
    Closed,
    /// The run was stopped.
    Stopped,
    /// No line arrived in time.
    TimedOut,
}

impl WorkerSocket {
    /// Creates a socket. Returns the rank's end and the worker's end.
    pub(super) fn new(rank: &Rank) -> Result<(Self, OwnedFd)> {
        let cannot = |error| Error::io("cannot make a socket for torch's worker", error);
        let (socket, theirs) = UnixStream::pair().map_err(cannot)?;
        socket
            .set_write_timeout(Some(SEND_TIMEOUT))
            .map_err(cannot)?;
        socket.set_nonblocking(false).map_err(cannot)?;
        let channel = Self {
            socket,
            sleeper: rank.sleepers().add_sleeper()?,
            stopped: rank.stop_flag(),
            unread: Vec::new(),
        };
        Ok((channel, theirs.into()))
    }

    /// Sends a line or other bytes. The files are attached to the first byte.
    pub(super) fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
        let mut rest = bytes;
        let mut files = files;
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
                return Err(Error::Failed("too many files for torch's worker".into()));
            }
            let slices = [IoSlice::new(rest)];
            match sendmsg(&self.socket, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    files = &[];
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::io("cannot send to torch's worker", error)),
            }
        }
        Ok(())
    }

    /// Sleeps until the next line arrives, or until another event ends the wait.
    pub(super) fn next(&mut self, until: Instant) -> Result<WorkerEvent> {
        loop {
            if let Some(line) = self.line()? {
                return Ok(WorkerEvent::Line(line));
            }
            if self.stopped.load(Ordering::Acquire) {
                return Ok(WorkerEvent::Stopped);
            }
            if self.is_readable()? {
                if !self.receive()? {
                    return Ok(WorkerEvent::Closed);
                }
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(WorkerEvent::TimedOut);
            }
            self.sleeper.sleep_on(self.socket.as_fd(), left)?;
        }
    }

    fn is_readable(&self) -> Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut looked = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut looked, Some(&Timespec::default())) {
            Ok(found) => Ok(found > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Error::io("cannot poll the socket of torch's worker", error)),
        }
    }

    /// Reads the available bytes. Returns false at the end of the stream.
    fn receive(&mut self) -> Result<bool> {
        let mut part = [0; 16 << 10];
        match self.socket.read(&mut part) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.unread
                    .extend_from_slice(part.get(..count).unwrap_or_default());
                Ok(true)
            }
            // If the worker is killed before it has read everything, the kernel resets the connection.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(Error::io("cannot read from torch's worker", error)),
        }
    }

    fn line(&mut self) -> Result<Option<WorkerLine>> {
        let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let rest = self.unread.split_off(end + 1);
        let line = std::mem::replace(&mut self.unread, rest);
        let read = serde_json::from_slice(&line);
        read.map(Some).map_err(|error| {
            let text = String::from_utf8_lossy(&line);
            Error::Failed(format!(
                "cannot parse a line of torch's worker ({error}): {text}"
            ))
        })
    }
}

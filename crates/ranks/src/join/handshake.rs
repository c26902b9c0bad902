//! Serves connections to a listening rank until they are authenticated, and sends the last messages on connections that
//! fail.
//!
//! Any process can connect to the port. A connection that sends garbage, lacks the secret, or stays silent is closed,
//! and the run continues. The number of connections served at once is limited. [`crate::join`] checks the introduction
//! of an authenticated rank.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::refusals::{JoinRefusal, Refusals};
use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::bootstrap::secret::Secret;
use crate::channel::message::{EndCause, Message, MessageHead};
use crate::channel::{Channel, Interest};
use crate::signals::Signals;
use tonnage_units::{Error, Result};

/// Number of unauthenticated connections that are served in addition to those of the expected ranks.
pub(crate) const STRANGERS_MAX: usize = 64;
/// Extra time that other ranks wait after rank 0's deadline, so that rank 0's reason arrives before they give up.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);

/// Time for a rank that ends to send the reason to another rank.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);

/// Longest silence of a connection while other connections wait for a free slot. It is short, because a rank sends its
/// greeting right after connecting.
const CROWDED: Duration = Duration::from_millis(500);

/// A connection that is not authenticated yet.
struct UnauthenticatedConnection {
    channel: Channel,
    since: Instant,
    /// Whether the connection may have data to read.
    ready: bool,
}

impl UnauthenticatedConnection {
    fn is_silent(&self) -> bool {
        self.channel.received_bytes == 0
    }
}

/// A listener, and its connections with a handshake in progress.
pub(crate) struct Handshakes {
    listener: TcpListener,
    secret: Secret,
    pending: Vec<UnauthenticatedConnection>,
    /// Maximum number of connections served at once.
    pub(super) pending_max: usize,
    timeout: Duration,
    /// Refused connections.
    pub(super) refusals: Refusals,
}

/// Results of one step of a listener.
#[derive(Default)]
pub(crate) struct HandshakeEvents {
    /// Authenticated ranks, each with its first message.
    pub(crate) greeted: Vec<(Channel, Message)>,
    /// Whether the caller's additional descriptor is ready.
    pub(crate) stirred: bool,
}

impl Handshakes {
    /// Creates the set, without connections. Every connection gets `stranger_timeout` to introduce itself.
    pub(crate) fn new(
        listener: TcpListener,
        options: &JoinOptions,
        pending_max: usize,
    ) -> Result<Self> {
        let timeout = options.stranger_timeout;
        listener
            .set_nonblocking(true)
            .map_err(|error| Error::io("cannot prepare the listening socket", error))?;
        Ok(Self {
            listener,
            secret: options.secret.clone(),
            pending: Vec::new(),
            pending_max,
            timeout,
            refusals: Refusals::new(timeout),
        })
    }

    /// Records a refused connection. Only the first one of a run is logged, so that a port scan cannot fill the log.
    pub(crate) fn refuse(&mut self, peer: SocketAddr, refusal: &JoinRefusal) {
        if self.refusals.count(peer.ip(), refusal) {
            let reason = self.refusals.reason(refusal);
            log::warn!(
                "refused a connection from {peer} to the control port: {reason}. Further ones are refused silently"
            );
        }
    }

    /// Waits for an event, at most until `until`. `beside` is an additional descriptor to wait for.
    pub(crate) fn step(
        &mut self,
        until: Instant,
        signals: &mut Signals,
        beside: Option<Interest<'_>>,
    ) -> Result<HandshakeEvents> {
        let wake = self.next_expiry().map_or(until, |expiry| expiry.min(until));
        let time = wake.saturating_duration_since(Instant::now());
        let is_beside = beside.is_some();
        let ready = signals.wait(beside.into_iter().chain(self.interests()), time)?;
        let mut ready = ready.into_iter();
        let stirred = is_beside && ready.next() == Some(true);
        for (pending, is_ready) in self.pending.iter_mut().zip(ready.by_ref()) {
            pending.ready = is_ready;
        }
        // If there are too many connections, the listener was not polled. But a connection may have ended in the
        // meantime, so accept anyway.
        let served = self.serve_ready(ready.next() != Some(false));
        Ok(HandshakeEvents { stirred, ..served })
    }

    /// Returns the address that other ranks connect to.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.pending_max
    }

    /// Returns the events that a caller should wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        // If there are too many connections, new ones wait in the kernel's queue until silent ones time out.
        let newcomers = (!self.is_full()).then(|| Interest::read(&self.listener));
        let pending = self.pending.iter();
        pending
            .map(|pending| pending.channel.interest())
            .chain(newcomers)
    }

    /// Returns the time at which the next connection times out.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let full = self.is_full();
        let time = |pending: &UnauthenticatedConnection| {
            let is_crowded = full && pending.is_silent();
            if is_crowded {
                self.timeout.min(CROWDED)
            } else {
                self.timeout
            }
        };
        let pending = self.pending.iter();
        pending.map(|pending| pending.since + time(pending)).min()
    }

    /// Serves all connections without waiting.
    pub(crate) fn serve(&mut self) -> HandshakeEvents {
        for pending in &mut self.pending {
            pending.ready = true;
        }
        self.serve_ready(true)
    }

    /// Serves the connections that are ready, without waiting. Checking every connection at each event would take N²
    /// system calls for N ranks.
    fn serve_ready(&mut self, newcomers: bool) -> HandshakeEvents {
        let mut events = HandshakeEvents::default();
        if newcomers {
            self.accept();
        }
        self.receive_greetings(&mut events);
        events
    }

    /// Closes silent connections that have waited too long, if all slots are taken.
    fn make_room(&mut self) {
        if !self.is_full() {
            return;
        }
        for pending in std::mem::take(&mut self.pending) {
            if pending.is_silent() && pending.since.elapsed() >= CROWDED {
                self.refuse(pending.channel.peer, &JoinRefusal::Crowded);
            } else {
                self.pending.push(pending);
            }
        }
    }

    fn accept(&mut self) {
        self.make_room();
        while !self.is_full() {
            match self.listener.accept() {
                Ok((stream, peer)) => match Channel::accept(stream, &self.secret) {
                    Ok(channel) => self.pending.push(UnauthenticatedConnection {
                        channel,
                        since: Instant::now(),
                        ready: true,
                    }),
                    Err(error) => self.refuse(peer, &JoinRefusal::Stranger(error)),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // This process may have too many open files, for example. That may be temporary, but must not cause
                    // a busy loop.
                    log::debug!("cannot accept a connection now: {error}");
                    std::thread::sleep(Duration::from_millis(20));
                    return;
                }
            }
        }
    }

    fn receive_greetings(&mut self, events: &mut HandshakeEvents) {
        for mut pending in std::mem::take(&mut self.pending) {
            let peer = pending.channel.peer;
            let mut heard = Ok(());
            if pending.ready {
                heard = pending.channel.receive();
                pending.channel.flush();
            }
            match heard.and_then(|()| pending.channel.next_message()) {
                Ok(Some(message)) => events.greeted.push((pending.channel, message)),
                Err(_) if pending.channel.wrong_secret => {
                    self.refuse(peer, &JoinRefusal::WrongSecret);
                }
                Err(error) => self.refuse(peer, &JoinRefusal::Stranger(error)),
                Ok(None) if pending.channel.ended => self.refuse(peer, &JoinRefusal::Left),
                Ok(None) if pending.since.elapsed() >= self.timeout => {
                    self.refuse(peer, &JoinRefusal::Silent);
                }
                Ok(None) => self.pending.push(pending),
            }
        }
    }

    /// Stops listening, even if standard input of this process is a copy of the socket.
    pub(crate) fn close(self) {
        // `shutdown` fails only if the socket no longer listens.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// Confirms that a rank's introduction was received.
pub(crate) fn acknowledge(channel: &mut Channel) -> Result<()> {
    channel.send(&MessageHead::Beat, &[])?;
    channel.flush();
    Ok(())
}

/// Sends the reason why this rank ends, as the last message on a connection.
pub(crate) fn send_end_cause(channel: &mut Channel, cause: &EndCause) {
    let cause = cause.clone();
    // If sending fails, the peer only finds that the connection was closed.
    if channel.send(&MessageHead::Abort { cause }, &[]).is_ok() {
        channel.flush_until(Instant::now() + LAST_WORDS);
        channel.finish_writing();
    }
}

/// Returns the error for a peer that has ended: the cause that it sent last, or a statement that it sent none.
pub(crate) fn end_cause_of_peer(channel: &mut Channel, info: &RankInfo) -> Error {
    while let Ok(Some(message)) = channel.next_message() {
        if let MessageHead::Abort { cause } = message.head {
            return Error::from(&cause);
        }
    }
    info.failure(format!(
        "its process {} ended while the ranks were joining: look at its output",
        info.pid
    ))
}

//! Connections to a rank that listens, until they have proved who they are; and last words on those that fail.
//!
//! Anybody can reach the port. Somebody who sends garbage, does not know the secret, or says nothing is shown out and
//! the run goes on; the number of connections that are looked at together is bounded. The introduction of a recognised
//! rank is judged in [`crate::join`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::refusals::{JoinRefusal, Refusals};
use crate::RankInfo;
use crate::bootstrap::options::JoinOptions;
use crate::bootstrap::secret::Secret;
use crate::channel::message::{Cause, Head, Message};
use crate::channel::{Channel, Interest};
use crate::signals::Signals;
use tonnage_units::{Error, Result};

/// Strangers that are looked at beside the ranks themselves.
pub(crate) const STRANGERS_MAX: usize = 64;
/// Others wait this much longer than rank 0, so that its reason reaches them before they give up.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);

/// Time for a rank that ends to say why to another.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);

/// Time that a connection may be silent when others wait for its place: a rank's greeting comes with its connection.
const CROWDED: Duration = Duration::from_millis(500);

/// A connection that has proved nothing.
struct Unproven {
    channel: Channel,
    since: Instant,
    /// True when it may have something to read.
    ready: bool,
}

impl Unproven {
    fn is_silent(&self) -> bool {
        self.channel.received_bytes == 0
    }
}

/// A listener, and the connections to it whose handshake is under way.
pub(crate) struct Handshakes {
    listener: TcpListener,
    secret: Secret,
    pending: Vec<Unproven>,
    /// Most connections that are looked at together.
    pub(super) pending_max: usize,
    timeout: Duration,
    /// Connections that were shown out.
    pub(super) refusals: Refusals,
}

/// Result of one step of a listener.
#[derive(Default)]
pub(crate) struct HandshakeEvents {
    /// Recognised ranks and the first thing that each said.
    pub(crate) greeted: Vec<(Channel, Message)>,
    /// True when what was waited for beside connections to the port is ready.
    pub(crate) stirred: bool,
}

impl Handshakes {
    /// Gives everybody the time for strangers to say something sensible.
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

    /// Shows somebody out. One report for each run is enough: a port scan must not fill the log.
    pub(crate) fn refuse(&mut self, peer: SocketAddr, refusal: &JoinRefusal) {
        if self.refusals.count(peer.ip(), refusal) {
            let reason = self.refusals.reason(refusal);
            log::warn!(
                "refused a connection from {peer} to the control port: {reason}. Further ones are refused silently"
            );
        }
    }

    /// Waits for something to happen, at most until `until`, and also for `beside`.
    pub(crate) fn step(
        &mut self,
        until: Instant,
        signals: &mut Signals,
        beside: Option<Interest<'_>>,
    ) -> Result<HandshakeEvents> {
        let wake = self.expiry().map_or(until, |expiry| expiry.min(until));
        let time = wake.saturating_duration_since(Instant::now());
        let is_beside = beside.is_some();
        let ready = signals.wait(beside.into_iter().chain(self.interests()), time)?;
        let mut ready = ready.into_iter();
        let stirred = is_beside && ready.next() == Some(true);
        for (pending, is_ready) in self.pending.iter_mut().zip(ready.by_ref()) {
            pending.ready = is_ready;
        }
        // Newcomers are not waited for where there are too many; a connection that was pending may have gone since.
        let served = self.serve_ready(ready.next() != Some(false));
        Ok(HandshakeEvents { stirred, ..served })
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.pending_max
    }

    /// Events to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        // Where there are too many, newcomers wait in the system's queue until the silent have run out of time.
        let newcomers = (!self.is_full()).then(|| Interest::read(&self.listener));
        let pending = self.pending.iter();
        pending
            .map(|pending| pending.channel.interest())
            .chain(newcomers)
    }

    /// The time at which a connection has run out of it.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        let full = self.is_full();
        let time = |pending: &Unproven| {
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

    /// Does what can be done without waiting, for whoever is here.
    pub(crate) fn serve(&mut self) -> HandshakeEvents {
        for pending in &mut self.pending {
            pending.ready = true;
        }
        self.serve_ready(true)
    }

    /// Does what can be done without waiting for those that are known to be ready: a look at everybody at each event
    /// would be N² system calls for N ranks.
    fn serve_ready(&mut self, newcomers: bool) -> HandshakeEvents {
        let mut events = HandshakeEvents::default();
        if newcomers {
            self.accept();
        }
        self.listen(&mut events);
        events
    }

    /// Shows out those that are silent for long, when others wait.
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
                    Ok(channel) => self.pending.push(Unproven {
                        channel,
                        since: Instant::now(),
                        ready: true,
                    }),
                    Err(error) => self.refuse(peer, &JoinRefusal::Stranger(error)),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Such as too many open files: it may pass, but must not be asked again at full speed.
                    log::debug!("cannot accept a connection now: {error}");
                    std::thread::sleep(Duration::from_millis(20));
                    return;
                }
            }
        }
    }

    fn listen(&mut self, events: &mut HandshakeEvents) {
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

    /// Stops listening, also for copies of the socket that this process has as its standard input.
    pub(crate) fn close(self) {
        // A socket that is no longer listening needs no stopping.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// Tells a rank that its introduction was heard.
pub(crate) fn acknowledge(channel: &mut Channel) -> Result<()> {
    channel.send(&Head::Beat, &[])?;
    channel.flush();
    Ok(())
}

/// Last words on a connection: why this rank ends.
pub(crate) fn tell(channel: &mut Channel, cause: &Cause) {
    let cause = cause.clone();
    // A peer that cannot be told finds the connection closed.
    if channel.send(&Head::Abort { cause }, &[]).is_ok() {
        channel.flush_until(Instant::now() + LAST_WORDS);
        channel.finish_writing();
    }
}

/// Error for a peer that is gone: what it said last, or that it said nothing.
pub(crate) fn last_words(channel: &mut Channel, info: &RankInfo) -> Error {
    while let Ok(Some(message)) = channel.next_message() {
        if let Head::Abort { cause } = message.head {
            return Error::from(&cause);
        }
    }
    info.error(format!(
        "its process {} ended while the ranks were joining: look at its output",
        info.pid
    ))
}

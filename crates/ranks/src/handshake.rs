//! The door of a rank that listens: connections that have yet to prove who they are.
//!
//! Anybody can reach the port. Somebody who sends garbage, does not know the secret, or says nothing is shown out and
//! the run goes on; the number of connections that are looked at together is bounded. What a recognised rank says, and
//! whether it fits the run, is judged in [`super::join`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::channel::{Channel, Interest, wait_for};
use super::message::Message;
use super::secret::Secret;
use super::signals::Signals;
use tonnage_units::{Error, Result};

struct Pending {
    channel: Channel,
    since: Instant,
}

/// A listener and those who wait behind it.
pub(super) struct Lobby {
    listener: TcpListener,
    secret: Secret,
    pending: Vec<Pending>,
    pending_max: usize,
    patience: Duration,
    refused: u64,
}

/// What one look at the door brought.
#[derive(Default)]
pub(super) struct Arrivals {
    /// Recognised ranks and the first thing that each said.
    pub(super) greeted: Vec<(Channel, Message)>,
    /// Places of those watched channels that have ended.
    pub(super) ended: Vec<usize>,
}

impl Lobby {
    /// A lobby that gives everybody `patience` to say something sensible.
    pub(super) fn new(
        listener: TcpListener,
        secret: Secret,
        pending_max: usize,
        patience: Duration,
    ) -> Result<Self> {
        listener
            .set_nonblocking(true)
            .map_err(|error| Error::io("cannot prepare the listening socket", error))?;
        Ok(Self {
            listener,
            secret,
            pending: Vec::new(),
            pending_max,
            patience,
            refused: 0,
        })
    }

    /// How many were shown out.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Shows somebody out. One report for each run is enough: a port scan must not fill the log.
    pub(super) fn refuse(&mut self, peer: SocketAddr, reason: &Error) {
        self.refused += 1;
        if self.refused == 1 {
            log::warn!(
                "refused a connection from {peer} to the control port: {reason}. Further ones are refused silently"
            );
        }
    }

    /// Waits for something to happen, at most until `until`, also on the `watched` channels.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when a signal ends the run.
    pub(super) fn step(
        &mut self,
        until: Instant,
        signals: &mut Signals,
        watched: &mut [&mut Channel],
    ) -> Result<Arrivals> {
        // A full lobby lets newcomers wait in the system's queue, until the silent have run out of patience.
        let full = self.pending.len() >= self.pending_max;
        let expiry = self
            .pending
            .iter()
            .map(|pending| pending.since + self.patience)
            .min();
        let wake = expiry.map_or(until, |expiry| expiry.min(until));
        let mut interests: Vec<Interest<'_>> = signals.interests().collect();
        interests.extend(watched.iter().map(|channel| channel.interest()));
        interests.extend(
            self.pending
                .iter()
                .map(|pending| pending.channel.interest()),
        );
        if !full {
            interests.push(Interest::read(&self.listener));
        }
        wait_for(&interests, wake.saturating_duration_since(Instant::now()))?;
        drop(interests);
        if let Some(&signal) = signals.take().first() {
            return Err(Error::Interrupted { signal });
        }
        let mut arrivals = Arrivals::default();
        for (place, channel) in watched.iter_mut().enumerate() {
            if channel.receive().is_err() || channel.ended() {
                arrivals.ended.push(place);
            }
            channel.flush();
        }
        self.accept();
        self.listen(&mut arrivals);
        Ok(arrivals)
    }

    fn accept(&mut self) {
        while self.pending.len() < self.pending_max {
            match self.listener.accept() {
                Ok((stream, peer)) => match Channel::accept(stream, &self.secret) {
                    Ok(channel) => self.pending.push(Pending {
                        channel,
                        since: Instant::now(),
                    }),
                    Err(error) => self.refuse(peer, &error),
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

    fn listen(&mut self, arrivals: &mut Arrivals) {
        for mut pending in std::mem::take(&mut self.pending) {
            let peer = pending.channel.peer();
            let heard = pending.channel.receive();
            pending.channel.flush();
            match heard.and_then(|()| pending.channel.next_message()) {
                Ok(Some(message)) => arrivals.greeted.push((pending.channel, message)),
                Err(error) => self.refuse(peer, &error),
                Ok(None) if pending.channel.ended() => {
                    self.refuse(
                        peer,
                        &Error::Failed("it closed without saying who it is".into()),
                    );
                }
                Ok(None) if pending.since.elapsed() >= self.patience => {
                    self.refuse(
                        peer,
                        &Error::Failed("it did not say who it is in time".into()),
                    );
                }
                Ok(None) => self.pending.push(pending),
            }
        }
    }

    /// Stops listening, also for copies of the socket that this process has as its standard input.
    pub(super) fn close(self) {
        // A socket that is no longer listening needs no stopping.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

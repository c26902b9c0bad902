//! Connecting by rdma_cm, of one worker: its channel, its listener, and the step that each queue pair is at.
//!
//! What lives here: the state. What does not: going from step to step, in `cm`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tonnage_engine::Facts;
use tonnage_sys::verbs::{CmChannel, CmHandle, PathTo};

use super::cm_granted::GrantedTerms;
use super::cm_port::CmPort;
use super::cm_private::{CardSecret, CmCard, PairIntroduction};

/// Time that the kernel has for resolving an address, or a path.
pub(super) const RESOLVING: Duration = Duration::from_secs(2);

/// Time that a wait for events lasts, at most: then others than the channel are asked whether to go on.
const NAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// Step of a queue pair on its way to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CmStep {
    /// This side asks, and has not begun.
    Unasked,
    /// The address is being resolved.
    Resolving,
    /// The path is.
    Routing,
    /// The peer was asked.
    Asking,
    /// The peer has to ask.
    Awaiting,
    /// The peer was accepted, and has to confirm it.
    Accepted,
    /// It is connected.
    Done,
}

impl CmStep {
    /// Time after which a step that has not ended is a failure. Who asks says more about it, and says it first.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Unasked | Self::Resolving | Self::Routing => 2 * RESOLVING,
            Self::Asking => Duration::from_secs(10),
            Self::Awaiting | Self::Accepted | Self::Done => Duration::from_secs(15),
        }
    }

    /// Words for what did not happen.
    pub(super) fn missing(self) -> &'static str {
        match self {
            Self::Unasked | Self::Resolving => "its address was not resolved",
            Self::Routing => "no path to its address was found",
            Self::Asking => "its device did not answer the request to connect",
            Self::Awaiting => "its request to connect did not come",
            Self::Accepted => "it did not confirm the connection",
            Self::Done => "nothing is missing",
        }
    }
}

/// A queue pair that rdma_cm is to connect.
pub(super) struct CmWay {
    /// Place of the peer in the worker's list.
    pub(super) peer: usize,
    /// Its rank.
    pub(super) rank: u32,
    /// Place of the queue pair in the worker's list.
    pub(super) place: usize,
    /// The path by the options and both cards.
    pub(super) wanted: PathTo,
    /// The part of the peer's card that is for this.
    pub(super) card: CmCard,
    /// Private data that the peer shows, and that it is shown.
    pub(super) expected: PairIntroduction,
    pub(super) shown: PairIntroduction,
    pub(super) id: Option<CmHandle>,
    pub(super) step: CmStep,
    since: Instant,
}

impl CmWay {
    pub(super) fn new(
        [peer, place]: [usize; 2],
        wanted: PathTo,
        card: &CmCard,
        expected: PairIntroduction,
        step: CmStep,
    ) -> Self {
        Self {
            peer,
            rank: expected.from,
            place,
            wanted,
            card: card.clone(),
            shown: PairIntroduction {
                secret: card.secret,
                from: expected.to,
                to: expected.from,
                purpose: expected.purpose,
            },
            expected,
            id: None,
            step,
            since: Instant::now(),
        }
    }

    pub(super) fn go_to(&mut self, step: CmStep) {
        self.step = step;
        self.since = Instant::now();
    }

    /// Begins to count the time of its step anew.
    pub(super) fn restart(&mut self) {
        self.since = Instant::now();
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.step != CmStep::Done && self.since.elapsed() > self.step.patience()
    }
}

/// One worker's side of connecting by rdma_cm.
pub(super) struct CmSide {
    pub(super) channel: CmChannel,
    pub(super) address: IpAddr,
    /// Identifier and port that peers ask at, while some have to.
    listener: Option<(CmHandle, u16)>,
    /// Secrets of the cards that peers have, by rank.
    pub(super) secrets: BTreeMap<u32, CardSecret>,
    /// Queue pairs since the last time that all were connected.
    pub(super) ways: Vec<CmWay>,
    /// Requests that showed nothing of a card's.
    pub(super) strangers: u64,
    granted: GrantedTerms,
}

impl CmSide {
    pub(super) fn open(port: &CmPort) -> Result<Self, String> {
        Ok(Self {
            channel: CmChannel::open(&port.library)?,
            address: port.address,
            listener: None,
            secrets: BTreeMap::new(),
            ways: Vec::new(),
            strangers: 0,
            granted: GrantedTerms::default(),
        })
    }

    /// The port that peers ask at.
    pub(super) fn listen(&mut self) -> Result<u16, String> {
        if let Some((_, port)) = self.listener {
            return Ok(port);
        }
        let id = self.channel.create()?;
        match self.channel.listen(id, self.address) {
            Ok(port) => {
                self.listener = Some((id, port));
                Ok(port)
            }
            Err(why) => {
                self.channel.close(id);
                Err(why)
            }
        }
    }

    /// Lets nobody ask any more.
    pub(super) fn stop_listening(&mut self) {
        if let Some((id, _)) = self.listener.take() {
            self.channel.close(id);
        }
    }

    /// Waits a moment for events.
    pub(super) fn nap(&self) {
        let mut waited = [PollFd::from_borrowed_fd(
            self.channel.as_fd(),
            PollFlags::IN,
        )];
        // A signal, or whatever else ends it early, only makes the next look come sooner.
        let _ = poll(&mut waited, Some(&NAP));
    }

    pub(super) fn note_granted(&mut self, path: &PathTo) {
        self.granted.note(path);
    }

    /// Adds what was granted to the facts.
    pub(super) fn add_granted(&self, facts: Facts) -> Facts {
        self.granted.add_to(facts)
    }
}

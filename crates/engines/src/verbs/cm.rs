//! Connects queue pairs by rdma_cm. For each queue pair, the lower rank sends the request and the other rank accepts.
//! This engine creates the queue pairs; rdma_cm finds the path and exchanges the numbers of the queue pairs.
//!
//! Only [`Worker::meet_by_cm`] waits for peers. All queue pairs connect concurrently there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tonnage_engine::Facts;
use tonnage_sys::error::LibraryError;
use tonnage_sys::verbs::{CmChannel, CmEvent, CmEventKind, CmHandle, CmTerms, PathTo};
use tonnage_units::{Error, Result};

use super::cm_port::CmPort;
use super::cm_private::{AddressSecret, CmAddress, PairIntroduction, asks};
use super::cm_terms::{advice, advice_late, agreed};
use super::peers::PairAddress;
use super::worker::Worker;

impl Worker {
    /// Returns the rdma_cm part of an endpoint address; `None` if rdma_cm is not used.
    pub(super) fn cm_address(&mut self, rank: u32) -> Result<Option<CmAddress>> {
        let Some(side) = &mut self.cm else {
            return Ok(None);
        };
        let port = match asks(self.config.rank, rank) {
            true => None,
            false => Some(side.listen()),
        };
        let at = self.port.in_words();
        let about = |why| {
            let how = "Load rdma_ucm and ib_cm, and check that the address belongs to this device";
            Error::Failed(format!("verbs:rc on {at}: connect=cm: {why}. {how}"))
        };
        let port = port.transpose().map_err(about)?;
        let secret = AddressSecret::fresh()?;
        side.secrets.insert(rank, secret);
        let address = side.address;
        Ok(Some(CmAddress {
            address,
            port,
            secret,
        }))
    }

    /// Queues a queue pair to a peer, to be connected by the next [`Worker::meet_by_cm`].
    pub(super) fn begin_by_cm(
        &mut self,
        peer: usize,
        place: usize,
        wanted: PathTo,
        address: &PairAddress,
    ) -> Result<(), String> {
        let (own, rank) = (self.config.rank, self.peers.at(peer).rank);
        let purpose = u32::from(place != self.peers.at(peer).one_sided);
        let side = self
            .cm
            .as_mut()
            .ok_or("connect=cm is not set on this side")?;
        let theirs = address.cm.as_ref();
        let theirs = theirs.ok_or("the peer does not connect by rdma_cm, but this side does")?;
        let secret = *side
            .secrets
            .get(&rank)
            .ok_or("this side made no endpoint address for it")?;
        let step = match (asks(own, rank), theirs.port) {
            (true, Some(_)) => CmStep::Unasked,
            (false, None) if own != rank => CmStep::Awaiting,
            _ => {
                return Err(
                    "it is not clear which of the two sides connects to the other".to_owned(),
                );
            }
        };
        let expected = PairIntroduction {
            secret,
            from: rank,
            to: own,
            purpose,
        };
        let connection = PendingConnection::new([peer, place], wanted, theirs, expected, step);
        side.pending.push(connection);
        Ok(())
    }

    /// Connects all queue pairs that were queued since the last call, and waits until they are connected.
    pub(super) fn meet_by_cm(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let Some(mut side) = self.cm.take() else {
            return Ok(());
        };
        let met = self.connect_pending(&mut side, stopped);
        self.cm = Some(side);
        met
    }

    fn connect_pending(&mut self, side: &mut CmSide, stopped: &dyn Fn() -> bool) -> Result<()> {
        side.pending.iter_mut().for_each(PendingConnection::restart);
        for index in 0..side.pending.len() {
            if side.pending[index].step == CmStep::Unasked {
                let begun = self.ask(side, index);
                begun.map_err(|why| self.cm_failure(side, index, &why, None))?;
            }
        }
        while side.pending.iter().any(|it| it.step != CmStep::Done) {
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            let event = side.channel.next_event();
            match event.map_err(|why| self.port.about(why))? {
                Some(event) => self.take_cm_event(side, &event)?,
                None => side.wait_for_event(),
            }
            if let Some(index) = side.pending.iter().position(PendingConnection::is_overdue) {
                let connection = &side.pending[index];
                let (step, other) = (connection.step, connection.remote.address);
                let why = format!("{} within {} s", step.missing(), step.patience().as_secs());
                let advice = advice_late(step, side.address, other, side.strangers);
                return Err(self.cm_failure(side, index, &why, Some(&advice)));
            }
        }
        side.pending.clear();
        if self.peers.all().iter().all(|peer| peer.is_connected) {
            side.stop_listening();
        }
        Ok(())
    }

    /// Begins a connection: resolves the peer's address, from the address of this side's device.
    fn ask(&self, side: &mut CmSide, index: usize) -> Result<(), String> {
        let connection = &side.pending[index];
        let to = SocketAddr::new(
            connection.remote.address,
            connection.remote.port.unwrap_or(0),
        );
        let id = side.channel.create()?;
        side.pending[index].id = Some(id);
        if self.port.asked.traffic_class != 0 {
            let class = self.port.asked.traffic_class;
            side.channel.set_traffic_class(id, class)?;
        }
        side.channel
            .start_resolving_address(id, (side.address, to), RESOLVING)?;
        side.pending[index].go_to(CmStep::Resolving);
        Ok(())
    }

    fn take_cm_event(&mut self, side: &mut CmSide, event: &CmEvent) -> Result<()> {
        let Some(id) = event.about else {
            return Ok(());
        };
        if event.kind == CmEventKind::Request {
            return self.answer(side, id, event);
        }
        // Events of established connections are ignored, because operations fail if a peer is gone.
        let of_event = |it: &PendingConnection| it.id == Some(id) && it.step != CmStep::Done;
        let Some(index) = side.pending.iter().position(of_event) else {
            return Ok(());
        };
        let went_on = match (event.kind, side.pending[index].step, event.status) {
            (CmEventKind::AddressResolved, CmStep::Resolving, 0) => {
                side.pending[index].go_to(CmStep::Routing);
                side.channel
                    .resolve_route(id, RESOLVING)
                    .map_err(String::from)
            }
            (CmEventKind::RouteResolved, CmStep::Routing, 0) => {
                side.pending[index].go_to(CmStep::Asking);
                let private = side.pending[index].shown.bytes();
                let terms = self.terms(&side.pending[index], &private);
                side.channel.connect(id, &terms).map_err(String::from)
            }
            (CmEventKind::Response, CmStep::Asking, 0) => self.conclude(side, index, id, event),
            (CmEventKind::Established, CmStep::Accepted, 0) => {
                side.pending[index].go_to(CmStep::Done);
                Ok(())
            }
            (CmEventKind::Other, _, _) => Ok(()),
            _ => {
                let advice = advice(event, side.address, side.pending[index].remote.address);
                return Err(self.cm_failure(side, index, &event.in_words(), Some(&advice)));
            }
        };
        went_on.map_err(|why| self.cm_failure(side, index, &why, None))
    }

    /// Accepts a request if it has the secret from this side's endpoint address for an awaited peer. Rejects all
    /// others.
    fn answer(&mut self, side: &mut CmSide, id: CmHandle, event: &CmEvent) -> Result<()> {
        let shown = PairIntroduction::parse(&event.private);
        let is_expected =
            |it: &PendingConnection| it.step == CmStep::Awaiting && shown == Some(it.expected);
        let Some(index) = side.pending.iter().position(is_expected) else {
            side.strangers += 1;
            side.channel.reject(id);
            return Ok(());
        };
        let accepted = self.take_path(side, index, id).and_then(|()| {
            let private = side.pending[index].shown.bytes();
            let terms = self.terms(&side.pending[index], &private);
            Ok(side.channel.accept(id, &terms)?)
        });
        match accepted {
            Ok(()) => {
                side.pending[index].id = Some(id);
                side.pending[index].go_to(CmStep::Accepted);
                Ok(())
            }
            Err(why) => {
                side.channel.reject(id);
                Err(self.cm_failure(side, index, &why, None))
            }
        }
    }

    /// Connects the queue pair to the peer that has accepted, and confirms the connection.
    fn conclude(
        &mut self,
        side: &mut CmSide,
        index: usize,
        id: CmHandle,
        event: &CmEvent,
    ) -> Result<(), String> {
        let shown = PairIntroduction::parse(&event.private);
        if shown != Some(side.pending[index].expected) {
            return Err("the answer lacks the secret of this side's endpoint address".to_owned());
        }
        self.take_path(side, index, id)?;
        side.channel.establish(id)?;
        side.pending[index].go_to(CmStep::Done);
        Ok(())
    }

    /// Moves a queue pair to the states in which it can receive and send, on the path that rdma_cm found.
    fn take_path(&mut self, side: &mut CmSide, index: usize, id: CmHandle) -> Result<(), String> {
        let connection = &side.pending[index];
        let own = &self.port.chosen.context;
        let device = side.channel.device(id, own);
        if let Some(device) = device.filter(|device| device != own.name()) {
            let address = side.address;
            return Err(format!(
                "it uses {device} for {address}, because several devices have this address: choose another by the \
                 engine-option gid"
            ));
        }
        let path = agreed(&connection.wanted, &side.channel.path(id)?)?;
        let handle = self.peers.pair(connection.place).handle;
        self.queues
            .connect(handle, &path, self.port.asked.patience)?;
        self.peers.at_mut(connection.peer).mtu = path.mtu;
        self.peers.agree_on_mtu(path.mtu);
        side.note_granted(&path);
        Ok(())
    }

    fn terms<'a>(&self, connection: &PendingConnection, private: &'a [u8]) -> CmTerms<'a> {
        CmTerms {
            number: self.peers.pair(connection.place).number,
            reads_out: connection.wanted.reads_out,
            reads_in: connection.wanted.reads_in,
            retry: self.port.asked.patience.retry,
            rnr_retry: self.port.asked.patience.rnr_retry,
            private,
        }
    }

    #[cold]
    fn cm_failure(&self, side: &CmSide, index: usize, why: &str, advice: Option<&str>) -> Error {
        let connection = &side.pending[index];
        let port = connection.remote.port.map_or_else(String::new, |port| {
            format!(
                ", where it listens at {}",
                SocketAddr::new(connection.remote.address, port)
            )
        });
        let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
        Error::Failed(format!(
            "verbs:rc between ranks {} and {}: rdma_cm: {why}; this side is at {}, the other at {}{port}{advice}{}",
            self.config.rank,
            connection.rank,
            self.port.in_words(),
            self.peers.at(connection.peer).device,
            self.port.events()
        ))
    }
}

/// The kernel's time limit for resolving an address or a path.
pub(super) const RESOLVING: Duration = Duration::from_secs(2);

/// Longest wait for events before deadlines and a stop of the run are checked.
const EVENT_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// State of a connection that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CmStep {
    /// This side must send the request, and has not begun.
    Unasked,
    /// The address is being resolved.
    Resolving,
    /// The path is being resolved.
    Routing,
    /// This side has sent the request.
    Asking,
    /// This side waits for the peer's request.
    Awaiting,
    /// This side has accepted, and waits for the peer's confirmation.
    Accepted,
    /// Connected.
    Done,
}

impl CmStep {
    /// Time limit of a step. The requesting side has shorter limits, because its error has more details and should be
    /// reported first.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Unasked | Self::Resolving | Self::Routing => 2 * RESOLVING,
            Self::Asking => Duration::from_secs(10),
            Self::Awaiting | Self::Accepted | Self::Done => Duration::from_secs(15),
        }
    }

    /// Describes the event for which this step waits.
    pub(super) fn missing(self) -> &'static str {
        match self {
            Self::Unasked | Self::Resolving => "its address was not resolved",
            Self::Routing => "no path to its address was found",
            Self::Asking => "its device did not answer the request to connect",
            Self::Awaiting => "its request to connect did not arrive",
            Self::Accepted => "it did not confirm the connection",
            Self::Done => "nothing is missing",
        }
    }
}

/// A queue pair that rdma_cm must connect.
pub(super) struct PendingConnection {
    /// Index of the peer in [`Peers`](super::peers::Peers).
    pub(super) peer: usize,
    /// The peer's rank.
    pub(super) rank: u32,
    /// Index of the queue pair in [`Peers`](super::peers::Peers).
    pub(super) place: usize,
    /// The path to the peer that the options and the endpoint addresses of both sides determine.
    pub(super) wanted: PathTo,
    /// The rdma_cm part of the peer's endpoint address.
    pub(super) remote: CmAddress,
    /// Private data: `expected` must come from the peer, and `shown` is sent to the peer.
    pub(super) expected: PairIntroduction,
    pub(super) shown: PairIntroduction,
    pub(super) id: Option<CmHandle>,
    pub(super) step: CmStep,
    since: Instant,
}

impl PendingConnection {
    pub(super) fn new(
        [peer, place]: [usize; 2],
        wanted: PathTo,
        remote: &CmAddress,
        expected: PairIntroduction,
        step: CmStep,
    ) -> Self {
        Self {
            peer,
            rank: expected.from,
            place,
            wanted,
            remote: remote.clone(),
            shown: PairIntroduction {
                secret: remote.secret,
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

    /// Restarts the time limit of the current step.
    pub(super) fn restart(&mut self) {
        self.since = Instant::now();
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.step != CmStep::Done && self.since.elapsed() > self.step.patience()
    }
}

/// State of a worker that connects by rdma_cm.
pub(super) struct CmSide {
    pub(super) channel: CmChannel,
    pub(super) address: IpAddr,
    /// Listening identifier and its port, while requests are expected.
    listener: Option<(CmHandle, u16)>,
    /// Secrets in this side's endpoint addresses, by the rank that each address is for.
    pub(super) secrets: BTreeMap<u32, AddressSecret>,
    /// Queue pairs to be connected by the next [`Worker::meet_by_cm`].
    pub(super) pending: Vec<PendingConnection>,
    /// Number of requests that were rejected because they had no expected secret.
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
            pending: Vec::new(),
            strangers: 0,
            granted: GrantedTerms::default(),
        })
    }

    /// Starts listening for requests if necessary, and returns the port.
    pub(super) fn listen(&mut self) -> Result<u16, LibraryError> {
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

    /// Stops listening for requests.
    pub(super) fn stop_listening(&mut self) {
        if let Some((id, _)) = self.listener.take() {
            self.channel.close(id);
        }
    }

    /// Waits briefly for events.
    pub(super) fn wait_for_event(&self) {
        let mut waited = [PollFd::from_borrowed_fd(
            self.channel.as_fd(),
            PollFlags::IN,
        )];
        // If the wait ends early, such as by a signal, the caller only checks sooner.
        let _ = poll(&mut waited, Some(&EVENT_WAIT));
    }

    pub(super) fn note_granted(&mut self, path: &PathTo) {
        self.granted.note(path);
    }

    /// Adds the granted path parameters to the facts.
    pub(super) fn add_granted(&self, facts: Facts) -> Facts {
        self.granted.add_to(facts)
    }
}

/// Maximum number of distinct values to list. If there are more, only their number is reported.
const LISTED_MAX: usize = 8;

/// Distinct values of the granted path parameters, over all paths.
#[derive(Default)]
pub(super) struct GrantedTerms {
    service_levels: BTreeSet<u32>,
    traffic_classes: BTreeSet<u32>,
    flow_labels: BTreeSet<u32>,
}

impl GrantedTerms {
    /// Records the parameters of another path.
    pub(super) fn note(&mut self, path: &PathTo) {
        self.service_levels.insert(path.service_level.into());
        self.traffic_classes.insert(path.traffic_class.into());
        self.flow_labels.insert(path.flow_label);
    }

    /// Adds the parameters to the facts: several values if paths differ.
    pub(super) fn add_to(&self, facts: Facts) -> Facts {
        let facts = with_values(facts, "service_level", &self.service_levels);
        let facts = with_values(facts, "traffic_class", &self.traffic_classes);
        with_values(facts, "flow_label_granted", &self.flow_labels)
    }
}

fn with_values(facts: Facts, name: &'static str, all: &BTreeSet<u32>) -> Facts {
    let words = || all.iter().map(u32::to_string).collect::<Vec<_>>();
    match all.len() {
        0 => facts,
        1 => facts.with_optional_fact(name, all.first().copied()),
        2..=LISTED_MAX => facts.with_fact(name, words().join(", ")),
        many => facts.with_fact(name, format!("{many} different ones")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_listed_and_many_are_counted() {
        let fact = |values: std::ops::Range<u32>| {
            with_values(Facts::default(), "flow_label_granted", &values.collect())
                .get("flow_label_granted")
                .cloned()
        };
        assert_eq!(fact(0..0), None);
        assert_eq!(fact(5..6), Some(5u32.into()));
        assert_eq!(fact(5..8), Some("5, 6, 7".into()));
        assert_eq!(fact(0..9), Some("9 different ones".into()));
    }
}

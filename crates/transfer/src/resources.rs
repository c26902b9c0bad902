//! Making what operations need: registrations, connections, sessions.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_engine::memory::Memory;
use tonnage_engine::{Descriptor, Lane, LaneKind, LaneSpec, Neighbor, Peer, Region, Verb};

use crate::card::EndpointCard;
use crate::error::{TransferError, TransferErrorKind, TransferResult};
use crate::state::{
    EndpointState, KnownPeer, LocalId, RegionState, SESSION_VERBS, SessionOptions, SessionState,
};

/// Place of a verb among a session's lanes; `None` for one that sessions do not have.
#[inline]
pub(crate) fn lane_index(verb: Verb) -> Option<usize> {
    match verb {
        Verb::Write => Some(0),
        Verb::WriteImm => Some(1),
        Verb::Read => Some(2),
        // A send names no remote bytes, and an extent no words.
        Verb::Send | Verb::FetchAdd | Verb::CompareSwap => None,
    }
}

impl EndpointState {
    pub(crate) fn register(&mut self, memory: Arc<dyn Memory>) -> TransferResult<u32> {
        let region = self.engine.register(&memory).map_err(|error| {
            let subject = self.subject.with("register", None);
            TransferError::below(TransferErrorKind::Unavailable, subject, &error)
        })?;
        let serial = self.next_serial();
        Ok(self.regions.put(RegionState {
            serial,
            id: region.id,
            memory,
            descriptor: region.descriptor,
            users: 1,
        }))
    }

    fn next_serial(&mut self) -> u32 {
        self.registrations = self.registrations.wrapping_add(1);
        self.registrations
    }

    /// The registration of a name; `None` for one that is gone.
    #[inline]
    pub(crate) fn region_of(&self, local: LocalId) -> Option<&RegionState> {
        let region = self.regions.get(local.place)?;
        (region.serial == local.serial).then_some(region)
    }

    /// Takes over a registration that somebody else made, and takes back.
    pub(crate) fn adopt_region(&mut self, memory: Arc<dyn Memory>, region: Region) -> u32 {
        let serial = self.next_serial();
        self.regions.put(RegionState {
            serial,
            id: region.id,
            memory,
            descriptor: region.descriptor,
            // One more than there are, so that the last one does not take it back.
            users: 2,
        })
    }

    pub(crate) fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> TransferResult<()> {
        self.engine.expect(peer, bytes).map_err(|error| {
            let subject = self.subject.with("expect", peer);
            TransferError::below(TransferErrorKind::OperationFailed, subject, &error)
        })
    }

    pub(crate) fn card_for(&mut self, peer: Peer) -> TransferResult<EndpointCard> {
        let made = self.engine.cards(&[peer]).map_err(|error| {
            let subject = self.subject.with("introduce", peer);
            TransferError::below(TransferErrorKind::EndpointFailed, subject, &error)
        })?;
        let card = made.into_iter().next().ok_or_else(|| {
            let subject = self.subject.with("introduce", peer);
            let kind = TransferErrorKind::EndpointFailed;
            TransferError::new(kind, subject, "the engine made no card")
        })?;
        Ok(EndpointCard {
            engine: self.subject.engine.to_string(),
            from: self.id,
            to: peer,
            place: self.place.clone(),
            card,
        })
    }

    /// Connects to the endpoints that made these cards, and waits until they have connected too.
    pub(crate) fn connect(
        &mut self,
        cards: &[EndpointCard],
        timeout: Duration,
    ) -> TransferResult<()> {
        // All are looked at before anything is done for one.
        for (at, card) in cards.iter().enumerate() {
            self.check_card(card, &cards[..at])?;
        }
        for card in cards {
            // One that has connected, and was not met in time, is only met.
            if !self.peers.contains_key(&card.from) {
                self.connect_one(card)?;
            }
        }
        self.meet(cards, timeout)
    }

    fn check_card(&self, card: &EndpointCard, earlier: &[EndpointCard]) -> TransferResult<()> {
        let peer = card.from;
        if let Some(lost) = self.refusal(peer, "connect") {
            return Err(lost);
        }
        let known = self.peers.get(&peer);
        let reason = if card.to != self.id || peer == self.id {
            let (id, from, to) = (self.id, card.from, card.to);
            format!("the card of endpoint {from} is for endpoint {to}, and this is {id}")
        } else if *card.engine != *self.subject.engine {
            format!("the peer has engine {}", card.engine)
        } else if known.is_some_and(|known| known.met) {
            "it is connected already".to_owned()
        } else if known.is_some_and(|known| known.place.as_ref() != Some(&card.place)) {
            "it has connected by the card of another process".to_owned()
        } else if earlier.iter().any(|earlier| earlier.from == peer) {
            "two cards are of this peer".to_owned()
        } else {
            return Ok(());
        };
        let subject = self.subject.with("connect", peer);
        Err(TransferError::new(
            TransferErrorKind::Usage,
            subject,
            reason,
        ))
    }

    fn connect_one(&mut self, card: &EndpointCard) -> TransferResult<()> {
        let peer = card.from;
        if !self.watch.add(peer, &self.place, &card.place) {
            self.clean_up_after(&card.place);
            let subject = self.subject.with("connect", peer);
            return Err(TransferError::new(
                TransferErrorKind::PeerLost,
                subject,
                card.place.end(),
            ));
        }
        let neighbor = Neighbor {
            peer,
            card: card.card.clone(),
            locality: self.place.locality(&card.place),
        };
        if let Err(error) = self.engine.connect(&[neighbor]) {
            self.watch.remove(peer);
            let subject = self.subject.with("connect", peer);
            let kind = TransferErrorKind::EndpointFailed;
            return Err(TransferError::below(kind, subject, &error));
        }
        let place = Some(card.place.clone());
        self.peers.insert(peer, KnownPeer { place, met: false });
        Ok(())
    }

    /// First contact with the peers of these cards. It ends when one of them does.
    fn meet(&mut self, cards: &[EndpointCard], timeout: Duration) -> TransferResult<()> {
        let deadline = Instant::now().checked_add(timeout);
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let watch = RefCell::new((&mut self.watch, Vec::new()));
        let awaits = |ended: &Peer| cards.iter().any(|card| card.from == *ended);
        let met = self.engine.meet(&|| {
            let (watch, ended) = &mut *watch.borrow_mut();
            ended.extend(watch.ended());
            ended.iter().any(awaits) || is_late()
        });
        let (_, ended) = watch.into_inner();
        for &peer in &ended {
            self.lose(peer);
        }
        if let Some(lost) = ended.into_iter().find(awaits) {
            return self.refusal(lost, "connect").map_or(Ok(()), Err);
        }
        let one = match cards {
            [card] => Some(card.from),
            _ => None,
        };
        let subject = self.subject.with("connect", one);
        match met {
            Ok(()) => {
                self.peers.values_mut().for_each(|peer| peer.met = true);
                Ok(())
            }
            Err(_) if is_late() => Err(TransferError::deadline(subject, timeout)),
            Err(error) => {
                let kind = TransferErrorKind::EndpointFailed;
                Err(TransferError::below(kind, subject, &error))
            }
        }
    }

    /// Reason why nothing can be done with a peer any more.
    pub(crate) fn refusal(&self, peer: Peer, operation: &'static str) -> Option<TransferError> {
        let known = self.dead.as_ref().or_else(|| self.lost.get(&peer));
        known.map(|error| error.of(self.subject.with(operation, peer)))
    }

    /// Resolves a session between a registration and a peer's memory.
    pub(crate) fn open_session(
        &mut self,
        region: u32,
        (peer, remote): (Peer, &Descriptor),
        options: SessionOptions,
        verbs: &[Verb],
    ) -> TransferResult<u32> {
        if let Some(refused) = self.refusal(peer, "session") {
            return Err(refused);
        }
        self.check_session(peer, options)?;
        let mut lanes = [None; SESSION_VERBS];
        for &verb in verbs {
            let Some(index) = lane_index(verb).filter(|_| self.caps.verbs.contains(&verb)) else {
                continue;
            };
            match self.resolve(region, (peer, remote), options, verb) {
                Ok(lane) => lanes[index] = Some(lane),
                Err(error) => {
                    lanes
                        .into_iter()
                        .flatten()
                        .for_each(|lane| self.release_lane(lane));
                    return Err(error);
                }
            }
        }
        if let Some(region) = self.regions.get_mut(region) {
            region.users += 1;
        }
        Ok(self.sessions.put(SessionState {
            peer,
            region,
            lanes,
            closing: None,
            refused: None,
            failed: false,
        }))
    }

    fn check_session(&self, peer: Peer, options: SessionOptions) -> TransferResult<()> {
        let caps = &self.caps;
        let delivers = caps.delivered || caps.delivery_on_request;
        let wrong = if !self.peers.get(&peer).is_some_and(|peer| peer.met) {
            (TransferErrorKind::Usage, "it was not connected")
        } else if options.delivered && !delivers {
            (
                TransferErrorKind::Unavailable,
                "the engine cannot complete writes when they arrive",
            )
        } else if options.ordered && !caps.ordered_writes {
            (
                TransferErrorKind::Unavailable,
                "the engine cannot make a last byte visible last",
            )
        } else {
            return Ok(());
        };
        let subject = self.subject.with("session", peer);
        Err(TransferError::new(wrong.0, subject, wrong.1))
    }

    fn resolve(
        &mut self,
        region: u32,
        (peer, remote): (Peer, &Descriptor),
        options: SessionOptions,
        verb: Verb,
    ) -> TransferResult<Lane> {
        let subject = || self.subject.with("session", peer);
        let local = self.regions.get(region).map(|region| region.id);
        let Some(local) = local else {
            let kind = TransferErrorKind::Usage;
            return Err(TransferError::new(
                kind,
                subject(),
                "its memory is not registered",
            ));
        };
        let writes = verb != Verb::Read;
        let spec = LaneSpec {
            kind: LaneKind::Initiate(verb),
            peer,
            local,
            remote,
            ordered: options.ordered && verb == Verb::Write,
            in_order: false,
            delivered: options.delivered && writes && !self.caps.delivered,
        };
        match self.engine.lane(&spec) {
            Ok(lane) => {
                *self.lanes.entry(lane).or_insert(0) += 1;
                Ok(lane)
            }
            Err(error) => {
                let kind = TransferErrorKind::OperationFailed;
                Err(TransferError::below(kind, subject(), &error))
            }
        }
    }

    /// Nobody holds the session any more: it ends with the last of its operations.
    pub(crate) fn close_session(&mut self, index: u32) {
        let left = self.flights.await_all_of(index);
        self.close_after(index, left);
    }

    /// Closes a session that was made for the operation in this slot alone; `None` where that was not posted.
    pub(crate) fn close_with(&mut self, index: u32, slot: Option<u32>) {
        let left = slot.is_some_and(|slot| self.flights.await_one(slot));
        self.close_after(index, left.into());
    }

    /// Nobody holds the memory any more: it is deregistered with the last session that uses it.
    pub(crate) fn close_memory(&mut self, region: u32) {
        let known = self
            .looked_up
            .iter()
            .filter(|((local, _), _)| local.place == region);
        let keys: Vec<_> = known.map(|(&key, &session)| (key, session)).collect();
        for (key, session) in keys {
            self.looked_up.remove(&key);
            self.close_session(session);
        }
        self.release_region(region);
    }
}

//! Connecting by rdma_cm: the lower rank of two asks, the other accepts, each queue pair by itself. The queue pairs are
//! this engine's own; rdma_cm learns their numbers, finds the path, and tells either side of the other's.
//!
//! Nothing here waits for a peer before [`VerbsWorker::meet_by_cm`], in which all queue pairs go on side by side.

use std::net::SocketAddr;

use tonnage_sys::verbs::{CmEvent, CmEventKind, CmHandle, CmTerms, PathTo};
use tonnage_units::{Error, Result};

use super::cm_private::{CardSecret, CmCard, PairIntroduction, asks};
use super::cm_terms::{advice, advice_late, agreed};
use super::cm_ways::{CmSide, CmStep, CmWay, RESOLVING};
use super::pairs::PairCard;
use super::worker::VerbsWorker;

impl VerbsWorker {
    /// The part of a card that is for rdma_cm; `None` where it does not connect.
    pub(super) fn card_by_cm(&mut self, rank: u32) -> Result<Option<CmCard>> {
        let Some(side) = &mut self.cm else {
            return Ok(None);
        };
        let port = match asks(self.config.rank, rank) {
            true => None,
            false => Some(side.listen()),
        };
        let at = self.port.in_words();
        let about = |why| {
            let how = "Load rdma_ucm and ib_cm, and see that the address is one of this device's";
            Error::Failed(format!("verbs:rc on {at}: connect=cm: {why}. {how}"))
        };
        let port = port.transpose().map_err(about)?;
        let secret = CardSecret::fresh()?;
        side.secrets.insert(rank, secret);
        let address = side.address;
        Ok(Some(CmCard {
            address,
            port,
            secret,
        }))
    }

    /// Notes a queue pair to a peer for the next meeting.
    pub(super) fn begin_by_cm(
        &mut self,
        peer: usize,
        place: usize,
        wanted: PathTo,
        card: &PairCard,
    ) -> Result<(), String> {
        let (own, rank) = (self.config.rank, self.peers[peer].rank);
        let purpose = u32::from(place != self.peers[peer].one_sided);
        let side = self.cm.as_mut().ok_or("connect=cm was not asked for")?;
        let theirs = card.cm.as_ref();
        let theirs = theirs.ok_or("it does not connect by rdma_cm, and this side does")?;
        let secret = *side.secrets.get(&rank).ok_or("no card was made for it")?;
        let step = match (asks(own, rank), theirs.port) {
            (true, Some(_)) => CmStep::Unasked,
            (false, None) if own != rank => CmStep::Awaiting,
            _ => return Err("who of both is to ask the other is not clear".to_owned()),
        };
        let expected = PairIntroduction {
            secret,
            from: rank,
            to: own,
            purpose,
        };
        let way = CmWay::new([peer, place], wanted, theirs, expected, step);
        side.ways.push(way);
        Ok(())
    }

    /// Connects what was noted since the last time, and waits until it is.
    pub(super) fn meet_by_cm(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        let Some(mut side) = self.cm.take() else {
            return Ok(());
        };
        let met = self.connect_ways(&mut side, stopped);
        self.cm = Some(side);
        met
    }

    fn connect_ways(&mut self, side: &mut CmSide, stopped: &dyn Fn() -> bool) -> Result<()> {
        side.ways.iter_mut().for_each(CmWay::restart);
        for index in 0..side.ways.len() {
            if side.ways[index].step == CmStep::Unasked {
                let begun = self.ask(side, index);
                begun.map_err(|why| self.cm_failure(side, index, &why, None))?;
            }
        }
        while side.ways.iter().any(|way| way.step != CmStep::Done) {
            if stopped() {
                return Err(Error::Failed("the run was stopped".into()));
            }
            let event = side.channel.next_event();
            match event.map_err(|why| self.about_device(why))? {
                Some(event) => self.take_cm_event(side, &event)?,
                None => side.nap(),
            }
            if let Some(index) = side.ways.iter().position(CmWay::is_overdue) {
                let way = &side.ways[index];
                let (step, other) = (way.step, way.card.address);
                let why = format!("{} within {} s", step.missing(), step.patience().as_secs());
                let advice = advice_late(step, side.address, other, side.strangers);
                return Err(self.cm_failure(side, index, &why, Some(&advice)));
            }
        }
        side.ways.clear();
        if self.peers.iter().all(|peer| peer.is_connected) {
            side.stop_listening();
        }
        Ok(())
    }

    /// Begins with resolving the peer's address, from that of this side's device.
    fn ask(&self, side: &mut CmSide, index: usize) -> Result<(), String> {
        let way = &side.ways[index];
        let to = SocketAddr::new(way.card.address, way.card.port.unwrap_or(0));
        let id = side.channel.create()?;
        side.ways[index].id = Some(id);
        if self.port.asked.traffic_class != 0 {
            let class = self.port.asked.traffic_class;
            side.channel.set_traffic_class(id, class)?;
        }
        side.channel
            .resolve_address(id, (side.address, to), RESOLVING)?;
        side.ways[index].go_to(CmStep::Resolving);
        Ok(())
    }

    fn take_cm_event(&mut self, side: &mut CmSide, event: &CmEvent) -> Result<()> {
        let Some(id) = event.about else {
            return Ok(());
        };
        if event.kind == CmEventKind::Request {
            return self.answer(side, id, event);
        }
        // Of what is connected already, nothing is waited for: the run finds a peer that is gone.
        let of_event = |way: &CmWay| way.id == Some(id) && way.step != CmStep::Done;
        let Some(index) = side.ways.iter().position(of_event) else {
            return Ok(());
        };
        let went_on = match (event.kind, side.ways[index].step, event.status) {
            (CmEventKind::AddressResolved, CmStep::Resolving, 0) => {
                side.ways[index].go_to(CmStep::Routing);
                side.channel.resolve_route(id, RESOLVING)
            }
            (CmEventKind::RouteResolved, CmStep::Routing, 0) => {
                side.ways[index].go_to(CmStep::Asking);
                let private = side.ways[index].shown.bytes();
                let terms = self.terms(&side.ways[index], &private);
                side.channel.connect(id, &terms)
            }
            (CmEventKind::Response, CmStep::Asking, 0) => self.conclude(side, index, id, event),
            (CmEventKind::Established, CmStep::Accepted, 0) => {
                side.ways[index].go_to(CmStep::Done);
                Ok(())
            }
            (CmEventKind::Other, _, _) => Ok(()),
            _ => {
                let advice = advice(event, side.address, side.ways[index].card.address);
                return Err(self.cm_failure(side, index, &event.in_words(), Some(&advice)));
            }
        };
        went_on.map_err(|why| self.cm_failure(side, index, &why, None))
    }

    /// Accepts a request that shows what the card of one of the peers told it, and no other.
    fn answer(&mut self, side: &mut CmSide, id: CmHandle, event: &CmEvent) -> Result<()> {
        let shown = PairIntroduction::parse(&event.private);
        let is_expected = |way: &CmWay| way.step == CmStep::Awaiting && shown == Some(way.expected);
        let Some(index) = side.ways.iter().position(is_expected) else {
            side.strangers += 1;
            side.channel.reject(id);
            return Ok(());
        };
        let accepted = self.take_path(side, index, id).and_then(|()| {
            let private = side.ways[index].shown.bytes();
            let terms = self.terms(&side.ways[index], &private);
            side.channel.accept(id, &terms)
        });
        match accepted {
            Ok(()) => {
                side.ways[index].id = Some(id);
                side.ways[index].go_to(CmStep::Accepted);
                Ok(())
            }
            Err(why) => {
                side.channel.reject(id);
                Err(self.cm_failure(side, index, &why, None))
            }
        }
    }

    /// Takes the queue pair to the peer that has accepted, and tells it so.
    fn conclude(
        &mut self,
        side: &mut CmSide,
        index: usize,
        id: CmHandle,
        event: &CmEvent,
    ) -> Result<(), String> {
        let shown = PairIntroduction::parse(&event.private);
        if shown != Some(side.ways[index].expected) {
            return Err("who answers does not show the secret of this side's card".to_owned());
        }
        self.take_path(side, index, id)?;
        side.channel.establish(id)?;
        side.ways[index].go_to(CmStep::Done);
        Ok(())
    }

    /// Takes a queue pair to the states in which it receives and sends, along rdma_cm's path.
    fn take_path(&mut self, side: &mut CmSide, index: usize, id: CmHandle) -> Result<(), String> {
        let way = &side.ways[index];
        let own = &self.port.chosen.context;
        let device = side.channel.device(id, own);
        if let Some(device) = device.filter(|device| device != own.name()) {
            let address = side.address;
            return Err(format!(
                "it takes {device} for {address}, which is not this device's alone: choose another by the engine-option gid"
            ));
        }
        let path = agreed(&way.wanted, &side.channel.path(id)?)?;
        let handle = self.pairs[way.place].handle;
        self.queues
            .connect(handle, &path, self.port.asked.patience)?;
        self.peers[way.peer].mtu = path.mtu;
        self.mtu = Some(self.mtu.map_or(path.mtu, |mtu| mtu.min(path.mtu)));
        side.note_granted(&path);
        Ok(())
    }

    fn terms<'a>(&self, way: &CmWay, private: &'a [u8]) -> CmTerms<'a> {
        CmTerms {
            number: self.pairs[way.place].number,
            reads_out: way.wanted.reads_out,
            reads_in: way.wanted.reads_in,
            retry: self.port.asked.patience.retry,
            rnr_retry: self.port.asked.patience.rnr_retry,
            private,
        }
    }

    #[cold]
    fn cm_failure(&self, side: &CmSide, index: usize, why: &str, advice: Option<&str>) -> Error {
        let way = &side.ways[index];
        let port = way.card.port.map_or_else(String::new, |port| {
            format!(
                ", where it listens at {}",
                SocketAddr::new(way.card.address, port)
            )
        });
        let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
        Error::Failed(format!(
            "verbs:rc between ranks {} and {}: rdma_cm: {why}; this side is at {}, the other at {}{port}{advice}{}",
            self.config.rank,
            way.rank,
            self.port.in_words(),
            self.peers[way.peer].device,
            self.port.events()
        ))
    }
}

//! `--verify=each`: an engine between the loops and the real one that compares every operation before its slot is
//! reused. The loops use it like any other engine, so runs without the option pay nothing.
//!
//! The data of an operation follow from its number in its flow. An operation posted by the loop takes these steps:
//!
//! 1. The initiator asks the target to prepare. For a write, write-imm or send, the target fills the destination with
//!    the inverse of the data. For a read, it fills the source with the data. Then it replies that it is ready.
//! 2. The initiator fills its own slot: with the data or, for a read, with the inverse. Then it posts the operation.
//! 3. When the operation has completed, the receiving end compares the bytes. The receiving end of a read is the
//!    initiator. The target of a write-imm or send compares before it passes the arrival on. The target of a plain
//!    write compares when the initiator asks for it, after proof of delivery. The loop sees the completion only after
//!    the comparison. Until then no other operation may touch a byte of the slot at either end.
//!
//! `mailboxes` has the requests and replies. A difference doesn't end the trial: `ComparisonFindings` keeps it, so that
//! all ranks stay in step and fail the point together after the trial. There is one exception: a write-imm notification
//! without an operation in progress ends the run. It may have replaced the notification of another operation, which
//! would then wait forever.

mod findings;
mod mailboxes;

pub use findings::{ComparisonFindings, TrialFindings};
pub use mailboxes::{Mailboxes, PlaceInMemory};

use std::collections::VecDeque;
use std::sync::Arc;

use mailboxes::{CELLS, CellRow, MailboxMessage, MessageKind};
use tonnage_engine::memory::Memory;
use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{
    ArmOutcome, Caps, Completion, Ending, EndpointAddress, Engine, Facts, Failure, Flush, Lane,
    LaneKind, LaneSpec, Op, Peer, PeerEndpoint, RailLoad, Region, RegionId, Verb,
};
use tonnage_units::{Error, Result};

use crate::BURST;

/// Advice after an operation that landed in the wrong location, or arrived twice or not at all.
pub const ENGINE_AT_FAULT: &str =
    "this engine lost or duplicated an operation: try another --engine, or report it";

/// Advice after a failure that no engine can cause.
const DEFECT: &str = "this is a defect of tonnage: please report it";

/// Parameters of an engine that compares its operations.
pub struct ComparisonSetup<'a> {
    /// The memory that its lanes access.
    pub memory: Arc<dyn Memory>,
    /// The capabilities of the engine's device.
    pub caps: Caps,
    /// This rank.
    pub rank: Peer,
    /// The verb of all operations.
    pub verb: Verb,
    /// The ranks that exchange data with this rank.
    pub peers: &'a [Peer],
    /// Maximum number of operations in flight on a lane.
    pub depth: u32,
    /// Seed of the data.
    pub seed: u64,
    /// True if the last byte of each operation is a signal, which is not compared.
    pub is_signalled: bool,
}

/// Kinds of tags for the wrapped engine. The kind is stored in the tag's three highest bits.
mod tags {
    pub(super) const OPERATION: u32 = 0;
    pub(super) const FLUSH: u32 = 1;
    pub(super) const REQUEST: u32 = 2;
    pub(super) const REPLY: u32 = 3;
    pub(super) const RECEIVE: u32 = 4;
    pub(super) const PASSED: u32 = 5;

    const SHIFT: u32 = 29;

    pub(super) const REST_MAX: u32 = (1 << SHIFT) - 1;

    pub(super) fn make_tag(kind: u32, rest: usize) -> u32 {
        kind << SHIFT | rest as u32
    }

    pub(super) fn split_tag(tag: u32) -> (u32, usize) {
        (tag >> SHIFT, (tag & REST_MAX) as usize)
    }
}

/// Purpose of a lane.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LanePurpose {
    Other,
    /// Operations towards the peer with this index.
    Initiates(usize),
    /// Receives for messages from the peer with this index.
    Receives(usize),
}

/// Next step of an operation at its initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitiatorStep {
    /// The cell has no operation.
    Free,
    /// Send a request to the target.
    Ask(MessageKind),
    /// Wait until the target has prepared.
    AwaitReady,
    /// Post the operation.
    Move,
    /// Wait for the operation's completion.
    AwaitDone,
    /// Prove the operation's delivery.
    Flush,
    /// Wait for the flush.
    AwaitFlushed,
    /// Wait until the target has compared.
    AwaitCompared,
}

/// An operation at its initiator.
#[derive(Debug, Clone, Copy)]
struct Outgoing {
    step: InitiatorStep,
    op: Op,
    number: u64,
    /// True if the target has compared the operation.
    is_compared: bool,
    /// True while a request is being sent. The request's bytes must not change during that time.
    is_writing: bool,
}

/// An operation at its target.
#[derive(Debug, Clone, Copy, Default)]
struct Incoming {
    /// The operation, between its announcement and its comparison. Always `None` for reads.
    announced: Option<MailboxMessage>,
    reply: Option<MailboxMessage>,
    /// True while a reply is being sent. The reply's bytes must not change during that time.
    is_writing: bool,
}

impl Incoming {
    /// Returns whether the initiator knows the outcome.
    fn is_settled(&self) -> bool {
        self.announced.is_none() && self.reply.is_none() && !self.is_writing
    }
}

/// A posted receive.
#[derive(Debug, Clone, Copy)]
struct PostedReceive {
    peer: usize,
    offset: u64,
    /// Number of the message that this receive is for.
    number: u64,
    tag: u32,
}

/// Operations in both directions with one peer.
struct PeerOperations {
    tells: Option<Lane>,
    /// Operations accepted from the loop; `sent` counts the operations posted to the engine.
    issued: u64,
    sent: u64,
    receives: u64,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
}

impl PeerOperations {
    /// Returns whether the peer knows the outcome of all its operations, and no message to the peer is in flight.
    fn is_settled(&self) -> bool {
        !self.outgoing.iter().any(|cell| cell.is_writing)
            && self.incoming.iter().all(Incoming::is_settled)
    }

    /// Returns whether nothing is in progress, in either direction.
    fn is_idle(&self) -> bool {
        self.is_settled()
            && self
                .outgoing
                .iter()
                .all(|cell| cell.step == InitiatorStep::Free)
    }
}

/// An engine that compares its operations.
pub struct ComparingEngine {
    engine: Box<dyn Engine + Send>,
    mail: Mailboxes,
    memory: Arc<dyn Memory>,
    rank: Peer,
    verb: Verb,
    seed: u64,
    is_signalled: bool,
    asks_delivery: bool,
    flushes: bool,
    names_arrivals: bool,
    cells: usize,
    peers: Vec<PeerOperations>,
    purposes: Vec<LanePurpose>,
    landings: Vec<Option<PostedReceive>>,
    finished: VecDeque<Completion>,
    failed: Option<Completion>,
    done: Box<[Completion; BURST]>,
}

impl ComparingEngine {
    /// Wraps an engine that has nothing in flight.
    ///
    /// # Errors
    /// If the engine cannot resolve the lanes for messages. In that case the engine and its cells are dropped.
    pub fn new(
        engine: Box<dyn Engine + Send>,
        mail: Mailboxes,
        compared: ComparisonSetup<'_>,
    ) -> Result<Self> {
        let cells = (compared.depth as usize).clamp(1, CELLS);
        let idle = Outgoing {
            step: InitiatorStep::Free,
            op: Op {
                lane: Lane(0),
                tag: 0,
                local: 0,
                remote: 0,
                len: 0,
                imm: 0,
            },
            number: 0,
            is_compared: false,
            is_writing: false,
        };
        let ends = |_| PeerOperations {
            tells: None,
            issued: 0,
            sent: 0,
            receives: 0,
            outgoing: vec![idle; cells],
            incoming: vec![Incoming::default(); cells],
        };
        let delivers = compared.caps.delivered || compared.caps.delivery_on_request;
        let mut each = Self {
            peers: (0..mail.len()).map(ends).collect(),
            engine,
            mail,
            memory: compared.memory,
            rank: compared.rank,
            verb: compared.verb,
            seed: compared.seed,
            is_signalled: compared.is_signalled,
            asks_delivery: compared.caps.delivery_on_request && !compared.caps.delivered,
            flushes: !delivers,
            names_arrivals: compared.caps.arrivals_named,
            cells,
            purposes: Vec::new(),
            landings: Vec::new(),
            finished: VecDeque::with_capacity(2 * BURST),
            failed: None,
            done: Box::new([Completion::EMPTY; BURST]),
        };
        for &peer in compared.peers {
            let index = each.mail.index_of(peer)?;
            let lane = each
                .mail
                .lane(index, each.asks_delivery, each.engine.as_mut())?;
            each.peers[index].tells = Some(lane);
        }
        let findings = each.mail.findings();
        findings.set_pass_through(false);
        findings.take();
        Ok(each)
    }

    /// Returns the engine and the cells; `None` while operations or messages are in flight.
    pub fn into_parts(mut self) -> Option<(Box<dyn Engine + Send>, Mailboxes)> {
        if !self.peers.iter().all(PeerOperations::is_idle) {
            return None;
        }
        for lane in self.peers.iter_mut().filter_map(|ends| ends.tells.take()) {
            self.engine.release_lane(lane);
        }
        Some((self.engine, self.mail))
    }

    fn purpose(&self, lane: Lane) -> LanePurpose {
        let known = self.purposes.get(lane.0 as usize).copied();
        known.unwrap_or(LanePurpose::Other)
    }

    /// Returns the key of an operation's data.
    fn key(&self, (initiator, target): (Peer, Peer), number: u64) -> Key {
        Key::new(self.seed, number, initiator, target)
    }

    /// Number of bytes of an operation that are filled and compared.
    fn compared_bytes(&self, len: u32) -> u64 {
        u64::from(len) - u64::from(self.is_signalled)
    }

    fn fill(&self, offset: u64, len: u32, key: Key) -> Result<()> {
        let bytes = self.compared_bytes(len);
        self.memory.fill(offset, offset, bytes, key)
    }

    /// Compares the bytes that landed here, and records the result.
    fn compare(
        &self,
        (offset, len): (u64, u32),
        (initiator, target): (Peer, Peer),
        number: u64,
    ) -> Result<()> {
        let mut found = Mismatches::default();
        let key = self.key((initiator, target), number);
        let bytes = self.compared_bytes(len);
        self.memory.verify(offset, offset, bytes, key, &mut found)?;
        let right_bytes = found.checked_bytes - found.wrong_bytes;
        self.mail.findings.count(len.into(), right_bytes);
        if !found.is_clean() {
            self.mail.findings.record_difference(format!(
                "of operation {number} from rank {initiator} to rank {target}, {}",
                found.describe()
            ));
        }
        Ok(())
    }

    /// Returns whether `op` shares a byte with an operation in progress, at either end.
    fn overlaps(&self, index: usize, op: &Op) -> bool {
        let meets = |(one, other): (u64, u64), len: u32| {
            one < other + u64::from(op.len) && other < one + u64::from(len)
        };
        // Lanes towards different peers have separate slices at both ends, so only this peer's operations matter.
        let mut outgoing = self.peers[index].outgoing.iter();
        outgoing.any(|other| {
            let (theirs, len) = (&other.op, other.op.len);
            other.step != InitiatorStep::Free
                && (meets((theirs.local, op.local), len) || meets((theirs.remote, op.remote), len))
        })
    }

    /// Accepts an operation from the loop; returns false if there was no room.
    fn begin(&mut self, index: usize, op: &Op) -> Result<bool> {
        if self.overlaps(index, op) {
            return Ok(false);
        }
        let ends = &mut self.peers[index];
        let free = |outgoing: &Outgoing| outgoing.step == InitiatorStep::Free;
        let Some(cell) = ends.outgoing.iter().position(free) else {
            return Ok(false);
        };
        ends.outgoing[cell] = Outgoing {
            step: InitiatorStep::Ask(MessageKind::Prepare),
            op: *op,
            number: ends.issued,
            is_compared: false,
            ..ends.outgoing[cell]
        };
        ends.issued += 1;
        self.advance(index, cell)?;
        Ok(true)
    }

    /// Performs steps of an operation until it must wait for a reply, a completion or room in the engine.
    fn advance(&mut self, index: usize, cell: usize) -> Result<()> {
        loop {
            let outgoing = self.peers[index].outgoing[cell];
            let place = index * CELLS + cell;
            let next = match outgoing.step {
                InitiatorStep::Ask(kind) => {
                    let message = MailboxMessage {
                        kind,
                        number: outgoing.number,
                        offset: outgoing.op.remote,
                        len: outgoing.op.len,
                        imm: outgoing.op.imm,
                    };
                    let tag = tags::make_tag(tags::REQUEST, place);
                    let at = (index, CellRow::Requests, cell);
                    if outgoing.is_writing || !self.write(at, &message, tag)? {
                        return Ok(());
                    }
                    self.peers[index].outgoing[cell].is_writing = true;
                    match kind {
                        MessageKind::Prepare => InitiatorStep::AwaitReady,
                        _ => InitiatorStep::AwaitCompared,
                    }
                }
                // Messages fill receives in posting order, so they must be sent in the order of their numbers.
                InitiatorStep::Move
                    if self.verb == Verb::Send && outgoing.number != self.peers[index].sent =>
                {
                    return Ok(());
                }
                InitiatorStep::Move => {
                    let tag = tags::make_tag(tags::OPERATION, place);
                    if self.engine.post(&[Op { tag, ..outgoing.op }])? == 0 {
                        return Ok(());
                    }
                    self.peers[index].sent += 1;
                    InitiatorStep::AwaitDone
                }
                InitiatorStep::Flush => {
                    let tag = tags::make_tag(tags::FLUSH, place);
                    match self.engine.flush(outgoing.op.lane, tag)? {
                        Flush::Delivered => InitiatorStep::Ask(MessageKind::Compare),
                        Flush::Posted => InitiatorStep::AwaitFlushed,
                        Flush::Again => return Ok(()),
                    }
                }
                InitiatorStep::Free
                | InitiatorStep::AwaitReady
                | InitiatorStep::AwaitDone
                | InitiatorStep::AwaitFlushed
                | InitiatorStep::AwaitCompared => return Ok(()),
            };
            self.peers[index].outgoing[cell].step = next;
        }
    }

    /// Sends a message to a peer; returns whether the engine accepted it.
    fn write(
        &mut self,
        at: (usize, CellRow, usize),
        message: &MailboxMessage,
        tag: u32,
    ) -> Result<bool> {
        let lane = self.peers[at.0].tells.ok_or_else(|| {
            Error::Failed(format!(
                "rank {} has no part in this point; {DEFECT}",
                self.mail.rank_of(at.0)
            ))
        })?;
        let op = self.mail.message(at, message, (lane, tag));
        let taken = self.engine.post(&[op])? == 1;
        if taken {
            self.mail.count_written(at);
        }
        Ok(taken)
    }

    /// Handles the completion of an operation at its initiator.
    fn note_moved(&mut self, index: usize, cell: usize) -> Result<()> {
        let outgoing = self.peers[index].outgoing[cell];
        let ends = (self.rank, self.mail.rank_of(index));
        if outgoing.step != InitiatorStep::AwaitDone {
            return Err(Error::Failed(format!(
                "the engine completed an operation with rank {} that was not in flight: it completed one twice; \
                 {ENGINE_AT_FAULT}",
                ends.1
            )));
        }
        let next = match self.verb {
            Verb::Read => {
                let landing = (outgoing.op.local, outgoing.op.len);
                self.compare(landing, ends, outgoing.number)?;
                return self.finish(index, cell);
            }
            Verb::WriteImm | Verb::Send if outgoing.is_compared => return self.finish(index, cell),
            Verb::WriteImm | Verb::Send => InitiatorStep::AwaitCompared,
            _ if self.flushes => InitiatorStep::Flush,
            _ => InitiatorStep::Ask(MessageKind::Compare),
        };
        self.peers[index].outgoing[cell].step = next;
        self.advance(index, cell)
    }

    /// Passes an operation's completion to the loop and frees its cell.
    fn finish(&mut self, index: usize, cell: usize) -> Result<()> {
        let outgoing = &mut self.peers[index].outgoing[cell];
        outgoing.step = InitiatorStep::Free;
        let op = outgoing.op;
        self.finished.push_back(Completion::new(&op, Ending::Done));
        Ok(())
    }

    /// Reads the target's reply about an operation.
    fn read_reply(&mut self, index: usize, cell: usize) -> Result<()> {
        let outgoing = self.peers[index].outgoing[cell];
        let notifies = self.verb.notifies_target();
        match outgoing.step {
            InitiatorStep::AwaitReady | InitiatorStep::AwaitCompared => {}
            InitiatorStep::AwaitDone if notifies && !outgoing.is_compared => {}
            _ => return Ok(()),
        }
        let Some(reply) = self.mail.read((index, CellRow::Replies, cell)) else {
            return Ok(());
        };
        match (outgoing.step, reply.kind) {
            (InitiatorStep::AwaitReady, MessageKind::Ready) => {
                let key = self.key((self.rank, self.mail.rank_of(index)), outgoing.number);
                let key = match self.verb {
                    Verb::Read => key.poison(),
                    _ => key,
                };
                self.fill(outgoing.op.local, outgoing.op.len, key)?;
                self.peers[index].outgoing[cell].step = InitiatorStep::Move;
                self.advance(index, cell)
            }
            (InitiatorStep::AwaitCompared, MessageKind::Compared) => self.finish(index, cell),
            (InitiatorStep::AwaitDone, MessageKind::Compared) => {
                self.peers[index].outgoing[cell].is_compared = true;
                Ok(())
            }
            (_, kind) => {
                let replied = match kind {
                    MessageKind::Ready => "that it has prepared",
                    _ => "that it has compared",
                };
                Err(Error::Failed(format!(
                    "rank {} replied {replied} an operation that is not at this step; {ENGINE_AT_FAULT}",
                    self.mail.rank_of(index)
                )))
            }
        }
    }

    /// Reads an initiator's request and answers it.
    fn serve(&mut self, index: usize, cell: usize) -> Result<()> {
        if let Some(request) = self.mail.read((index, CellRow::Requests, cell)) {
            let (initiator, kind) = (self.mail.rank_of(index), request.kind);
            let (announced, kind) = match kind {
                MessageKind::Prepare => {
                    let landing = self.prepare(index, request)?;
                    // A read isn't kept, because the target gets no further message about it.
                    let announced = (self.verb != Verb::Read).then_some(landing);
                    (announced, MessageKind::Ready)
                }
                _ => {
                    let landing = (request.offset, request.len);
                    self.compare(landing, (initiator, self.rank), request.number)?;
                    (None, MessageKind::Compared)
                }
            };
            let incoming = &mut self.peers[index].incoming[cell];
            incoming.announced = announced;
            incoming.reply = Some(MailboxMessage { kind, ..request });
        }
        let incoming = self.peers[index].incoming[cell];
        if let (Some(reply), false) = (incoming.reply, incoming.is_writing) {
            let tag = tags::make_tag(tags::REPLY, index * CELLS + cell);
            if self.write((index, CellRow::Replies, cell), &reply, tag)? {
                let incoming = &mut self.peers[index].incoming[cell];
                (incoming.reply, incoming.is_writing) = (None, true);
            }
        }
        Ok(())
    }

    /// Prepares the memory for an announced operation; returns the request with its landing offset.
    fn prepare(&mut self, index: usize, request: MailboxMessage) -> Result<MailboxMessage> {
        let initiator = self.mail.rank_of(index);
        let key = self.key((initiator, self.rank), request.number);
        let offset = match self.verb {
            Verb::Send => {
                let mut landings = self.landings.iter().flatten();
                let number = request.number;
                let landing =
                    landings.find(|landing| (landing.peer, landing.number) == (index, number));
                let none = || {
                    Error::Failed(format!(
                        "message {number} from rank {initiator} has no receive; {ENGINE_AT_FAULT}"
                    ))
                };
                landing.ok_or_else(none)?.offset
            }
            _ => request.offset,
        };
        let key = match self.verb {
            Verb::Read => key,
            _ => key.poison(),
        };
        self.fill(offset, request.len, key)?;
        Ok(MailboxMessage { offset, ..request })
    }

    /// Compares the data of an arrival.
    fn arrived(&mut self, arrival: &Completion, landing: Option<PostedReceive>) -> Result<()> {
        let named = self.names_arrivals.then_some(arrival.lane.0);
        let mail = &self.mail;
        let is_it = |index: usize, announced: &MailboxMessage| match landing {
            Some(landing) => (index, announced.number) == (landing.peer, landing.number),
            None => {
                announced.imm == arrival.imm && named.is_none_or(|peer| peer == mail.rank_of(index))
            }
        };
        let found = self.peers.iter().enumerate().find_map(|(index, ends)| {
            let mut cells = ends.incoming.iter().enumerate();
            cells.find_map(|(cell, incoming)| {
                let announced = incoming
                    .announced
                    .filter(|announced| is_it(index, announced))?;
                Some((index, cell, announced))
            })
        });
        let Some((index, cell, announced)) = found else {
            let origin = named.map_or_else(String::new, |peer| format!(" from rank {peer}"));
            if self.verb == Verb::WriteImm {
                // If this notification replaced another operation's, that operation would wait forever. Therefore end
                // the run.
                return Err(Error::Failed(format!(
                    "an arrival{origin} with immediate {} does not belong to any operation in progress: it arrived \
                     twice, or instead of another; {ENGINE_AT_FAULT}",
                    arrival.imm
                )));
            }
            self.mail.findings.record_difference(format!(
                "a message{origin} does not belong to any operation in progress: one arrived twice; {ENGINE_AT_FAULT}"
            ));
            return Ok(());
        };
        let ends = (self.mail.rank_of(index), self.rank);
        self.compare((announced.offset, announced.len), ends, announced.number)?;
        let incoming = &mut self.peers[index].incoming[cell];
        incoming.announced = None;
        incoming.reply = Some(MailboxMessage {
            kind: MessageKind::Compared,
            ..announced
        });
        Ok(())
    }

    /// Polls the engine and performs all steps that are now possible.
    fn progress(&mut self) -> Result<()> {
        let count = self.engine.poll(&mut self.done[..])?;
        for at in 0..count {
            let completion = self.done[at];
            self.handle_completion(completion)?;
        }
        for index in 0..self.peers.len() {
            if self.peers[index].tells.is_none() {
                continue;
            }
            for cell in 0..self.cells {
                self.read_reply(index, cell)?;
                self.advance(index, cell)?;
                self.serve(index, cell)?;
            }
        }
        let is_settled = self.peers.iter().all(PeerOperations::is_settled);
        self.mail.findings.set_settled(is_settled);
        Ok(())
    }

    /// Handles one completion of the engine.
    fn handle_completion(&mut self, completion: Completion) -> Result<()> {
        let (kind, rest) = tags::split_tag(completion.tag);
        let (index, cell) = (rest / CELLS, rest % CELLS);
        match completion.ending {
            Ending::Failed(_) => {
                self.failed = Some(completion);
                self.finished.push_back(completion);
                Ok(())
            }
            Ending::Arrived => {
                let is_receive = kind == tags::RECEIVE;
                let place = self.landings.get_mut(rest).filter(|_| is_receive);
                let landing = place.and_then(Option::take);
                if !self.mail.findings.is_pass_through() {
                    self.arrived(&completion, landing)?;
                }
                let tag = landing.map_or(completion.tag, |landing| landing.tag);
                self.finished.push_back(Completion { tag, ..completion });
                Ok(())
            }
            Ending::Done => match kind {
                tags::OPERATION => self.note_moved(index, cell),
                tags::FLUSH => {
                    self.peers[index].outgoing[cell].step =
                        InitiatorStep::Ask(MessageKind::Compare);
                    self.advance(index, cell)
                }
                tags::REQUEST => {
                    self.peers[index].outgoing[cell].is_writing = false;
                    Ok(())
                }
                tags::REPLY => {
                    self.peers[index].incoming[cell].is_writing = false;
                    Ok(())
                }
                _ => {
                    let tag = rest as u32;
                    self.finished.push_back(Completion { tag, ..completion });
                    Ok(())
                }
            },
        }
    }

    /// Posts an operation that is not compared; returns whether the engine accepted it.
    fn post_uncompared(&mut self, op: &Op) -> Result<bool> {
        let tag = pass_through_tag(op.tag)?;
        Ok(self.engine.post(&[Op { tag, ..*op }])? == 1)
    }

    /// Posts a receive and notes which message it is for; returns whether the engine accepted it.
    fn receive(&mut self, peer: usize, op: &Op) -> Result<bool> {
        let free = self.landings.iter().position(Option::is_none);
        let place = free.unwrap_or(self.landings.len());
        let tag = tags::make_tag(tags::RECEIVE, place);
        if self.engine.post(&[Op { tag, ..*op }])? == 0 {
            return Ok(false);
        }
        if free.is_none() {
            self.landings.push(None);
        }
        let number = self.peers[peer].receives;
        self.peers[peer].receives += 1;
        self.landings[place] = Some(PostedReceive {
            peer,
            offset: op.local,
            number,
            tag: op.tag,
        });
        Ok(true)
    }
}

/// Returns the tag for an operation that is passed through.
fn pass_through_tag(tag: u32) -> Result<u32> {
    if tag > tags::REST_MAX {
        let why = format!("tag {tag} is too large to be compared; {DEFECT}");
        return Err(Error::Failed(why));
    }
    Ok(tags::make_tag(tags::PASSED, tag as usize))
}

impl Engine for ComparingEngine {
    fn register(&mut self, memory: &Arc<dyn Memory>) -> Result<Region> {
        self.engine.register(memory)
    }

    fn deregister(&mut self, region: RegionId) -> Result<()> {
        self.engine.deregister(region)
    }

    fn endpoint_addresses(&mut self, peers: &[Peer]) -> Result<Vec<EndpointAddress>> {
        self.engine.endpoint_addresses(peers)
    }

    fn connect(&mut self, peers: &[PeerEndpoint]) -> Result<()> {
        self.engine.connect(peers)
    }

    fn meet(&mut self, stopped: &dyn Fn() -> bool) -> Result<()> {
        self.engine.meet(stopped)
    }

    fn lane(&mut self, spec: &LaneSpec<'_>) -> Result<Lane> {
        let index = self.mail.index_of(spec.peer)?;
        let (purpose, delivered) = match spec.kind {
            LaneKind::Initiate(verb) => {
                let asks = verb == Verb::Write && self.asks_delivery;
                (LanePurpose::Initiates(index), spec.delivered || asks)
            }
            LaneKind::Receive => (LanePurpose::Receives(index), spec.delivered),
        };
        let lane = self.engine.lane(&LaneSpec { delivered, ..*spec })?;
        let at = lane.0 as usize;
        if self.purposes.len() <= at {
            self.purposes.resize(at + 1, LanePurpose::Other);
        }
        self.purposes[at] = purpose;
        Ok(lane)
    }

    fn release_lane(&mut self, lane: Lane) {
        if let Some(purpose) = self.purposes.get_mut(lane.0 as usize) {
            *purpose = LanePurpose::Other;
        }
        self.engine.release_lane(lane);
    }

    fn expect(&mut self, peer: Peer, bytes: Option<u32>) -> Result<()> {
        self.engine.expect(peer, bytes)
    }

    fn post(&mut self, ops: &[Op]) -> Result<usize> {
        for (taken, op) in ops.iter().enumerate() {
            let is_taken = match self.purpose(op.lane) {
                LanePurpose::Initiates(index) if !self.mail.findings.is_pass_through() => {
                    self.begin(index, op)?
                }
                LanePurpose::Receives(index) => self.receive(index, op)?,
                LanePurpose::Initiates(_) | LanePurpose::Other => self.post_uncompared(op)?,
            };
            if !is_taken {
                return Ok(taken);
            }
        }
        Ok(ops.len())
    }

    fn flush(&mut self, lane: Lane, tag: u32) -> Result<Flush> {
        self.engine.flush(lane, pass_through_tag(tag)?)
    }

    fn flush_incoming(&mut self) -> Result<bool> {
        self.engine.flush_incoming()
    }

    fn poll(&mut self, done: &mut [Completion]) -> Result<usize> {
        self.progress()?;
        let mut count = 0;
        while count < done.len()
            && let Some(completion) = self.finished.pop_front()
        {
            done[count] = completion;
            count += 1;
        }
        Ok(count)
    }

    fn failure(&self, done: &Completion) -> Failure {
        self.engine.failure(self.failed.as_ref().unwrap_or(done))
    }

    fn arm(&mut self) -> Result<ArmOutcome<'_>> {
        Ok(ArmOutcome::Unsupported)
    }

    fn settle(&mut self, trying: bool) -> bool {
        self.engine.settle(trying)
    }

    fn take_rail_loads(&mut self) -> Vec<RailLoad> {
        self.engine.take_rail_loads()
    }

    fn take_device_events(&mut self) -> Vec<String> {
        self.engine.take_device_events()
    }

    fn chosen(&self) -> Facts {
        self.engine.chosen()
    }
}

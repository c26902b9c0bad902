//! Credits hold back a send's completion until the receiver has consumed the message.
//!
//! Some engines complete a send once the message has left the sender. A sender could then run ahead of its receiver
//! without limit. The depth would bound nothing, receives would run out, and the run would measure the transport's path
//! for unexpected messages. Therefore each receiver counts the messages it has consumed and writes the count into its
//! sender's memory. The sender's port holds completions back until the count covers them. Counts are never reset, so a
//! later count includes all earlier ones.
//!
//! `tonnage_bench::opening::credit_lanes` registers the memory and connects the lanes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonnage_engine::{Completion, Ending, Engine, Lane, Op, Peer};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

/// Distance between two counts in memory. Each count has its own cache line, so that no two peers write to the same
/// line.
const LINE_BYTES: u64 = 64;

/// Bytes of a count.
const COUNT_BYTES: u32 = 8;

/// Maximum number of accounts checked per poll, so that a poll doesn't take longer with more peers.
const LOOKS_PER_POLL: usize = 16;

/// The counts between this worker and one peer, in both directions.
#[derive(Debug)]
struct PeerCredits {
    peer: Peer,
    /// Offset in the peer's memory where this worker writes its count.
    remote: u64,
    /// Messages from the peer that this worker has consumed.
    taken: u64,
    /// The last count sent to the peer.
    told: u64,
    /// True while a count is being written to the peer. The source bytes must not change during the write.
    telling: bool,
    /// The lane that carries counts to the peer. `None` until the first point in which the peer sends messages.
    tells: Option<Lane>,
    /// Completions passed on to the loop.
    released: u64,
    /// Completions of messages that the peer may not have consumed yet, in order.
    held: VecDeque<Completion>,
}

/// Purpose of a lane with respect to credits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LanePurpose {
    Other,
    /// Carries messages to the peer of this account. Their completions are held back.
    Sends(usize),
    /// Carries counts to the peer of this account.
    Tells(usize),
}

/// When a receiver returns credits to its senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditReturn {
    /// Return credits to a sender after this number of its messages.
    pub every: u64,
    /// Return all credits after this number of empty polls since the last arrival.
    pub idle_polls: u32,
}

/// The counts between one worker and all its peers.
#[derive(Debug)]
pub struct Credits {
    arena: Arc<Arena>,
    accounts: Vec<PeerCredits>,
    /// Purposes of lanes, indexed by lane number.
    purposes: Vec<LanePurpose>,
    /// Accounts of peers that send to this worker, indexed by the tag of the receives for each peer.
    senders: Vec<usize>,
    /// Accounts of peers that this worker sends to.
    receivers: Vec<usize>,
    /// The index in `receivers` to check next.
    next: usize,
    /// Consumed messages with credits that have not been returned.
    owed: u64,
    telling: CreditReturn,
    idle_polls: u32,
}

impl Credits {
    /// Returns the bytes needed for the counts of this number of peers.
    pub fn bytes(peers: usize) -> u64 {
        2 * LINE_BYTES * peers.max(1) as u64
    }

    /// Offset where the `index`-th peer writes its count.
    pub fn count_offset(index: usize) -> u64 {
        2 * LINE_BYTES * index as u64
    }

    /// Offset of the count that is sent to the `index`-th peer.
    fn source_offset(index: usize) -> u64 {
        Self::count_offset(index) + LINE_BYTES
    }

    /// Creates empty credits in `arena`.
    pub fn new(arena: Arc<Arena>) -> Self {
        Self {
            arena,
            accounts: Vec::new(),
            purposes: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            next: 0,
            owed: 0,
            telling: CreditReturn {
                every: 1,
                idle_polls: 1,
            },
            idle_polls: 0,
        }
    }

    /// Adds the `index`-th peer, which expects its count at `remote` in its own memory.
    ///
    /// # Errors
    /// If peers are added out of order, or the memory is too small.
    pub fn add(&mut self, peer: Peer, index: usize, remote: u64) -> Result<()> {
        let room = Self::bytes(index + 1) <= self.arena.len() as u64;
        if !room || index != self.accounts.len() {
            return Err(Error::Failed(format!(
                "cannot add rank {peer} as peer {index}: {} peers have credits",
                self.accounts.len()
            )));
        }
        self.accounts.push(PeerCredits {
            peer,
            remote,
            taken: 0,
            told: 0,
            telling: false,
            tells: None,
            released: 0,
            held: VecDeque::new(),
        });
        Ok(())
    }

    /// Begins a point. `sends` lists the lanes of this worker's messages. `tells` lists the lanes that carry counts, in
    /// the order of the receives' tags. At most `depth` messages are in flight on each lane.
    pub fn begin(
        &mut self,
        telling: CreditReturn,
        depth: usize,
        sends: &[(Peer, Lane)],
        tells: &[(Peer, Lane)],
    ) -> Result<()> {
        self.telling = telling;
        self.purposes.clear();
        (self.senders, self.receivers) = (Vec::new(), Vec::new());
        self.next = 0;
        for &(peer, lane) in sends {
            let index = self.index_of_peer(peer)?;
            let held = &mut self.accounts[index].held;
            held.reserve(depth);
            self.receivers.push(index);
            self.mark(lane, LanePurpose::Sends(index));
        }
        for &(peer, lane) in tells {
            let index = self.index_of_peer(peer)?;
            self.accounts[index].tells = Some(lane);
            self.senders.push(index);
            self.mark(lane, LanePurpose::Tells(index));
        }
        Ok(())
    }

    fn index_of_peer(&self, peer: Peer) -> Result<usize> {
        let found = self.accounts.iter().position(|one| one.peer == peer);
        found.ok_or_else(|| Error::Failed(format!("rank {peer} has no credits with this thread")))
    }

    fn mark(&mut self, lane: Lane, purpose: LanePurpose) {
        let at = lane.0 as usize;
        if self.purposes.len() <= at {
            self.purposes.resize(at + 1, LanePurpose::Other);
        }
        self.purposes[at] = purpose;
    }

    /// Removes completions that no peer's count covers yet from `done`, and adds held-back ones that a count now
    /// covers. The first `count` entries come from the engine. Returns the new number of entries.
    #[inline]
    pub fn hold_back_early(&mut self, done: &mut [Completion], count: usize) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let completion = done[at];
            let purpose = match completion.ending {
                Ending::Done => self.purposes.get(completion.lane.0 as usize),
                Ending::Arrived | Ending::Failed(_) => None,
            };
            match purpose.copied().unwrap_or(LanePurpose::Other) {
                LanePurpose::Sends(index) => self.accounts[index].held.push_back(completion),
                LanePurpose::Tells(index) => self.accounts[index].telling = false,
                LanePurpose::Other => {
                    done[kept] = completion;
                    kept += 1;
                }
            }
        }
        for _ in 0..self.receivers.len().min(LOOKS_PER_POLL) {
            let index = self.receivers[self.next];
            self.next = (self.next + 1) % self.receivers.len();
            kept = self.release(index, done, kept);
        }
        kept
    }

    /// Passes on the completions that the peer's count covers.
    #[inline]
    fn release(&mut self, index: usize, done: &mut [Completion], mut kept: usize) -> usize {
        let account = &mut self.accounts[index];
        if account.held.is_empty() {
            return kept;
        }
        let word = self.arena.word(Self::count_offset(index));
        let taken = word.map_or(0, |word| word.load(Ordering::Acquire));
        while account.released < taken
            && kept < done.len()
            && let Some(completion) = account.held.pop_front()
        {
            done[kept] = completion;
            account.released += 1;
            kept += 1;
        }
        kept
    }

    /// Counts a message that filled the receive with this tag. If enough credits are due, returns them to the sender.
    #[inline]
    pub fn count_taken(&mut self, tag: u32, engine: &mut dyn Engine) -> Result<()> {
        let Some(&index) = self.senders.get(tag as usize) else {
            return Ok(());
        };
        self.idle_polls = 0;
        self.owed += 1;
        let account = &mut self.accounts[index];
        account.taken += 1;
        if account.taken - account.told < self.telling.every {
            return Ok(());
        }
        self.return_credits(index, engine)
    }

    /// Counts a poll without arrivals. After `idle_polls` of these polls in a row, returns all credits.
    #[inline]
    pub fn return_when_idle(&mut self, engine: &mut dyn Engine) -> Result<()> {
        if self.owed == 0 {
            return Ok(());
        }
        self.idle_polls += 1;
        if self.idle_polls < self.telling.idle_polls {
            return Ok(());
        }
        self.return_all_credits(engine)
    }

    /// Returns all outstanding credits, as far as the engine has room.
    pub fn return_all_credits(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for at in 0..self.senders.len() {
            self.return_credits(self.senders[at], engine)?;
        }
        Ok(())
    }

    /// Returns whether all credits have been returned and none is in flight.
    pub fn is_settled(&self) -> bool {
        self.owed == 0 && self.accounts.iter().all(|account| !account.telling)
    }

    #[inline]
    fn return_credits(&mut self, index: usize, engine: &mut dyn Engine) -> Result<()> {
        let account = &mut self.accounts[index];
        let (Some(lane), false) = (account.tells, account.telling) else {
            return Ok(());
        };
        if account.taken == account.told {
            return Ok(());
        }
        let source = Self::source_offset(index);
        if let Some(word) = self.arena.word(source) {
            word.store(account.taken, Ordering::Release);
        }
        let taken = engine.post(&[Op {
            lane,
            tag: 0,
            local: source,
            remote: account.remote,
            len: COUNT_BYTES,
            imm: 0,
        }])?;
        if taken == 1 {
            self.owed -= account.taken - account.told;
            account.told = account.taken;
            account.telling = true;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;

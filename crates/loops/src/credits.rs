//! Credits: a message is done once its receiver has taken it.
//!
//! Engines that complete a send when it has left this side would let a sender run away from its receiver: the window
//! bounds nothing, receives run out, and the transport's path for messages that nobody waits for is what is measured.
//! Therefore each receiver counts what it has taken and writes the count into its sender's memory, and the sender's
//! port holds completions back until the count covers them. Counts only grow, from the connection on, so that a later
//! one stands for all before it.
//!
//! Registering the memory and connecting the lanes is in `opening::credit_lanes`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonnage_engine::{Completion, Ending, Engine, Lane, Op, Peer};
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

/// Distance of two counts in memory, so that no two peers write to one cache line.
const LINE_BYTES: u64 = 64;

/// Bytes of a count.
const COUNT_BYTES: u32 = 8;

/// Senders whose counts are looked at in one poll, at most: a poll must not take longer because there are more peers.
const LOOKS_PER_POLL: usize = 16;

/// The counts between this worker and one peer, both ways.
#[derive(Debug)]
struct Account {
    peer: Peer,
    /// Offset at the peer where it wants to be told.
    remote: u64,
    /// Messages of the peer's that were taken here.
    taken: u64,
    /// The last count that the peer was told.
    told: u64,
    /// A count is on its way, and its bytes must not change.
    telling: bool,
    /// The lane that tells the peer; only while it sends.
    tells: Option<Lane>,
    /// Completions that were handed on.
    released: u64,
    /// Completions of messages that the peer may not have taken yet, in their order.
    held: VecDeque<Completion>,
}

/// Purpose of a lane, as far as credits are concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    Other,
    /// Messages of the account with this index, whose completions are held.
    Sends(usize),
    /// Counts of the account with this index.
    Tells(usize),
}

/// Moments at which a receiver tells its senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telling {
    /// Messages of one sender after which it is told at once.
    pub every: u64,
    /// Polls in a row without an arrival after which everything is told.
    pub idle_polls: u32,
}

/// The counts of one worker with all of its peers.
#[derive(Debug)]
pub struct Credits {
    arena: Arc<Arena>,
    accounts: Vec<Account>,
    /// Purposes of lanes by their number.
    purposes: Vec<Purpose>,
    /// Accounts of senders, by the tags of their receives.
    senders: Vec<usize>,
    /// Accounts of receivers.
    receivers: Vec<usize>,
    /// The place in `receivers` that is looked at next.
    next: usize,
    /// Messages that were taken and not told.
    owed: u64,
    telling: Telling,
    idle_polls: u32,
}

impl Credits {
    /// Bytes that the counts with so many peers take.
    pub fn bytes(peers: usize) -> u64 {
        2 * LINE_BYTES * peers.max(1) as u64
    }

    /// Offset at which the `index`-th peer tells this worker.
    pub fn told_at(index: usize) -> u64 {
        2 * LINE_BYTES * index as u64
    }

    /// Offset of the count that is written to the `index`-th peer.
    fn source_at(index: usize) -> u64 {
        Self::told_at(index) + LINE_BYTES
    }

    /// Counts in `arena`, with nobody yet.
    pub fn new(arena: Arc<Arena>) -> Self {
        Self {
            arena,
            accounts: Vec::new(),
            purposes: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            next: 0,
            owed: 0,
            telling: Telling {
                every: 1,
                idle_polls: 1,
            },
            idle_polls: 0,
        }
    }

    /// Adds the `index`-th peer, which wants to be told at `remote` in its own memory.
    ///
    /// # Errors
    /// When peers come out of their order, or the memory is too small.
    pub fn add(&mut self, peer: Peer, index: usize, remote: u64) -> Result<()> {
        let room = Self::bytes(index + 1) <= self.arena.len() as u64;
        if !room || index != self.accounts.len() {
            return Err(Error::Failed(format!(
                "rank {peer} cannot be peer {index} of {} that are counted",
                self.accounts.len()
            )));
        }
        self.accounts.push(Account {
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

    /// Begins a point: `sends` are the lanes of its messages, `tells` the lanes of the counts in the order of the
    /// receives' tags, and at most `window` messages are in flight on each lane.
    pub fn begin(
        &mut self,
        telling: Telling,
        window: usize,
        sends: &[(Peer, Lane)],
        tells: &[(Peer, Lane)],
    ) -> Result<()> {
        self.telling = telling;
        self.purposes.clear();
        (self.senders, self.receivers) = (Vec::new(), Vec::new());
        self.next = 0;
        for &(peer, lane) in sends {
            let index = self.account_of(peer)?;
            let held = &mut self.accounts[index].held;
            held.reserve(window);
            self.receivers.push(index);
            self.mark(lane, Purpose::Sends(index));
        }
        for &(peer, lane) in tells {
            let index = self.account_of(peer)?;
            self.accounts[index].tells = Some(lane);
            self.senders.push(index);
            self.mark(lane, Purpose::Tells(index));
        }
        Ok(())
    }

    fn account_of(&self, peer: Peer) -> Result<usize> {
        let found = self.accounts.iter().position(|one| one.peer == peer);
        found.ok_or_else(|| Error::Failed(format!("rank {peer} has no credits with this worker")))
    }

    fn mark(&mut self, lane: Lane, purpose: Purpose) {
        let at = lane.0 as usize;
        if self.purposes.len() <= at {
            self.purposes.resize(at + 1, Purpose::Other);
        }
        self.purposes[at] = purpose;
    }

    /// Holds back what `done` reports too early, adds what peers have taken meanwhile, and returns how many there are
    /// now; `count` of them came from the engine.
    #[inline]
    pub fn sift(&mut self, done: &mut [Completion], count: usize) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let completion = done[at];
            let purpose = match completion.ending {
                Ending::Done => self.purposes.get(completion.lane.0 as usize),
                Ending::Arrived | Ending::Failed(_) => None,
            };
            match purpose.copied().unwrap_or(Purpose::Other) {
                Purpose::Sends(index) => self.accounts[index].held.push_back(completion),
                Purpose::Tells(index) => self.accounts[index].telling = false,
                Purpose::Other => {
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

    /// Hands on the completions that the peer's count covers.
    #[inline]
    fn release(&mut self, index: usize, done: &mut [Completion], mut kept: usize) -> usize {
        let account = &mut self.accounts[index];
        if account.held.is_empty() {
            return kept;
        }
        let word = self.arena.word(Self::told_at(index));
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

    /// Counts a message that filled the receive with this tag, and tells its sender when enough have come.
    #[inline]
    pub fn took(&mut self, tag: u32, engine: &mut dyn Engine) -> Result<()> {
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
        self.tell(index, engine)
    }

    /// Spends a poll without arrivals; after a few of them everything is told.
    #[inline]
    pub fn idle(&mut self, engine: &mut dyn Engine) -> Result<()> {
        if self.owed == 0 {
            return Ok(());
        }
        self.idle_polls += 1;
        if self.idle_polls < self.telling.idle_polls {
            return Ok(());
        }
        self.tell_all(engine)
    }

    /// Tells every sender what it does not know yet, as far as the engine has room.
    pub fn tell_all(&mut self, engine: &mut dyn Engine) -> Result<()> {
        for at in 0..self.senders.len() {
            self.tell(self.senders[at], engine)?;
        }
        Ok(())
    }

    /// Returns whether every sender has been told everything, and nothing of it is on its way.
    pub fn is_settled(&self) -> bool {
        self.owed == 0 && self.accounts.iter().all(|account| !account.telling)
    }

    #[inline]
    fn tell(&mut self, index: usize, engine: &mut dyn Engine) -> Result<()> {
        let account = &mut self.accounts[index];
        let (Some(lane), false) = (account.tells, account.telling) else {
            return Ok(());
        };
        if account.taken == account.told {
            return Ok(());
        }
        let source = Self::source_at(index);
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

//! Lies about several operations. Comparing only the last operation on a slot does not reveal them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_engine::memory::Memory;
use tonnage_engine::{Completion, Ending, LaneKind, Op, Verb};
use tonnage_units::Result;
use tonnage_units::lock::lock;

use super::lie::Lie;
use super::{Worker, unknown};

/// Time that a target gets to check an arrival. It is also the longest time until the target must have polled the
/// arrival.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Bytes of an operation, and where they are to be written.
pub struct Delivery {
    to: Arc<dyn Memory>,
    at: u64,
    bytes: Vec<u8>,
}

impl Delivery {
    fn land(&self) -> Result<()> {
        self.to.write(self.at, &self.bytes)
    }
}

/// State of a lie that involves several operations.
#[derive(Default)]
pub struct LieState {
    /// An operation that is delayed until the next one is posted.
    held: Option<Op>,
    /// A delivery that will be repeated, or the rest of a delivery that was made in part.
    kept: Option<Delivery>,
}

impl Worker {
    /// Handles an operation, which may be part of a lie. Returns whether the operation was accepted.
    pub(super) fn deceive(&mut self, lie: Lie, verb: Verb, op: &Op) -> Result<bool> {
        let since = self.initiated.wrapping_sub(self.at);
        let mut ops = vec![*op];
        match (lie, since) {
            (Lie::Exchange, 0) => {
                self.lie_state.held = Some(*op);
                self.initiated += 1;
                return Ok(true);
            }
            (Lie::Exchange, 1) => {
                if let Some(first) = self.lie_state.held.take() {
                    ops = exchanged(verb, first, *op);
                    self.completed(&first);
                }
            }
            (Lie::Again, 1) if verb == Verb::WriteImm => ops[0].imm -= 1,
            (Lie::Again, 2) if verb == Verb::WriteImm => ops[0].imm += 1,
            (Lie::Again, 0) if verb != Verb::WriteImm => {
                self.lie_state.kept = Some(self.delivery(verb, op)?);
            }
            (Lie::Short, 0) => self.lie_state.kept = Some(self.delivery(verb, op)?),
            (Lie::Short, 1) => self.land_kept()?,
            _ => {}
        }
        let again = lie == Lie::Again && since > 0 && self.lands_on_kept(verb, op)?;
        let lie_here = match (lie, since) {
            (Lie::Short, 0) => Some(Lie::Truncate),
            _ => again.then_some(Lie::Again),
        };
        for (before, op) in ops.iter().enumerate() {
            if before > 0 {
                self.let_peer_look(op)?;
            }
            if !self.carry_out(op, lie_here)? {
                return Ok(false);
            }
        }
        if again {
            self.lie_state.kept = None;
        }
        self.completed(op);
        self.initiated += 1;
        Ok(true)
    }

    /// Waits until an operation's target has taken all earlier notifications, and has had time to look at them.
    fn let_peer_look(&self, op: &Op) -> Result<()> {
        let inbox = self.inbox_of(self.lane_of(op.lane)?.peer)?;
        let until = Instant::now() + LOOK_MAX;
        while !lock(&inbox.arrivals).is_empty() && Instant::now() < until {
            std::thread::yield_now();
        }
        std::thread::sleep(LOOK);
        Ok(())
    }

    /// Returns whether an operation is written to the same place as the kept delivery.
    fn lands_on_kept(&self, verb: Verb, op: &Op) -> Result<bool> {
        let Some(kept) = &self.lie_state.kept else {
            return Ok(false);
        };
        Ok(self.delivery(verb, op)?.at == kept.at)
    }

    fn land_kept(&mut self) -> Result<()> {
        self.land_again()?;
        self.lie_state.kept = None;
        Ok(())
    }

    pub(super) fn land_again(&self) -> Result<()> {
        self.lie_state.kept.as_ref().map_or(Ok(()), Delivery::land)
    }

    fn completed(&mut self, op: &Op) {
        self.done.push_back(Completion::new(op, Ending::Done));
    }

    /// Returns the bytes of an operation, and where they are to be written.
    fn delivery(&self, verb: Verb, op: &Op) -> Result<Delivery> {
        let lane = self.lane_of(op.lane)?;
        let peer = self.inbox_of(lane.peer)?;
        let own = self.inbox.memory(lane.local)?;
        let far = peer.memory(lane.remote)?;
        assert!(matches!(lane.kind, LaneKind::Initiate(_)), "no receive");
        let ((from, source), (to, at)) = match verb {
            Verb::Read => ((far, op.remote), (own, op.local)),
            Verb::Send => {
                let receives = lock(&peer.receives);
                let next = receives.get(&self.rank).and_then(|queue| queue.front());
                let next = next.ok_or_else(|| unknown("a receive"))?;
                ((own, op.local), (far, next.local))
            }
            _ => ((own, op.local), (far, op.remote)),
        };
        let mut bytes = vec![0; op.len as usize];
        from.read(source, &mut bytes)?;
        Ok(Delivery { to, at, bytes })
    }
}

/// Returns the two operations with their deliveries exchanged.
fn exchanged(verb: Verb, first: Op, second: Op) -> Vec<Op> {
    let swap = |one: Op, other: Op| match verb {
        Verb::WriteImm => Op {
            imm: other.imm,
            ..one
        },
        Verb::Read => Op {
            local: other.local,
            ..one
        },
        _ => Op {
            remote: other.remote,
            ..one
        },
    };
    match verb {
        // The place of a message is determined by the order of arrival.
        Verb::Send => vec![second, first],
        _ => vec![swap(first, second), swap(second, first)],
    }
}

//! All ranks, the messages between them, and the order of events.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::Case;
use super::clock::{Knowledge, Timetable};
use super::memory::Access;
use super::rank::{Arrival, Rank, expected};
use super::value::Value;
use crate::steps::{Buffer, GRANTS_INITIAL, Step};

/// Order of events.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Each rank runs until it must wait, and puts arrive immediately.
    Straight,
    /// Ranks run in random order. Messages arrive at random times, but in order for each pair of ranks.
    Paired(u64),
    /// Ranks run in random order, and messages arrive in any order.
    Any(u64),
}

/// A put that has not arrived.
struct PendingPut {
    from: u32,
    to: u32,
    source: Range<usize>,
    target: Range<usize>,
    /// Values of the source when the sender left the call; `None` before that.
    values: Option<Vec<Value>>,
    message: Option<u32>,
    call: u32,
    known: Rc<Knowledge>,
}

/// Grants of a rank to a peer: the rank's knowledge at the time of each grant, and the number of grants that have
/// arrived.
#[derive(Default)]
struct Grants {
    issued: Vec<Rc<Knowledge>>,
    arrived: u32,
}

struct Simulation<'a> {
    case: &'a Case,
    times: Vec<Timetable>,
    ranks: Vec<Rank>,
    pending: Vec<PendingPut>,
    grants: HashMap<(u32, u32), Grants>,
    /// Ranks that may be able to continue.
    awake: Vec<u32>,
    order: Order,
    state: u64,
}

/// Executes all calls.
///
/// # Errors
/// The first fault that occurs, or that could occur in another order of events.
pub fn run(case: &Case, order: Order) -> Result<(), String> {
    let programs = (0..).zip(&case.programs);
    let times: Result<_, String> = programs
        .map(|(rank, program)| Timetable::new(rank, program))
        .collect();
    let ranks = 0..case.programs.len() as u32;
    let mut simulation = Simulation {
        case,
        times: times?,
        ranks: ranks.clone().map(|rank| Rank::new(case, rank)).collect(),
        pending: Vec::new(),
        grants: HashMap::new(),
        awake: ranks.clone().rev().collect(),
        order,
        state: match order {
            Order::Straight => 0,
            Order::Paired(seed) | Order::Any(seed) => seed,
        },
    };
    for rank in ranks {
        simulation
            .enter(rank)
            .map_err(|why| simulation.at(rank, &why))?;
    }
    simulation.go()?;
    simulation.ended()
}

impl Simulation<'_> {
    fn at(&self, rank: u32, why: &str) -> String {
        let state = &self.ranks[rank as usize];
        let step = self.case.programs[rank as usize]
            .steps
            .get(state.next as usize);
        format!(
            "rank {rank}, call {}, step {} ({step:?}): {why}",
            state.call, state.next
        )
    }

    /// Returns a random number below a bound (SplitMix64).
    fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    fn go(&mut self) -> Result<(), String> {
        loop {
            let is_random = !matches!(self.order, Order::Straight);
            if !self.pending.is_empty() && (self.awake.is_empty() || is_random && self.draw(4) == 0)
            {
                self.deliver_one()?;
                continue;
            }
            let Some(last) = self.awake.len().checked_sub(1) else {
                return Ok(());
            };
            let (index, steps) = match is_random {
                true => (self.draw(last + 1), [1, 3, 20, usize::MAX][self.draw(4)]),
                false => (last, usize::MAX),
            };
            let rank = self.awake.swap_remove(index);
            if self.walk(rank, steps).map_err(|why| self.at(rank, &why))? {
                self.awake.push(rank);
            }
        }
    }

    /// Executes up to `steps` steps of a rank. Returns whether the rank can continue.
    fn walk(&mut self, rank: u32, steps: usize) -> Result<bool, String> {
        let case = self.case;
        let program = &case.programs[rank as usize].steps;
        for _ in 0..steps {
            let state = &mut self.ranks[rank as usize];
            if state.call == case.calls {
                return Ok(false);
            }
            let Some(step) = program.get(state.next as usize) else {
                self.leave(rank)?;
                continue;
            };
            state
                .known
                .reach(self.times[rank as usize].step(state.call, state.next));
            if !self.step(rank, step)? {
                return Ok(false);
            }
            self.ranks[rank as usize].next += 1;
        }
        Ok(true)
    }

    /// Executes a step. Returns false if the rank must wait.
    fn step(&mut self, rank: u32, step: &Step) -> Result<bool, String> {
        let state = &mut self.ranks[rank as usize];
        match *step {
            Step::Await { message } => return state.take(message),
            Step::Put { .. } => self.put(rank, step)?,
            Step::Grant { peer } => self.grant(rank, peer)?,
            Step::Claim { peer } => {
                let claims = state.claims.entry(peer).or_default();
                let grants = self.grants.entry((peer, rank)).or_default();
                if *claims >= GRANTS_INITIAL + grants.arrived {
                    return Ok(false);
                }
                if let Some(index) = claims.checked_sub(GRANTS_INITIAL) {
                    state.known.learn(&grants.issued[index as usize]);
                }
                *claims += 1;
            }
            _ => {
                let element_bytes = self.case.shape.dtype.bytes();
                let moment = self.times[rank as usize].step(state.call, state.next);
                state.compute(step, moment, element_bytes)?;
            }
        }
        Ok(true)
    }

    fn put(&mut self, rank: u32, step: &Step) -> Result<(), String> {
        let Step::Put {
            peer,
            message,
            from,
            to,
            bytes,
        } = *step
        else {
            return Ok(());
        };
        let state = &mut self.ranks[rank as usize];
        let (call, times) = (state.call, &self.times[peer as usize]);
        let awaited = times.awaited(call, message)?;
        if call >= 2 && !state.known.includes(times.awaited(call - 2, message)?) {
            return Err(format!(
                "message {message} may arrive before that of call {} has been awaited",
                call - 2
            ));
        }
        let known = Rc::new(state.known.clone());
        let (mut source, mut target) = (0..0, 0..0);
        if bytes > 0 {
            if to.buffer == Buffer::Input {
                return Err("puts into an input".to_owned());
            }
            if to.buffer == Buffer::Output && !known.includes(times.enter(call)) {
                return Err(format!("rank {peer} may not have entered the call"));
            }
            let left = self.times[rank as usize].leave(call);
            source = state.lend(from, bytes, [awaited, left])?;
            let memory = &mut self.ranks[peer as usize].memory;
            target = memory.range(to, bytes, call)?;
            memory.write(target.clone(), Access::at(awaited), &known)?;
        }
        self.pending.push(PendingPut {
            from: rank,
            to: peer,
            source,
            target,
            values: None,
            message: Some(message),
            call,
            known,
        });
        match self.order {
            Order::Straight => self.deliver_one(),
            _ => Ok(()),
        }
    }

    fn grant(&mut self, rank: u32, peer: u32) -> Result<(), String> {
        let known = Rc::new(self.ranks[rank as usize].known.clone());
        let grants = self.grants.entry((rank, peer)).or_default();
        grants.issued.push(known.clone());
        let claims = self.ranks[peer as usize].claims.get(&rank);
        if grants.issued.len() as u32 > claims.copied().unwrap_or(0) {
            return Err(format!("grants more than rank {peer} has claimed"));
        }
        self.pending.push(PendingPut {
            from: rank,
            to: peer,
            source: 0..0,
            target: 0..0,
            values: None,
            message: None,
            call: 0,
            known,
        });
        match self.order {
            Order::Straight => self.deliver_one(),
            _ => Ok(()),
        }
    }

    /// Delivers a put or a grant.
    fn deliver_one(&mut self) -> Result<(), String> {
        let drawn = self.draw(self.pending.len());
        let index = match self.order {
            Order::Any(_) => drawn,
            _ => {
                let pair = |put: &PendingPut| (put.from, put.to);
                let drawn = pair(&self.pending[drawn]);
                self.pending
                    .iter()
                    .position(|put| pair(put) == drawn)
                    .unwrap()
            }
        };
        let put = self.pending.remove(index);
        let values = match put.values {
            Some(values) => values,
            None => self.ranks[put.from as usize].memory.values(put.source),
        };
        let state = &mut self.ranks[put.to as usize];
        state.memory.store(put.target, values);
        match put.message {
            Some(message) => {
                let flag = &mut state.arrived[put.call as usize % 2][message as usize];
                let (call, known) = (put.call, put.known);
                if flag.replace(Arrival { call, known }).is_some() {
                    return Err(format!(
                        "message {message} arrived at rank {} twice",
                        put.to
                    ));
                }
            }
            None => self.grants.entry((put.from, put.to)).or_default().arrived += 1,
        }
        if !self.awake.contains(&put.to) {
            self.awake.push(put.to);
        }
        Ok(())
    }

    fn enter(&mut self, rank: u32) -> Result<(), String> {
        let state = &mut self.ranks[rank as usize];
        let moment = self.times[rank as usize].enter(state.call);
        state.known.reach(moment);
        state.memory.enter(rank, state.call, (moment, &state.known))
    }

    /// Leaves a call and enters the next one.
    fn leave(&mut self, rank: u32) -> Result<(), String> {
        let state = &mut self.ranks[rank as usize];
        let moment = self.times[rank as usize].leave(state.call);
        state.known.reach(moment);
        for put in &mut self.pending {
            if put.from == rank && put.values.is_none() {
                put.values = Some(state.memory.values(put.source.clone()));
            }
        }
        let (shape, call) = (&self.case.shape, (rank, state.call));
        let proves_nothing = shape.op.is_rooted() || shape.sends_to(0).is_some();
        let is_known = |times: &&Timetable| state.known.includes(times.enter(call.1));
        if !proves_nothing
            && let Some(other) = self.times.iter().position(|times| !is_known(&times))
        {
            return Err(format!(
                "leaves the call, which rank {other} may not have entered"
            ));
        }
        let expected = |element| expected(shape, self.case.reduction, call, element);
        state
            .memory
            .leave(rank, state.call, (moment, &state.known), expected)?;
        state.call += 1;
        state.next = 0;
        match state.call < self.case.calls {
            true => self.enter(rank),
            false => Ok(()),
        }
    }

    /// Called when no rank can continue. Checks that no rank waits, and that no message or grant is left over.
    fn ended(&self) -> Result<(), String> {
        for (rank, state) in (0..).zip(&self.ranks) {
            if state.call < self.case.calls {
                return Err(self.at(rank, "deadlock: waits for ever"));
            }
            for (peer, claims) in &state.claims {
                let grants = self
                    .grants
                    .get(&(*peer, rank))
                    .map_or(0, |grants| grants.arrived);
                if grants != *claims {
                    return Err(format!(
                        "rank {rank} claimed {claims} times, and rank {peer} granted {grants} times"
                    ));
                }
            }
            if let Some(message) = state
                .arrived
                .iter()
                .flat_map(|flags| flags.iter().position(Option::is_some))
                .next()
            {
                return Err(format!(
                    "message {message} of rank {rank} was never awaited"
                ));
            }
        }
        Ok(())
    }
}

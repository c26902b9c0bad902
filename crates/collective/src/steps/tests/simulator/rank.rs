//! One rank and its progress through the calls.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::Case;
use super::clock::{Knowledge, Moment};
use super::memory::{Access, Memory};
use super::value::{Contributions, Value};
use crate::steps::{Place, Step};
use crate::{Collective, Reduction, Shape};

/// A message that has arrived.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub call: u32,
    pub known: Rc<Knowledge>,
}

/// State of a rank.
#[derive(Debug)]
pub struct Rank {
    pub call: u32,
    /// Index of the next step in the call.
    pub next: u32,
    pub known: Knowledge,
    pub memory: Memory,
    /// Arrived messages, in two sets. Consecutive calls alternate between the sets.
    pub arrived: [Vec<Option<Arrival>>; 2],
    /// Number of grants that this rank has claimed from each peer.
    pub claims: HashMap<u32, u32>,
}

impl Rank {
    pub fn new(case: &Case, rank: u32) -> Self {
        let flags = vec![None; case.programs[rank as usize].messages as usize];
        Self {
            call: 0,
            next: 0,
            known: Knowledge::nothing(case.programs.len()),
            memory: Memory::new(case, rank),
            arrived: [flags.clone(), flags],
            claims: HashMap::new(),
        }
    }

    /// Takes a message if it has arrived. Returns whether it had.
    pub fn take(&mut self, message: u32) -> Result<bool, String> {
        let flag = &mut self.arrived[self.call as usize % 2][message as usize];
        let Some(arrival) = flag.take() else {
            return Ok(false);
        };
        if arrival.call != self.call {
            return Err(format!("message {message} is of call {}", arrival.call));
        }
        self.known.learn(&arrival.known);
        Ok(true)
    }

    /// Executes a step that only touches this rank's elements.
    pub fn compute(
        &mut self,
        step: &Step,
        moment: Moment,
        element_bytes: u64,
    ) -> Result<(), String> {
        let bytes = |elements: u64| elements * element_bytes;
        match *step {
            Step::Fold { from, to, elements } => {
                self.write((from, to, to), bytes(elements), moment, combined)
            }
            Step::Combine {
                one,
                other,
                to,
                elements,
            } => self.write((one, other, to), bytes(elements), moment, combined),
            Step::Copy { from, to, bytes } => {
                self.write((from, from, to), bytes, moment, |value, _| Ok(value))
            }
            Step::Divide { at, elements } => {
                let divided = |value: Value, _| require(value)?.divide();
                self.write((at, at, at), bytes(elements), moment, |one, other| {
                    divided(one, other).map(Some)
                })
            }
            _ => Ok(()),
        }
    }

    fn write(
        &mut self,
        (one, other, to): (Place, Place, Place),
        bytes: u64,
        moment: Moment,
        f: impl Fn(Value, Value) -> Result<Value, String>,
    ) -> Result<(), String> {
        let access = Access::at(moment);
        let target = self.memory.range(to, bytes, self.call)?;
        let mut operand = |place: Place| {
            let range = self.memory.range(place, bytes, self.call)?;
            let overlaps = range.start < target.end && target.start < range.end;
            if overlaps && place != to {
                return Err(format!("{place:?} overlaps with {to:?}"));
            }
            self.memory.read(range.clone(), access, &self.known)?;
            Ok(self.memory.values(range))
        };
        let (one, other) = (operand(one)?, operand(other)?);
        self.memory.write(target.clone(), access, &self.known)?;
        let values: Result<_, String> = one
            .into_iter()
            .zip(other)
            .map(|(one, other)| f(one, other))
            .collect();
        self.memory.store(target, values?);
        Ok(())
    }

    /// Records that elements of this rank may be read until one of two moments, and returns the elements.
    pub fn lend(
        &mut self,
        from: Place,
        bytes: u64,
        ends: [Moment; 2],
    ) -> Result<Range<usize>, String> {
        let range = self.memory.range(from, bytes, self.call)?;
        self.memory.read(range.clone(), Access(ends), &self.known)?;
        Ok(range)
    }
}

fn require(value: Value) -> Result<Contributions, String> {
    value.ok_or("nothing was there to be folded".to_owned())
}

fn combined(one: Value, other: Value) -> Result<Value, String> {
    require(one)?.with(require(other)?).map(Some)
}

/// Expected content of an element of a rank's output after a call.
pub fn expected(
    shape: &Shape,
    reduction: Reduction,
    (rank, call): (u32, u32),
    element: u32,
) -> Value {
    let block = shape.block as u32;
    let is_divided = reduction == Reduction::Avg;
    let one = |rank, element| Some(Contributions::from_one(rank, element, call));
    let all = |element| match shape.ranks {
        1 => one(0, element),
        ranks => Some(Contributions::from_all(ranks, element, call, is_divided)),
    };
    match shape.op {
        Collective::AllReduce | Collective::Reduce => all(element),
        Collective::ReduceScatter => all(rank * block + element),
        Collective::AllGather | Collective::Gather => one(element / block, element % block),
        Collective::AllToAll => one(element / block, rank * block + element % block),
        Collective::Broadcast => one(shape.root, element),
        Collective::Scatter => one(shape.root, rank * block + element),
        Collective::SendRecvPairs | Collective::SendRecvRing => {
            one(shape.receives_from(rank).unwrap(), element)
        }
        Collective::Barrier => None,
    }
}

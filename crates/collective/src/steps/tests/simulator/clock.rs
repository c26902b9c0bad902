//! Logical time of each rank, and what each rank knows about the time of others.

use std::rc::Rc;

use crate::steps::{Program, Step};

/// A point in a rank's logical time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub rank: u32,
    pub tick: u32,
}

/// For each rank, the latest moment that this rank is known to have reached.
#[derive(Debug, Clone)]
pub struct Knowledge(Vec<u32>);

impl Knowledge {
    pub fn nothing(ranks: usize) -> Self {
        Self(vec![0; ranks])
    }

    /// Advances the owner's time to one of its own moments.
    pub fn reach(&mut self, moment: Moment) {
        self.0[moment.rank as usize] = moment.tick;
    }

    /// Adds another rank's knowledge.
    pub fn learn(&mut self, other: &Rc<Self>) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    pub fn includes(&self, moment: Moment) -> bool {
        self.0[moment.rank as usize] >= moment.tick
    }
}

/// Moments in a rank's program: entering a call, each step, and leaving the call.
#[derive(Debug)]
pub struct Timetable {
    rank: u32,
    steps: u32,
    /// For each message, the step that awaits it.
    awaits: Vec<Option<u32>>,
}

impl Timetable {
    pub fn new(rank: u32, program: &Program) -> Result<Self, String> {
        let mut awaits = vec![None; program.messages as usize];
        for (index, step) in (0..).zip(&program.steps) {
            let Step::Await { message } = step else {
                continue;
            };
            let awaited = awaits.get_mut(*message as usize);
            let awaited =
                awaited.ok_or(format!("rank {rank} awaits message {message}: too high"))?;
            if awaited.replace(index).is_some() {
                return Err(format!("rank {rank} awaits message {message} twice"));
            }
        }
        let steps = program.steps.len() as u32;
        Ok(Self {
            rank,
            steps,
            awaits,
        })
    }

    fn moment(&self, call: u32, position: u32) -> Moment {
        Moment {
            rank: self.rank,
            tick: call * (self.steps + 2) + position + 1,
        }
    }

    pub fn enter(&self, call: u32) -> Moment {
        self.moment(call, 0)
    }

    pub fn step(&self, call: u32, index: u32) -> Moment {
        self.moment(call, 1 + index)
    }

    pub fn leave(&self, call: u32) -> Moment {
        self.moment(call, 1 + self.steps)
    }

    /// The moment when a message has been awaited.
    pub fn awaited(&self, call: u32, message: u32) -> Result<Moment, String> {
        let index = self.awaits.get(message as usize).copied().flatten();
        let index = index.ok_or(format!(
            "rank {} does not await message {message}",
            self.rank
        ))?;
        Ok(self.step(call, index))
    }
}

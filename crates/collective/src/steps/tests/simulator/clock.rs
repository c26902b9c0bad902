//! Time, as each rank counts its own, and knowledge of the others'.

use std::rc::Rc;

use crate::steps::{Program, Step};

/// A moment of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub rank: u32,
    pub tick: u32,
}

/// For each rank a moment that it has reached.
#[derive(Debug, Clone)]
pub struct Known(Vec<u32>);

impl Known {
    pub fn nothing(ranks: usize) -> Self {
        Self(vec![0; ranks])
    }

    /// Goes on to a moment of the rank that knows this.
    pub fn reach(&mut self, moment: Moment) {
        self.0[moment.rank as usize] = moment.tick;
    }

    /// Learns what another rank knew.
    pub fn learn(&mut self, other: &Rc<Self>) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    pub fn includes(&self, moment: Moment) -> bool {
        self.0[moment.rank as usize] >= moment.tick
    }
}

/// Moments of a rank's program: entering a call, its steps, and leaving it.
#[derive(Debug)]
pub struct Timetable {
    rank: u32,
    steps: u32,
    /// Step at which each message is awaited.
    awaits: Vec<Option<u32>>,
}

impl Timetable {
    pub fn of(rank: u32, program: &Program) -> Result<Self, String> {
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

    /// The moment at which a message has been awaited.
    pub fn awaited(&self, call: u32, message: u32) -> Result<Moment, String> {
        let index = self.awaits.get(message as usize).copied().flatten();
        let index = index.ok_or(format!(
            "rank {} does not await message {message}",
            self.rank
        ))?;
        Ok(self.step(call, index))
    }
}

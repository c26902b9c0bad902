//! Transfers drawn from a seed. A draw consists of options as a user would write them, and expands like any transfer.
//! `tonnage transfer` can therefore repeat it.
//!
//! Transfers are drawn in groups of eight (stretches). The transfers of a group share an engine, an operation, traffic,
//! memories, threads and paths, so that they can share open endpoints. Sizes, pacing, calls and offsets are drawn for
//! each transfer. A transfer that expansion refuses is drawn again. For a given experiment, a draw depends only on the
//! seed, the engine and the draw's number.

use super::point::StressPoint;
use super::random::RandomSource;
use crate::cells::Cell;
use crate::kind::Kind;
use crate::options::{Many, Pair, command_line};
use crate::point::{BoundChoice, MatrixRounds, Traffic};
use crate::roles::Roles;
use crate::sweep::Sweep;
use crate::transfer::{
    Access, BatchMerge, BatchOf, BatchingOptions, CallsPerBatch, IssuingOptions, LengthOptions,
    LibraryOptions, MeasureOptions, MemoryOptions, OperationOptions, PacingOptions, SessionUse,
    TargetFootprint, Transfer, TransferApi, TransferPoint, Verification,
};
use tonnage_engine::{Lists, Verb};
use tonnage_units::{Bytes, Count, Nanos, Result};

/// Number of transfers of one group. Opening an engine takes about as long as several transfers.
pub const DRAWS_OF_STRETCH: usize = 8;

/// Number of refused draws in a row after which a plain transfer is used instead.
const TRIES: u32 = 64;

/// Maximum number of bytes that the operations of one rank touch, unless a single operation is longer. These bytes are
/// filled before each transfer and checked after it.
const WALKED_BYTES: u64 = 8 << 20;

/// Maximum number of bytes between two slots.
const GAP_BYTES_MAX: u64 = 4096;

/// Maximum number of operations of a thread in a transfer.
const OPERATIONS_MAX: u64 = 1024;

/// Maximum number of round trips. If threads share CPUs, a round trip takes as long as many operations.
const ROUND_TRIPS_MAX: u64 = 32;

const DEPTH_MAX: u64 = 64;

/// Orders of slots to draw from. Most of them use each slot once, so that the data of every operation is checked.
const ORDERS: [Access; 6] = [
    Access::Sequential,
    Access::Sequential,
    Access::Permuted,
    Access::Permuted,
    Access::Random,
    Access::Fixed,
];

/// Maximum number of ranks for patterns in which ranks take turns, because more would take too long. For patterns in
/// which all ranks are peers, more would need too many connections.
const RANKS_IN_TURN_MAX: u32 = 16;
const RANKS_MESHED_MAX: u32 = 64;

/// One random transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnTransfer {
    /// The transfer as a user would request it.
    pub transfer: Transfer,
    /// The one point that it expands to.
    pub point: TransferPoint,
}

impl DrawnTransfer {
    /// Returns the arguments of `tonnage` that request only this transfer, without the number of ranks.
    pub fn arguments(&self) -> Result<Vec<String>> {
        command_line::arguments(&self.transfer)
    }
}

impl StressPoint {
    /// Returns the operations to draw from for an engine.
    pub fn ops_of(&self, engine: &str, lists: &Lists) -> Result<Vec<Verb>> {
        let verbs = lists.engine(engine)?.verbs;
        let can = |verb: &Verb| verbs.contains(verb);
        Ok(self.ops.iter().copied().filter(can).collect())
    }

    /// Returns group `number` (from 0) of an engine's transfers. With N operations, groups kN to kN + N - 1 use each
    /// operation once.
    pub fn draw_group(
        &self,
        engine: &str,
        number: u64,
        lists: &Lists,
    ) -> Result<Vec<DrawnTransfer>> {
        let ops = self.ops_of(engine, lists)?;
        let at = self.engines().position(|other| other == engine);
        let (seed, at) = (self.seed, at.unwrap_or(0) as u64);
        let many = ops.len().max(1) as u64;
        let op = shuffle_ops(&ops, &mut RandomSource::new(&[seed, at, number / many, 0]));
        let op = op.get((number % many) as usize).copied();
        let mut drawing = GroupDrawing {
            stress: self,
            engine,
            op: op.unwrap_or(Verb::Write),
            lists,
            dice: RandomSource::new(&[seed, at, number, 1]),
        };
        let base = drawing.draw_common()?;
        let draws = (0..DRAWS_OF_STRETCH).map(|_| drawing.draw_varied(&base));
        draws.collect()
    }
}

/// Returns the operations in a random order.
fn shuffle_ops(ops: &[Verb], dice: &mut RandomSource) -> Vec<Verb> {
    let mut ops = ops.to_vec();
    for end in (1..ops.len()).rev() {
        ops.swap(end, dice.between(0, end as u64) as usize);
    }
    ops
}

/// State while a group is drawn.
struct GroupDrawing<'a> {
    stress: &'a StressPoint,
    engine: &'a str,
    op: Verb,
    lists: &'a Lists,
    dice: RandomSource,
}

impl GroupDrawing<'_> {
    /// Expands a transfer to a draw, if it is valid.
    fn expand(&self, transfer: Transfer) -> Result<DrawnTransfer> {
        let cells = transfer.cells(self.stress.ranks, self.lists, 1)?;
        match cells.into_iter().next() {
            Some(Cell { point, .. }) => Ok(DrawnTransfer { transfer, point }),
            None => crate::refuse::usage_error("nothing was drawn"),
        }
    }

    /// Draws the options that all transfers of the group share. The result is a plain transfer with these options.
    fn draw_common(&mut self) -> Result<DrawnTransfer> {
        for _ in 0..TRIES {
            let transfer = self.draw_common_options();
            if let Ok(draw) = self.expand(transfer) {
                return Ok(draw);
            }
        }
        let plain = self.plainest_transfer();
        self.expand(plain)
    }

    /// Returns the simplest transfer of the group, for when all draws were refused.
    fn plainest_transfer(&self) -> Transfer {
        let engine_options = self.stress.engine_options.iter();
        let engine_options = engine_options.map(|(name, value)| (name.clone(), value.clone()));
        let memory = self.stress.memories().next();
        Transfer {
            what: OperationOptions {
                engine: Some(Many(vec![self.engine.to_owned()])),
                engine_options: engine_options.collect::<Vec<Pair>>(),
                op: Some(Many(vec![self.op])),
                traffic: Some(Traffic::Shift),
                sizes: Some(Sweep::single(self.stress.size_bytes_max.into())),
                threads: self.stress.threads.first().and_then(sweep_of_one),
                ..OperationOptions::default()
            },
            pacing: PacingOptions {
                depth: Some(Sweep::single(1)),
                ..PacingOptions::default()
            },
            length: LengthOptions {
                trials: Some(Count(1)),
                iters: Some(Count(1)),
                warmup: Some(Nanos(0)),
                ..LengthOptions::default()
            },
            memory: MemoryOptions {
                memory: memory.map(|memory| Many(vec![memory.to_owned()])),
                ..MemoryOptions::default()
            },
            measure: MeasureOptions {
                verify: Some(Verification::Last),
                bound: Some(BoundChoice::None),
                ..MeasureOptions::default()
            },
            ..Transfer::default()
        }
    }

    fn draw_common_options(&mut self) -> Transfer {
        let mut transfer = self.plainest_transfer();
        let (stress, dice) = (self.stress, &mut self.dice);
        let what = &mut transfer.what;
        what.traffic = dice.pick(&possible_traffics(stress.ranks));
        match what.traffic {
            Some(Traffic::Pair) => what.bidirectional = dice.one_in(2),
            Some(Traffic::Shift) => {
                let last = u64::from(stress.ranks) - 1;
                what.shift = Some(Count(dice.between(1, last)));
            }
            Some(Traffic::Matrix) => what.matrix = dice.pick(&MatrixRounds::ALL),
            _ => {}
        }
        what.threads = dice.pick(&stress.threads).as_ref().and_then(sweep_of_one);
        let memories: Vec<&str> = stress.memories().collect();
        let mut memory = || dice.pick(&memories).map(|name| Many(vec![name.to_owned()]));
        transfer.memory.memory = memory();
        let (target, ends) = (
            memory(),
            what.traffic.map(|it| Roles::new(it, stress.ranks)),
        );
        let has_targets = memories.len() > 1 && ends.is_some_and(|ends| !ends.all_initiate());
        transfer.memory.target_memory = target.filter(|_| has_targets);
        let most = u64::from(stress.size_bytes_max);
        transfer.issuing = IssuingOptions {
            queue_pairs: dice.pick(&[1, 1, 2, 4]).as_ref().and_then(sweep_of_one),
            chunk: (most >= 16 && dice.one_in(4))
                .then(|| Sweep::single(dice.magnitude(8, most / 2))),
            ..IssuingOptions::default()
        };
        transfer
    }

    /// Draws one transfer of the group.
    fn draw_varied(&mut self, base: &DrawnTransfer) -> Result<DrawnTransfer> {
        for _ in 0..TRIES {
            let transfer = self.draw_varied_options(base);
            if let Ok(draw) = self.expand(transfer) {
                return Ok(draw);
            }
        }
        Ok(base.clone())
    }

    fn draw_varied_options(&mut self, base: &DrawnTransfer) -> Transfer {
        let mut transfer = base.transfer.clone();
        let roles = base.point.roles;
        let dice = &mut self.dice;
        // With a chunk, operations are longer than one part, so that they are cut.
        let least = base.point.division.cut.map_or(1, |cut| cut.chunk_bytes + 1);
        let size = dice.magnitude(least.into(), self.stress.size_bytes_max.into());
        let lanes = u64::from(roles.peers_max().max(1)) * 2 * u64::from(base.point.threads);
        let slots = WALKED_BYTES / lanes / (size + GAP_BYTES_MAX);
        let slots = slots.clamp(1, OPERATIONS_MAX);
        transfer.what.sizes = Some(Sweep::single(size));
        let (pacing, batching) = draw_pacing(dice, slots.min(DEPTH_MAX), base.point.threads);
        (transfer.pacing, transfer.batching) = (pacing, batching);
        let merges = transfer.batching.merge == Some(BatchMerge::On);
        let (iterations, operations) = draw_iterations(dice, slots, &transfer.pacing);
        transfer.length.iters = Some(Count(iterations));
        // Usually each operation has its own slot. Otherwise, later operations would overwrite its data before the
        // check.
        let slots = match dice.one_in(4) {
            true => dice.between(1, slots),
            false => operations,
        };
        let own = &transfer.memory;
        transfer.memory = MemoryOptions {
            memory: own.memory.clone(),
            target_memory: own.target_memory.clone(),
            ..draw_offsets(dice, (size, slots), (self.op, roles), merges)
        };
        transfer.library = draw_library_calls(dice);
        transfer
    }
}

/// Returns the number as a sweep; `None` if it is the default, 1.
fn sweep_of_one(number: &u32) -> Option<Sweep> {
    (*number > 1).then(|| Sweep::single((*number).into()))
}

/// Returns the patterns that this number of ranks allows.
fn possible_traffics(ranks: u32) -> Vec<Traffic> {
    let can = |traffic: &Traffic| match traffic {
        Traffic::Pair => ranks.is_multiple_of(2),
        Traffic::InTurn | Traffic::Matrix => ranks <= RANKS_IN_TURN_MAX,
        Traffic::AllToAll => ranks <= RANKS_MESHED_MAX,
        Traffic::FanOut | Traffic::FanIn | Traffic::Shift => true,
        // A random transfer never uses a traffic file.
        Traffic::File => false,
    };
    Traffic::ALL.into_iter().filter(can).collect()
}

/// Draws a pacing with at most `depth` operations in flight, and its batch settings.
fn draw_pacing(
    dice: &mut RandomSource,
    depth: u64,
    threads: u32,
) -> (PacingOptions, BatchingOptions) {
    let mut pacing = PacingOptions::default();
    let mut batching = BatchingOptions::default();
    match dice.below(5) {
        0 => pacing.ping_pong = true,
        1 | 2 => pacing.depth = Some(Sweep::single(dice.magnitude(1, depth))),
        _ => {
            let batch = dice.magnitude(1, depth);
            let in_flight = dice.pick(&[1, 1, 2, 4]).unwrap_or(1);
            pacing.batch = Some(Sweep::single(batch));
            batching.batches_in_flight = sweep_of_one(&in_flight.min((depth / batch) as u32));
            batching.batch_of = (threads > 1 && dice.one_in(4)).then_some(BatchOf::Rank);
            batching.batch_call = dice.one_in(4).then_some(CallsPerBatch::Many);
            batching.merge = dice.one_in(4).then_some(BatchMerge::On);
        }
    }
    (pacing, batching)
}

/// Draws the memory options for this number of slots: any order, often unaligned.
fn draw_offsets(
    dice: &mut RandomSource,
    (size, slots): (u64, u64),
    (op, roles): (Verb, Roles),
    merges: bool,
) -> MemoryOptions {
    let gap = match dice.below(4) {
        _ if merges => Some(0),
        0 | 1 => None,
        2 => Some(dice.below(8)),
        _ => Some(dice.magnitude(1, GAP_BYTES_MAX)),
    };
    let stride = gap.map_or(size.next_multiple_of(8), |gap| size + gap);
    let order = |dice: &mut RandomSource| dice.pick(&ORDERS).filter(|_| !merges);
    let shared = op == Verb::Read && roles.initiators_max() > 1 && dice.one_in(4);
    MemoryOptions {
        footprint: Some(Bytes(stride * slots)),
        gap: gap.map(Bytes),
        access: order(dice),
        local_access: order(dice).filter(|_| dice.one_in(3)),
        target_footprint: shared.then_some(TargetFootprint::Shared),
        seed: Some(Count(dice.below(1_000_000))),
        ..MemoryOptions::default()
    }
}

/// Draws the calls: the engine's own, or the library's with a random session.
fn draw_library_calls(dice: &mut RandomSource) -> LibraryOptions {
    let (api, session) = match dice.below(8) {
        0..4 => return LibraryOptions::default(),
        4 => (TransferApi::Async, Some(SessionUse::On)),
        _ => (TransferApi::Poll, dice.pick(&SessionUse::ALL)),
    };
    LibraryOptions {
        api: Some(Many(vec![api])),
        session: session.map(|session| Many(vec![session])),
    }
}

/// Draws how often a thread repeats an operation, batch or round trip, with at most `slots` operations in total.
/// Returns this number and the number of operations.
fn draw_iterations(dice: &mut RandomSource, slots: u64, pacing: &PacingOptions) -> (u64, u64) {
    let batch = pacing.batch.as_ref().and_then(|it| it.values().first());
    let batch = batch.copied().unwrap_or(1);
    let most = match pacing.ping_pong {
        true => slots.min(ROUND_TRIPS_MAX),
        false => slots / batch,
    };
    let iterations = dice.magnitude(1, most.max(1));
    (iterations, iterations * batch)
}

#[cfg(test)]
mod tests;

//! Expands one transfer to its points. Every mistake that can be found before a rank starts is refused here, in one
//! sentence that names the nearest valid choice.

use super::atomics::{check_atomics, check_places};
use super::background::{backgrounds, check_footprint, check_op, threads_default};
use super::batching::{Batching, batchings, check_batching};
use super::executions::{execution_length, execution_sizes, loads};
use super::issuing::{check_devices, check_order, divisions, rail_shift};
use super::landings::check_landings;
use super::layout::{SlotLayout, check_memory, check_shared, sizes, slot_layout};
use super::length::{PointLength, check_rounds, length, scale as scale_length};
use super::library::{check_call, library_calls};
use super::loads::PairLoads;
use super::memories::{Memories, check_visible, memories};
use super::options::{
    ACCESS_DEFAULT, BOUND_DEFAULT, MemoryOptions, OperationOptions, SEED_DEFAULT,
    TARGET_FOOTPRINT_DEFAULT, THREADS_DEFAULT, Transfer,
};
use super::pacing::{check_waiting, cq_modes, pacings};
use super::point::{Pacing, TransferPoint};
use super::roles::{check_sides, fit_to_ranks, roles};
use super::slots::{Access, Slots};
use super::verification::{Verification, check_each, check_engine};
use super::{background, executions, layout, length as lengths, paced, pacing, roles as sides};
use crate::bounds::THREADS_MAX;
use crate::cells::{Cell, Cells, check_total, cross_product};
use crate::conflicts::{self, Conflict};
use crate::engine_choice::{choose, chosen};
use crate::gpu_options::check_gpu_options;
use crate::kind::{AnyExperiment, Kind, Scale};
use crate::options::Many;
use crate::place::places;
use crate::point::{BoundChoice, PointNotes, Traffic};
use crate::published;
use crate::refuse::{mover_count, usage_error};
use crate::roles::Roles;
use tonnage_engine::paths::Division;
use tonnage_engine::{EngineOptions, Entry, Lists, Verb, WORD_BYTES};
use tonnage_units::{Count, Result};

/// Rows of options that cannot be combined.
const CONFLICTS: &[&[Conflict]] = &[
    executions::CONFLICTS,
    sides::CONFLICTS,
    pacing::CONFLICTS,
    pacing::DEPTHS,
    paced::CONFLICTS,
    lengths::CONFLICTS,
    background::CONFLICTS,
    layout::CONFLICTS,
];

impl Kind for Transfer {
    type Point = TransferPoint;

    const ABOUT: &'static str = "Move bytes between ranks: bandwidth, latency, rates";
    const AFTER_HELP: &'static str = "A sweep is one value (4096), a doubling range (8..1M), a linear range (1M..32M+1M), a range \
    with a factor (1..1000*10), or several of these joined by commas. Several sweeps multiply. k, M and G are powers \
    of two in sizes and sweeps; kB, MB and GB are decimal.\n\n\
    Examples:\n  \
    tonnage transfer --engine shm --op read --ranks 2 --sizes 8..1M --batch 128\n  \
    tonnage transfer --engine shm --op write-imm --ranks 2 --sizes 8,4k --ping-pong --duration 2s";

    /// Returns the cells of one transfer: one for each combination of engine, op, memory, place, number of initiators,
    /// number of threads, division over paths, api and session, way of waiting, depth or batch, size, and background.
    /// The last of these varies fastest.
    fn cells(
        &self,
        ranks: u32,
        lists: &Lists,
        points_max: usize,
    ) -> Result<Vec<Cell<TransferPoint>>> {
        conflicts::check(self, CONFLICTS)?;
        let what = &self.what;
        let engines = chosen(&what.engine, &what.engine_options, lists)?;
        // Engines that run ranks as threads of one process use two ranks in a run of one process.
        let has_room = ranks == 1 && engines.iter().all(|engine| engine.entry.one_process);
        let ranks = if has_room { 2 } else { ranks };
        let loads = loads(self, ranks)?;
        let roles = roles(what, ranks)?;
        let length = match loads {
            Some(_) => execution_length(&self.length)?,
            None => length(&self.length)?,
        };
        check_rounds(self.length.interval, &roles)?;
        let ops = ops(what)?;
        let memories = memories(self, &roles, lists)?;
        let places = places(&what.place, &roles)?;
        let threads = threads(self)?;
        let pacings = pacings_with_batching(self, length)?;
        let sizes = sizes_of(what, ops, loads)?;
        let backgrounds = backgrounds(self, &roles, &threads, length)?;
        let cq_modes = cq_modes(&self.pacing)?;
        let divisions = divisions(&self.issuing, &sizes)?;
        let rail_shift = rail_shift(&self.issuing, &roles)?;
        let callings = library_calls(&self.library)?;
        let counts = [
            engines.len(),
            ops.len(),
            memories.len(),
            places.len(),
            roles.len(),
            threads.len(),
            divisions.len(),
            callings.len(),
            cq_modes.len(),
            pacings.len(),
            sizes.len(),
            backgrounds.len(),
        ];
        check_total(&counts, points_max, "transfer")?;
        // The roles differ only in the number of initiators, which also changes the shift of their targets.
        let some_roles = roles
            .first()
            .copied()
            .unwrap_or(Roles::new(Traffic::Pair, ranks));
        let points = vec![TransferPoint {
            rail_shift,
            ..common_point(self, some_roles, length)
        }];
        let points = cross_product(points, &engines, |point, engine| {
            point.engine = engine.name.to_owned();
            point.engine_options = engine.options.clone();
        });
        let points = cross_product(points, ops, |point, &op| point.op = op);
        let points = cross_product(points, &memories, |point, memory| {
            point.memories = memory.clone();
        });
        let points = cross_product(points, &places, |point, &place| point.place = place);
        let points = cross_product(points, &roles, |point, roles| {
            point.roles = *roles;
        });
        let points = cross_product(points, &threads, |point, &threads| point.threads = threads);
        let points = cross_product(points, &divisions, |point, division| {
            point.division = *division;
        });
        let points = cross_product(points, &callings, |point, calling| {
            (point.api, point.session) = (calling.api, calling.session);
        });
        let points = cross_product(points, cq_modes, |point, &cq| point.cq = cq);
        let points = cross_product(points, &pacings, |point, &(pacing, batching)| {
            (point.pacing, point.batching) = (pacing, batching);
        });
        let points = cross_product(points, &sizes, |point, &size| point.slots.size_bytes = size);
        let points = cross_product(points, &backgrounds, |point, &load| point.background = load);
        let mut cells = Cells::new();
        for mut point in points {
            let checked = complete(&mut point, self, &roles, lists);
            cells.add(point, checked)?;
        }
        cells.all()
    }

    fn notes(&self) -> Result<PointNotes> {
        Ok(PointNotes {
            optional: self.skipping.optional,
            tables: published::check_and_share(&self.measure.published)?,
            ..PointNotes::default()
        })
    }
}

impl AnyExperiment for Transfer {
    fn label(&self) -> Option<&str> {
        self.what.label.as_deref()
    }

    fn use_engines(&mut self, engines: &[String]) -> bool {
        let (own, options) = (&mut self.what.engine, &self.what.engine_options);
        choose(own, engines.to_vec(), options, self.skipping.optional)
    }

    fn scale(&mut self, scale: Scale) {
        let trial_time = self.length.trial_time;
        scale_length(&mut self.length, scale.time);
        if self.what.traffic_file.is_some() {
            // The file determines the length of an execution, so the trial time stays as it was.
            self.length.trial_time = trial_time;
        }
    }

    fn fit_ranks(&mut self, ranks: u32) {
        fit_to_ranks(&mut self.what, ranks);
    }
}

/// Returns a point with the values that all points of a transfer share. The other values are placeholders.
fn common_point(transfer: &Transfer, roles: Roles, length: PointLength) -> TransferPoint {
    let asked = &transfer.memory;
    let access = asked.access.unwrap_or(ACCESS_DEFAULT);
    // With every operation compared, the bandwidth includes the comparisons, so it has no meaningful bound.
    let bound = match transfer.verification() {
        Verification::Each => BoundChoice::None,
        Verification::Off | Verification::Last => BOUND_DEFAULT,
    };
    TransferPoint {
        label: transfer.what.label.clone(),
        engine: String::new(),
        engine_options: EngineOptions::new(),
        op: Verb::Write,
        roles,
        loads: transfer.what.loads().cloned(),
        threads: THREADS_DEFAULT,
        division: Division::NONE,
        rail_shift: 0,
        api: Default::default(),
        session: None,
        place: None,
        pacing: Pacing::PingPong,
        batching: Batching::default(),
        background: None,
        cq: Default::default(),
        memories: Memories {
            memory: String::new(),
            target_memory: None,
            memory_options: EngineOptions::new(),
        },
        slots: Slots {
            size_bytes: 0,
            footprint_bytes: 0,
            target_footprint: asked.target_footprint.unwrap_or(TARGET_FOOTPRINT_DEFAULT),
            stride_bytes: 0,
            access,
            local_access: asked.local_access.filter(|&local| local != access),
            seed: asked.seed.unwrap_or(SEED_DEFAULT).0,
        },
        latency: transfer.measure.latency.unwrap_or(true),
        verify: transfer.verification(),
        per_rank: transfer.measure.per_rank,
        bound: transfer.measure.bound.unwrap_or(bound),
        length,
    }
}

/// Fills in a point's rate and slots, and refuses values that cannot be combined.
fn complete(
    point: &mut TransferPoint,
    transfer: &Transfer,
    roles: &[Roles],
    lists: &Lists,
) -> Result<()> {
    paced::complete(point)?;
    let (op, entry) = (point.op, lists.engine(&point.engine)?);
    check_support(transfer, entry, op, lists)?;
    check_shared(&transfer.memory, roles, op)?;
    check_op(point.background, entry)?;
    check_visible(point, lists)?;
    check_engine(transfer, point, entry, lists)?;
    check_gpu_options(
        entry,
        &point.engine_options,
        &point.memories.names().collect::<Vec<_>>(),
        lists,
    )?;
    check_devices(&transfer.issuing, point.division.rails, entry)?;
    check_sides(point)?;
    check_order(point)?;
    check_call(point.api, op)?;
    check_waiting(point)?;
    check_seed(&transfer.memory, point)?;
    with_slots(point, &transfer.memory)?;
    check_atomics(point)?;
    check_batching(point)?;
    check_landings(point)?;
    check_each(transfer, point)
}

/// Returns the sizes of operations. Atomic operations have only one.
fn sizes_of(what: &OperationOptions, ops: &[Verb], loads: Option<&PairLoads>) -> Result<Vec<u32>> {
    let asked = what.sizes.as_ref().map(sizes).transpose()?;
    match (loads, asked) {
        (Some(loads), asked) => execution_sizes(loads, asked),
        (None, Some(asked)) => Ok(asked),
        (None, None) if ops.iter().all(|op| op.is_atomic()) => Ok(vec![WORD_BYTES]),
        (None, None) => {
            usage_error("--sizes is required, e.g. --sizes 8..1M (or use --traffic-file FILE)")
        }
    }
}

/// Returns every pacing with every batch setting. The batch setting varies fastest.
fn pacings_with_batching(
    transfer: &Transfer,
    length: PointLength,
) -> Result<Vec<(Pacing, Batching)>> {
    let rate = paced::rate(&transfer.paced, length.trial)?;
    let pacings = pacings(&transfer.pacing, rate)?;
    let batchings = batchings(&transfer.batching, transfer.pacing.batch.is_some())?;
    let with = |pacing| batchings.iter().map(move |&batching| (pacing, batching));
    Ok(pacings.into_iter().flat_map(with).collect())
}

/// Fills in a point's slots, and refuses more memory than a rank may use.
fn with_slots(point: &mut TransferPoint, memory: &MemoryOptions) -> Result<()> {
    let slots = slot_layout(memory, point.slots.size_bytes, point.used_depth())?;
    (point.slots.footprint_bytes, point.slots.stride_bytes) =
        (slots.footprint_bytes, slots.stride_bytes);
    check_places(point)?;
    let widest = SlotLayout {
        footprint_bytes: slots.footprint_bytes.max(point.local_bytes()),
        ..slots
    };
    check_memory(
        widest,
        point.slots.target_footprint,
        point.roles,
        point.threads,
    )?;
    check_footprint(point)
}

/// Refuses a seed that has no effect, because the user would expect one.
fn check_seed(memory: &MemoryOptions, point: &TransferPoint) -> Result<()> {
    let (local, remote) = point.slots.orders();
    let drawn = |order| matches!(order, Access::Random | Access::Permuted);
    let is_drawn = drawn(local) || drawn(remote);
    match memory.seed {
        Some(Count(seed)) if !is_drawn && !point.verify.is_on() => usage_error(format!(
            "--seed {seed} changes nothing without random or permuted access and without --verify: leave it out, or \
             use --access random"
        )),
        _ => Ok(()),
    }
}

fn threads(transfer: &Transfer) -> Result<Vec<u32>> {
    let Some(asked) = &transfer.what.threads else {
        let beside = threads_default(&transfer.background);
        return Ok(vec![beside.unwrap_or(THREADS_DEFAULT)]);
    };
    let checked = |&threads: &u64| mover_count("threads", threads, THREADS_MAX);
    asked.values().iter().map(checked).collect()
}

fn ops(what: &OperationOptions) -> Result<&[Verb]> {
    match Many::all(&what.op) {
        [] => usage_error("--op is required, e.g. --op write"),
        ops => Ok(ops),
    }
}

/// Refuses an engine that lacks a capability that the transfer needs.
fn check_support(transfer: &Transfer, entry: &Entry, op: Verb, lists: &Lists) -> Result<()> {
    let name = entry.name;
    let other = |fits: fn(&Entry) -> bool| {
        let mut engines = lists.engines.iter();
        let other = engines.find(|entry| fits(entry) && entry.verbs.contains(&op));
        other.map_or(String::new(), |other| {
            format!(", or use --engine {}", other.name)
        })
    };
    if !entry.verbs.contains(&op) {
        let verbs: Vec<_> = entry.verbs.iter().map(|verb| verb.name()).collect();
        return usage_error(format!(
            "--engine {name} cannot do --op {}: use one of {}{}",
            op.name(),
            verbs.join(", "),
            other(|_| true)
        ));
    }
    if transfer.pacing.ping_pong && op == Verb::Write && !entry.ordered_writes {
        let notifying = entry.verbs.iter().find(|verb| verb.notifies_target());
        return usage_error(format!(
            "--ping-pong with --op write waits for the last byte to appear, and --engine {name} does not promise \
             that it appears last: use --op {}{}",
            notifying.unwrap_or(&Verb::Read).name(),
            other(|entry| entry.ordered_writes)
        ));
    }
    if transfer.verification() == Verification::Last && !entry.moves_bytes {
        return usage_error(format!(
            "--engine {name} moves no bytes, so there is nothing to verify: leave --verify out{}",
            other(|entry| entry.moves_bytes)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The points of one transfer. Everything that can be known to be wrong is refused here, before a rank starts, in one
//! sentence that names the nearest valid choice.

use super::atomics::{check_atomics, check_places};
use super::background_options::workers_default;
use super::backgrounds::{LoadedSize, backgrounds, beside, check_footprint, check_op};
use super::batches::Batching;
use super::batching::{batchings, check_batching};
use super::both_ways::check_ping_pong;
use super::executions::{execution_length, execution_sizes, loads};
use super::interval::check_rounds;
use super::issuing::{check_devices, check_order, divisions, rail_shift};
use super::landings::check_landings;
use super::layout::{SlotLayout, check_memory, check_shared, layout, sizes};
use super::length::length;
use super::library::{Calling, callings, check_call};
use super::loads::PairLoads;
use super::memories::{EndMemories, check_visible, memories};
use super::options::{
    ADDRESSES_DEFAULT, LIMIT_DEFAULT, MemoryOptions, OperationOptions, SEED_DEFAULT,
    TARGET_FOOTPRINT_DEFAULT, Transfer, WORKERS_DEFAULT,
};
use super::pacing::{check_rate, check_waiting, cq_modes, pacings};
use super::point::{Addresses, CqMode, Pacing, TransferPoint};
use super::point_length::PointLength;
use super::roles::{check_sides, roles};
use super::verification::{Verification, check_each, check_engine};
use crate::bounds::{POINTS_MAX, WORKERS_MAX};
use crate::cells::{Cell, Cells};
use crate::gpu_options::check_gpu_options;
use crate::options::{Many, pairs};
use crate::place::places;
use crate::point::LimitChoice;
use crate::refuse::usage;
use crate::roles::Roles;
use tonnage_engine::paths::Division;
use tonnage_engine::{EngineOptions, Entry, Lists, Verb, WORD_BYTES};
use tonnage_units::{Count, PairPlace, Result};

/// The cells of one transfer, in each engine, op, memory, place, number of initiators, number of workers, division
/// over paths, api and session, window or batch, size, and background, the last varying fastest; at most `points_max`.
///
/// # Errors
/// `Usage` for everything that can be found wrong without starting a rank, unless only some cells are.
pub(super) fn expand(
    transfer: &Transfer,
    ranks: u32,
    lists: &Lists,
    points_max: usize,
) -> Result<Vec<Cell<TransferPoint>>> {
    let what = &transfer.what;
    let entries = entries(what, lists)?;
    let ranks = ranks_of(&entries, ranks);
    let loads = loads(transfer, ranks)?;
    let roles = roles(what, ranks)?;
    let length = match loads {
        Some(_) => execution_length(&transfer.length)?,
        None => length(&transfer.length)?,
    };
    check_rounds(transfer.length.interval, &roles)?;
    let ops = ops(what)?;
    let memories = memories(transfer, &roles, lists)?;
    let places = places(&what.place, &roles)?;
    let workers = workers(transfer)?;
    let pacings = paced(transfer, length)?;
    let sizes = sizes_of(what, ops, loads)?;
    let loaded = beside(&sizes, &backgrounds(transfer, (&roles, &workers), length)?);
    check_ping_pong(transfer)?;
    let cq_modes = cq_modes(&transfer.pacing)?;
    let divisions = divisions(&transfer.issuing, &sizes)?;
    let rail_shift = rail_shift(&transfer.issuing, &roles)?;
    let callings = callings(&transfer.library)?;
    let counts = [
        entries.len(),
        ops.len(),
        memories.len(),
        places.len(),
        roles.len(),
        workers.len(),
        divisions.len(),
        cq_modes.len(),
        callings.len(),
        pacings.len(),
        loaded.len(),
    ];
    check_total(&counts, points_max)?;
    let ways = (&divisions[..], &callings[..]);
    let seats = seats(&places, &roles, &workers, ways, rail_shift);
    let by_size = |(cq, pacing)| loaded.iter().map(move |cell| (cq, pacing, cell));
    let by_pacing = |cq| pacings.iter().map(move |pacing| (cq, pacing));
    let mut cells = Cells::new();
    for named in &entries {
        for &op in ops {
            let of_op = || {
                check_support(transfer, named.entry, op, lists)?;
                check_shared(&transfer.memory, &roles, op)?;
                check_op(transfer.background.background, named.entry)
            };
            for memory in &memories {
                let of_memory = || {
                    of_op()?;
                    check_visible(transfer, memory, op, lists)?;
                    check_engine(
                        transfer,
                        (named.entry, named.engine),
                        op,
                        (&memory.names(), lists),
                    )?;
                    check_gpu_options(named.entry, &named.options, &memory.names(), lists)
                };
                for &seat in &seats {
                    let of_seat = || {
                        of_memory()?;
                        check_devices(&transfer.issuing, &[seat.division], named.entry)?;
                        check_sides(transfer, &[seat.roles], op)?;
                        check_order(&[seat.division], op, transfer.pacing.ping_pong)?;
                        check_call(&[seat.calling], op)
                    };
                    let ways = cq_modes.iter().flat_map(by_pacing);
                    for (&cq, &(pacing, batching), &sized) in ways.flat_map(by_size) {
                        let cell = (named, op, memory, (cq, pacing, batching), sized);
                        let mut point = point(transfer, length, seat, cell);
                        let checked = of_seat()
                            .and_then(|()| check_waiting(&transfer.pacing, cq, op))
                            .and_then(|()| complete(&mut point, transfer));
                        cells.add(point, checked)?;
                    }
                }
            }
        }
    }
    cells.all()
}

/// Gives a point its slots, where its values go together.
fn complete(point: &mut TransferPoint, transfer: &Transfer) -> Result<()> {
    check_seed(&transfer.memory, point)?;
    with_slots(point, &transfer.memory)?;
    check_atomics(point)?;
    check_batching(point)?;
    check_landings(point)?;
    check_each(transfer, point)
}

/// The ranks of the points. Where they are threads of one process, a run of one rank has room for two of them.
fn ranks_of(entries: &[ChosenEngine<'_>], ranks: u32) -> u32 {
    match ranks {
        1 if entries.iter().all(|named| named.entry.one_process) => 2,
        _ => ranks,
    }
}

/// The sizes of operations. Atomic ones have but one.
fn sizes_of(what: &OperationOptions, ops: &[Verb], loads: Option<&PairLoads>) -> Result<Vec<u32>> {
    let asked = what.sizes.as_ref().map(sizes).transpose()?;
    match (loads, asked) {
        (Some(loads), asked) => execution_sizes(loads, asked),
        (None, Some(asked)) => Ok(asked),
        (None, None) if ops.iter().all(|op| op.is_atomic()) => Ok(vec![WORD_BYTES]),
        (None, None) => usage("sizes is missing: write sizes 8..1M, or traffic-file FILE"),
    }
}

/// Every pacing with every way to have batches, the last varying fastest.
fn paced(transfer: &Transfer, length: PointLength) -> Result<Vec<(Pacing, Batching)>> {
    let pacings = pacings(&transfer.pacing, transfer.measure.latency)?;
    if let Some(Pacing::Paced { rate_per_s, .. }) = pacings.first() {
        check_rate(("rate", *rate_per_s), length.trial)?;
    }
    let batchings = batchings(&transfer.batching, transfer.pacing.batch.is_some())?;
    let with = |pacing| batchings.iter().map(move |&batching| (pacing, batching));
    Ok(pacings.into_iter().flat_map(with).collect())
}

/// The number of points, which must not be absurd.
fn check_total(counts: &[usize], points_max: usize) -> Result<()> {
    let total = counts.iter().copied().fold(1, usize::saturating_mul);
    if total <= points_max {
        return Ok(());
    }
    usage(format!(
        "the plan has more than {POINTS_MAX} points, and this transfer alone has {total}: use coarser sweeps, or several \
         plans"
    ))
}

/// Ranks and workers that move bytes, from where, by which way, and by which calls.
#[derive(Debug, Clone, Copy)]
struct Seat {
    place: Option<PairPlace>,
    roles: Roles,
    workers: u32,
    division: Division,
    rail_shift: u32,
    calling: Calling,
}

/// Every place with every division of the ranks, every number of their workers, every division over paths and every way
/// of calling, the last varying fastest.
fn seats(
    places: &[Option<PairPlace>],
    roles: &[Roles],
    workers: &[u32],
    (divisions, callings): (&[Division], &[Calling]),
    rail_shift: u32,
) -> Vec<Seat> {
    let by_roles = |&place| roles.iter().map(move |&roles| (place, roles));
    let by_workers = |(place, roles)| workers.iter().map(move |&workers| (place, roles, workers));
    let ways = |&division| callings.iter().map(move |&calling| (division, calling));
    let by_way = |(place, roles, workers)| {
        let seat = move |(division, calling)| Seat {
            place,
            roles,
            workers,
            division,
            rail_shift,
            calling,
        };
        divisions.iter().flat_map(ways).map(seat)
    };
    let who = places.iter().flat_map(by_roles).flat_map(by_workers);
    who.flat_map(by_way).collect()
}

fn point(
    transfer: &Transfer,
    length: PointLength,
    seat: Seat,
    (named, op, memory, (cq, pacing, batching), (size_bytes, background)): (
        &ChosenEngine<'_>,
        Verb,
        &EndMemories<'_>,
        (CqMode, Pacing, Batching),
        LoadedSize,
    ),
) -> TransferPoint {
    let Seat {
        place,
        roles,
        workers,
        division,
        rail_shift,
        calling,
    } = seat;
    let asked = &transfer.memory;
    let addresses = asked.addresses.unwrap_or(ADDRESSES_DEFAULT);
    TransferPoint {
        label: transfer.what.label.clone(),
        engine: named.engine.to_owned(),
        engine_options: named.options.clone(),
        op,
        traffic: roles.traffic,
        ranks: roles.ranks,
        initiators: roles.initiators,
        target_shift: roles.target_shift,
        bidirectional: roles.bidirectional,
        shift: roles.shift,
        matrix: roles.matrix,
        loads: transfer.what.loads().cloned(),
        workers,
        rails: division.rails,
        rail_shift,
        queue_pairs: division.queue_pairs,
        cut: division.cut,
        api: calling.api,
        session: calling.session,
        place,
        size_bytes,
        pacing,
        batching,
        background,
        cq,
        memory: memory.own.to_owned(),
        target_memory: memory.target.map(str::to_owned),
        memory_options: memory.options.clone(),
        footprint_bytes: 0,
        target_footprint: asked.target_footprint.unwrap_or(TARGET_FOOTPRINT_DEFAULT),
        stride_bytes: 0,
        addresses,
        local_addresses: asked.local_addresses.filter(|&local| local != addresses),
        seed: asked.seed.unwrap_or(SEED_DEFAULT).0,
        latency: transfer.measure.latency.unwrap_or(true),
        verify: transfer.verification(),
        per_rank: transfer.measure.per_rank,
        limit: limit(transfer),
        length,
    }
}

/// The bound to compare with: none by default where the bandwidth contains comparisons.
fn limit(transfer: &Transfer) -> LimitChoice {
    let default = match transfer.verification() {
        Verification::Each => LimitChoice::None,
        Verification::Off | Verification::Last => LIMIT_DEFAULT,
    };
    transfer.measure.limit.unwrap_or(default)
}

/// Gives a point its slots, which a rank must have memory for.
fn with_slots(point: &mut TransferPoint, memory: &MemoryOptions) -> Result<()> {
    let slots = layout(memory, point.size_bytes, point.used_depth())?;
    (point.footprint_bytes, point.stride_bytes) = (slots.footprint_bytes, slots.stride_bytes);
    check_places(point)?;
    let widest = SlotLayout {
        footprint_bytes: slots.footprint_bytes.max(point.local_bytes()),
        ..slots
    };
    check_memory(widest, point.target_footprint, point.roles(), point.workers)?;
    check_footprint(point)
}

/// A seed that nothing is drawn with would look like a choice.
fn check_seed(memory: &MemoryOptions, point: &TransferPoint) -> Result<()> {
    let (local, remote) = point.orders();
    let drawn = |order| matches!(order, Addresses::Random | Addresses::Permuted);
    let is_drawn = drawn(local) || drawn(remote);
    match memory.seed {
        Some(Count(seed)) if !is_drawn && !point.verify.is_on() => usage(format!(
            "seed {seed} changes nothing without random or permuted addresses and without verify: leave it out, or write \
                 addresses random"
        )),
        _ => Ok(()),
    }
}

fn workers(transfer: &Transfer) -> Result<Vec<u32>> {
    let Some(asked) = &transfer.what.workers else {
        let beside = workers_default(&transfer.background);
        return Ok(vec![beside.unwrap_or(WORKERS_DEFAULT)]);
    };
    let checked = |&workers: &u64| match u32::try_from(workers) {
        Ok(0) => usage("workers 0 would move nothing: the fewest is workers 1".to_owned()),
        Ok(narrow) if narrow <= WORKERS_MAX => Ok(narrow),
        _ => usage(format!(
            "workers {workers} are too many: the most is workers {WORKERS_MAX}"
        )),
    };
    asked.values().iter().map(checked).collect()
}

/// An engine of a transfer: its entry, its name with the variant, and its options that differ from the defaults.
struct ChosenEngine<'a> {
    entry: &'a Entry,
    engine: &'a str,
    options: EngineOptions,
}

fn ops(what: &OperationOptions) -> Result<&[Verb]> {
    match what.op.as_ref().map(Many::values) {
        None | Some([]) => usage("op is missing: write op write".to_owned()),
        Some(ops) => Ok(ops),
    }
}

fn entries<'a>(what: &'a OperationOptions, lists: &Lists) -> Result<Vec<ChosenEngine<'a>>> {
    let names = what.engine.as_ref().map_or(&[][..], Many::values);
    if names.is_empty() {
        return Err(lists.no_engine());
    }
    let asked = pairs::map(&what.engine_options);
    let named = |engine: &'a String| {
        let entry = lists.engine(engine)?;
        let options = entry.check_options(&asked, tonnage_engine::split_name(engine).1)?;
        Ok(ChosenEngine {
            entry,
            engine,
            options,
        })
    };
    names.iter().map(named).collect()
}

/// Refuses an engine that cannot do what the transfer asks of it.
fn check_support(transfer: &Transfer, entry: &Entry, op: Verb, lists: &Lists) -> Result<()> {
    let engines = lists.engines;
    let name = entry.name;
    let other = |fits: fn(&Entry) -> bool| {
        let fitting = engines
            .iter()
            .filter(|entry| fits(entry) && entry.verbs.contains(&op));
        let fitting = fitting.map(|entry| format!("engine {}", entry.name)).next();
        fitting
            .map(|other| format!(", or use {other}"))
            .unwrap_or_default()
    };
    if !entry.verbs.contains(&op) {
        let verbs: Vec<_> = entry.verbs.iter().map(|verb| verb.name()).collect();
        return usage(format!(
            "engine {name} cannot do op {}: use one of {}{}",
            op.name(),
            verbs.join(", "),
            other(|_| true)
        ));
    }
    if transfer.pacing.ping_pong && op == Verb::Write && !entry.ordered_writes {
        let notifying: Vec<_> = entry
            .verbs
            .iter()
            .filter(|verb| verb.notifies_target())
            .collect();
        let instead = match notifying.first() {
            Some(verb) => format!("op {}", verb.name()),
            None => "op read".to_owned(),
        };
        return usage(format!(
            "ping-pong with op write waits for the last byte to appear, and engine {name} does not promise \
             that it appears last: use {instead}{}",
            other(|entry| entry.ordered_writes)
        ));
    }
    if transfer.verification() == Verification::Last && !entry.moves_bytes {
        return usage(format!(
            "engine {name} moves no bytes, so there is nothing to verify: leave verify out{}",
            other(|entry| entry.moves_bytes)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

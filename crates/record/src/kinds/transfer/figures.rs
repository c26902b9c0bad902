//! Figures of transfers. A record has a single row.

use tonnage_plan::transfer::{CqMode, SessionUse, TransferPoint, TrialLength};

use super::background_figures::BACKGROUND;
use super::batches::{BATCHES, MERGED, PHASES, batch, batch_bytes, fastest_batch_bytes_per_s};
use super::paced::{OFFERED, REACHED};
use crate::Links;
use crate::envelope::TypedRecord;
use crate::figures::common::{ASKED, EXCHANGE, IN_FLIGHT, OPERATION, OUTCOME};
use crate::figures::engine::ENGINE;
use crate::figures::latency::{DELIVERED, LATENCY};
use crate::figures::moved::{AMOUNTS, BANDWIDTH, BOUND, CPU, MESSAGE_RATE};
use crate::figures::proof::PROOF;
use crate::figures::{Better, Figure, Figures, PERCENT, Row, Style, Value, format_pairs};
use crate::transfer::{CpuSharing, PairDirection, Summary, TransferBody, Trial};

/// All figures of a record of a transfer.
pub const FIGURES: Figures = &[
    ASKED,
    ENGINE,
    EXCHANGE,
    OPERATION,
    OPERATIONS,
    OFFERED,
    MEMORIES,
    BATCHES,
    IN_FLIGHT,
    REACHED,
    BEST_BATCH,
    MESSAGE_RATE,
    BANDWIDTH,
    DIRECTIONS,
    ATOMICS,
    LATENCY,
    BACKGROUND,
    PHASES,
    DELIVERED,
    BOUND,
    BUS,
    CPU,
    AROUND,
    AMOUNTS,
    MERGED,
    PROOF,
    OUTCOME,
];

/// Figures that follow from the point alone, even if it was not measured.
pub(crate) const FROM_POINT: Figures = &[
    ASKED, EXCHANGE, OPERATION, OPERATIONS, OFFERED, MEMORIES, BATCHES, IN_FLIGHT,
];

/// Options of the operations.
const OPERATIONS: &[Figure] = &[
    Figure::of_option(
        "Pacing",
        "pacing",
        "Way in which operations are issued: ping-pong (one, then wait for the answer), stream (a sliding \
             depth), batch (post B, wait for B), paced (due at fixed times, independent of completions).",
        |row| point(row, |point| point.pacing.name()),
    ),
    Figure::of_option(
        "Rails",
        "rails",
        "Use of the devices of a rank: single (a thread has one), stripe (each operation is cut into equal parts over \
             all of them) or round-robin (a peer has the device with number (peer + rank) mod devices, at both ends).",
        |row| point(row, |point| point.division.rails.name()),
    ),
    Figure::of_option(
        "Rail shift",
        "rail_shift",
        "Places by which the devices of ranks that only serve are turned.",
        |row| point(row, |point| point.rail_shift),
    ),
    Figure::of_option(
        "CQ",
        "cq",
        "Way in which threads wait for completions, at both ends: busy (they poll without end) or event (they sleep \
             until the device has something).",
        |row| point(row, |point| point.cq.name()),
    ),
    Figure::of_option(
        "Queue pairs",
        "queue_pairs",
        "Endpoints (queue pairs) between a thread and a peer, which operations take in turn.",
        |row| point(row, |point| u64::from(point.division.queue_pairs)),
    ),
    Figure::of_option(
        "Chunk (B)",
        "chunk_bytes",
        "Bytes of the parts that longer operations are cut into; empty if they are not cut.",
        |row| {
            point(row, |point| {
                point.division.cut.map(|cut| u64::from(cut.chunk_bytes))
            })
        },
    ),
    Figure::of_option(
        "API",
        "api",
        "Calls by which the loops reach the engine: engine (its own post and poll), poll (the library for other \
             programs, whose tickets are taken as they end) or async (its futures, each awaited by a task).",
        |row| point(row, |point| point.api.name()),
    ),
    Figure::of_option(
        "Session",
        "session",
        "Life of the library's lanes: on (resolved once), off (memory and peer looked up by their names for each \
             operation), fresh (a lane made and released for each operation) or register (the local memory registered \
             and deregistered for each as well). Empty if the loops call the engine directly.",
        |row| point(row, |point| point.session.map(SessionUse::name)),
    ),
    Figure::of_option(
        "Initiators",
        "initiators",
        "Ranks that initiate operations, if a number was given: for pairs the first ranks, for a fan-in those \
             after rank 0. Otherwise it follows from the traffic and the number of ranks.",
        |row| point(row, |point| point.roles.initiators),
    ),
    Figure::of_option(
        "Target shift",
        "target_shift",
        "Places by which the targets of pairs are turned: of M initiators the i-th goes to rank M + (i + shift) \
             mod (ranks - M).",
        |row| point(row, |point| point.roles.target_shift),
    ),
    Figure::of_option(
        "Directions",
        "directions",
        "Directions of each pair in which bytes are moved at once: 1, or 2 if the targets of pairs initiate too.",
        |row| {
            point(
                row,
                |point| if point.roles.bidirectional { 2u32 } else { 1 },
            )
        },
    ),
    Figure::of_option(
        "Access",
        "access",
        "Order in which operations walk over the footprint: sequential, random (seeded), permuted (each \
             place once per round, in orders that differ at the two ends) or fixed (always the same place). It changes results several-fold, because it decides what caches hold.",
        |row| point(row, |point| point.slots.access.name()),
    ),
    Figure::of_option(
        "Local access",
        "local_access",
        "Order in which operations walk over the footprint at the initiator's end; that of Access unless \
             another one was requested.",
        |row| point(row, |point| point.slots.orders().0.name()),
    ),
    Figure::of_option(
        "Footprint (B)",
        "footprint_bytes",
        "Bytes over which the operations of one lane walk, on either side. Their fit into a cache decides the \
             bandwidth.",
        |row| point(row, |point| point.slots.footprint_bytes),
    ),
    Figure::of_option(
        "Target footprint",
        "target_footprint",
        "Footprints at a target: own (each initiator has one) or shared (all initiators read the same one).",
        |row| point(row, |point| point.slots.target_footprint.name()),
    ),
    Figure::of_option(
        "Stride (B)",
        "stride_bytes",
        "Distance between the starts of two neighbouring places in the footprint.",
        |row| point(row, |point| point.slots.stride_bytes),
    ),
    Figure {
        name: "Gap (B)",
        field: "gap_bytes",
        meaning: "Bytes left free between two neighbouring places in the footprint; 0 is contiguous.",
        computed: "Stride - MsgSize.",
        value: |row| point(row, |point| point.slots.gap_bytes()),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "MsgSize (B)",
        "size_bytes",
        "Payload bytes of one operation.",
        |row| point(row, |point| point.slots.size_bytes),
    ),
    Figure {
        name: "Count",
        field: "elements",
        meaning: "Elements of four bytes in the payload of one operation, as benchmarks of collectives count them; empty \
             if the payload is not a whole number of them.",
        computed: "MsgSize / 4.",
        value: |row| point(row, |point| elements(point.slots.size_bytes)),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "BatchSize",
        "batch",
        "Operations that are posted together and then all waited for, on each lane.",
        |row| point(row, batch),
    ),
    Figure {
        name: "TotalSize (MB)",
        field: "batch_payload_bytes",
        meaning: "Payload of one batch, in megabytes of 1e6 bytes.",
        computed: "MsgSize x BatchSize.",
        style: Style::Scaled(1e-6),
        value: |row| point(row, batch_bytes),
        ..Figure::PLAIN
    },
    Figure::of_option(
        "Trial length",
        "trial_length",
        "Length of one trial: at least this time, or this many operations (batches, round trips) of each thread.",
        |row| point(row, |point| trial_length(&point.length.trial)),
    ),
];

/// Bandwidth of the fastest batch.
const BEST_BATCH: &[Figure] = &[Figure {
    name: "Max BW (GB/s)",
    field: "bandwidth_bytes_per_s_max_batch",
    meaning: "Bandwidth of the fastest batch, GB of 1e9 bytes. It is one lucky batch, not a rate that the path keeps \
             up. Not available without latency, nor if several lanes post batches at once: the fastest batch of one \
             lane says nothing about all of them together.",
    computed: "MsgSize x BatchSize / Min Lat.",
    value: |row| body(row).and_then(fastest_batch_bytes_per_s).into(),
    ..Figure::BANDWIDTH
}];

/// Bandwidth relative to the nominal speed of the links.
const BUS: &[Figure] = &[
    Figure {
        name: "BusBW (%)",
        field: "busbw_fraction",
        keep: 40,
        meaning: "Part of the nominal speed of the links that carried payload; known if devices report their speed or \
             --link-speed gives it.",
        computed: "Avg BW / speed of all links that were used, on the slower side.",
        style: PERCENT,
        better: Some(Better::High),
        value: |row| bus(row, |links| links.used_bytes_per_s),
        ..Figure::PLAIN
    },
    Figure {
        name: "BusBW all (%)",
        field: "busbw_all_fraction",
        keep: 10,
        meaning: "Part of the nominal speed of all links of the ranks, those included that no flow takes: the published \
             definition. Below BusBW if there are fewer peers than rails, so that some are unused.",
        computed: "Avg BW / speed of all links that were opened, on the slower side.",
        style: PERCENT,
        better: Some(Better::High),
        value: |row| bus(row, |links| links.all_bytes_per_s),
        ..Figure::PLAIN
    },
];

fn bus(row: &Row<'_>, of: fn(&Links) -> f64) -> Value {
    let links = row.record.bound.as_ref().and_then(|bound| bound.links);
    let speed = links.as_ref().map(of).filter(|speed| *speed > 0.0);
    let bandwidth = body(row).and_then(|body| body.summary.as_ref());
    let bandwidth = bandwidth.map(|summary| summary.bandwidth_bytes_per_s.mean);
    bandwidth
        .zip(speed)
        .map(|(bandwidth, speed)| bandwidth / speed)
        .into()
}

/// Figures of threads that are only targets.
const AROUND: &[Figure] = &[Figure {
    name: "Target CPU (ns/op)",
    field: "target_cpu_ns_per_operation",
    keep: 20,
    meaning: "CPU time that target threads spend on one operation. Not available if every thread that takes \
         part initiates: all to all, and both ways.",
    computed: "CPU time of all target threads inside the measured intervals / operations.",
    style: Style::Scaled(1.0),
    better: Some(Better::Low),
    value: |row| match has_servers(row) {
        true => summary(row, |summary| summary.target_cpu_ns_per_operation),
        false => Value::Unknown,
    },
    trials: Some(|row| {
        let of = |trial: &Trial| trial.target_cpu_ns as f64 / trial.operations as f64;
        let serves = has_servers(row);
        trials(row, |trial| {
            (serves && trial.operations > 0).then(|| of(trial))
        })
    }),
}];

fn body<'a>(row: &Row<'a>) -> Option<&'a TransferBody> {
    row.record.transfer()
}

pub(super) fn point<T: Into<Value>>(row: &Row<'_>, of: fn(&TransferPoint) -> T) -> Value {
    body(row).map(|body| of(&body.point)).into()
}

/// Returns whether some threads are only targets.
fn has_servers(row: &Row<'_>) -> bool {
    body(row)
        .is_some_and(|body| !body.point.roles.bidirectional && !body.point.roles.all_initiate())
}

/// Returns a figure of the summary; unknown if the point was not measured.
pub(super) fn summary<T: Into<Value>>(row: &Row<'_>, of: fn(&Summary) -> T) -> Value {
    let summary = body(row).and_then(|body| body.summary.as_ref());
    summary.map(of).into()
}

pub(super) fn trials(row: &Row<'_>, of: impl Fn(&Trial) -> Option<f64>) -> Vec<Option<f64>> {
    let trials = body(row).into_iter().flat_map(|body| &body.trials);
    trials.map(of).collect()
}

fn trial_length(length: &TrialLength) -> String {
    match length {
        TrialLength::DurationNs(length_ns) => format!("{length_ns} ns"),
        TrialLength::Iterations(count) => format!("{count} iterations"),
    }
}

/// Returns the size in elements of four bytes; `None` if it is not a multiple of four.
fn elements(size_bytes: u32) -> Option<u32> {
    size_bytes.is_multiple_of(4).then_some(size_bytes / 4)
}

impl TypedRecord<'_, TransferBody> {
    /// Returns the fraction of the trials' time in which the initiating threads had a CPU. Initiating threads poll and
    /// don't sleep, so other threads had the CPU during the rest of the time. `None` if threads wait for events or
    /// share CPUs, or if nothing was measured.
    pub fn cpu_share(&self) -> Option<f64> {
        let TransferBody { point, trials, .. } = self.body;
        let sleeps = point.cq == CqMode::Event;
        let shares = match self.body.measuring_cpus {
            Some(cpus) => cpus != CpuSharing::Own,
            None => self.effective.iter().any(|ranks| ranks.yielding),
        };
        if sleeps || trials.is_empty() || shares {
            return None;
        }
        let initiators = point.roles.initiating_at_once();
        let threads = f64::from(initiators) * f64::from(point.measuring_threads());
        let cpu_ns: u64 = trials.iter().map(|trial| trial.initiator_cpu_ns).sum();
        let window_ns: u64 = trials.iter().map(|trial| trial.window_ns).sum();
        Some(cpu_ns as f64 / (window_ns.max(1) as f64 * threads))
    }
}

/// Figures of each direction.
const DIRECTIONS: &[Figure] = &[
    Figure {
        name: "BW forward (GB/s)",
        field: "forward_bandwidth_bytes_per_s_mean",
        keep: 40,
        meaning: "Bandwidth of operations by the first ranks of pairs while the second ranks initiate towards them, GB \
             of 1e9 bytes. With BW back it adds up to Avg BW.",
        computed: "Mean over the trials of the direction's payload bytes / measured interval of the trial.",
        value: |row| {
            summary(row, |it| {
                Some(it.directions.as_ref()?.forward.bandwidth_bytes_per_s.mean)
            })
        },
        trials: Some(|row| {
            trials(row, |it| {
                Some(it.directions.as_ref()?.forward.bandwidth_bytes_per_s)
            })
        }),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "BW back (GB/s)",
        field: "back_bandwidth_bytes_per_s_mean",
        keep: 40,
        meaning: "Bandwidth of operations by the second ranks of pairs, back to the first ones, at the same time.",
        computed: "Mean over the trials of the direction's payload bytes / measured interval of the trial.",
        value: |row| {
            summary(row, |it| {
                Some(it.directions.as_ref()?.back.bandwidth_bytes_per_s.mean)
            })
        },
        trials: Some(|row| {
            trials(row, |it| {
                Some(it.directions.as_ref()?.back.bandwidth_bytes_per_s)
            })
        }),
        ..Figure::BANDWIDTH
    },
    Figure {
        name: "Lat forward (us)",
        field: "forward_latency_ns_mean",
        meaning: "Mean latency of operations by the first ranks of pairs while bytes move both ways.",
        computed: "Mean over all operations, or batches, of the direction.",
        value: |row| {
            summary(row, |it| {
                Some(mean_latency(&it.directions.as_ref()?.forward))
            })
        },
        ..Figure::TIME_US
    },
    Figure {
        name: "Lat back (us)",
        field: "back_latency_ns_mean",
        meaning: "Mean latency of operations by the second ranks of pairs at the same time.",
        computed: "Mean over all operations, or batches, of the direction.",
        value: |row| summary(row, |it| Some(mean_latency(&it.directions.as_ref()?.back))),
        ..Figure::TIME_US
    },
];

fn mean_latency(direction: &PairDirection) -> Value {
    Value::from(direction.latency_ns_mean).lower_bound_if(direction.unfinished > 0)
}

/// Memory of the targets, and options of the memories.
const MEMORIES: &[Figure] = &[
    Figure::of_option(
        "Target memory",
        "target_memory",
        "Memory of the target ranks; that of Memory unless another one was requested.",
        |row| {
            point(row, |point| {
                let target = point.memories.target_memory.as_ref();
                target.unwrap_or(&point.memories.memory).clone()
            })
        },
    ),
    Figure::of_option(
        "Memory options",
        "memory_options",
        "Options of the memories' own that differ from their defaults, each for the ends whose memory knows it; \
             `tonnage engines` lists all of them.",
        |row| point(row, |point| format_pairs(&point.memories.memory_options)),
    ),
];

/// Figures of atomic operations.
const ATOMICS: &[Figure] = &[Figure {
    name: "Swapped (%)",
    field: "swapped_fraction",
    meaning: "Part of the compare-swaps that found the expected value, and so stored their own number. Each expects \
             the number of operations that its own flow sent to the word before, so that several initiators of one word \
             share the successes. Known if trials are verified.",
    computed: "Sum of the words after each trial, which began with 0 / operations of all trials.",
    style: PERCENT,
    better: Some(Better::High),
    value: |row| summary(row, |it| it.swapped_fraction),
    ..Figure::PLAIN
}];

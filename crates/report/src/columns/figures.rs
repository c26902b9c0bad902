//! Columns of what was measured, and of what became of the point.

use tonnage_plan::transfer::TrialLength;

use super::values::{
    canary_ns, fastest_batch_bytes_per_s, latency, latency_kind_name, outcome, summary,
};
use super::{Column, Style, Value};
use crate::wire_proof::troubles;

const GIGA: Style = Style::Scaled(1e-9);
const MICROSECONDS: Style = Style::Scaled(1e-3);
const PERCENT: Style = Style::Scaled(100.0);
const FROM_PLAN: &str =
    "As the plan or the command line asked for it; the record's point repeats it.";
const FROM_HISTOGRAM: &str = "From one histogram of all samples of all trials and workers, with three significant \
     digits; never below the minimum or above the maximum, which are exact.";

/// Columns of measured figures.
pub const FIGURES: &[Column] = &[
    Column {
        name: "Reached (op/s)",
        field: "reached_per_s",
        meaning: "Operations per second that completed, all initiating ranks together. Well below the \
             offered rate, the path is saturated and latencies grow with the length of the run.",
        computed: "Operations completed / window.",
        style: Style::Rate,
        value: |record| {
            summary(record, |summary| {
                summary.pace.as_ref().map(|pace| pace.reached_per_s)
            })
        },
    },
    Column {
        name: "Late (%)",
        field: "late_fraction",
        meaning: "Part of the operations that were issued only after the next one was due, or never, because the window \
             was full or the loop was behind. Their wait is inside the response latency.",
        computed: "Operations issued late / all operations.",
        style: PERCENT,
        value: |record| {
            summary(record, |summary| {
                summary.pace.as_ref().map(|pace| pace.late_fraction)
            })
        },
    },
    Column {
        name: "Max BW (GB/s)",
        field: "bandwidth_bytes_per_s_max_batch",
        meaning: "Bandwidth of the fastest batch, GB of 1e9 bytes. It is one lucky batch, not a rate \
             that the path keeps up. Not available without latency, nor where several lanes post \
             batches at once: the fastest batch of one lane says nothing about all of them \
             together.",
        computed: "MsgSize x BatchSize / Min Lat.",
        style: GIGA,
        value: |record| fastest_batch_bytes_per_s(record).into(),
    },
    Column {
        name: "Avg BW (GB/s)",
        field: "bandwidth_bytes_per_s_mean",
        meaning: "Bandwidth over all ranks together, GB of 1e9 bytes per second. Every trial counts \
             from its aligned start to the last completion or arrival on any rank, the closing \
             flush included, so it is what the path keeps up, pauses between batches included.",
        computed: "Mean over the trials of payload bytes / window.",
        style: GIGA,
        value: |record| summary(record, |summary| summary.bandwidth_bytes_per_s.mean),
    },
    Column {
        name: "CI95 (%)",
        field: "bandwidth_ci95_fraction",
        meaning: "Half width of the 95 % confidence interval of Avg BW, as a part of it: the mean of \
             many such runs lies within this distance 19 times out of 20. Not available for a \
             single trial.",
        computed: "Student's t with (trials - 1) degrees of freedom x sample standard deviation across \
             trials / square root of the trials / mean.",
        style: PERCENT,
        value: |record| {
            summary(record, |summary| {
                let spread = summary.bandwidth_bytes_per_s;
                spread
                    .ci95
                    .filter(|_| spread.mean > 0.0)
                    .map(|ci95| ci95 / spread.mean)
            })
        },
    },
    Column {
        name: "Min trial BW (GB/s)",
        field: "bandwidth_bytes_per_s_min",
        meaning: "Bandwidth of the slowest trial, GB of 1e9 bytes per second.",
        computed: "Smallest payload bytes / window of the trials.",
        style: GIGA,
        value: |record| summary(record, |summary| summary.bandwidth_bytes_per_s.min),
    },
    Column {
        name: "Max trial BW (GB/s)",
        field: "bandwidth_bytes_per_s_max",
        meaning: "Bandwidth of the fastest trial, GB of 1e9 bytes per second.",
        computed: "Largest payload bytes / window of the trials.",
        style: GIGA,
        value: |record| summary(record, |summary| summary.bandwidth_bytes_per_s.max),
    },
    Column {
        name: "Msg rate (op/s)",
        field: "message_rate_per_s_mean",
        meaning: "Operations per second over all ranks together; k, M and G are 1e3, 1e6 and 1e9. A \
             round trip of a ping-pong is two operations.",
        computed: "Mean over the trials of operations / window.",
        style: Style::Rate,
        value: |record| summary(record, |summary| summary.message_rate_per_s.mean),
    },
    Column {
        name: "Latency kind",
        field: "latency_kind",
        meaning: "What one latency sample is: operation (post to completion of one operation), batch \
             (first post to last completion of one batch), one_way (half the round trip of a \
             ping-pong in which each side waits for data to arrive) or response (the time an \
             operation was due to its completion).",
        computed: "It follows from the pacing and the operation; a read under ping-pong is of kind \
             operation, because nothing arrives at its target.",
        style: Style::Plain,
        value: |record| latency(record, |latency| latency_kind_name(latency.kind)),
    },
    Column {
        name: "Delivered",
        field: "latency_delivered",
        meaning: "Whether what was written is in the peer's memory when a latency sample ends. \
             Where it is not, the latency is to local completion: the bytes may still be on their \
             way.",
        computed: "From what the engine promises about completions; absent for reads and ping-pongs, whose kind says \
             it, and where it cannot be told.",
        style: Style::Plain,
        value: |record| {
            let delivered = record
                .body
                .summary
                .as_ref()
                .and_then(|summary| summary.latency.as_ref()?.delivered);
            delivered.map(yes_or_no).into()
        },
    },
    Column {
        name: "Samples",
        field: "latency_samples",
        meaning: "Number of latencies that the figures are of.",
        computed: "Counted over all trials and workers.",
        style: Style::Plain,
        value: |record| latency(record, |latency| latency.samples),
    },
    Column {
        name: "Min Lat (us)",
        field: "latency_ns_min",
        meaning: "Smallest latency, exact.",
        computed: "Kept beside the histogram.",
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_min),
    },
    Column {
        name: "Avg Lat (us)",
        field: "latency_ns_mean",
        meaning: "Mean latency, exact.",
        computed: "Sum of all samples / their number.",
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_mean),
    },
    Column {
        name: "p50 (us)",
        field: "latency_ns_p50",
        meaning: "Median latency: half of the samples are not above it.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_p50),
    },
    Column {
        name: "p90 (us)",
        field: "latency_ns_p90",
        meaning: "Latency that 90 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_p90),
    },
    Column {
        name: "p99 (us)",
        field: "latency_ns_p99",
        meaning: "Latency that 99 % of the samples do not exceed.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_p99),
    },
    Column {
        name: "p99.9 (us)",
        field: "latency_ns_p999",
        meaning: "Latency that 99.9 % of the samples do not exceed. With fewer than a thousand samples \
             it is close to the largest.",
        computed: FROM_HISTOGRAM,
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_p999),
    },
    Column {
        name: "Max Lat (us)",
        field: "latency_ns_max",
        meaning: "Largest latency, exact however long it was.",
        computed: "Kept beside the histogram.",
        style: MICROSECONDS,
        value: |record| latency(record, |latency| latency.latency_ns_max),
    },
    Column {
        name: "Util (%)",
        field: "utilization",
        meaning: "How close the bandwidth comes to its limit, which the line under the table names.",
        computed: "Avg BW / limit.",
        style: PERCENT,
        value: |record| summary(record, |summary| summary.utilization),
    },
    Column {
        name: "Limit (GB/s)",
        field: "limit_bytes_per_s",
        meaning: "What the bandwidth is set beside, GB of 1e9 bytes per second.",
        computed: "Measured beside the point, read from the device, or stated by the user; `limit_what` \
             says which.",
        style: GIGA,
        value: |record| {
            let limit = record.limit.as_ref();
            limit.map(|limit| limit.bytes_per_s).into()
        },
    },
    Column {
        name: "Limit what",
        field: "limit_what",
        meaning: "What the limit is, in words.",
        computed: "Written by whatever measured or stated it.",
        style: Style::Plain,
        value: |record| {
            let limit = record.limit.as_ref();
            limit.map(|limit| limit.what.as_str()).into()
        },
    },
    Column {
        name: "CPU (ns/op)",
        field: "initiator_cpu_ns_per_operation",
        meaning: "CPU time that the initiators' workers spend on one operation. Workers that spin use \
             all of their CPU's time, so this is the price of polling too.",
        computed: "CPU time of all initiating workers inside the windows / operations.",
        style: Style::Scaled(1.0),
        value: |record| summary(record, |summary| summary.initiator_cpu_ns_per_operation),
    },
    Column {
        name: "Target CPU (ns/op)",
        field: "target_cpu_ns_per_operation",
        meaning: "CPU time that workers which only serve spend on one operation.",
        computed: "CPU time of all serving workers inside the windows / operations.",
        style: Style::Scaled(1.0),
        value: |record| summary(record, |summary| summary.target_cpu_ns_per_operation),
    },
    Column {
        name: "Trials",
        field: "trials",
        meaning: "Timed repetitions of the point.",
        computed: "Counted.",
        style: Style::Plain,
        value: |record| summary(record, |summary| summary.trials),
    },
    Column {
        name: "Trial length",
        field: "trial_length",
        meaning: "How long one trial is: at least this time, or this many operations (batches, round \
             trips) of each worker.",
        computed: FROM_PLAN,
        style: Style::Plain,
        value: |record| {
            Value::Text(match record.body.point.length.trial {
                TrialLength::DurationNs(length_ns) => format!("{length_ns} ns"),
                TrialLength::Iterations(count) => format!("{count} iterations"),
            })
        },
    },
    Column {
        name: "Operations",
        field: "operations",
        meaning: "Operations of all trials.",
        computed: "Counted; a round trip of a ping-pong is two.",
        style: Style::Plain,
        value: |record| summary(record, |summary| summary.operations),
    },
    Column {
        name: "Payload (B)",
        field: "payload_bytes",
        meaning: "Payload bytes of all trials.",
        computed: "Operations x MsgSize.",
        style: Style::Plain,
        value: |record| summary(record, |summary| summary.payload_bytes),
    },
    Column {
        name: "Verified (B)",
        field: "verified_bytes",
        meaning: "Bytes that were checked after the trials, outside the clock, and found right.",
        computed: "Sum over the trials; absent without --verify.",
        style: Style::Plain,
        value: |record| {
            record
                .body
                .trials
                .iter()
                .filter_map(|trial| trial.verified_bytes)
                .reduce(|sum, bytes| sum.saturating_add(bytes))
                .into()
        },
    },
    Column {
        name: "Canary before (ns)",
        field: "canary_before_ns",
        meaning: "How long a cache line took from one CPU to another just before the point. It has \
             nothing to do with the engine and tells whether the machine is its usual self.",
        computed: "Median, one way, of a ping-pong between the CPUs of the first pair.",
        style: Style::Scaled(1.0),
        value: |record| canary_ns(record, false).into(),
    },
    Column {
        name: "Canary after (ns)",
        field: "canary_after_ns",
        meaning: "The same just after the point. If the two differ by more than a fifth, the machine \
             changed meanwhile, and small differences between results mean nothing.",
        computed: "Median, one way, of a ping-pong between the CPUs of the first pair.",
        style: Style::Scaled(1.0),
        value: |record| canary_ns(record, true).into(),
    },
    Column {
        name: "Path",
        field: "path_crossed",
        meaning: "Whether the payload crossed the devices that it should have, by these devices' own counters.",
        computed: "yes where every device carried at least 99 % of the payload, warm-up included, from before the \
             warm-up to after the last trial; absent where the engine names no device.",
        style: Style::Plain,
        value: |record| {
            let crossed = record.wire_proof.as_ref().map(|path| path.crossed);
            crossed.map(yes_or_no).into()
        },
    },
    Column {
        name: "Trouble",
        field: "path_trouble",
        meaning: "Errors, drops and retransmits on the way, other traffic of the hosts included.",
        computed: "Sum of all such counters of the devices and of their hosts' TCP; the record lists them.",
        style: Style::Plain,
        value: |record| record.wire_proof.as_ref().map(troubles).into(),
    },
    Column {
        name: "Outcome",
        field: "outcome",
        meaning: "What became of the point: measured, skipped (it could not be tried here) or \
             failed.",
        computed: "Decided when the point ends.",
        style: Style::Plain,
        value: |record| outcome(record).0.into(),
    },
    Column {
        name: "Why",
        field: "outcome_why",
        meaning: "Why a point was skipped or failed, and what to do.",
        computed: "Written by whatever stopped it.",
        style: Style::Plain,
        value: |record| outcome(record).1.into(),
    },
];

fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#!/usr/bin/env python3
"""How close engine shm comes to what the machine can do: large copies beside the memory-copy limit, small one-way
latency beside the canary."""

import common

FOOTPRINTS = ["1M", "16M", "64M"]
OPS = ["write", "read"]
RATIO_GOAL = 0.9
# "At least X" holds when the lower 95 % bound is at least this part of X (README.md).
BOUND_PART = 0.97
PING_PONGS = ["write", "write-imm"]
EXCESS_GOAL_NS = 60.0
# Repetitions without a change of the canary that a median needs.
STEADY_MIN = 3


def main():
    parser = common.arguments(__doc__, repetitions=11)
    parser.add_argument("--only", choices=["bandwidth", "latency"], help="leave the other out")
    options = parser.parse_args()
    binary = common.program(options)
    common.describe_machine(ping_pongs(binary)[0])
    goals = common.Goals()
    if options.only != "latency":
        bandwidth(binary, options.repetitions, goals)
    if options.only != "bandwidth":
        latency(binary, options.repetitions, goals)
    goals.finish()


def limit_of(record):
    """The limit beside a record; an earlier binary, as it stands beside this one, kept it in the summary."""
    return record.get("bound") or record.get("limit") or record["summary"]["limit"]


def bandwidth(binary, repetitions, goals):
    cells = {(op, footprint): [] for footprint in FOOTPRINTS for op in OPS}
    for _ in range(repetitions):
        for footprint in FOOTPRINTS:
            for record in streams(binary, footprint):
                cells[record["point"]["op"], footprint].append(record)
    print(f"shm, 1 MiB, window 16, beside the memory-copy limit of the same point, {repetitions} repetitions")
    print("The ratio of a repetition is the mean of its trials over its own limit; 'CPU' counts only CPU time.\n")
    print(f"{'':18}{'GB/s':>8}{'limit':>8}{'ratio':>8}{'bound':>8}{'best':>8}{'CPU':>8}   methods chosen")
    for (op, footprint), records in cells.items():
        ratios = [record["summary"]["utilization"] for record in records]
        limits = [limit_of(record)["bytes_per_s"] for record in records]
        rates = [record["summary"]["bandwidth_bytes_per_s"]["mean"] for record in records]
        by_cpu = [cpu_rate(record) / limit for record, limit in zip(records, limits)]
        print(
            f"{op + ', ' + footprint:18}{common.median(rates) / 1e9:8.2f}{common.median(limits) / 1e9:8.2f}"
            f"{common.median(ratios):8.3f}{common.median_at_least(ratios):8.3f}{max(ratios):8.3f}"
            f"{common.median(by_cpu):8.3f}   {methods(records)}"
        )
    print()
    for (op, footprint), records in cells.items():
        ratios = [record["summary"]["utilization"] for record in records]
        bound = common.median_at_least(ratios)
        goals.line(
            f"{op} of 1 MiB over {footprint}iB / copy limit",
            f"{common.median(ratios):.3f} (bound {bound:.3f})",
            f">= {RATIO_GOAL}",
            bound >= BOUND_PART * RATIO_GOAL,
        )
    print()


def streams(binary, footprint):
    words = "--engine shm --op write,read --ranks 2 --sizes 1M --depth 16 --footprint".split()
    return common.run(binary, *words, footprint)


def cpu_rate(record):
    """Bytes per second of CPU time that the initiator used: what waiting for a CPU does not spoil."""
    cpu_ns = sum(trial["initiator_cpu_ns"] for trial in record["trials"])
    return sum(trial["payload_bytes"] for trial in record["trials"]) * 1e9 / cpu_ns


def methods(records):
    """How often the engine chose which way of copying."""
    chosen = [record["effective"][0]["engine"].get("copy_method") for record in records]
    return ", ".join(f"{method} x{chosen.count(method)}" for method in sorted(set(chosen), key=str))


def latency(binary, repetitions, goals):
    excess_ns = {op: [] for op in PING_PONGS}
    shown = {op: [] for op in PING_PONGS}
    # Three times as many, because a repetition counts only when the canary did not change, and takes a second.
    for _ in range(3 * repetitions):
        for record in ping_pongs(binary):
            op, canary = record["point"]["op"], record["canary"]
            if canary["status"] != "measured" or canary["changed"]:
                continue
            canary_ns = (canary["before_ns"] + canary["after_ns"]) / 2
            p50_ns = record["summary"]["latency"]["latency_ns_p50"]
            excess_ns[op].append(p50_ns - canary_ns)
            shown[op].append((p50_ns, canary_ns))
    print("shm, 8 B ping-pong: one-way p50 beside the canary, a cache line passed between the same two CPUs\n")
    for op in PING_PONGS:
        pairs = " ".join(f"{p50_ns:.0f}-{canary_ns:.0f}" for p50_ns, canary_ns in shown[op])
        print(f"{op:10} {len(pairs.split())} of {3 * repetitions} repetitions had a steady canary: {pairs}")
    print()
    for op in PING_PONGS:
        what = f"{op} of 8 B, one way, p50 above the canary"
        if len(excess_ns[op]) < STEADY_MIN:
            goals.undecided(what, f"only {len(excess_ns[op])} repetitions had a steady canary")
            continue
        figure_ns = common.median(excess_ns[op])
        goals.line(what, f"{figure_ns:.1f} ns", f"<= {EXCESS_GOAL_NS:.0f} ns", figure_ns <= EXCESS_GOAL_NS)


def ping_pongs(binary):
    words = "--engine shm --ranks 2 --sizes 8 --ping-pong --trials 3 --trial-time 100ms --op"
    return common.run(binary, *words.split(), ",".join(PING_PONGS))


if __name__ == "__main__":
    main()

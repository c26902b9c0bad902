#!/usr/bin/env python3
"""What the harness itself costs per operation: engine null, window 64, with and without a latency for each operation."""

import common

GOAL_NS = {"off": 15.0, "on": 35.0}


def main():
    parser = common.arguments(__doc__, repetitions=9)
    options = parser.parse_args()
    binary = common.program(options)
    wall_ns = {"off": [], "on": []}
    cpu_ns = {"off": [], "on": []}
    # Untimed: the first start after a build reads the binary from the disk.
    common.describe_machine(measure(binary, "on"))
    for _ in range(options.repetitions):
        for latency in GOAL_NS:
            for trial in measure(binary, latency)["trials"]:
                wall_ns[latency].append(trial["window_ns"] / trial["operations"])
                cpu_ns[latency].append(trial["initiator_cpu_ns"] / trial["operations"])
    goals = common.Goals()
    trials = len(wall_ns["on"])
    print(f"null, window 64, 64 B, ns per operation, {trials} trials each, --latency off and on in turn\n")
    print(f"{'':14}{'wall median':>14}{'wall best':>12}{'CPU median':>13}{'CPU best':>11}")
    for latency in GOAL_NS:
        wall, cpu = wall_ns[latency], cpu_ns[latency]
        print(
            f"latency {latency:6}{common.median(wall):14.2f}{min(wall):12.2f}"
            f"{common.median(cpu):13.2f}{min(cpu):11.2f}"
        )
    print()
    for latency, goal_ns in GOAL_NS.items():
        figure_ns = common.median(wall_ns[latency])
        goals.line(
            f"wall time per operation, latency {latency}",
            f"{figure_ns:.2f} ns",
            f"<= {goal_ns:.0f} ns",
            figure_ns <= goal_ns,
        )
    goals.finish()


def measure(binary, latency):
    words = "--engine null --op write --ranks 2 --sizes 64 --depth 64 --latency".split()
    return common.run(binary, *words, latency)[0]


if __name__ == "__main__":
    main()

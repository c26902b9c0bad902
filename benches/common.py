"""What the benchmarks share: running the program, reading its records, medians, and the lines that say met or missed.

Python 3.8 or newer, nothing but its standard library.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "target", "release", "tonnage")

# Longer than any single run of these benchmarks; a run that hangs ends the benchmark with an error.
RUN_SECONDS_MAX = 120


def arguments(about, repetitions):
    """The options that every benchmark has; a benchmark may add its own before parsing."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--program", help="measure this binary instead of building and measuring target/release/tonnage")
    parser.add_argument("--repetitions", type=int, default=repetitions, help="[default: %(default)s]")
    return parser


def program(options):
    """The binary to measure: built first, unless one was named."""
    if options.program:
        return os.path.abspath(options.program)
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=ROOT, check=True)
    return PROGRAM


def run(binary, *words):
    """Runs `tonnage transfer` and returns its records, all of which must be measured."""
    command = [binary, "transfer", *words, "--format", "jsonl"]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=RUN_SECONDS_MAX, check=True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for record in records:
        if record["outcome"]["status"] != "measured":
            sys.exit(f"{' '.join(command)}: {record['outcome']}")
    return records


def describe_machine(record):
    """One line about where this was measured, from the record itself, and how busy the machine is."""
    machine = record["environment"][0]["machine"]
    cpu = machine["cpu"]
    where = "virtual machine" if machine["virtualised"] else "bare metal"
    memory_gib = machine["memory"]["total_bytes"] / 2**30
    # An engine that moves bytes in memory says which clock it reads; one of files leaves that to the loops around it.
    clock = record["effective"][0]["engine"].get("clock", machine["clock_source"])
    print(
        f"{cpu['model']}, CPUs {cpu['online']}, {memory_gib:.0f} GiB, {where}, Linux {machine['kernel']}, "
        f"clock {clock}"
    )
    print(f"tonnage {record['tonnage']['version']} ({record['tonnage']['git_revision']})")
    load = os.getloadavg()[0]
    busy = load > 0.5
    print(f"load before: {load:.1f}" + (" - other work is running, so wall times are too long\n" if busy else "\n"))


def median(values):
    return statistics.median(values)


def median_at_least(values):
    """A value that the true median exceeds with 95 % confidence, whatever the distribution: an order statistic.

    With fewer than 5 values there is none, and the smallest stands for it.
    """
    ordered, n = sorted(values), len(values)
    below, rank = 0.0, 0
    for index in range(n):
        below += math.comb(n, index) / 2**n
        if below > 0.05:
            break
        rank = index
    return ordered[rank]


class Goals:
    """Prints each figure beside its goal, and remembers whether one was missed."""

    def __init__(self):
        self.missed = 0

    def line(self, what, figure, goal, met):
        self.missed += not met
        print(f"{what:44} {figure:>26}   goal {goal:18} {'met' if met else 'MISSED'}", flush=True)

    def undecided(self, what, why):
        self.missed += 1
        print(f"{what:44} undecided: {why}", flush=True)

    def finish(self):
        """Ends the program: status 1 when a goal was missed or could not be decided."""
        sys.exit(1 if self.missed else 0)

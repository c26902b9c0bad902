#!/usr/bin/env python3
"""Checks that no cell is slower than with another binary: null, shm, fabric:shm, fabric:tcp, collectives and files.

    benches/no_cell_slower.py OLD [NEW]

For each engine `tonnage ab` runs both binaries by turns, and `tonnage compare --margin 3% --fail-on
worse,unclear,missing` judges each cell. An engine with failing cells is measured once more, and a cell that fails both
times counts. A cell with fewer than 8 of 11 runs that can be used is unclear or not comparable, and fails too.

Two local ranks on an idle machine. It takes 10 minutes, and 20 if all engines are measured again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FAILING = ("worse", "unclear", "not-comparable", "missing")
LENGTH = """
trials = 3
trial-time = "100ms"
warmup = "30ms"
bound = "none"
"""
TRANSFERS = """
name = "no-cell-slower"
ranks = 2
[[transfer]]
label = "stream"
engine = "{engine}"
op = ["write", "read", "send"]
sizes = "64,64k"
depth = 16
{length}
[[transfer]]
label = "latency"
engine = "{engine}"
op = ["write-imm", "read"]
sizes = 8
ping-pong = true
{length}
[[transfer]]
label = "library"
engine = "{engine}"
op = "write"
sizes = 64
depth = 16
api = ["poll", "async"]
{length}
"""
COLLECTIVES = """
name = "no-cell-slower"
ranks = 2
[[collective]]
backend = ["native:shm", "native:fabric:shm"]
op = ["all-reduce", "all-to-all", "barrier"]
sizes = "64,64k,4M"
trials = 3
trial-time = "100ms"
warmup = "30ms"
bound = "none"
"""
FILES = """
name = "no-cell-slower"
ranks = 2
[[file]]
engine = "posix"
path = "no-cell-slower"
block = "32M"
transfer = ["4k", "1M"]
trials = 3
bound = "none"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="the binary to compare with")
    parser.add_argument("new", metavar="NEW", nargs="?", default=os.path.join(ROOT, "target", "release", "tonnage"))
    parser.add_argument("--runs", type=int, default=11, help="runs of each binary [default: %(default)s]")
    parser.add_argument("--only", help="engines to measure, joined by commas, such as shm,files")
    options = parser.parse_args()
    engines = ["null", "shm", "fabric:shm", "fabric:tcp", "collectives", "files"]
    if options.only:
        engines = options.only.split(",")
    slower = []
    for engine in engines:
        failing = failing_cells(options, engine)
        if failing:
            print(f"{engine}: {len(failing)} cells failed; measuring them again", flush=True)
            again = failing_cells(options, engine)
            slower += [f"{engine}: {cell}: {again[cell]}" for cell in failing if cell in again]
    print("\n".join(slower) if slower else "no cell is slower")
    sys.exit(1 if slower else 0)


def failing_cells(options, engine):
    """Measures the cells of an engine with both binaries, and prints and returns those that fail, with their verdict."""
    old, new = os.path.abspath(options.old), os.path.abspath(options.new)
    others = {"collectives": COLLECTIVES, "files": FILES}
    plan = others.get(engine) or TRANSFERS.format(engine=engine, length=LENGTH)
    with tempfile.TemporaryDirectory(prefix="no-cell-slower-") as place:
        with open(os.path.join(place, "plan.toml"), "w", encoding="utf-8") as file:
            file.write(plan)
        ab = [new, "ab", "--runs", str(options.times), "-o", "ab.jsonl", "--a-program", old]
        subprocess.run([*ab, "--", "run", "plan.toml"], cwd=place, check=True)
        compare = [new, "compare", "ab.jsonl", "--margin", "3%", "--fail-on", "worse,unclear,missing"]
        judged = subprocess.run([*compare, "--format", "json"], cwd=place, stdout=subprocess.PIPE, check=False)
        if judged.returncode not in (0, 1):
            sys.exit(f"{' '.join(compare)} ended with {judged.returncode}")
        subprocess.run(compare, cwd=place, check=False)
    cells = {cell_of(point): point["verdict"] for point in json.loads(judged.stdout)["points"]}
    failing = {cell: verdict for cell, verdict in cells.items() if verdict in FAILING}
    if bool(failing) != (judged.returncode == 1):
        sys.exit(f"{engine}: exit code {judged.returncode} with {len(failing)} failing cells")
    return failing


def cell_of(point):
    """The cell's keys and its metric."""
    keys = " ".join(f"{key}={value}" for key, value in sorted(map(tuple, point["keys"])))
    return f"{point['metric']} of {keys}"


if __name__ == "__main__":
    main()

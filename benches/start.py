#!/usr/bin/env python3
"""What a run costs beside its trials: time from the start to the first result, memory beside the buffers, and (asked
for) a build from nothing."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

import common

START_GOAL_S = 0.5
MEMORY_GOAL_MIB = 64
BUILD_GOAL_S = 120
POLL_S = 0.002


def main():
    parser = common.arguments(__doc__, repetitions=15)
    parser.add_argument("--cold-build", action="store_true", help="also build from nothing, into a directory of its own")
    options = parser.parse_args()
    binary = common.program(options)
    common.describe_machine(common.run(binary, *minimal("shm"))[0])
    goals = common.Goals()
    for engine in ["null", "shm"]:
        start(binary, engine, options.repetitions, goals)
    print()
    for engine, mapped in [("null", "own"), ("shm", "own and peer's")]:
        memory(binary, engine, mapped, goals)
    if options.cold_build:
        print()
        cold_build(goals)
    goals.finish()


def minimal(engine):
    """Two ranks and one operation."""
    words = "--op write --ranks 2 --sizes 8 --depth 1 --trials 1 --iters 1 --warmup 0 --engine"
    return [*words.split(), engine]


def start(binary, engine, repetitions, goals):
    first_s, end_s = [], []
    for _ in range(repetitions):
        began = time.monotonic()
        command = [binary, "transfer", *minimal(engine), "--format", "jsonl"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process, ended_in_time(process):
            record = json.loads(process.stdout.readline())
            first = time.monotonic()
            if process.wait() != 0:
                raise SystemExit(f"{' '.join(command)} failed")
        trials_s = sum(trial["window_ns"] for trial in record["trials"]) / 1e9
        first_s.append(first - began - trials_s)
        end_s.append(time.monotonic() - began - trials_s)
    figure_s = common.median(first_s)
    print(f"{engine}: to the end of the program {common.median(end_s):.3f} s, best first result {min(first_s):.3f} s")
    goals.line(
        f"start to first result, 2 ranks, {engine}",
        f"{figure_s:.3f} s",
        f"< {START_GOAL_S} s",
        figure_s < START_GOAL_S,
    )


@contextlib.contextmanager
def ended_in_time(process):
    """Kills a run that hangs, so that waiting for it ends."""
    timer = threading.Timer(common.RUN_SECONDS_MAX, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def memory(binary, engine, mapped, goals):
    """The largest resident memory of any process of a run, less the buffers that it maps."""
    words = f"--engine {engine} --op write --ranks 2 --sizes 64k --footprint 64M --trials 3 --bound none"
    command = [binary, "transfer", *words.split(), "--format", "jsonl"]
    record, peaks = run_with_peaks(command)
    buffers = [group["memory"]["bytes"] for group in record["effective"]]
    # A rank maps its own buffers; over shm it maps its peer's too, and both count as resident.
    own = max(buffers)
    counted = own if mapped == "own" else own + (buffers[1] if len(buffers) > 1 else own)
    peak = max(peaks.values())
    beside_mib = (peak - counted) / 2**20
    print(
        f"{engine}: {len(peaks)} processes, largest peak {peak / 2**20:.1f} MiB, "
        f"of it buffers ({mapped}) {counted / 2**20:.1f} MiB"
    )
    goals.line(
        f"memory of a rank beside its buffers, {engine}",
        f"{beside_mib:.1f} MiB",
        f"< {MEMORY_GOAL_MIB} MiB",
        0 <= beside_mib < MEMORY_GOAL_MIB,
    )


def run_with_peaks(command):
    """The one record of a run, and the largest resident memory of each of its processes."""
    peaks = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, ended_in_time(process):
        while process.poll() is None:
            for pid in tree(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), peak_bytes(pid))
            time.sleep(POLL_S)
        output = process.stdout.readline()
    if not output:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    record = json.loads(output)
    if record["outcome"]["status"] != "measured":
        raise SystemExit(f"{' '.join(command)}: {record['outcome']}")
    return record, peaks


def tree(pid):
    """A process and all its descendants."""
    found, left = [], [pid]
    while left:
        pid = left.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                    left.extend(int(child) for child in children.read().split())
        except OSError:
            # The process, or a thread of it, has just ended.
            continue
    return found


def peak_bytes(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def cold_build(goals):
    directory = tempfile.mkdtemp(prefix="tonnage-cold-build-")
    try:
        # Downloading is not building: what the registry gives is fetched before the clock runs.
        subprocess.run(["cargo", "fetch", "--locked", "--quiet"], cwd=common.ROOT, check=True)
        began = time.monotonic()
        command = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", directory]
        subprocess.run(command, cwd=common.ROOT, check=True)
        seconds = time.monotonic() - began
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    goals.line("build from nothing", f"{seconds:.0f} s", f"< {BUILD_GOAL_S} s", seconds < BUILD_GOAL_S)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""tonnage file beside IOR and fio, on the same files, in turn: CPU time per operation, transfers per second, bandwidth,
and whether a rank's memory depends on how much it moves. What exactly is compared, and alike in what, is in
README.md."""

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
from typing import Callable, Dict, NamedTuple, Tuple

import common
import file_peers
import start

PARTS = ["posix", "uring", "sequential", "mpiio", "memory"]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALL_BYTES = 4 * KIB
# Files for small reads: the long one is measured, and the short one tells what starting and ending cost.
LONG_BYTES, SHORT_BYTES = 1 * GIB, 16 * MIB
LONG, SHORT = "long.00000000", "short.00000000"
DEPTH = 32
# At most this part of the peer's CPU time, at least so many times its rate.
IOR_CPU_GOAL, FIO_CPU_GOAL, URING_CPU_GOAL, RATE_GOAL = 0.85, 0.9, 0.9, 1.0
# A rank that moves the second of these has at most this much more memory than one that moves the first.
MEMORY_BYTES = [64 * MIB, 4 * GIB]
MEMORY_GOAL_MIB = 1.0
# "At least X" holds when the lower 95 % bound is at least this part of X (README.md).
BOUND_PART = 0.97
RANKS = 2


class Goal(NamedTuple):
    """A figure of tonnage divided by the same of a peer."""

    metric: str
    peer: str
    bound: float

    @property
    def less_is_better(self):
        return self.metric == "cpu_ns"


class Contest(NamedTuple):
    """The programs that take turns, tonnage one of them, each giving figures by metric."""

    name: str
    runs: Dict[str, Callable[[], Dict[str, float]]]
    goals: Tuple[Goal, ...]
    # Puts the files and the disk into the same state before each of them.
    prepare: Callable[[], None]


def main():
    options = arguments()
    iors = {"mpich": options.ior_mpich, "openmpi": options.ior_openmpi}
    needed = [iors["mpich"]] if {"posix", "sequential", "mpiio"} & set(options.only) else []
    needed += ["mpiexec.mpich"] if {"sequential", "mpiio"} & set(options.only) else []
    needed += [iors["openmpi"], "mpiexec.openmpi"] if "mpiio" in options.only else []
    needed += ["fio"] if {"posix", "uring"} & set(options.only) else []
    file_peers.require(needed)
    rivals = {mpi: file_peers.Ior(program, mpi) for mpi, program in iors.items() if program in needed}
    binary = common.program(options)
    goals = common.Goals()
    with grounds(options) as places:
        tonnage = Tonnage(binary, options.cpu)
        describe(tonnage, places, rivals, "fio" in needed)
        compare(contests(tonnage, places, rivals, options), options.repetitions, goals)
        if "memory" in options.only:
            memory(binary, places, goals)
    goals.finish()


def arguments():
    parser = common.arguments(__doc__, repetitions=11)
    for mpi, name in [("mpich", "MPICH"), ("openmpi", "Open MPI")]:
        parser.add_argument(f"--ior-{mpi}", metavar="PROGRAM", default=f"ior.{mpi}", help=f"IOR built with {name}")
    parser.add_argument("--disk", default="/var/tmp", help="a directory on a disk [default: %(default)s]")
    parser.add_argument("--tmpfs", default="/dev/shm", help="a directory in memory [default: %(default)s]")
    parser.add_argument("--cpu", default="0", help="where what has one rank runs [default: %(default)s]")
    parser.add_argument("--only", action="append", choices=PARTS, help="leave the others out; may be repeated")
    options = parser.parse_args()
    options.only = options.only or PARTS
    return options


@contextlib.contextmanager
def grounds(options):
    """A directory of our own in memory and on the disk, with the files to be read in both; removed in the end."""
    places = {}
    try:
        for name, parent in [("tmpfs", options.tmpfs), ("disk", options.disk)]:
            places[name] = tempfile.mkdtemp(prefix="tonnage-files-", dir=parent)
            if {"posix", "uring"} & set(options.only):
                write_file(os.path.join(places[name], LONG), LONG_BYTES)
                write_file(os.path.join(places[name], SHORT), SHORT_BYTES)
        yield places
    finally:
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)


def write_file(path, size):
    """The same file for all programs, written by none of them, in the page cache and on the disk."""
    block = os.urandom(4 * MIB)
    with open(path, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def describe(tonnage, places, rivals, with_fio):
    """Where this was measured, and with which programs."""
    words = ["--path", os.path.join(places["tmpfs"], "first"), "--block", "1m", "--transfer", "1m"]
    record = tonnage.record(["--ranks", "1", "--phases", "write", *words])[0]
    common.describe_machine(record)
    versions = [rival.version() for rival in rivals.values()] + ([file_peers.fio_version()] if with_fio else [])
    print(f"peers: {', '.join(versions) or 'none'}")
    for name, place in places.items():
        print(f"{name}: {file_system(place)}, {shutil.disk_usage(place).free >> 30} GiB free")
    print(flush=True)


def file_system(place):
    """The kind of file system that a directory is on: that of the longest mount point above it."""
    kinds = {}
    with open("/proc/mounts", encoding="utf-8", errors="replace") as mounts:
        for fields in (line.split() for line in mounts):
            kinds[fields[1]] = fields[2]
    above = os.path.realpath(place)
    while above not in kinds and above != "/":
        above = os.path.dirname(above)
    return kinds.get(above, "unknown")


class Tonnage:
    """Runs `tonnage file` as its peers are run."""

    def __init__(self, binary, cpu):
        self.binary, self.cpu = binary, cpu

    def record(self, words, launcher=(), cpu=None):
        """The record of one run, and the CPU seconds of all its processes."""
        words = [*launcher, self.binary, "file", *words, "--trials", "1", "--bound", "none", "--format", "jsonl"]
        ended = file_peers.execute(words, cpu)
        # Under a launcher the standard error of all ranks is in the same stream.
        records = [json.loads(line) for line in ended.output.splitlines() if line.startswith('{"schema_version"')]
        if len(records) != 1 or records[0]["outcome"]["status"] != "measured":
            sys.exit(f"{' '.join(words)}: gave no measured record\n{ended.output}")
        return records[0], ended.cpu_s

    def outcome(self, words, launcher=(), cpu=None):
        record, cpu_s = self.record(words, launcher, cpu)
        figures = {phase["phase"]: phase["trials"][0] for phase in record["phases"]}
        last = record["phases"][-1]["trials"][0]
        mib_per_s = {name: trial["bandwidth_bytes_per_s"] / MIB for name, trial in figures.items()}
        return file_peers.Outcome(
            last["operations"],
            cpu_s,
            last["operations_per_s"],
            mib_per_s.get("write", 0.0),
            mib_per_s.get("read", 0.0),
            last["transfer_cpu_ns"] / last["operations"],
        )

    def reads(self, engine_words, place, name):
        """One rank that reads a file in shuffled order."""
        size = LONG_BYTES if name == LONG else SHORT_BYTES
        words = ["--ranks", "1", "--path", os.path.join(place, name), "--block", str(size), "--transfer", "4k"]
        words += ["--order", "shuffled", "--phases", "read", "--keep", *engine_words]
        return self.outcome(words, cpu=self.cpu)


def contests(tonnage, places, rivals, options):
    found = []
    if "posix" in options.only:
        found += [small_reads(tonnage, rivals["mpich"], places[name], name) for name in places]
    if "uring" in options.only:
        found.append(direct_reads(tonnage, places["disk"]))
    if "sequential" in options.only:
        found += [sequential(tonnage, rivals["mpich"], places, *which) for which in SEQUENTIAL]
    if "mpiio" in options.only:
        for mpi, rival in rivals.items():
            for name in places:
                found += [through_mpi(tonnage, rival, places[name], f"{mpi} {name}", *mode) for mode in MPI_MODES]
    return found


def per_operation(run):
    """Reads the long file and the short one: CPU time per operation is their difference, so that starting, opening and
    ending are in no program's figure."""
    short, long = run(SHORT), run(LONG)
    cpu_ns = (long.cpu_s - short.cpu_s) * 1e9 / (long.operations - short.operations)
    figures = {"cpu_ns": cpu_ns, "iops": long.iops}
    return dict(figures, own_cpu_ns=long.own_cpu_ns) if long.own_cpu_ns else figures


def small_reads(tonnage, ior, place, where):
    def ior_run(name):
        size = LONG_BYTES if name == LONG else SHORT_BYTES
        path = os.path.join(place, name.partition(".")[0])
        words = ["-a", "POSIX", "-F", "-r", "-k", "-z", "-t", "4k", "-b", str(size), "-o", path]
        return ior.alone(words, size // SMALL_BYTES, tonnage.cpu)

    # fio drops a file's pages from the cache before it begins, unless it is told not to.
    fio_words = ["--ioengine=psync", "--invalidate=0"]
    runs = {
        "tonnage": lambda name: tonnage.reads(["--engine", "posix"], place, name),
        "IOR": ior_run,
        "fio psync": lambda name: fio_reads(fio_words, place, name, tonnage.cpu),
    }
    goals = (Goal("cpu_ns", "IOR", IOR_CPU_GOAL), Goal("cpu_ns", "fio psync", FIO_CPU_GOAL))
    return by_operation(f"posix 4 KiB shuffled reads, {where}", runs, goals, lambda: fill_cache(place))


def direct_reads(tonnage, place):
    words = ["--engine", "uring", "--direct", "--depth", str(DEPTH)]
    plain = ["--ioengine=io_uring", "--direct=1", f"--iodepth={DEPTH}"]
    # The same, with the buffers and files registered that tonnage registers by itself.
    registered = [*plain, "--fixedbufs", "--registerfiles"]
    runs = {
        "tonnage": lambda name: tonnage.reads(words, place, name),
        "fio io_uring": lambda name: fio_reads(plain, place, name, tonnage.cpu),
        "fio registered": lambda name: fio_reads(registered, place, name, tonnage.cpu),
    }
    peers = ["fio io_uring", "fio registered"]
    goals = tuple(Goal("iops", peer, RATE_GOAL) for peer in peers)
    goals += tuple(Goal("cpu_ns", peer, URING_CPU_GOAL) for peer in peers)
    return by_operation(f"uring 4 KiB direct reads, depth {DEPTH}, disk", runs, goals, lambda: empty_cache(place))


def fio_reads(words, place, name, cpu):
    size = LONG_BYTES if name == LONG else SHORT_BYTES
    path = os.path.join(place, name)
    return file_peers.fio(["--rw=randread", "--bs=4k", f"--size={size}", f"--filename={path}", *words], cpu)


def by_operation(name, runs, goals, prepare):
    return Contest(name, {who: functools.partial(per_operation, run) for who, run in runs.items()}, goals, prepare)


def fill_cache(place):
    """Has the files in the page cache, wherever they were."""
    for name in [SHORT, LONG]:
        with open(os.path.join(place, name), "rb", buffering=0) as file:
            while file.read(MIB):
                pass


def empty_cache(place):
    """Takes the files out of the page cache: a direct read looks there for what is not written back."""
    for name in [SHORT, LONG]:
        with open(os.path.join(place, name), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# Earlier data must not be written back in the middle of a run, so all of it is synchronised before each.
BOTH_WAYS = (Goal("write", "IOR", RATE_GOAL), Goal("read", "IOR", RATE_GOAL))
# A place, and whether the page cache is left out.
SEQUENTIAL = [("tmpfs", False), ("disk", False), ("disk", True)]


def sequential(tonnage, ior, places, where, direct):
    path = os.path.join(places[where], "sequential")
    words = ["--engine", "posix", "--path", path, "--layout", "per-process", "--block", "4m", "--transfer", "4m"]
    words += ["--segments", "64", "--phases", "write,read", "--fsync", "end", "--barriers"]
    ior_words = ["-a", "POSIX", "-F", "-e", "-g", "-b", "4m", "-t", "4m", "-s", "64", "-o", path]
    if direct:
        words.append("--direct")
        ior_words.append("--posix.odirect")
    # The same launcher for both: MPICH's makes each rank a session, to which Linux gives its share of the CPUs.
    launcher = file_peers.launch(ior.mpi, RANKS, [])
    runs = {
        "tonnage": lambda: bandwidths(tonnage.outcome(words, launcher)),
        "IOR": lambda: bandwidths(ior.ranks(RANKS, ior_words)),
    }
    name = f"posix 4 MiB sequential, {where}{' direct' if direct else ''}"
    return Contest(name, runs, BOTH_WAYS, os.sync)


# Of each way of using MPI-IO its name, and the options of tonnage and of IOR.
MPI_MODES = [
    (
        "collective 8 MiB",
        ["--collective", "--block", "8m", "--transfer", "8m", "--segments", "32"],
        ["-c", "-b", "8m", "-t", "8m", "-s", "32"],
    ),
    ("independent 512 KiB", ["--block", "256m", "--transfer", "512k"], ["-b", "256m", "-t", "512k"]),
]


def through_mpi(tonnage, ior, place, where, mode, mode_words, ior_mode_words):
    path = os.path.join(place, "mpiio")
    words = ["--engine", "mpiio", "--path", path, "--layout", "shared", "--phases", "write,read", "--fsync", "none"]
    words += ["--barriers", *mode_words]
    ior_words = ["-a", "MPIIO", "-g", "-o", path, *ior_mode_words]
    launcher = file_peers.launch(ior.mpi, RANKS, [])
    runs = {
        "tonnage": lambda: bandwidths(tonnage.outcome(words, launcher)),
        "IOR": lambda: bandwidths(ior.ranks(RANKS, ior_words)),
    }
    return Contest(f"mpiio {mode}, {where}", runs, BOTH_WAYS, os.sync)


def bandwidths(outcome):
    return {"write": outcome.write_mib_per_s, "read": outcome.read_mib_per_s}


def compare(lines, repetitions, goals):
    """Lets the programs of each contest take turns, and prints how they stand to each other."""
    found = {line.name: {who: [] for who in line.runs} for line in lines}
    for turn in range(repetitions if lines else 0):
        for line in lines:
            names = list(line.runs)
            first = turn % len(names)
            # The order changes, in case the second has it better.
            for who in names[first:] + names[:first]:
                line.prepare()
                found[line.name][who].append(line.runs[who]())
        print(f"repetition {turn + 1} of {repetitions} done", flush=True)
    if lines:
        table(lines, found)
    for line in lines:
        print(f"{line.name}:")
        for goal in line.goals:
            decide(goal, ratios(found[line.name], goal), goals)


def ratios(runs, goal):
    """Of each repetition tonnage's figure divided by its peer's."""
    pairs = zip(runs["tonnage"], runs[goal.peer])
    return [own[goal.metric] / peer[goal.metric] for own, peer in pairs]


def table(lines, found):
    print(f"\n{'':46}{'beside':>16}{'peer':>14}{'tonnage':>14}{'ratio':>8}{'least':>8}{'most':>8}")
    for line in lines:
        runs = found[line.name]
        for goal in line.goals:
            peer, own = [common.median([run[goal.metric] for run in runs[who]]) for who in [goal.peer, "tonnage"]]
            parts = ratios(runs, goal)
            print(
                f"{line.name:46}{goal.peer:>16}{figure(goal.metric, peer):>14}{figure(goal.metric, own):>14}"
                f"{common.median(parts):8.3f}{min(parts):8.3f}{max(parts):8.3f}"
            )
        if "own_cpu_ns" in runs["tonnage"][0]:
            own_ns = common.median([run["own_cpu_ns"] for run in runs["tonnage"]])
            print(f"{line.name:46}{'its own record':>16}{'':14}{figure('cpu_ns', own_ns):>14}")
    print()


def figure(metric, value):
    if metric == "cpu_ns":
        return f"{value:.0f} ns"
    if metric == "iops":
        return f"{value / 1e3:.1f} kop/s"
    return f"{value:.0f} MiB/s {metric[0]}"


METRICS = {"cpu_ns": "CPU per operation", "iops": "rate", "write": "write", "read": "read"}


def decide(goal, parts, goals):
    what, middle = f"    {METRICS[goal.metric]} / {goal.peer}", common.median(parts)
    if goal.less_is_better:
        goals.line(what, f"{middle:.3f}", f"<= {goal.bound:.2f}", middle <= goal.bound)
        return
    bound = common.median_at_least(parts)
    met = bound >= BOUND_PART * goal.bound
    goals.line(what, f"{middle:.3f} (bound {bound:.3f})", f">= {goal.bound:.2f}", met)


# Of each kind of run its name, where its files are, and its options.
MEMORY_RUNS = [
    ("posix shuffled reads", "tmpfs", ["--engine", "posix", "--order", "shuffled", "--phases", "read", "--keep"]),
    ("posix writes", "tmpfs", ["--engine", "posix", "--phases", "write"]),
    (
        "uring direct shuffled reads",
        "disk",
        ["--engine", "uring", "--direct", "--order", "shuffled", "--phases", "read", "--keep", "--depth", str(DEPTH)],
    ),
]


def memory(binary, places, goals):
    """The largest memory of a rank for a short file and for a long one, by transfers of 4 KiB."""
    for name, where, words in MEMORY_RUNS:
        peaks = []
        for size in MEMORY_BYTES:
            path = os.path.join(places[where], "memory")
            if "read" in words:
                # All holes: reading them gives zeros, and needs neither disk nor memory.
                with open(path, "wb") as file:
                    file.truncate(size)
            command = [binary, "file", "--ranks", "1", "--path", path, "--block", str(size), "--transfer", "4k", *words]
            command += ["--trials", "1", "--bound", "none", "--format", "jsonl"]
            peaks.append(max(start.run_with_peaks(command)[1].values()))
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        more = (peaks[1] - peaks[0]) / MIB
        sizes = " and ".join(f"{size // MIB} MiB: {peak / MIB:.1f} MiB" for size, peak in zip(MEMORY_BYTES, peaks))
        print(f"{name}, largest memory of a process for a file of {sizes}")
        goals.line(f"memory, {name}", f"{more:+.2f} MiB", f"<= {MEMORY_GOAL_MIB:.0f} MiB", more <= MEMORY_GOAL_MIB)


if __name__ == "__main__":
    main()

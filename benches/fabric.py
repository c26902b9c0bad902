#!/usr/bin/env python3
"""Engine fabric beside the programs that people use today, on the same libfabric and the same CPUs, in turn: fi_rma_bw,
fi_rma_pingpong, fi_rdm_bw, fi_rdm_tagged_bw and iperf3. What exactly is compared, and alike in what, is in README.md."""

import ctypes
import itertools
import os
from typing import Callable, NamedTuple, Optional, Tuple

import common
import peers

PROVIDERS = ["shm", "tcp"]
PARTS = ["bandwidth", "sends", "latency", "iperf3"]
WINDOW = 64
# tonnage's name of an operation, fi_rma_bw's, and whether fi_rma_bw issues it from both sides at once.
OPS = [("write", "write", True), ("write-imm", "writedata", False), ("read", "read", True)]
# Largest write of fi_rma_bw over shm that is a fi_inject_write, which passes through the peer's queue; above it, it is
# process_vm_writev, because fabtests ask for no ordering.
SHM_INJECT_BYTES = 4096
UNORDERED = ("--engine-option", "shm-writes=cma")
# At least this many times fi_rma_bw's rate, by provider and size.
RATE_GOALS = {
    ("shm", 64): 1.0,
    ("shm", 4096): 1.0,
    ("shm", 65536): 1.3,
    ("shm", 1048576): 1.0,
    ("tcp", 64): 1.0,
    ("tcp", 4096): 1.0,
    ("tcp", 65536): 1.3,
    ("tcp", 1048576): 1.3,
}
# At 1 MiB over shm once more, with the pages that tonnage takes by itself.
OWN_PAGES_GOAL = 1.3
# Sends: at least this many times the rate of fi_rdm_bw and fi_rdm_tagged_bw, at these sizes.
SENDS_GOAL = 1.0
SEND_BYTES = [64, 256, 4096, 65536, 262144]
SEND_PROGRAMS = ["fi_rdm_bw", "fi_rdm_tagged_bw"]
# At most this many times fi_rma_pingpong's half round trip.
HALF_TRIP_GOALS = {"shm": 1.10, "tcp": 1.05}
HALF_TRIP_BYTES = 8
IPERF3_GOAL = 0.95
IPERF3_BYTES = 1 << 20
# "At least X" holds when the lower 95 % bound is at least this part of X (README.md).
BOUND_PART = 0.97
PR_SET_THP_DISABLE = 41


class Comparison(NamedTuple):
    """One line of the table: a peer, and the words that make tonnage do the same."""

    name: str
    peer: Callable[[], peers.Run]
    words: Tuple[str, ...]
    goal: Optional[float]
    # True when less is better and the goal is an upper bound.
    is_time: bool
    size: int
    # Normal pages for both, or for tonnage those that it takes by itself.
    own_pages: bool = False
    # Of the peer, what its client alone prints.
    client_only: bool = False


class Pair(NamedTuple):
    """A run of a peer and one of tonnage, one right after the other. Times are in nanoseconds."""

    peer: peers.Run
    rate_per_s: float
    cpu_ns: float


def main():
    options = arguments()
    cpus = options.cpus.split(",")
    programs = {"bandwidth": ["fi_rma_bw"], "sends": SEND_PROGRAMS, "latency": ["fi_rma_pingpong"], "iperf3": ["iperf3"]}
    rivals = peers.Peers(os.path.abspath(options.peers), cpus, options.seconds)
    rivals.require([program for part in options.only for program in programs[part]])
    binary = common.program(options)
    switch_large_pages(False)
    library = rivals.library if options.libfabric is None else options.libfabric
    tonnage = Tonnage(binary, library, cpus, options.seconds)
    lines = comparisons(rivals, options)
    common.describe_machine(tonnage.run(lines[0]))
    print(f"peers: {rivals.versions()}; CPUs {options.cpus}; {pages()}\n")
    pairs = {line: [] for line in lines}
    for turn in range(options.repetitions):
        for line in lines:
            pairs[line].append(measure(line, tonnage, peer_first=turn % 2 == 0))
        print(f"repetition {turn + 1} of {options.repetitions} done", flush=True)
    table(pairs)
    tonnage.tell()
    decide(pairs)


def arguments():
    parser = common.arguments(__doc__, repetitions=11)
    parser.add_argument("--peers", required=True, metavar="PREFIX", help="where libfabric and fabtests are installed")
    parser.add_argument("--libfabric", metavar="PATH", help="for tonnage another library than PREFIX/lib/libfabric.so.1")
    parser.add_argument("--cpus", default="0,1", help="the CPUs of client and server [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a run [default: %(default)s]")
    parser.add_argument("--only", action="append", choices=PARTS, help="leave the others out; may be repeated")
    parser.add_argument("--provider", action="append", choices=PROVIDERS, help="leave the other out")
    options = parser.parse_args()
    if len(options.cpus.split(",")) != 2:
        parser.error(f"--cpus {options.cpus}: name two, such as 0,1")
    options.only = options.only or PARTS
    options.provider = options.provider or PROVIDERS
    if options.only == ["iperf3"] and "tcp" not in options.provider:
        parser.error("--only iperf3 compares with provider tcp")
    return options


class Tonnage:
    """Runs tonnage as its peers are run, and keeps what it said about itself."""

    def __init__(self, binary, library, cpus, seconds):
        self.binary, self.library, self.cpus, self.seconds = binary, library, cpus, seconds
        self.said = {}

    def run(self, line):
        """The record of one run."""
        words = ["--libfabric", self.library, "--ranks", "2", "--cpus", ",".join(self.cpus), "--bound", "none"]
        words += ["--trials", "1", "--trial-time", f"{self.seconds * 1000:.0f}ms"]
        switch_large_pages(line.own_pages)
        record = common.run(self.binary, *line.words, *words)[0]
        # Peers never get large pages: they do not ask for them, and some systems give them all the same.
        switch_large_pages(False)
        memory = record["effective"][0]["memory"]
        if not line.own_pages and (memory["pages"] != "normal" or memory["transparent_huge_bytes"]):
            raise SystemExit(f"{line.name}: tonnage got pages other than its peer: {memory}")
        self.said.setdefault((line.words[1], memory["pages"]), record["effective"][0])
        return record

    def tell(self):
        """Prints what steered the results, in tonnage's own words."""
        for (engine, page_kind), effective in self.said.items():
            said = "; ".join(f"{key}: {value}" for key, value in effective["engine"].items())
            print(f"{engine}, {page_kind} pages: {said}")
        print()


def comparisons(rivals, options):
    lines = []
    for provider in options.provider:
        if "bandwidth" in options.only:
            lines += bandwidths(rivals, provider)
        if "sends" in options.only:
            lines += sends(rivals, provider)
        if "latency" in options.only:
            lines += latencies(rivals, provider)
    if "iperf3" in options.only and "tcp" in options.provider:
        # iperf3 sends one block again and again, and so does tonnage here.
        words = stream_words("tcp", "write", IPERF3_BYTES) + ("--footprint", str(IPERF3_BYTES))
        peer = lambda: rivals.iperf3(IPERF3_BYTES)
        lines.append(Comparison("tcp write 1 MiB / iperf3 -l 1M", peer, words, IPERF3_GOAL, False, IPERF3_BYTES))
    return lines


def stream_words(provider, op, size):
    """A window that walks over as many slots, which is fi_rma_bw's walk and tonnage's default, and reads no clock."""
    words = ("--engine", f"fabric:{provider}", "--op", op, "--sizes", str(size), "--depth", str(WINDOW))
    unordered = op == "read" or (op == "write" and size > SHM_INJECT_BYTES)
    return words + ("--latency", "off") + (UNORDERED if provider == "shm" and unordered else ())


def bandwidths(rivals, provider):
    lines = []
    for (op, peer_op, both_ways), size in itertools.product(OPS, [64, 4096, 65536, 1048576]):
        peer = lambda peer_op=peer_op, size=size: rivals.fabtests(
            "fi_rma_bw", provider, peer_op, size, ("-W", str(WINDOW))
        )
        words = stream_words(provider, op, size)
        traffic = ("--traffic", "all-to-all") if both_ways else ()
        name = f"{provider} {op} {size_name(size)}"
        goal = RATE_GOALS[provider, size]
        # The goals are about the figure that the peer prints, which is its client's own. What both sides moved together
        # is set beside it, because one side of two is not the whole.
        line = Comparison(name, peer, words, goal, False, size)._replace(client_only=both_ways)
        lines.append(line)
        if (provider, size) == ("shm", 1048576):
            lines.append(line._replace(name=f"{name}, own pages", goal=OWN_PAGES_GOAL, own_pages=True))
        if both_ways:
            both = line._replace(name=f"{name} both ways", words=words + traffic, goal=None, client_only=False)
            lines.append(both)
    return lines


def sends(rivals, provider):
    lines = []
    for size, program in itertools.product(SEND_BYTES, SEND_PROGRAMS):
        peer = lambda program=program, size=size: rivals.fabtests(program, provider, None, size, ("-W", str(WINDOW)))
        # All of the peer's contexts point at one slot, so that this is what both of them walk over.
        words = stream_words(provider, "send", size) + ("--footprint", str(size))
        name = f"{provider} send {size_name(size)} / {program}"
        lines.append(Comparison(name, peer, words, SENDS_GOAL, False, size))
    return lines


def latencies(rivals, provider):
    lines = []
    for op, peer_op, _ in OPS[:2]:
        peer = lambda peer_op=peer_op: rivals.fabtests("fi_rma_pingpong", provider, peer_op, HALF_TRIP_BYTES)
        words = ("--engine", f"fabric:{provider}", "--op", op, "--sizes", str(HALF_TRIP_BYTES))
        words += ("--ping-pong",)
        goal = HALF_TRIP_GOALS[provider]
        lines.append(Comparison(f"{provider} {op} 8 B half round trip", peer, words, goal, True, HALF_TRIP_BYTES))
    return lines


def measure(line, tonnage, peer_first):
    """One run of each, right after one another. Which comes first changes, in case the second has it better."""
    if peer_first:
        peer = line.peer()
    trial = tonnage.run(line)["trials"][0]
    if not peer_first:
        peer = line.peer()
    cpu_ns = trial["initiator_cpu_ns"] + trial["target_cpu_ns"]
    return Pair(peer, trial["message_rate_per_s"], cpu_ns / trial["operations"])


def peer_rate(line, pair):
    return pair.peer.client_rate_per_s if line.client_only else pair.peer.rate_per_s


def ratios(line, runs):
    """Of each repetition tonnage's figure divided by its peer's: rates, or times for what is a time."""
    rates = [pair.rate_per_s / peer_rate(line, pair) for pair in runs]
    return [1 / rate for rate in rates] if line.is_time else rates


def table(pairs):
    print(f"\n{'':42}{'peer':>14}{'tonnage':>14}{'ratio':>8}{'least':>8}{'most':>8}{'CPU, ns per operation':>26}")
    for line, runs in pairs.items():
        peer = common.median([peer_rate(line, pair) for pair in runs])
        own = common.median([pair.rate_per_s for pair in runs])
        found = ratios(line, runs)
        peer_cpu_ns = common.median([pair.peer.cpu_ns for pair in runs])
        # A difference of two runs, which on a busy machine may come out below nothing.
        cpu = f"{peer_cpu_ns:.0f}" if peer_cpu_ns > 0 else "?"
        cpu += f", {common.median([pair.cpu_ns for pair in runs]):.0f}"
        print(
            f"{line.name:42}{figure(line, peer):>14}{figure(line, own):>14}"
            f"{common.median(found):8.3f}{min(found):8.3f}{max(found):8.3f}{cpu:>26}"
        )
    print()


def figure(line, rate_per_s):
    if line.is_time:
        return f"{1e9 / rate_per_s:.0f} ns"
    if line.size <= 64:
        return f"{rate_per_s / 1e6:.3f} Mop/s"
    return f"{rate_per_s * line.size / 1e9:.2f} GB/s"


def decide(pairs):
    goals = common.Goals()
    for line, runs in pairs.items():
        if line.goal is None:
            continue
        found = ratios(line, runs)
        middle, bound = common.median(found), common.median_at_least(found)
        if line.is_time:
            goals.line(line.name, f"{middle:.3f}", f"<= {line.goal:.2f}", middle <= line.goal)
        else:
            met = bound >= BOUND_PART * line.goal
            goals.line(line.name, f"{middle:.3f} (bound {bound:.3f})", f">= {line.goal:.2f}", met)
    goals.finish()


def switch_large_pages(on):
    """Allows or forbids transparent huge pages to every process started from here on, peers and tonnage alike."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_THP_DISABLE, 0 if on else 1, 0, 0, 0) != 0:
        raise SystemExit(f"prctl(PR_SET_THP_DISABLE): {os.strerror(ctypes.get_errno())}")


def pages():
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
        return f"transparent huge pages of the system: {file.read().strip()}, none for what is compared alike"


def size_name(size):
    for unit, name in [(1 << 20, "MiB"), (1 << 10, "KiB")]:
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What engine fabric itself costs per operation, above the raw calls of libfabric: both over a library that moves
nothing (null_provider.c), in CPU time."""

import os
import shutil
import subprocess
import sys
import tempfile

import common

HERE = os.path.dirname(os.path.abspath(__file__))
# The work of the least program, and the words that make tonnage do the same. A write-imm is left out: its target waits for
# arrivals, and nothing arrives here.
KINDS = {
    "write": "--op write --engine-option inject=off",
    "inject": "--op write",
    "read": "--op read",
}
WINDOW = 64
RAW_OPERATIONS = 20_000_000
GOAL_NS = 20.0
# The versions under which libfabric has had these functions since 1.9.
VERSIONS = """\
FABRIC_1.0 { global: fi_version; fi_strerror; local: *; };
FABRIC_1.1 { global: fi_fabric; } FABRIC_1.0;
FABRIC_1.3 { global: fi_getinfo; fi_freeinfo; fi_dupinfo; } FABRIC_1.1;
"""


def main():
    parser = common.arguments(__doc__, repetitions=9)
    parser.add_argument("--include", default="/usr/include", help="where rdma/fabric.h is [default: %(default)s]")
    parser.add_argument("--provider", default="shm", help="the provider that is stood in for [default: %(default)s]")
    parser.add_argument("--cpus", default="0,1", help="the CPUs of the two ranks [default: %(default)s]")
    options = parser.parse_args()
    binary = common.program(options)
    with tempfile.TemporaryDirectory(prefix="tonnage-null-") as folder:
        library, raw_loop = build(folder, options.include)
        common.describe_machine(engine(binary, options, library, "write"))
        raw_ns, engine_ns = {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}
        for _ in range(options.repetitions):
            for kind in KINDS:
                raw_ns[kind].append(raw(raw_loop, options, kind))
                trials = engine(binary, options, library, kind)["trials"]
                engine_ns[kind] += [trial["initiator_cpu_ns"] / trial["operations"] for trial in trials]
    report(raw_ns, engine_ns)


def build(folder, include):
    """Compiles the library that moves nothing and the least program over it."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        sys.exit("no C compiler: apt-get install gcc, or name one in CC")
    if not os.path.exists(os.path.join(include, "rdma", "fabric.h")):
        sys.exit(f"{include}/rdma/fabric.h is missing: apt-get install libfabric-dev, or --include PREFIX/include")
    library = os.path.join(folder, "libfabric.so.1")
    provider_source, loop_source = os.path.join(HERE, "null_provider.c"), os.path.join(HERE, "raw_loop.c")
    raw_loop, versions = os.path.join(folder, "raw_loop"), os.path.join(folder, "versions.map")
    with open(versions, "w") as file:
        file.write(VERSIONS)
    words = [compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", f"-I{include}"]
    shared = ["-fPIC", "-shared", "-Wl,-soname,libfabric.so.1", f"-Wl,--version-script={versions}", "-o", library]
    subprocess.run([*words, provider_source, *shared], check=True)
    subprocess.run([*words, loop_source, library, f"-Wl,-rpath,{folder}", "-o", raw_loop], check=True)
    return library, raw_loop


def raw(raw_loop, options, kind):
    """Nanoseconds of CPU time of a bare call and its share of fi_cq_read."""
    cpu = options.cpus.split(",")[0]
    words = ["taskset", "-c", cpu, raw_loop, kind, str(RAW_OPERATIONS), str(WINDOW)]
    return float(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout)


def engine(binary, options, library, kind):
    words = f"--engine fabric:{options.provider} --libfabric {library} {KINDS[kind]} --sizes 64 --depth {WINDOW}"
    words += f" --ranks 2 --cpus {options.cpus} --latency off --bound none --trials 3"
    return common.run(binary, *words.split())[0]


def report(raw_ns, engine_ns):
    goals = common.Goals()
    print(f"64 B, window {WINDOW}, over a libfabric that moves nothing, ns of CPU time per operation, in turn\n")
    print(f"{'':12}{'raw median':>12}{'best':>8}{'tonnage median':>18}{'best':>8}")
    for kind in KINDS:
        own, bare = engine_ns[kind], raw_ns[kind]
        print(f"{kind:12}{common.median(bare):12.2f}{min(bare):8.2f}{common.median(own):18.2f}{min(own):8.2f}")
    print()
    for kind in KINDS:
        above_ns = common.median(engine_ns[kind]) - common.median(raw_ns[kind])
        name = f"{kind}: tonnage above the raw calls"
        goals.line(name, f"{above_ns:.2f} ns", f"<= {GOAL_NS:.0f} ns", above_ns <= GOAL_NS)
    goals.finish()


if __name__ == "__main__":
    main()

"""The programs that `files.py` compares with: IOR, built once with MPICH and once with Open MPI, and fio.

What lives here: finding them, running them and tonnage alike, and reading what the two print. They are neither built
nor fetched here.

Python 3.8 or newer, nothing but its standard library.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

# Longer than any single run, so that one that hangs ends the benchmark with an error.
RUN_SECONDS_MAX = 300
# Time that a program has to end when it is asked to.
TERM_SECONDS = 5
MIB = 1 << 20
MPIS = ["mpich", "openmpi"]
# mpirun of Open MPI refuses root, more ranks than cores, and binds ranks to cores; MPICH's does none of these.
LAUNCHERS = {
    "mpich": ["mpiexec.mpich", "-n", "{ranks}"],
    "openmpi": ["mpiexec.openmpi", "-np", "{ranks}", "--bind-to", "none", "--oversubscribe"],
}
ROOT_MAY_LAUNCH = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

WHERE = """\
They are not part of this project and are not built by it. How to get them:
  IOR   sources at https://github.com/hpc/ior (release 4.0.0). Build them once with each MPI, in two folders:
        ./bootstrap, then ./configure CC=mpicc.mpich MPICC=mpicc.mpich --prefix=PREFIX && make install, then the same
        with mpicc.openmpi; --ior-mpich and --ior-openmpi name the programs, PREFIX/bin/ior
  MPI   apt-get install libmpich-dev mpich libopenmpi-dev openmpi-bin
  fio   apt-get install fio"""


class Outcome(NamedTuple):
    """What one run of a program came to. What a run does not have is 0."""

    # Operations, in all ranks together, and CPU time of all its processes from start to end.
    operations: int = 0
    cpu_s: float = 0.0
    # Operations per second of the phase that was measured.
    iops: float = 0.0
    write_mib_per_s: float = 0.0
    read_mib_per_s: float = 0.0
    # CPU time per operation as the program itself tells it.
    own_cpu_ns: float = 0.0


class Ended(NamedTuple):
    """A process tree that ended with status 0."""

    output: str
    cpu_s: float


def execute(words, cpus=None):
    """Runs a program to its end, on some CPUs or on all; what it printed, and the CPU time of it and its children."""
    command = words if cpus is None else ["taskset", "-c", cpus, *words]
    ended = threading.Event()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(os.environ, **ROOT_MAY_LAUNCH),
            # A group of its own, so that the time limit ends the ranks of a launcher together with it.
            start_new_session=True,
        )
        timer = threading.Timer(RUN_SECONDS_MAX, end_group, [process.pid, ended])
        timer.start()
        # Only wait4 tells one process tree's time from that of others that ran before.
        _, status, usage = os.wait4(process.pid, 0)
        ended.set()
        timer.cancel()
        process.returncode = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{text}")
    return Ended(text, usage.ru_utime + usage.ru_stime)


def end_group(leader, ended):
    """Ends a process and what it started: a launcher ends its ranks when it is asked to, whatever groups they are in."""
    for number in [signal.SIGTERM, signal.SIGKILL]:
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            return  # It has just ended by itself.
        if ended.wait(TERM_SECONDS):
            return


def launch(mpi, ranks, words):
    """The words that start `ranks` processes under an MPI."""
    return [word.format(ranks=ranks) for word in LAUNCHERS[mpi]] + words


def require(programs):
    """Ends the benchmark with status 1 when a peer is missing, and says where to get it."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}\n{WHERE}")


class Ior:
    """IOR with one MPI."""

    def __init__(self, program, mpi):
        self.program, self.mpi = program, mpi

    def alone(self, words, operations, cpus):
        """One process without a launcher, as MPI allows it."""
        return self.outcome(execute([self.program, *words], cpus), operations)

    def ranks(self, ranks, words):
        return self.outcome(execute(launch(self.mpi, ranks, [self.program, *words])), 0)

    def outcome(self, ended, operations):
        # The summary behind the results has lines that begin alike.
        results = ended.output.partition("Summary of all tests")[0]
        figures = {"write": (0.0, 0.0), "read": (0.0, 0.0)}
        for access, mib_per_s, iops in re.findall(r"^(write|read)\s+([0-9.]+)\s+([0-9.]+)\s", results, re.M):
            figures[access] = (float(mib_per_s), float(iops))
        if max(max(pair) for pair in figures.values()) == 0:
            sys.exit(f"{self.program}: printed no result\n{ended.output}")
        write, read = figures["write"], figures["read"]
        return Outcome(operations, ended.cpu_s, read[1], write[0], read[0])

    def version(self):
        found = re.search(r"IOR-[^:\s]+", execute([self.program, "-a", "DUMMY", "-w", "-t", "4k", "-b", "4k"]).output)
        return f"{found[0] if found else self.program} with {self.mpi}"


def fio(words, cpus):
    """One job of fio, which reads."""
    ended = execute(["fio", "--name=job", "--output-format=json", *words], cpus)
    # fio's warnings come before the report.
    report = json.loads(ended.output[ended.output.index("{\n") :])
    read = report["jobs"][0]["read"]
    return Outcome(read["total_ios"], ended.cpu_s, read["iops"], 0.0, read["bw_bytes"] / MIB)


def fio_version():
    return execute(["fio", "--version"]).output.strip()

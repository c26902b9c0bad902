"""The programs that `fabric.py` compares with: fi_rma_bw, fi_rma_pingpong, fi_rdm_bw and fi_rdm_tagged_bw of libfabric's
fabtests, and iperf3.

What lives here: finding them, running a server and a client of them on two CPUs, and reading what they print. They are
neither built nor fetched here.

Python 3.8 or newer, nothing but its standard library.
"""

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from typing import NamedTuple

# Longer than any single run, so that one that hangs ends the benchmark with an error.
RUN_SECONDS_MAX = 60
# Longest time that a server may take to listen.
LISTEN_SECONDS_MAX = 10
# Iterations of the first run of each comparison, by size: short, so that its CPU time is what setting up takes.
FIRST_ITERATIONS = {8: 500, 64: 5_000, 256: 5_000, 4096: 1_000, 65536: 200, 262144: 100, 1048576: 80}
# Programs whose client sends and whose server receives: they know no `-o`.
ONE_WAY = ["fi_rdm_bw", "fi_rdm_tagged_bw"]
LISTENING = "0A"

WHERE = """\
They are not part of this project and are not built by it. How to get them:
  libfabric and fabtests  sources at https://github.com/ofiwg/libfabric (fabtests is a folder of it), or your system's
                          packages; both installed under one PREFIX, which --peers names: PREFIX/bin/fi_rma_bw,
                          and so on, PREFIX/lib/libfabric.so.1
  iperf3                  apt-get install iperf3, or --only without iperf3"""


class Run(NamedTuple):
    """What one run of a peer came to."""

    # Operations of both sides in a second, and CPU time of both processes for one.
    rate_per_s: float
    cpu_ns: float
    # Figures of the client alone, which a person reads off its output.
    client_rate_per_s: float


class Raw(NamedTuple):
    """What the two processes of one run of fabtests said, and the CPU time of both."""

    iterations: int
    server_s: float
    client_s: float
    cpu_s: float


class Peers:
    """The installed peers, and where they run."""

    def __init__(self, prefix, cpus, seconds):
        self.prefix, self.cpus, self.seconds = prefix, cpus, seconds
        self.lengths = {}

    @property
    def library(self):
        return os.path.join(self.prefix, "lib", "libfabric.so.1")

    def program(self, name):
        return shutil.which("iperf3") if name == "iperf3" else os.path.join(self.prefix, "bin", name)

    def require(self, names):
        """Ends the benchmark with status 1 when a peer is missing, and says where to get it."""
        missing = [name for name in names if not os.access(self.program(name) or "", os.X_OK)]
        missing += [] if os.path.exists(self.library) else [self.library]
        if missing:
            sys.exit(f"missing: {', '.join(missing)} (looked in {self.prefix}; --peers names another place)\n{WHERE}")

    def versions(self):
        """One line that says what is compared with."""
        words = [os.path.realpath(self.library)]
        if self.program("iperf3"):
            done = subprocess.run([self.program("iperf3"), "--version"], stdout=subprocess.PIPE, text=True, check=True)
            words.append(" ".join(done.stdout.split()[:2]))
        return ", ".join(words)

    def fabtests(self, name, provider, op, size, extra=()):
        """Runs a program of fabtests for about `self.seconds`. `op` is `None` for those of `ONE_WAY`."""
        key = (name, provider, op, size)
        if key not in self.lengths:
            self.lengths[key] = self.find_length(key, extra)
        first, iterations = self.lengths[key]
        raw = self.fabtests_once(*key, iterations, extra)
        # Each half of a round trip is an operation. A window of reads or writes is issued by both sides at once, one of
        # writedata or of sends by the client alone (see `fi_rma_bw -h`).
        sides = 1 if op == "writedata" and name == "fi_rma_bw" or name in ONE_WAY else 2
        client_rate_per_s = raw.iterations / raw.client_s
        if name == "fi_rma_pingpong":
            rate_per_s = client_rate_per_s = 2 * client_rate_per_s
        else:
            rate_per_s = client_rate_per_s + (raw.iterations / raw.server_s if sides == 2 else 0)
        # The cost of setting up is in both runs.
        cpu_ns = (raw.cpu_s - first.cpu_s) * 1e9 / (sides * (raw.iterations - first.iterations))
        return Run(rate_per_s, cpu_ns, client_rate_per_s)

    def find_length(self, key, extra):
        """A first short run, and how many iterations take about `self.seconds`."""
        first = raw = self.fabtests_once(*key, FIRST_ITERATIONS[key[-1]], extra)
        # A run of some milliseconds says little about a longer one.
        while raw.client_s < self.seconds / 5:
            raw = self.fabtests_once(*key, 5 * raw.iterations, extra)
        return first, max(5 * first.iterations, int(raw.iterations * self.seconds / raw.client_s))

    def fabtests_once(self, name, provider, op, size, iterations, extra):
        port = free_port()
        words = [self.program(name), "-p", provider, f"-E={port}", "-m", "-S", str(size)]
        words += [] if name in ONE_WAY else ["-o", op]
        words += ["-I", str(iterations), *extra, *(["-s", "127.0.0.1"] if provider == "tcp" else [])]
        outputs, cpu_s = self.pair(port, words, [*words, "127.0.0.1"])
        server_s, client_s = [fabtests_seconds(output, words) for output in outputs]
        return Raw(iterations, server_s, client_s, cpu_s)

    def iperf3(self, size):
        """Runs one TCP stream in blocks of `size` for a second or more."""
        port = free_port()
        program, seconds = self.program("iperf3"), max(1, round(self.seconds))
        server = [program, "-s", "-1", "-p", str(port)]
        client = [program, "-c", "127.0.0.1", "-p", str(port), "-l", str(size), "-t", str(seconds), "-J"]
        outputs, cpu_s = self.pair(port, server, client)
        received = iperf3_result(outputs[1], client)
        rate_per_s = received["bytes"] / received["seconds"] / size
        return Run(rate_per_s, cpu_s * 1e9 * size / received["bytes"], rate_per_s)

    def pair(self, port, server_words, client_words):
        """Runs a server on the second CPU and a client on the first; what both printed, and their CPU seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = []
        try:
            started.append(self.start(server_words, self.cpus[1]))
            wait_until_listening(port, started[0], server_words)
            started.append(self.start(client_words, self.cpus[0]))
            client_output = started[1].communicate(timeout=RUN_SECONDS_MAX)[0]
            server_output = started[0].communicate(timeout=RUN_SECONDS_MAX)[0]
        except subprocess.TimeoutExpired:
            sys.exit(f"{' '.join(client_words)}: no end after {RUN_SECONDS_MAX} s")
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for process, words, output in zip(started, [server_words, client_words], [server_output, client_output]):
            if process.returncode != 0:
                sys.exit(f"{' '.join(words)}: exit status {process.returncode}\n{output}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return (server_output, client_output), cpu_s

    def start(self, words, cpu):
        # The peers find their own library here, whichever the system has beside it.
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(self.library))
        return subprocess.Popen(
            ["taskset", "-c", str(cpu), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def fabtests_seconds(output, words):
    """The seconds that all iterations took, from the line that `-m` prints."""
    found = re.search(r"iterations: \d+, total: \d+, time: ([0-9.]+)", output)
    if not found or float(found[1]) == 0:
        sys.exit(f"{' '.join(words)}: printed no result\n{output}")
    return float(found[1])


def iperf3_result(output, words):
    """Bytes that arrived, and the seconds it took, from the report that `-J` prints."""
    try:
        return json.loads(output)["end"]["sum_received"]
    except (ValueError, KeyError):
        sys.exit(f"{' '.join(words)}: printed no result\n{output}")


def free_port():
    """A TCP port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port, server, words):
    """Waits until the server listens, without connecting to it: it serves one client only."""
    deadline = time.monotonic() + LISTEN_SECONDS_MAX
    while not is_listening(port):
        if server.poll() is not None:
            sys.exit(f"{' '.join(words)}: exit status {server.returncode} before a client came\n{server.stdout.read()}")
        if time.monotonic() > deadline:
            sys.exit(f"{' '.join(words)}: does not listen on port {port} after {LISTEN_SECONDS_MAX} s")
        time.sleep(0.005)


def is_listening(port):
    for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
        if not os.path.exists(table):
            continue
        with open(table) as lines:
            for fields in (line.split() for line in lines):
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False

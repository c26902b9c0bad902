"""A worker of one rank: takes orders, one JSON line each, and answers each with one line.

Here is what needs no torch: the channel and the order of things. The store is in store.py, the
calls that are measured are in calls.py, exceptions as answers in failures.py.
"""

import array
import ctypes
import faulthandler
import json
import os
import platform
import queue
import signal
import socket
import sys
import threading
import time
import traceback

PR_SET_PDEATHSIG = 1
DESCRIPTORS_MAX = 8


class Channel:
    """The socket to the rank: orders come one at a time, entries of the store's log at any time.

    A thread reads, so that the end of the rank is seen while a call hangs. It sleeps in the system
    while calls are timed.
    """

    def __init__(self, rank):
        self.rank = rank
        self.files = []
        self.orders = queue.Queue()
        self.writing = threading.Lock()
        self.logging = threading.Lock()
        self.on_log = None
        self.early = []

    def start(self):
        threading.Thread(target=self.watch, name="channel", daemon=True).start()

    def watch(self):
        try:
            self.read()
        except Exception:
            traceback.print_exc()
        finally:
            # The rank has gone, or cannot be understood. The main thread may hang in a library,
            # so nobody is asked.
            sys.stderr.flush()
            os._exit(1)

    def read(self):
        line = b""
        while True:
            part = self.receive()
            if not part:
                return
            *lines, line = (line + part).split(b"\n")
            for whole in lines:
                message = json.loads(whole.decode())
                if "log" in message:
                    self.log(message["log"])
                else:
                    self.orders.put(message)

    def log(self, entries):
        # Others may have written before this worker has a store.
        with self.logging:
            if self.on_log is None:
                self.early.extend(entries)
            else:
                self.on_log(entries)

    def listen(self, on_log):
        with self.logging:
            on_log(self.early)
            self.on_log = on_log

    def receive(self):
        """Bytes, and beside them the memory files that an order names."""
        number = array.array("i")
        space = socket.CMSG_SPACE(DESCRIPTORS_MAX * number.itemsize)
        part, ancillary, _, _ = self.rank.recvmsg(1 << 16, space)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(data) - len(data) % number.itemsize
                numbers = array.array("i")
                numbers.frombytes(data[:whole])
                self.files.extend(numbers)
        return part

    def send(self, message):
        line = json.dumps(message).encode() + b"\n"
        with self.writing:
            self.rank.sendall(line)

    def take_files(self, count):
        taken, self.files = self.files[:count], self.files[count:]
        return taken


def time_namespace():
    """Name of the namespace that shifts this process's clock; empty where the kernel has none."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


class Worker:
    """Carries out orders; each method named after an order returns its answer."""

    def __init__(self, channel, load):
        self.channel = channel
        self.load = load
        self.calls = None

    def hello(self, order):
        os.sched_setaffinity(0, order["cpus"] or os.sched_getaffinity(0))
        clock = time.get_clock_info("perf_counter").implementation
        found = {
            "python": platform.python_version(),
            "executable": sys.executable,
            "clock": clock,
            "time_namespace": time_namespace(),
            "cpus": sorted(os.sched_getaffinity(0)),
        }
        try:
            import torch
        except ImportError as error:
            # Of a torch that is there and lacks a library, the name is another.
            is_absent = getattr(error, "name", None) == "torch"
            found["no_torch"] = str(error)
            found["torch_is_absent"] = is_absent
            return found
        found["torch"] = torch.__version__
        self.calls = self.load("calls").Calls(self.channel, self.load)
        found.update(self.calls.found())
        return found

    def init(self, order):
        return self.calls.init(order)

    def probe(self, order):
        return self.calls.probe(order)

    def prepare(self, order):
        return self.calls.prepare(order, self.channel.take_files(1)[0])

    def run(self, order):
        if order["new_stamps"]:
            self.calls.take_stamps(self.channel.take_files(1)[0])
        return self.calls.run(order)

    def fetch(self, order):
        return self.calls.fetch()

    def close(self, order):
        return self.calls.close() if self.calls else {}


def end_with_the_rank():
    """Asks to be killed when the rank ends; where Python cannot, the end of the socket does it."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def main(rank, load):
    end_with_the_rank()
    # The rank decides what an interruption means; this process gets it from a terminal too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel = Channel(rank)
    channel.start()
    worker, failures = Worker(channel, load), load("failures")
    while True:
        order = channel.orders.get()
        try:
            answer = getattr(worker, order["order"])(order)
        except Exception as error:
            answer = failures.answer(error, order["order"])
        channel.send({"answer": answer})
        if order["order"] == "close":
            # Threads of a library that do not end must not keep the process.
            os._exit(0)

#!/usr/bin/env python3
"""Connections of fabric:tcp beside plain TCP ones over loopback, each with a byte there and one back: what the engine's
part of a set-up costs beyond the kernel's."""

import json
import socket
import statistics
import subprocess
import threading
import time

import common

CONNECTIONS = 2000


def main():
    parser = common.arguments(__doc__, repetitions=5)
    options = parser.parse_args()
    binary = common.program(options)
    rows = [(plain(), *fabric(binary)) for _ in range(options.repetitions)]
    names = ["plain TCP", "connect", "first byte", "all of the engine's steps", "exchange of cards"]
    for name, values in zip(names, zip(*rows)):
        print(f"{name:26} {statistics.median(values) / 1e3:9.1f} us (p50, median of {len(values)})")


def plain():
    """Median of opening a socket, connecting, and a byte there and back, in ns. The other side is a thread."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer():
        for _ in range(CONNECTIONS):
            peer, _ = server.accept()
            with peer:
                peer.sendall(peer.recv(1))

    thread = threading.Thread(target=answer)
    thread.start()
    took = []
    for _ in range(CONNECTIONS):
        began = time.perf_counter_ns()
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(b"x")
            connection.recv(1)
            took.append(time.perf_counter_ns() - began)
    thread.join()
    server.close()
    return statistics.median(took)


def fabric(binary):
    """Medians of the engine's connect and first byte, of all its steps together, and of the exchange of cards, in ns."""
    command = [binary, "connect", "--engine", "fabric:tcp", "--ranks", "2", "--duration", "1s", "--format", "jsonl"]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True)
    steps = {step["step"]: step["latency"]["latency_ns_p50"] for step in json.loads(done.stdout)["steps"]}
    engine = sum(steps[step] for step in ["open", "register", "connect", "first_byte"])
    return steps["connect"], steps["first_byte"], engine, steps["exchange"]


if __name__ == "__main__":
    main()

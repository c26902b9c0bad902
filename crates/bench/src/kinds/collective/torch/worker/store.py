"""The store through which processes of torch.distributed meet, without a listener.

Every worker holds the whole map. What one writes goes to its rank as an entry of a log; ranks bring
the entries of all together in rounds, and every worker applies them in the same order, so that all
maps are the same and only what changed travels. Reads never leave the process: threads of a library
may ask at any time.

Rounds go on only while the ranks carry out an order together (`served`). Outside of them a write
that needs no answer waits for the next round, and what can only be answered by others is an error
at once, instead of a hang.
"""

import base64
import json
import threading
import time

import torch.distributed as dist

WAIT_S = 300.0


class Store(dist.Store):
    """A map that all workers have."""

    def __init__(self, channel, rank):
        super().__init__()
        self.channel = channel
        self.rank = rank
        self.values = {}
        self.changed = threading.Condition()
        self.results = {}
        self.awaited = set()
        self.written = 0
        self.served = False
        self.wait_s = WAIT_S
        channel.listen(self.apply)

    def serve(self, served):
        with self.changed:
            self.served = served
            self.changed.notify_all()

    # Reads.

    def get(self, key):
        self.wait([key])
        with self.changed:
            return self.values[key]

    def check(self, keys):
        with self.changed:
            return all(key in self.values for key in keys)

    def wait(self, keys, timeout=None):
        limit = self.wait_s if timeout is None else seconds(timeout)
        end = time.monotonic() + limit
        with self.changed:
            while not all(key in self.values for key in keys):
                self.sleep(end, keys)

    def num_keys(self):
        with self.changed:
            return len(self.values)

    # Writes.

    def set(self, key, value):
        self.write("set", key, value)

    def add(self, key, amount):
        with self.changed:
            if amount == 0 and key in self.values:
                # A look at a counter, by which older versions of torch wait for each other.
                return int(self.values[key])
        return self.write("add", key, str(amount), needs_result=True)

    def append(self, key, value):
        self.write("append", key, value)

    def compare_set(self, key, expected, desired):
        return self.write("compare_set", key, desired, expected, needs_result=True)

    def delete_key(self, key):
        return bool(self.write("delete_key", key))

    def set_timeout(self, timeout):
        self.wait_s = seconds(timeout)

    def clone(self):
        return self

    def has_extended_api(self):
        return False

    def write(self, what, key, value=b"", expected=b"", needs_result=False):
        with self.changed:
            if needs_result and not self.served:
                raise RuntimeError("the store is not served while calls are timed: %s" % key)
            self.written += 1
            number = self.written
            entry = [self.rank, number, what, key, encoded(value), encoded(expected)]
            # Under the lock, so that entries are sent in the order of their numbers.
            self.channel.send({"write": json.dumps(entry)})
            if not self.served:
                return None
            self.awaited.add(number)
            end = time.monotonic() + self.wait_s
            while number not in self.results:
                self.sleep(end, [key])
            return self.results.pop(number)

    def sleep(self, end, keys):
        """Waits for a change; `changed` is held."""
        left = end - time.monotonic()
        if not self.served:
            raise RuntimeError("the store is not served while calls are timed: %s" % keys)
        if left <= 0:
            raise RuntimeError("wait timeout: nobody has set %s" % keys)
        self.changed.wait(left)

    # The log.

    def apply(self, entries):
        """Carries out what ranks wrote. Called by the thread that reads the channel."""
        with self.changed:
            for entry in entries:
                rank, number, what, key, value, expected = json.loads(entry)
                value, expected = base64.b64decode(value), base64.b64decode(expected)
                result = self.change(what, key, value, expected)
                if rank == self.rank and number in self.awaited:
                    self.awaited.discard(number)
                    self.results[number] = result
            self.changed.notify_all()

    def change(self, what, key, value, expected):
        now = self.values.get(key)
        if what == "delete_key":
            return self.values.pop(key, None) is not None
        if what == "add":
            total = int(now or b"0") + int(value)
            self.values[key] = str(total).encode()
            return total
        if what == "append":
            value = (now or b"") + value
        elif what == "compare_set":
            if now is None and expected != b"":
                return expected
            if now is not None and now != expected:
                return now
        self.values[key] = value
        return value


def encoded(value):
    raw = value.encode() if isinstance(value, str) else bytes(value)
    return base64.b64encode(raw).decode()


def seconds(timeout):
    return timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)

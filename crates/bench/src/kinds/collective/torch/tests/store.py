# Appended to store.py: two stores whose entries are brought together as ranks do it.
import datetime


class Loop:
    def __init__(self):
        self.entries = []

    def listen(self, on_log):
        self.on_log = on_log

    def send(self, message):
        self.entries.append(message["write"])


def round_of(channels):
    """One round: what all wrote so far, in the order of the ranks, to all."""
    taken = []
    for each in channels:
        count = len(each.entries)
        taken.append(each.entries[:count])
        del each.entries[:count]
    for entries in taken:
        for each in channels:
            each.on_log(entries)


def during(channels, work):
    """Carries out what waits for a round, with rounds beside it."""
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    while thread.is_alive():
        round_of(channels)
        time.sleep(0.001)
    return result[0]


def fails(work, words):
    try:
        work()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("no error: " + words)


channels = [Loop(), Loop()]
one, two = [Store(channel, rank) for rank, channel in enumerate(channels)]
prefixed = dist.PrefixStore("p", two)
one.serve(True)
two.serve(True)

during(channels, lambda: one.set("key", b"value"))
assert two.get("key") == b"value"
during(channels, lambda: prefixed.set("key", "other"))
assert one.get("p/key") == b"other" and prefixed.get("key") == b"other"
assert [during(channels, lambda: each.add("n", 2)) for each in (one, two)] == [2, 4]
assert one.add("n", 0) == 4 and not channels[0].entries
assert during(channels, lambda: one.compare_set("c", "", "first")) == b"first"
assert during(channels, lambda: two.compare_set("c", "wrong", "second")) == b"first"
assert during(channels, lambda: two.compare_set("c", "first", "second")) == b"second"
assert one.get("c") == b"second"
during(channels, lambda: one.append("key", "+"))
assert two.get("key") == b"value+"
assert during(channels, lambda: one.delete_key("key")) is True
assert during(channels, lambda: one.delete_key("key")) is False
assert not two.check(["key"]) and two.check(["n", "c"])
assert one.num_keys() == two.num_keys() == 3

# A wait ends with its key, or with its time.
started = time.monotonic()
fails(lambda: one.wait(["never"], datetime.timedelta(seconds=0.1)), "never")
assert 0.1 <= time.monotonic() - started < 20
waiting = threading.Thread(target=lambda: one.wait(["soon"]))
waiting.start()
during(channels, lambda: two.set("soon", b""))
waiting.join(20)
assert not waiting.is_alive()

# Nobody hangs when nobody serves.
one.serve(False)
two.serve(False)
assert one.check(["n"]) and one.get("n") == b"4"
fails(lambda: one.get("missing"), "not served")
fails(lambda: one.add("n", 1), "not served")
one.set("late", b"x")
round_of(channels)
assert two.get("late") == b"x"

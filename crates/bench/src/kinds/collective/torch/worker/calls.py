"""The calls that are measured: process groups, buffers, and the loop with the clock.

Data come from and go to memory files of the rank; torch's calls see tensors of this process only,
which are filled and read outside the clock. Only torch's public interface is used, as a training
script uses it.
"""

import datetime
import functools
import gc
import mmap
import os
import time

import torch
import torch.distributed as dist

# What torch does to a tensor in place, whatever is asked for.
ALWAYS_IN_PLACE = ("all-reduce", "reduce", "broadcast")
# Where the smaller of the two tensors can be a part of the larger one.
MAY_BE_IN_PLACE = ("all-gather", "reduce-scatter", "gather", "scatter")

REDUCTIONS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}

# Begin and end of each iteration.
STAMPS = 2


def nothing():
    """The call of the backend null: what is left is the worker's own time."""


class Call:
    """One collective call as an order names it, with the tensors that it is made on."""

    def __init__(self, order, group, device):
        self.op = order["op"]
        self.ranks = order["groups"][order["group"]]
        self.place = order["place"]
        self.root = self.ranks[order["root"]]
        self.is_root = order["root"] == self.place
        self.block = order["block"]
        self.group = group
        self.reduction = None
        if order["reduction"] is not None:
            self.reduction = getattr(dist.ReduceOp, REDUCTIONS[order["reduction"]])
        dtype = getattr(torch, order["dtype"])
        self.in_place = self.op in ALWAYS_IN_PLACE or (
            order["in_place"] and self.op in MAY_BE_IN_PLACE
        )
        make = functools.partial(torch.zeros, dtype=dtype, device=device)
        self.allocate(make, order["input"], order["output"])

    def allocate(self, make, inputs, outputs):
        if not self.in_place:
            self.input, self.output = make(inputs), make(outputs)
            return
        # The part of this rank lies where its result is, or begins.
        data = make(max(inputs, outputs, self.block if self.op in ALWAYS_IN_PLACE else 0))
        first = self.place * self.block
        part = data[first : first + self.block]
        large = min(inputs, outputs) > 0 and self.op not in ALWAYS_IN_PLACE
        self.input = part if large and inputs < outputs else data[:inputs]
        self.output = part if large and outputs < inputs else data[:outputs]
        self.data = data

    def parts(self, tensor):
        """A tensor's blocks, as the list that some of torch's calls want."""
        return [tensor[at : at + self.block] for at in range(0, tensor.numel(), self.block)]


def all_reduce(it):
    return functools.partial(dist.all_reduce, it.data, op=it.reduction, group=it.group)


def reduce(it):
    return functools.partial(dist.reduce, it.data, it.root, op=it.reduction, group=it.group)


def broadcast(it):
    return functools.partial(dist.broadcast, it.data, it.root, group=it.group)


def reduce_scatter_tensor(it):
    call = dist.reduce_scatter_tensor
    return functools.partial(call, it.output, it.input, op=it.reduction, group=it.group)


def reduce_scatter(it):
    parts = it.parts(it.input)
    call = dist.reduce_scatter
    return functools.partial(call, it.output, parts, op=it.reduction, group=it.group)


def all_gather_into_tensor(it):
    return functools.partial(dist.all_gather_into_tensor, it.output, it.input, group=it.group)


def all_gather(it):
    return functools.partial(dist.all_gather, it.parts(it.output), it.input, group=it.group)


def all_to_all_single(it):
    return functools.partial(dist.all_to_all_single, it.output, it.input, group=it.group)


def all_to_all(it):
    call = dist.all_to_all
    return functools.partial(call, it.parts(it.output), it.parts(it.input), group=it.group)


def gather(it):
    parts = it.parts(it.output) if it.is_root else None
    return functools.partial(dist.gather, it.input, parts, dst=it.root, group=it.group)


def scatter(it):
    parts = it.parts(it.input) if it.is_root else None
    return functools.partial(dist.scatter, it.output, parts, src=it.root, group=it.group)


def barrier(it):
    return functools.partial(dist.barrier, group=it.group)


def send_recv_pairs(it):
    half = len(it.ranks) // 2
    if it.place < half:
        return functools.partial(dist.send, it.input, it.ranks[it.place + half], group=it.group)
    if it.place < 2 * half:
        return functools.partial(dist.recv, it.output, it.ranks[it.place - half], group=it.group)
    return nothing


def send_recv_ring(it):
    """To the next rank and from the one before, as one group of calls, as nccl-tests has it."""
    count = len(it.ranks)
    if count == 1:
        return functools.partial(it.output.copy_, it.input)
    after, before = it.ranks[(it.place + 1) % count], it.ranks[(it.place - 1) % count]
    send = dist.P2POp(dist.isend, it.input, after, group=it.group)
    receive = dist.P2POp(dist.irecv, it.output, before, group=it.group)
    both_ways = [send, receive]

    def call():
        for work in dist.batch_isend_irecv(both_ways):
            work.wait()

    return call


# The forms of each operation, the one to be preferred first; backends lack some.
FORMS = {
    "all-reduce": [all_reduce],
    "reduce": [reduce],
    "broadcast": [broadcast],
    "reduce-scatter": [reduce_scatter_tensor, reduce_scatter],
    "all-gather": [all_gather_into_tensor, all_gather],
    "all-to-all": [all_to_all_single, all_to_all],
    "gather": [gather],
    "scatter": [scatter],
    "barrier": [barrier],
    "send-recv-pairs": [send_recv_pairs],
    "send-recv-ring": [send_recv_ring],
}


class Calls:
    """Everything that needs torch."""

    def __init__(self, channel, load):
        self.channel = channel
        self.load = load
        self.lacks = load("failures").lacks
        self.backend = None
        self.store = None
        self.device = "cpu"
        self.groups = {}
        self.forms = {}
        self.it = None
        self.from_files = None
        self.to_file = None
        self.call = nothing
        self.stamps = None

    def found(self):
        backends = []
        if dist.is_available():
            for name in ("gloo", "nccl", "mpi"):
                # Of the oldest versions that have no question for gloo, all builds have it.
                if getattr(dist, "is_%s_available" % name, lambda: True)():
                    backends.append(name)
        has_cuda = torch.cuda.is_available()
        return {
            "backends": backends,
            "cuda": torch.version.cuda,
            "devices": torch.cuda.device_count() if has_cuda else 0,
            "threads": torch.get_num_threads(),
        }

    def init(self, order):
        self.backend = order["backend"]
        if order["device"] is not None:
            self.device = torch.device("cuda", order["device"])
            torch.cuda.set_device(self.device)
        self.settle()
        if self.backend == "floor":
            return {}
        if self.backend == "mpi":
            dist.init_process_group("mpi")
            self.compare(order)
            return {}
        self.store = self.load("store").Store(self.channel, order["rank"])
        self.store.serve(True)
        try:
            dist.init_process_group(
                self.backend,
                store=self.store,
                rank=order["rank"],
                world_size=order["size"],
                timeout=datetime.timedelta(seconds=order["timeout_s"]),
            )
        finally:
            self.store.serve(False)
        self.compare(order)
        return {}

    def settle(self):
        """Takes everything that is there out of the sight of Python's collector."""
        gc.collect()
        gc.freeze()

    def compare(self, order):
        """The backend mpi numbers its processes itself."""
        mine, theirs = (order["rank"], order["size"]), (dist.get_rank(), dist.get_world_size())
        if mine != theirs:
            raise RuntimeError("rank and number of ranks are %s, for torch %s" % (mine, theirs))

    def probe(self, order):
        """Calls once with a few bytes, and both barriers, so that all connections are there."""
        if self.backend == "floor":
            return {"form": "nothing"}
        if self.store:
            self.store.serve(True)
        try:
            group = self.group(order["groups"], order["group"])
            form = self.find_form(order, group)
            dist.barrier(group=group)
            dist.barrier()
            self.synchronize()
        finally:
            if self.store:
                self.store.serve(False)
        return {"form": form.__name__}

    def group(self, groups, own):
        """The group of this rank. All ranks make all groups, in the same order."""
        key = tuple(map(tuple, groups))
        if key not in self.groups:
            if len(groups) == 1:
                self.groups[key] = None
            else:
                made = [dist.new_group(list(ranks)) for ranks in groups]
                self.groups[key] = made[own]
        return self.groups[key]

    def find_form(self, order, group):
        forms = FORMS[order["op"]]
        for form in forms:
            it = Call(order, group, self.device)
            try:
                form(it)()
                self.synchronize()
            except Exception as error:
                if form is forms[-1] or not self.lacks(error):
                    raise
                continue
            self.forms[order["op"]] = form
            return form

    def synchronize(self):
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def prepare(self, order, file):
        """Makes the tensors of a call, and maps the rank's memory file."""
        # The old ones first, so that both need not fit.
        self.it = self.from_files = self.to_file = None
        self.call = nothing
        group = None
        if self.backend != "floor":
            group = self.group(order["groups"], order["group"])
        it = Call(order, group, self.device)
        slot_bytes, slots = order["slot_bytes"], order["slots"]
        memory = mapped(file)
        self.from_files = [typed(memory, at * slot_bytes, it.input) for at in range(slots)]
        self.to_file = typed(memory, order["output_offset"], it.output)
        self.it = it
        if self.backend != "floor":
            self.call = self.forms[it.op](it)
        return {"in_place": it.in_place}

    def take_stamps(self, file):
        self.stamps = memoryview(mmap.mmap(file, 0)).cast("q")
        os.close(file)

    def fill(self, order):
        """Gives a function that copies the next input of the ring into the call's own tensor."""
        target, sources = self.it.input, self.from_files
        count = len(sources)
        at = order["slot"] - 1

        def next_input():
            nonlocal at
            at = (at + 1) % count
            target.copy_(sources[at])

        return next_input

    def align(self, order):
        if order["align"] == "none" or self.backend == "floor":
            return None
        group = self.it.group if order["align"] == "group" else None
        return functools.partial(dist.barrier, group=group)

    def before(self, fill, align):
        """Everything that is done before each iteration, outside the clock."""
        if self.device == "cpu":
            return both(fill, align)
        return both(both(fill, align), self.synchronize)

    def run(self, order):
        fill, align = self.fill(order), self.align(order)
        if order["poison"]:
            self.it.output.copy_(self.to_file)
        if not order["refill_each"]:
            fill()
            fill = None
        before = self.before(fill, align)
        if order["align"] == "none":
            # All begin together, whatever they had to do first.
            start = self.align({"align": "world"})
            if start:
                start()
        self.synchronize()
        loop = host_loop if self.device == "cpu" else device_loop
        gc.disable()
        try:
            loop(order["iterations"], before, self.call, self.stamps)
        finally:
            gc.enable()
        return {}

    def fetch(self):
        self.to_file.copy_(self.it.output)
        return {}

    def close(self):
        if self.backend not in (None, "floor") and dist.is_initialized():
            dist.destroy_process_group()
        return {}


def both(first, second):
    if first is None or second is None:
        return first or second

    def one_after_the_other():
        first()
        second()

    return one_after_the_other


def host_loop(iterations, before, call, stamps):
    clock = time.perf_counter_ns
    for at in range(0, STAMPS * iterations, STAMPS):
        if before is not None:
            before()
        begin = clock()
        call()
        end = clock()
        stamps[at] = begin
        # Last, because the rank takes an end for progress.
        stamps[at + 1] = end


def device_loop(iterations, before, call, stamps):
    """The same for tensors of a GPU, whose calls return before they are done.

    Nothing else than the call and a synchronization is inside the clock: events on the GPU's
    stream would take as long as a small call does.
    """
    clock = time.perf_counter_ns
    synchronize = torch.cuda.synchronize
    for at in range(0, STAMPS * iterations, STAMPS):
        if before is not None:
            before()
        begin = clock()
        call()
        synchronize()
        end = clock()
        stamps[at] = begin
        stamps[at + 1] = end


def mapped(file):
    size = os.fstat(file).st_size
    tensor = torch.from_file("/proc/self/fd/%d" % file, shared=True, size=size, dtype=torch.uint8)
    os.close(file)
    return tensor


def typed(memory, offset, like):
    """A stretch of a memory file as long as a tensor, and of its type."""
    size = like.numel() * like.element_size()
    return memory[offset : offset + size].view(like.dtype)

//! Rings: each rank puts only to the next one. Every link carries the same number of bytes, for any number of ranks. A
//! slow rank delays all others.
//!
//! In a reduction, the sum of part p starts at rank p + 1, passes through all ranks, and is complete at rank p. A
//! complete sum proves two things: all ranks have entered the call, and no rank needs its own part p any more. So in
//! the second trip around the ring, results go directly into the outputs, even in place.
//!
//! Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel and
//! Distributed Computing 69 (2009).

use super::emitter::{Chunk, Emitter, Parts, TooManyMessages, input, output, scratch};
use super::slots::{RowNumbers, RowReceiver, RowSender, SlotRow};

/// A reduction that travels around the ring. Row c consists of the c-th chunk of each part. Rows are processed in
/// groups, so that a chunk is still in the cache when it is put to the next rank.
struct RingReduction {
    parts: Parts,
    rows: u64,
    /// Number of rows in a group.
    group: u64,
    sender: RowSender,
    receiver: RowReceiver,
    /// Output offset of the sum that this rank completes.
    own_at: u64,
}

/// Results that travel around the ring.
struct RingResults {
    /// Number of the first message with a result.
    first: u32,
    put: u32,
    received: u32,
}

impl RingReduction {
    fn new(out: &mut Emitter, parts: Parts, numbers: RowNumbers, own_at: u64) -> Self {
        let context = out.context;
        let rows = context.chunk_count(parts.longest());
        let row = SlotRow::new(
            &context,
            parts.longest(),
            rows * u64::from(context.ranks() - 1),
        );
        let slots = out.reserve(row.bytes);
        let outbox = out.reserve(row.bytes);
        // This rank receives all parts except the one that the previous rank completes.
        let left_out = context.before(1);
        let of = |part: u32| {
            let range = parts.range(part..part + 1);
            context.chunk_count(range.end - range.start)
        };
        let others = (0..context.ranks()).filter(|part| *part != left_out);
        let total = others.map(of).sum();
        Self {
            parts,
            rows,
            // A rank puts up to two groups before the next rank has used their data.
            group: (row.lead() / 2).max(1),
            sender: RowSender::new(row, numbers, slots, outbox),
            receiver: RowReceiver::new(row, numbers, slots, total),
            own_at,
        }
    }

    /// Chunks of a part in a group of rows.
    fn chunks(&self, out: &Emitter, part: u32, group: u64) -> impl Iterator<Item = Chunk> + use<> {
        let range = self.parts.range(part..part + 1);
        let begin = range.start + group * self.group * out.context.chunk_bytes;
        let end = begin + self.group * out.context.chunk_bytes;
        out.context.cut(begin.min(range.end)..end.min(range.end))
    }

    fn groups(&self) -> u64 {
        self.rows.div_ceil(self.group)
    }

    /// Starts the sum of a part: puts this rank's data.
    fn begin(&mut self, out: &mut Emitter, group: u64) {
        let (right, part) = (out.context.after(1), out.context.before(1));
        if group < self.groups() {
            for chunk in self.chunks(out, part, group) {
                self.sender.put(out, right, input(chunk.at), chunk.bytes);
            }
        }
    }

    /// Adds this rank's data to all sums that pass through this rank, and puts them to the next rank.
    fn pass(&mut self, out: &mut Emitter, group: u64) {
        let (left, right) = (out.context.before(1), out.context.after(1));
        for step in 0..out.context.ranks() - 2 {
            for chunk in self.chunks(
                out,
                out.context.before((step + 2) % out.context.ranks()),
                group,
            ) {
                let sum = self.sender.next_outbox_place(out, right);
                let received = self.receiver.take(out, left);
                out.combine(received, input(chunk.at), sum, chunk.bytes);
                self.receiver.release(out, left);
                self.sender.put(out, right, sum, chunk.bytes);
            }
        }
    }

    /// Completes the next chunk of this rank's part, and stores it in the output.
    fn complete(&mut self, out: &mut Emitter, chunk: Chunk) {
        let left = out.context.before(1);
        let begin = self
            .parts
            .range(out.context.rank..out.context.rank + 1)
            .start;
        let to = output(self.own_at + chunk.at - begin);
        let received = self.receiver.take(out, left);
        out.merge(received, input(chunk.at), to, chunk.bytes);
        self.receiver.release(out, left);
        out.complete(to, chunk.bytes);
    }
}

impl RingResults {
    fn put(&mut self, out: &mut Emitter, chunk: Chunk) {
        let (place, message) = (output(chunk.at), self.first + self.put);
        out.put(out.context.after(1), message, (place, place), chunk.bytes);
        self.put += 1;
    }

    fn wait(&mut self, out: &mut Emitter) {
        out.wait(out.context.before(1), self.first + self.received);
        self.received += 1;
    }
}

/// Emits an all-reduce. Complete parts travel around the ring a second time.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let parts = Parts::split_block(&context, context.ranks());
    let count = context.chunk_count(parts.longest()) * u64::from(context.ranks() - 1);
    let [data, first, free] = out.number([count; 3])?;
    let own_at = parts.range(context.rank..context.rank + 1).start;
    let mut sums = RingReduction::new(out, parts, RowNumbers { data, free }, own_at);
    let mut results = RingResults {
        first,
        put: 0,
        received: 0,
    };
    sums.begin(out, 0);
    for group in 0..sums.groups() {
        sums.pass(out, group);
        for chunk in sums.chunks(out, context.rank, group) {
            sums.complete(out, chunk);
            results.put(out, chunk);
        }
        for step in 0..context.ranks() - 1 {
            let is_last = step == context.ranks() - 2;
            // The last results are received and not passed on. Meanwhile the next sums can start.
            if is_last {
                sums.begin(out, group + 1);
            }
            for chunk in sums.chunks(out, context.before(step + 1), group) {
                results.wait(out);
                if !is_last {
                    results.put(out, chunk);
                }
            }
        }
    }
    Ok(())
}

/// Emits a reduce-scatter. Complete parts stay where they are.
pub(super) fn reduce_scatter(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let parts = Parts::blocks(&out.context);
    let count = out.context.chunk_count(parts.longest()) * u64::from(out.context.ranks() - 1);
    let [data, free] = out.number([count; 2])?;
    let mut sums = RingReduction::new(out, parts, RowNumbers { data, free }, 0);
    sums.begin(out, 0);
    for group in 0..sums.groups() {
        sums.pass(out, group);
        sums.begin(out, group + 1);
        for chunk in sums.chunks(out, out.context.rank, group) {
            sums.complete(out, chunk);
        }
    }
    Ok(())
}

/// Emits an all-gather. The blocks of all ranks travel around the ring. If there are few bytes, they go into images of
/// the outputs in the scratch. Otherwise they go directly into the outputs, after the next rank has signalled that it
/// is ready.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let (left, right) = (context.before(1), context.after(1));
    let chunks = context.chunk_count(context.block_bytes());
    let [data, ready] = out.number([chunks * u64::from(context.ranks() - 1), 1])?;
    let is_eager = context.is_eager(context.bytes_of_blocks(context.ranks()));
    let own = context.bytes_of_blocks(context.rank);
    if is_eager {
        out.reserve(context.bytes_of_blocks(context.ranks()));
    } else {
        out.signal(left, ready);
        out.wait(right, ready);
    }
    let place = |at: u64| if is_eager { scratch(at) } else { output(at) };
    let mut message = out.put_range(right, data, 0..context.block_bytes(), |at| {
        (input(at), place(own + at))
    });
    out.keep(0, own, context.block_bytes());
    let mut received = data;
    for step in 1..context.ranks() {
        let begin = context.bytes_of_blocks(context.before(step));
        for chunk in context.cut(begin..begin + context.block_bytes()) {
            out.wait(left, received);
            received += 1;
            if step < context.ranks() - 1 {
                let places = (place(chunk.at), place(chunk.at));
                out.put(right, message, places, chunk.bytes);
                message += 1;
            }
        }
    }
    if is_eager {
        copy_others(out);
    }
    Ok(())
}

/// Copies the blocks of all other ranks to the output, from its image at the start of the scratch.
pub(super) fn copy_others(out: &mut Emitter) {
    let context = out.context;
    let (own, end) = (
        context.bytes_of_blocks(context.rank),
        context.bytes_of_blocks(context.ranks()),
    );
    let next = own + context.block_bytes();
    out.copy(scratch(0), output(0), own);
    out.copy(scratch(next), output(next), end - next);
}

//! Rings: each rank puts to the next one only. Every link carries the same, whatever the number of ranks, and a rank
//! that is slow holds up all others.
//!
//! A reduction by a ring: the sum of part p begins at rank p + 1, takes up each rank's own in turn, and is complete at
//! rank p. That it is complete there proves that all ranks have entered the call, and have done with their own part p:
//! so the way back, once more around the ring, goes into the outputs at once, also in place.
//!
//! Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel and
//! Distributed Computing 69 (2009).

use super::emitter::{Chunk, Emitter, Parts, TooMany, input, output, scratch};
use super::slots::{Inlet, Outlet, RowNumbers, SlotRow};

/// A reduction on its way around. Lane c is the c-th chunk of each part; groups of lanes follow one another, so that
/// what was just reduced is passed on while it is in the caches.
struct Reducing {
    parts: Parts,
    lanes: u64,
    /// Lanes of a group.
    group: u64,
    outlet: Outlet,
    inlet: Inlet,
    /// Offset of the part that is complete here, in its output.
    own_at: u64,
}

/// Results on their way around.
struct Spreading {
    /// Number of the first message.
    first: u32,
    put: u32,
    come: u32,
}

impl Reducing {
    fn new(out: &mut Emitter, parts: Parts, numbers: RowNumbers, own_at: u64) -> Self {
        let seat = out.seat;
        let lanes = seat.count(parts.longest());
        let row = SlotRow::new(&seat, parts.longest(), lanes * u64::from(seat.ranks() - 1));
        let slots = out.reserve(row.bytes);
        let outbox = out.reserve(row.bytes);
        // Everything but the part that the rank before this one ends with.
        let left_out = seat.before(1);
        let of = |part: u32| {
            let range = parts.range(part..part + 1);
            seat.count(range.end - range.start)
        };
        let others = (0..seat.ranks()).filter(|part| *part != left_out);
        let total = others.map(of).sum();
        Self {
            parts,
            lanes,
            // The puts of a group may be two groups ahead of what the next rank has taken.
            group: (row.lead() / 2).max(1),
            outlet: Outlet::new(row, numbers, slots, outbox),
            inlet: Inlet::new(row, numbers, slots, total),
            own_at,
        }
    }

    /// Chunks of a part in a group of lanes.
    fn chunks(&self, out: &Emitter, part: u32, group: u64) -> impl Iterator<Item = Chunk> + use<> {
        let range = self.parts.range(part..part + 1);
        let begin = range.start + group * self.group * out.seat.chunk_bytes;
        let end = begin + self.group * out.seat.chunk_bytes;
        out.seat.cut(begin.min(range.end)..end.min(range.end))
    }

    fn groups(&self) -> u64 {
        self.lanes.div_ceil(self.group)
    }

    /// Puts this rank's own of the part whose sum begins here.
    fn begin(&mut self, out: &mut Emitter, group: u64) {
        let (right, part) = (out.seat.after(1), out.seat.before(1));
        if group < self.groups() {
            for chunk in self.chunks(out, part, group) {
                self.outlet.put(out, right, input(chunk.at), chunk.bytes);
            }
        }
    }

    /// Takes up this rank's own in all sums that pass through.
    fn pass(&mut self, out: &mut Emitter, group: u64) {
        let (left, right) = (out.seat.before(1), out.seat.after(1));
        for step in 0..out.seat.ranks() - 2 {
            for chunk in self.chunks(out, out.seat.before((step + 2) % out.seat.ranks()), group) {
                let sum = self.outlet.place(out, right);
                let come = self.inlet.take(out, left);
                out.combine(come, input(chunk.at), sum, chunk.bytes);
                self.inlet.release(out, left);
                self.outlet.put(out, right, sum, chunk.bytes);
            }
        }
    }

    /// Completes the next chunk of this rank's part in its output.
    fn complete(&mut self, out: &mut Emitter, chunk: Chunk) {
        let left = out.seat.before(1);
        let begin = self.parts.range(out.seat.rank..out.seat.rank + 1).start;
        let to = output(self.own_at + chunk.at - begin);
        let come = self.inlet.take(out, left);
        out.merge(come, input(chunk.at), to, chunk.bytes);
        self.inlet.release(out, left);
        out.complete(to, chunk.bytes);
    }
}

impl Spreading {
    fn put(&mut self, out: &mut Emitter, chunk: Chunk) {
        let (place, message) = (output(chunk.at), self.first + self.put);
        out.put(out.seat.after(1), message, (place, place), chunk.bytes);
        self.put += 1;
    }

    fn wait(&mut self, out: &mut Emitter) {
        out.wait(out.seat.before(1), self.first + self.come);
        self.come += 1;
    }
}

/// Emits a reduction whose parts go around once more when they are complete.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let parts = Parts::of_block(&seat, seat.ranks());
    let count = seat.count(parts.longest()) * u64::from(seat.ranks() - 1);
    let [data, first, free] = out.number([count; 3])?;
    let own_at = parts.range(seat.rank..seat.rank + 1).start;
    let mut sums = Reducing::new(out, parts, RowNumbers { data, free }, own_at);
    let mut results = Spreading {
        first,
        put: 0,
        come: 0,
    };
    sums.begin(out, 0);
    for group in 0..sums.groups() {
        sums.pass(out, group);
        for chunk in sums.chunks(out, seat.rank, group) {
            sums.complete(out, chunk);
            results.put(out, chunk);
        }
        for step in 0..seat.ranks() - 1 {
            let is_last = step == seat.ranks() - 2;
            // The last results only come: meanwhile the next sums are on their way.
            if is_last {
                sums.begin(out, group + 1);
            }
            for chunk in sums.chunks(out, seat.before(step + 1), group) {
                results.wait(out);
                if !is_last {
                    results.put(out, chunk);
                }
            }
        }
    }
    Ok(())
}

/// Emits a reduction whose parts stay where they are complete.
pub(super) fn reduce_scatter(out: &mut Emitter) -> Result<(), TooMany> {
    let parts = Parts::blocks(&out.seat);
    let count = out.seat.count(parts.longest()) * u64::from(out.seat.ranks() - 1);
    let [data, free] = out.number([count; 2])?;
    let mut sums = Reducing::new(out, parts, RowNumbers { data, free }, 0);
    sums.begin(out, 0);
    for group in 0..sums.groups() {
        sums.pass(out, group);
        sums.begin(out, group + 1);
        for chunk in sums.chunks(out, out.seat.rank, group) {
            sums.complete(out, chunk);
        }
    }
    Ok(())
}

/// Emits the blocks of all ranks on their way around: into the outputs once the next rank has said that it is there,
/// or, where there are few bytes, into images of the outputs in the scratch.
pub(super) fn all_gather(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let (left, right) = (seat.before(1), seat.after(1));
    let chunks = seat.count(seat.block());
    let [data, ready] = out.number([chunks * u64::from(seat.ranks() - 1), 1])?;
    let is_eager = seat.is_eager(seat.blocks(seat.ranks()));
    let own = seat.blocks(seat.rank);
    if is_eager {
        out.reserve(seat.blocks(seat.ranks()));
    } else {
        out.signal(left, ready);
        out.wait(right, ready);
    }
    let place = |at: u64| if is_eager { scratch(at) } else { output(at) };
    let mut message = out.put_range(right, data, 0..seat.block(), |at| {
        (input(at), place(own + at))
    });
    out.keep(0, own, seat.block());
    let mut come = data;
    for step in 1..seat.ranks() {
        let begin = seat.blocks(seat.before(step));
        for chunk in seat.cut(begin..begin + seat.block()) {
            out.wait(left, come);
            come += 1;
            if step < seat.ranks() - 1 {
                let way = (place(chunk.at), place(chunk.at));
                out.put(right, message, way, chunk.bytes);
                message += 1;
            }
        }
    }
    if is_eager {
        copy_others(out);
    }
    Ok(())
}

/// Copies the blocks of all other ranks from an image of the output, which begins the scratch.
pub(super) fn copy_others(out: &mut Emitter) {
    let seat = out.seat;
    let (own, end) = (seat.blocks(seat.rank), seat.blocks(seat.ranks()));
    let next = own + seat.block();
    out.copy(scratch(0), output(0), own);
    out.copy(scratch(next), output(next), end - next);
}

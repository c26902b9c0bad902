//! Broadcast, reduce, all-reduce and barrier along a tree: the binomial one, or a chain, whose links carry the data
//! once each however many ranks there are. Chunks follow one another down and up.

use super::emitter::{CallSeat, Chunk, Emitter, TooMany, input, output, scratch};
use super::kin::Kin;
use super::program::Place;
use super::slots::{Inlet, Outlet, RowNumbers, SlotRow};

/// The way from the root into all outputs.
struct Down {
    kin: Kin,
    /// Number of the first message.
    data: u32,
}

impl Down {
    /// Puts a chunk to all children, the one with the most below it first.
    fn put(&self, out: &mut Emitter, index: u32, way: (Place, Place), bytes: u64) {
        for child in self.kin.children.iter().rev() {
            out.put(*child, self.data + index, way, bytes);
        }
    }
}

/// Emits a broadcast of few bytes: into scratch, by grants.
fn broadcast_eager(out: &mut Emitter, down: &Down) {
    let seat = out.seat;
    let landing = out.reserve(seat.block());
    for (index, chunk) in (0..).zip(seat.cut(0..seat.block())) {
        let from = match down.kin.parent {
            None => input(chunk.at),
            Some((parent, _)) => {
                out.wait(parent, down.data + index);
                let to = output(chunk.at);
                out.copy(scratch(landing + chunk.at), to, chunk.bytes);
                to
            }
        };
        if index == 0 {
            let children = down.kin.children.iter().rev();
            children.for_each(|child| out.claim(*child));
        }
        down.put(out, index, (from, scratch(landing + chunk.at)), chunk.bytes);
    }
    match down.kin.parent {
        // It is passed on from the output, so that nothing is on its way out of the scratch any more.
        Some((parent, _)) => out.grant(parent),
        None => out.keep(0, 0, seat.block()),
    }
}

/// Emits a broadcast.
pub(super) fn broadcast(out: &mut Emitter, kin: Kin) -> Result<(), TooMany> {
    let seat = out.seat;
    let count = seat.count(seat.block());
    let [data, ready] = out.number([count, u64::from(kin.children_max)])?;
    let down = Down { kin, data };
    if seat.is_eager(seat.block()) {
        broadcast_eager(out, &down);
        return Ok(());
    }
    if let Some((parent, place)) = down.kin.parent {
        out.signal(parent, ready + place);
    }
    for (index, chunk) in (0..).zip(seat.cut(0..seat.block())) {
        let to = output(chunk.at);
        let from = match down.kin.parent {
            None => input(chunk.at),
            Some((parent, _)) => {
                out.wait(parent, data + index);
                to
            }
        };
        if index == 0 {
            for (place, child) in (0..).zip(&down.kin.children) {
                out.wait(*child, ready + place);
            }
        }
        down.put(out, index, (from, to), chunk.bytes);
    }
    if down.kin.parent.is_none() {
        out.keep(0, 0, seat.block());
    }
    Ok(())
}

/// The way to the root, on which each rank takes up its own.
struct Up {
    kin: Kin,
    outlet: Option<Outlet>,
    inlets: Vec<Inlet>,
    /// The end of a call proves to a rank that its parent has left the one before.
    is_told: bool,
}

impl Up {
    /// Messages of a rank: of each of its children, and the words that slots are free.
    fn counts(seat: &CallSeat, kin: &Kin) -> [u64; 2] {
        let count = seat.count(seat.block());
        [count * u64::from(kin.children_max), count]
    }

    fn new(out: &mut Emitter, kin: Kin, [data, free]: [u32; 2]) -> Self {
        let seat = out.seat;
        let count = seat.count(seat.block());
        let row = SlotRow::new(&seat, seat.block(), count);
        let numbers = |place: u32| RowNumbers {
            data: data + place * count as u32,
            free,
        };
        let slots = |place: u32| u64::from(place) * row.bytes;
        let children = kin.children.len() as u32;
        out.reserve(slots(children));
        let is_between = children > 0 && kin.parent.is_some();
        let outbox = out.reserve(if is_between { row.bytes } else { 0 });
        let outlet = |(_, place)| Outlet::new(row, numbers(place), slots(place), outbox);
        let inlet = |place| Inlet::new(row, numbers(place), slots(place), count);
        Self {
            outlet: kin.parent.map(outlet),
            inlets: (0..children).map(inlet).collect(),
            is_told: row.is_told(count),
            kin,
        }
    }

    /// Takes up a chunk of all children and puts the sum to the parent; at the root it is complete in the output.
    fn pass(&mut self, out: &mut Emitter, chunk: Chunk) {
        let own = input(chunk.at);
        let (mut sum, to) = match (self.kin.parent, &mut self.outlet) {
            (Some((parent, _)), Some(outlet)) if !self.inlets.is_empty() => {
                (own, outlet.place(out, parent))
            }
            (Some(_), _) => (own, own),
            (None, _) => (own, output(chunk.at)),
        };
        for (child, inlet) in self.kin.children.iter().zip(&mut self.inlets) {
            let come = inlet.take(out, *child);
            match (sum == to, self.kin.parent) {
                (true, _) => out.fold(come, to, chunk.bytes),
                (false, None) => out.merge(come, own, to, chunk.bytes),
                (false, Some(_)) => out.combine(come, own, to, chunk.bytes),
            }
            sum = to;
            inlet.release(out, *child);
        }
        match (self.kin.parent, &mut self.outlet) {
            (Some((parent, _)), Some(outlet)) => outlet.put(out, parent, sum, chunk.bytes),
            _ => out.complete(to, chunk.bytes),
        }
    }
}

/// Emits a reduce.
pub(super) fn reduce(out: &mut Emitter, kin: Kin) -> Result<(), TooMany> {
    let seat = out.seat;
    let numbers = out.number(Up::counts(&seat, &kin))?;
    let mut up = Up::new(out, kin, numbers);
    if let Some((parent, _)) = up.kin.parent
        && !up.is_told
    {
        out.claim(parent);
    }
    for chunk in seat.cut(0..seat.block()) {
        up.pass(out, chunk);
    }
    if !up.is_told {
        up.kin.children.iter().for_each(|child| out.grant(*child));
    }
    Ok(())
}

/// Emits an all-reduce: up the binomial tree and down again. Results come down while later chunks go up; a child whose
/// own has come is there and has done with its input, so that results go into outputs at once, also in place.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let kin = Kin::binomial(&seat);
    let count = seat.count(seat.block());
    let [ups, free] = Up::counts(&seat, &kin);
    let [ups, free, data] = out.number([ups, free, count])?;
    let mut up = Up::new(out, kin.clone(), [ups, free]);
    let down = Down { kin, data };
    let chunks: Vec<Chunk> = seat.cut(0..seat.block()).collect();
    // A chunk has gone up and come down again when as many others have followed it.
    let lag = match down.kin.parent {
        None => 0,
        Some(_) => 2 * down.kin.depth as usize,
    };
    for turn in 0..chunks.len() + lag {
        if let Some(chunk) = chunks.get(turn) {
            up.pass(out, *chunk);
        }
        let Some(index) = turn.checked_sub(lag) else {
            continue;
        };
        let (chunk, index) = (chunks[index], index as u32);
        if let Some((parent, _)) = down.kin.parent {
            out.wait(parent, data + index);
        }
        let place = output(chunk.at);
        down.put(out, index, (place, place), chunk.bytes);
    }
    Ok(())
}

/// Emits a barrier: signals up the binomial tree, and down again.
pub(super) fn barrier(out: &mut Emitter) -> Result<(), TooMany> {
    let kin = Kin::binomial(&out.seat);
    let [up, down] = out.number([u64::from(kin.children_max), 1])?;
    for (place, child) in (0..).zip(&kin.children) {
        out.wait(*child, up + place);
    }
    if let Some((parent, place)) = kin.parent {
        out.signal(parent, up + place);
        out.wait(parent, down);
    }
    let children = kin.children.iter().rev();
    children.for_each(|child| out.signal(*child, down));
    Ok(())
}

//! Broadcast, reduce, all-reduce and barrier along a tree: the binomial tree, or a chain. In a chain, each link carries
//! the data once, for any number of ranks. Chunks are pipelined in both directions.

use super::emitter::{CallContext, Chunk, Emitter, TooManyMessages, input, output, scratch};
use super::program::Place;
use super::slots::{RowNumbers, RowReceiver, RowSender, SlotRow};
use super::tree_neighbors::TreeNeighbors;

/// Distribution of data from the root into all outputs.
struct Distribution {
    neighbors: TreeNeighbors,
    /// Number of the first message.
    data: u32,
}

impl Distribution {
    /// Puts a chunk to all children, starting with the child that has the largest subtree.
    fn put(&self, out: &mut Emitter, index: u32, places: (Place, Place), bytes: u64) {
        for child in self.neighbors.children.iter().rev() {
            out.put(*child, self.data + index, places, bytes);
        }
    }
}

/// Emits a broadcast of few bytes, which go through the scratch under grants.
fn broadcast_eager(out: &mut Emitter, down: &Distribution) {
    let context = out.context;
    let landing = out.reserve(context.block_bytes());
    for (index, chunk) in (0..).zip(context.cut(0..context.block_bytes())) {
        let from = match down.neighbors.parent {
            None => input(chunk.at),
            Some((parent, _)) => {
                out.wait(parent, down.data + index);
                let to = output(chunk.at);
                out.copy(scratch(landing + chunk.at), to, chunk.bytes);
                to
            }
        };
        if index == 0 {
            let children = down.neighbors.children.iter().rev();
            children.for_each(|child| out.claim(*child));
        }
        down.put(out, index, (from, scratch(landing + chunk.at)), chunk.bytes);
    }
    match down.neighbors.parent {
        // The chunks were put to the children from the output, so no put from the scratch is still in progress.
        Some((parent, _)) => out.grant(parent),
        None => out.keep(0, 0, context.block_bytes()),
    }
}

/// Emits a broadcast.
pub(super) fn broadcast(
    out: &mut Emitter,
    neighbors: TreeNeighbors,
) -> Result<(), TooManyMessages> {
    let context = out.context;
    let count = context.chunk_count(context.block_bytes());
    let [data, ready] = out.number([count, u64::from(neighbors.children_max)])?;
    let down = Distribution { neighbors, data };
    if context.is_eager(context.block_bytes()) {
        broadcast_eager(out, &down);
        return Ok(());
    }
    if let Some((parent, place)) = down.neighbors.parent {
        out.signal(parent, ready + place);
    }
    for (index, chunk) in (0..).zip(context.cut(0..context.block_bytes())) {
        let to = output(chunk.at);
        let from = match down.neighbors.parent {
            None => input(chunk.at),
            Some((parent, _)) => {
                out.wait(parent, data + index);
                to
            }
        };
        if index == 0 {
            for (place, child) in (0..).zip(&down.neighbors.children) {
                out.wait(*child, ready + place);
            }
        }
        down.put(out, index, (from, to), chunk.bytes);
    }
    if down.neighbors.parent.is_none() {
        out.keep(0, 0, context.block_bytes());
    }
    Ok(())
}

/// Reduction towards the root. Each rank adds its own data.
struct Accumulation {
    neighbors: TreeNeighbors,
    sender: Option<RowSender>,
    receivers: Vec<RowReceiver>,
    /// True if a rank that has left a call knows that its parent has left the previous call.
    gets_releases: bool,
}

impl Accumulation {
    /// Number of messages that a rank receives: data from its children, and slot releases from its parent.
    fn counts(context: &CallContext, neighbors: &TreeNeighbors) -> [u64; 2] {
        let count = context.chunk_count(context.block_bytes());
        [count * u64::from(neighbors.children_max), count]
    }

    fn new(out: &mut Emitter, neighbors: TreeNeighbors, [data, free]: [u32; 2]) -> Self {
        let context = out.context;
        let count = context.chunk_count(context.block_bytes());
        let row = SlotRow::new(&context, context.block_bytes(), count);
        let numbers = |place: u32| RowNumbers {
            data: data + place * count as u32,
            free,
        };
        let slots = |place: u32| u64::from(place) * row.bytes;
        let children = neighbors.children.len() as u32;
        out.reserve(slots(children));
        let is_between = children > 0 && neighbors.parent.is_some();
        let outbox = out.reserve(if is_between { row.bytes } else { 0 });
        let sender = |(_, place)| RowSender::new(row, numbers(place), slots(place), outbox);
        let receiver = |place| RowReceiver::new(row, numbers(place), slots(place), count);
        Self {
            sender: neighbors.parent.map(sender),
            receivers: (0..children).map(receiver).collect(),
            gets_releases: row.gets_releases(count),
            neighbors,
        }
    }

    /// Adds a chunk of all children, and puts the sum to the parent. At the root, the sum is complete and goes into the
    /// output.
    fn pass(&mut self, out: &mut Emitter, chunk: Chunk) {
        let own = input(chunk.at);
        let (mut sum, to) = match (self.neighbors.parent, &mut self.sender) {
            (Some((parent, _)), Some(sender)) if !self.receivers.is_empty() => {
                (own, sender.next_outbox_place(out, parent))
            }
            (Some(_), _) => (own, own),
            (None, _) => (own, output(chunk.at)),
        };
        for (child, receiver) in self.neighbors.children.iter().zip(&mut self.receivers) {
            let received = receiver.take(out, *child);
            match (sum == to, self.neighbors.parent) {
                (true, _) => out.fold(received, to, chunk.bytes),
                (false, None) => out.merge(received, own, to, chunk.bytes),
                (false, Some(_)) => out.combine(received, own, to, chunk.bytes),
            }
            sum = to;
            receiver.release(out, *child);
        }
        match (self.neighbors.parent, &mut self.sender) {
            (Some((parent, _)), Some(sender)) => sender.put(out, parent, sum, chunk.bytes),
            _ => out.complete(to, chunk.bytes),
        }
    }
}

/// Emits a reduce.
pub(super) fn reduce(out: &mut Emitter, neighbors: TreeNeighbors) -> Result<(), TooManyMessages> {
    let context = out.context;
    let numbers = out.number(Accumulation::counts(&context, &neighbors))?;
    let mut up = Accumulation::new(out, neighbors, numbers);
    if let Some((parent, _)) = up.neighbors.parent
        && !up.gets_releases
    {
        out.claim(parent);
    }
    for chunk in context.cut(0..context.block_bytes()) {
        up.pass(out, chunk);
    }
    if !up.gets_releases {
        up.neighbors
            .children
            .iter()
            .for_each(|child| out.grant(*child));
    }
    Ok(())
}

/// Emits an all-reduce: up the binomial tree and down again. Results come down while later chunks go up. Data that has
/// arrived from a child proves that the child has entered the call and no longer needs its input. So results go
/// directly into outputs, even in place.
pub(super) fn all_reduce(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let neighbors = TreeNeighbors::binomial(&context);
    let count = context.chunk_count(context.block_bytes());
    let [ups, free] = Accumulation::counts(&context, &neighbors);
    let [ups, free, data] = out.number([ups, free, count])?;
    let mut up = Accumulation::new(out, neighbors.clone(), [ups, free]);
    let down = Distribution { neighbors, data };
    let chunks: Vec<Chunk> = context.cut(0..context.block_bytes()).collect();
    // The result of a chunk arrives after this number of later chunks has been sent up.
    let lag = match down.neighbors.parent {
        None => 0,
        Some(_) => 2 * down.neighbors.depth as usize,
    };
    for turn in 0..chunks.len() + lag {
        if let Some(chunk) = chunks.get(turn) {
            up.pass(out, *chunk);
        }
        let Some(index) = turn.checked_sub(lag) else {
            continue;
        };
        let (chunk, index) = (chunks[index], index as u32);
        if let Some((parent, _)) = down.neighbors.parent {
            out.wait(parent, data + index);
        }
        let place = output(chunk.at);
        down.put(out, index, (place, place), chunk.bytes);
    }
    Ok(())
}

/// Emits a barrier: signals up the binomial tree, and down again.
pub(super) fn barrier(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let neighbors = TreeNeighbors::binomial(&out.context);
    let [up, down] = out.number([u64::from(neighbors.children_max), 1])?;
    for (place, child) in (0..).zip(&neighbors.children) {
        out.wait(*child, up + place);
    }
    if let Some((parent, place)) = neighbors.parent {
        out.signal(parent, up + place);
        out.wait(parent, down);
    }
    let children = neighbors.children.iter().rev();
    children.for_each(|child| out.signal(*child, down));
    Ok(())
}

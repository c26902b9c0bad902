//! Gather and scatter along the binomial tree. Each rank forwards the blocks of all ranks in its subtree, which are in
//! its scratch meanwhile. Counted from the root, the ranks of a subtree are consecutive.
//!
//! When a rank enters the call, its half of the scratch is free. It then signals that it is ready, and peers put to it
//! only after that. If there are few bytes, grants are used instead, which saves the signal's latency. But with a
//! grant, data of the next call may arrive before this call's data has been passed on. So data is first copied
//! elsewhere in the scratch.

use std::iter::Peekable;

use super::emitter::{CallContext, Chunk, Emitter, TooManyMessages, input, output, scratch};
use super::program::Place;
use super::tree_neighbors::TreeNeighbors;

/// The blocks of a rank and then of the other ranks in its subtree.
#[derive(Clone, Copy)]
struct Branch {
    /// Number of the rank, counted from the root.
    from_root: u32,
    ranks: u32,
}

impl Branch {
    fn new(context: &CallContext, rank: u32) -> Self {
        let from_root = CallContext { rank, ..*context }.root_distance();
        Self {
            from_root,
            ranks: TreeNeighbors::subtree_ranks(context.ranks(), from_root),
        }
    }

    /// Number of the branch's first rank.
    fn first(&self, context: &CallContext) -> u32 {
        let rank = context.shape.root;
        CallContext { rank, ..*context }.after(self.from_root)
    }

    /// The chunks in which a branch is sent. None of them contains blocks of both the last rank and rank 0, because the
    /// root's buffer starts with rank 0.
    fn chunks(&self, context: &CallContext) -> impl Iterator<Item = Chunk> + use<> {
        let until_last = self.ranks.min(context.ranks() - self.first(context));
        let (middle, end) = (
            context.bytes_of_blocks(until_last),
            context.bytes_of_blocks(self.ranks),
        );
        context.cut(0..middle).chain(context.cut(middle..end))
    }

    /// The most messages that the branch of one child of a parent can need. `place` is the child's index.
    fn chunks_max(context: &CallContext, place: u32) -> u64 {
        context.chunk_count(context.bytes_of_blocks((1 << place).min(context.ranks()))) + 1
    }

    /// Offset of a byte of the branch in a buffer that contains the blocks of all ranks.
    fn absolute(&self, context: &CallContext, at: u64) -> u64 {
        (context.bytes_of_blocks(self.first(context)) + at)
            % context.bytes_of_blocks(context.ranks())
    }

    /// Offset of a child's branch in this branch.
    fn offset(&self, context: &CallContext, child: &Self) -> u64 {
        context.bytes_of_blocks(child.from_root - self.from_root)
    }
}

/// A rank's neighbours, and locations in its scratch.
struct SubtreeCall {
    neighbors: TreeNeighbors,
    own: Branch,
    is_eager: bool,
    /// Offset in the scratch where the branch's data arrives, the same at all ranks.
    landing: u64,
    /// Offset in the scratch from which the branch's data is passed on.
    image: u64,
}

impl SubtreeCall {
    fn new(out: &mut Emitter) -> Self {
        let context = out.context;
        Self {
            neighbors: TreeNeighbors::binomial(&context),
            own: Branch::new(&context, context.rank),
            is_eager: context.is_eager(context.bytes_of_blocks(context.ranks())),
            landing: 0,
            image: 0,
        }
    }

    /// Allocates scratch for arriving data if `lands`, and for data that is passed on if `passes`.
    fn reserve(&mut self, out: &mut Emitter, lands: bool, passes: bool) {
        let bytes = out.context.bytes_of_blocks(self.own.ranks);
        self.landing = out.reserve(if lands { bytes } else { 0 });
        self.image = match self.is_eager && passes {
            true => out.reserve(bytes),
            false => self.landing,
        };
    }

    fn announce(&self, out: &mut Emitter, peer: u32, ready: u32) {
        if !self.is_eager {
            out.signal(peer, ready);
        }
    }

    /// Waits until data may be put to the peer.
    fn begin(&self, out: &mut Emitter, peer: u32, ready: u32) {
        match self.is_eager {
            true => out.claim(peer),
            false => out.wait(peer, ready),
        }
    }

    /// Gives the peer another grant, because the peer used one in `begin`.
    fn end(&self, out: &mut Emitter, peer: u32) {
        if self.is_eager {
            out.grant(peer);
        }
    }
}

/// Puts a branch to the parent, as soon as the blocks of each chunk have arrived.
struct BranchToParent<C: Iterator<Item = Chunk>> {
    parent: u32,
    message: u32,
    chunks: Peekable<C>,
    /// Offset of the branch in the parent's scratch; `None` if the branch goes into the root's output.
    landing: Option<u64>,
}

impl<C: Iterator<Item = Chunk>> BranchToParent<C> {
    /// Puts all chunks that lie within the branch's first `available` bytes.
    fn put(&mut self, out: &mut Emitter, call: &SubtreeCall, available: u64) {
        let context = out.context;
        let is_whole = |chunk: &Chunk| chunk.at + chunk.bytes <= available;
        while let Some(chunk) = self.chunks.next_if(is_whole) {
            let from = match call.neighbors.children.is_empty() {
                true => input(chunk.at),
                false => scratch(call.image + chunk.at),
            };
            let to = match self.landing {
                Some(landing) => scratch(landing + chunk.at),
                None => output(call.own.absolute(&context, chunk.at)),
            };
            out.put(self.parent, self.message, (from, to), chunk.bytes);
            self.message += 1;
        }
    }
}

/// Emits a gather.
pub(super) fn gather(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let mut call = SubtreeCall::new(out);
    let before = |place: u32| {
        (0..place)
            .map(|place| Branch::chunks_max(&context, place))
            .sum()
    };
    let [data, ready] = out.number([before(call.neighbors.children_max), 1])?;
    let is_leaf = call.neighbors.children.is_empty();
    let lands = match call.neighbors.parent {
        None => call.is_eager,
        Some(_) => !is_leaf,
    };
    call.reserve(out, lands, call.neighbors.parent.is_some());
    for child in &call.neighbors.children {
        call.announce(out, *child, ready);
    }
    let mut upward = call.neighbors.parent.map(|(parent, place)| {
        let branch = Branch::new(&context, parent);
        let is_direct = branch.from_root == 0 && !call.is_eager;
        BranchToParent {
            parent,
            message: data + before(place) as u32,
            chunks: call.own.chunks(&context).peekable(),
            landing: (!is_direct).then(|| branch.offset(&context, &call.own)),
        }
    });
    match &mut upward {
        None => out.keep(
            0,
            context.bytes_of_blocks(context.rank),
            context.block_bytes(),
        ),
        Some(upward) => {
            if !is_leaf {
                out.copy(input(0), scratch(call.image), context.block_bytes());
            }
            call.begin(out, upward.parent, ready);
            upward.put(out, &call, context.block_bytes());
        }
    }
    for (place, child) in (0..).zip(&call.neighbors.children) {
        let branch = Branch::new(&context, *child);
        let first = data + before(place) as u32;
        for (message, chunk) in (first..).zip(branch.chunks(&context)) {
            out.wait(*child, message);
            let at = call.own.offset(&context, &branch) + chunk.at;
            if call.is_eager {
                let to = match call.neighbors.parent {
                    None => output(branch.absolute(&context, chunk.at)),
                    Some(_) => scratch(call.image + at),
                };
                out.copy(scratch(call.landing + at), to, chunk.bytes);
            }
            if let Some(upward) = &mut upward {
                upward.put(out, &call, at + chunk.bytes);
            }
        }
        call.end(out, *child);
    }
    Ok(())
}

/// Puts a branch to a child.
struct BranchToChild<C: Iterator<Item = Chunk>> {
    child: u32,
    /// Number, at this rank, of the child's signal that it is ready.
    ready: u32,
    message: u32,
    has_begun: bool,
    branch: Branch,
    chunks: Peekable<C>,
}

impl<C: Iterator<Item = Chunk>> BranchToChild<C> {
    /// Puts all chunks that lie within the first `available` bytes of this rank's branch.
    fn put(&mut self, out: &mut Emitter, call: &SubtreeCall, available: u64) {
        let context = out.context;
        let offset = call.own.offset(&context, &self.branch);
        let is_whole = |chunk: &Chunk| offset + chunk.at + chunk.bytes <= available;
        while let Some(chunk) = self.chunks.next_if(is_whole) {
            if !self.has_begun {
                call.begin(out, self.child, self.ready);
                self.has_begun = true;
            }
            let from: Place = match call.neighbors.parent {
                None => input(self.branch.absolute(&context, chunk.at)),
                Some(_) => scratch(call.image + offset + chunk.at),
            };
            let to = match self.branch.ranks == 1 && !call.is_eager {
                true => output(chunk.at),
                false => scratch(chunk.at),
            };
            out.put(self.child, self.message, (from, to), chunk.bytes);
            self.message += 1;
        }
    }
}

/// Emits a scatter.
pub(super) fn scatter(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let mut call = SubtreeCall::new(out);
    let most = Branch::chunks_max(&context, call.neighbors.children_max);
    let [data, ready] = out.number([most, u64::from(call.neighbors.children_max)])?;
    let is_leaf = call.neighbors.children.is_empty();
    let lands = call.neighbors.parent.is_some() && (call.is_eager || !is_leaf);
    call.reserve(out, lands, !is_leaf);
    let downward = |(place, child): (u32, &u32)| {
        let branch = Branch::new(&context, *child);
        BranchToChild {
            child: *child,
            ready: ready + place,
            message: data,
            has_begun: false,
            branch,
            chunks: branch.chunks(&context).peekable(),
        }
    };
    // The child with the largest subtree comes first.
    let mut downward: Vec<_> = (0..).zip(&call.neighbors.children).map(downward).collect();
    downward.reverse();
    let Some((parent, place)) = call.neighbors.parent else {
        let all = context.bytes_of_blocks(context.ranks());
        downward
            .iter_mut()
            .for_each(|places| places.put(out, &call, all));
        out.keep(
            context.bytes_of_blocks(context.rank),
            0,
            context.block_bytes(),
        );
        return Ok(());
    };
    call.announce(out, parent, ready + place);
    for (message, chunk) in (data..).zip(call.own.chunks(&context)) {
        out.wait(parent, message);
        if call.is_eager {
            let own = context
                .block_bytes()
                .saturating_sub(chunk.at)
                .min(chunk.bytes);
            let from = scratch(call.landing + chunk.at);
            let to = scratch(call.image + chunk.at + own);
            out.copy(from, output(chunk.at), own);
            out.copy(from.beyond(own), to, chunk.bytes - own);
        }
        let available = chunk.at + chunk.bytes;
        downward
            .iter_mut()
            .for_each(|places| places.put(out, &call, available));
    }
    if !call.is_eager && !is_leaf {
        out.copy(scratch(call.landing), output(0), context.block_bytes());
    }
    call.end(out, parent);
    Ok(())
}

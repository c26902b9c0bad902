//! Gather and scatter along the binomial tree: each rank passes on the blocks of all ranks below it, which follow it
//! when ranks are counted from the root, and holds them in the scratch meanwhile.
//!
//! A rank that is put to says so first (its half of the scratch is free from the beginning of the call on), unless
//! there are few bytes: then grants save the signal's way. Such bytes are copied out of the way before they are passed
//! on, because a grant may be used while they are.

use std::iter::Peekable;

use super::emitter::{CallSeat, Chunk, Emitter, TooMany, input, output, scratch};
use super::kin::Kin;
use super::program::Place;

/// Blocks of a rank and of all below it, in that order.
#[derive(Clone, Copy)]
struct Branch {
    /// The rank, counted from the root.
    from_root: u32,
    ranks: u32,
}

impl Branch {
    fn of(seat: &CallSeat, rank: u32) -> Self {
        let from_root = CallSeat { rank, ..*seat }.root_distance();
        Self {
            from_root,
            ranks: Kin::below(seat.ranks(), from_root),
        }
    }

    /// The first rank of it.
    fn first(&self, seat: &CallSeat) -> u32 {
        let rank = seat.shape.root;
        CallSeat { rank, ..*seat }.after(self.from_root)
    }

    /// Messages that it goes in: those up to the last rank of all, then those from rank 0 on, because the root's buffer
    /// begins with that.
    fn chunks(&self, seat: &CallSeat) -> impl Iterator<Item = Chunk> + use<> {
        let until_last = self.ranks.min(seat.ranks() - self.first(seat));
        let (middle, end) = (seat.blocks(until_last), seat.blocks(self.ranks));
        seat.cut(0..middle).chain(seat.cut(middle..end))
    }

    /// The most messages that a branch goes in that is at a place among those of its parent.
    fn chunks_max(seat: &CallSeat, place: u32) -> u64 {
        seat.count(seat.blocks((1 << place).min(seat.ranks()))) + 1
    }

    /// Offset of one of its bytes in a buffer with the blocks of all ranks.
    fn absolute(&self, seat: &CallSeat, at: u64) -> u64 {
        (seat.blocks(self.first(seat)) + at) % seat.blocks(seat.ranks())
    }

    /// Offset of a child's branch in this one.
    fn offset(&self, seat: &CallSeat, child: &Self) -> u64 {
        seat.blocks(child.from_root - self.from_root)
    }
}

/// Neighbours and places of one rank.
struct Call {
    kin: Kin,
    own: Branch,
    is_eager: bool,
    /// Offset in the scratch at which the branch lands: the same at all ranks.
    landing: u64,
    /// Offset in the scratch from which it is passed on.
    image: u64,
}

impl Call {
    fn new(out: &mut Emitter) -> Self {
        let seat = out.seat;
        Self {
            kin: Kin::binomial(&seat),
            own: Branch::of(&seat, seat.rank),
            is_eager: seat.is_eager(seat.blocks(seat.ranks())),
            landing: 0,
            image: 0,
        }
    }

    /// Sets aside as much scratch as lands here, and as is passed on.
    fn reserve(&mut self, out: &mut Emitter, lands: bool, passes: bool) {
        let bytes = out.seat.blocks(self.own.ranks);
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

    /// Waits until the peer may be put to.
    fn begin(&self, out: &mut Emitter, peer: u32, ready: u32) {
        match self.is_eager {
            true => out.claim(peer),
            false => out.wait(peer, ready),
        }
    }

    /// Ends what `begin` began, at the peer.
    fn end(&self, out: &mut Emitter, peer: u32) {
        if self.is_eager {
            out.grant(peer);
        }
    }
}

/// The way of a branch up to the parent, chunk by chunk as blocks come.
struct Upward<C: Iterator<Item = Chunk>> {
    parent: u32,
    message: u32,
    chunks: Peekable<C>,
    /// Offset of the branch in the parent's scratch, unless it goes into the root's output.
    landing: Option<u64>,
}

impl<C: Iterator<Item = Chunk>> Upward<C> {
    /// Puts all chunks that are within the first bytes of the branch.
    fn put(&mut self, out: &mut Emitter, call: &Call, available: u64) {
        let seat = out.seat;
        let is_whole = |chunk: &Chunk| chunk.at + chunk.bytes <= available;
        while let Some(chunk) = self.chunks.next_if(is_whole) {
            let from = match call.kin.children.is_empty() {
                true => input(chunk.at),
                false => scratch(call.image + chunk.at),
            };
            let to = match self.landing {
                Some(landing) => scratch(landing + chunk.at),
                None => output(call.own.absolute(&seat, chunk.at)),
            };
            out.put(self.parent, self.message, (from, to), chunk.bytes);
            self.message += 1;
        }
    }
}

/// Emits a gather.
pub(super) fn gather(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let mut call = Call::new(out);
    let before = |place: u32| {
        (0..place)
            .map(|place| Branch::chunks_max(&seat, place))
            .sum()
    };
    let [data, ready] = out.number([before(call.kin.children_max), 1])?;
    let is_leaf = call.kin.children.is_empty();
    let lands = match call.kin.parent {
        None => call.is_eager,
        Some(_) => !is_leaf,
    };
    call.reserve(out, lands, call.kin.parent.is_some());
    for child in &call.kin.children {
        call.announce(out, *child, ready);
    }
    let mut upward = call.kin.parent.map(|(parent, place)| {
        let branch = Branch::of(&seat, parent);
        let is_direct = branch.from_root == 0 && !call.is_eager;
        Upward {
            parent,
            message: data + before(place) as u32,
            chunks: call.own.chunks(&seat).peekable(),
            landing: (!is_direct).then(|| branch.offset(&seat, &call.own)),
        }
    });
    match &mut upward {
        None => out.keep(0, seat.blocks(seat.rank), seat.block()),
        Some(upward) => {
            if !is_leaf {
                out.copy(input(0), scratch(call.image), seat.block());
            }
            call.begin(out, upward.parent, ready);
            upward.put(out, &call, seat.block());
        }
    }
    for (place, child) in (0..).zip(&call.kin.children) {
        let branch = Branch::of(&seat, *child);
        let first = data + before(place) as u32;
        for (message, chunk) in (first..).zip(branch.chunks(&seat)) {
            out.wait(*child, message);
            let at = call.own.offset(&seat, &branch) + chunk.at;
            if call.is_eager {
                let to = match call.kin.parent {
                    None => output(branch.absolute(&seat, chunk.at)),
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

/// The way of a branch down to a child.
struct Downward<C: Iterator<Item = Chunk>> {
    child: u32,
    /// Number of the child's signal here.
    ready: u32,
    message: u32,
    has_begun: bool,
    branch: Branch,
    chunks: Peekable<C>,
}

impl<C: Iterator<Item = Chunk>> Downward<C> {
    /// Puts all chunks that are within the first bytes of this rank's branch.
    fn put(&mut self, out: &mut Emitter, call: &Call, available: u64) {
        let seat = out.seat;
        let offset = call.own.offset(&seat, &self.branch);
        let is_whole = |chunk: &Chunk| offset + chunk.at + chunk.bytes <= available;
        while let Some(chunk) = self.chunks.next_if(is_whole) {
            if !self.has_begun {
                call.begin(out, self.child, self.ready);
                self.has_begun = true;
            }
            let from: Place = match call.kin.parent {
                None => input(self.branch.absolute(&seat, chunk.at)),
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
pub(super) fn scatter(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let mut call = Call::new(out);
    let most = Branch::chunks_max(&seat, call.kin.children_max);
    let [data, ready] = out.number([most, u64::from(call.kin.children_max)])?;
    let is_leaf = call.kin.children.is_empty();
    let lands = call.kin.parent.is_some() && (call.is_eager || !is_leaf);
    call.reserve(out, lands, !is_leaf);
    let downward = |(place, child): (u32, &u32)| {
        let branch = Branch::of(&seat, *child);
        Downward {
            child: *child,
            ready: ready + place,
            message: data,
            has_begun: false,
            branch,
            chunks: branch.chunks(&seat).peekable(),
        }
    };
    // The child with the most below it first.
    let mut downward: Vec<_> = (0..).zip(&call.kin.children).map(downward).collect();
    downward.reverse();
    let Some((parent, place)) = call.kin.parent else {
        let all = seat.blocks(seat.ranks());
        downward.iter_mut().for_each(|way| way.put(out, &call, all));
        out.keep(seat.blocks(seat.rank), 0, seat.block());
        return Ok(());
    };
    call.announce(out, parent, ready + place);
    for (message, chunk) in (data..).zip(call.own.chunks(&seat)) {
        out.wait(parent, message);
        if call.is_eager {
            let own = seat.block().saturating_sub(chunk.at).min(chunk.bytes);
            let from = scratch(call.landing + chunk.at);
            let to = scratch(call.image + chunk.at + own);
            out.copy(from, output(chunk.at), own);
            out.copy(from.beyond(own), to, chunk.bytes - own);
        }
        let available = chunk.at + chunk.bytes;
        downward
            .iter_mut()
            .for_each(|way| way.put(out, &call, available));
    }
    if !call.is_eager && !is_leaf {
        out.copy(scratch(call.landing), output(0), seat.block());
    }
    call.end(out, parent);
    Ok(())
}

//! Collectives in which each rank puts its blocks to those that they are for, and nobody passes anything on.

use super::emitter::{Emitter, TooMany, input, output, scratch};
use super::ring::copy_others;

/// Emits an all-to-all in which at most `lead` peers are put to before the first one's block is awaited.
pub(super) fn all_to_all(out: &mut Emitter, lead: u32) -> Result<(), TooMany> {
    let seat = out.seat;
    let (ranks, chunks) = (seat.ranks(), seat.count(seat.block()));
    let is_eager = seat.is_eager(seat.blocks(ranks));
    // By the rank that puts, and by the rank that is ready.
    let [data, ready] = out.number([chunks * u64::from(ranks), u64::from(ranks)])?;
    let own = seat.blocks(seat.rank);
    // A peer whose block has come has entered the call: of those that are put to late it is known.
    let is_unknown = |step: &u32| u64::from(*step) * 2 <= u64::from(ranks) + u64::from(lead);
    if is_eager {
        out.reserve(seat.blocks(ranks));
    } else {
        let steps = (1..ranks).filter(is_unknown);
        steps.for_each(|step| out.signal(seat.before(step), ready + seat.rank));
    }
    for turn in 1..ranks + lead {
        if turn < ranks {
            let peer = seat.after(turn);
            if !is_eager && is_unknown(&turn) {
                out.wait(peer, ready + peer);
            }
            let first = data + seat.rank * chunks as u32;
            let to = if is_eager { scratch(own) } else { output(own) };
            out.put_range(peer, first, 0..seat.block(), |at| {
                (input(seat.blocks(peer) + at), to.beyond(at))
            });
        }
        if turn == 1 {
            out.keep(own, own, seat.block());
        }
        if turn > lead {
            let peer = seat.before(turn - lead);
            let first = data + peer * chunks as u32;
            out.wait_bytes(peer, first, seat.block());
        }
    }
    if is_eager {
        copy_others(out);
    }
    Ok(())
}

/// A block on its way between two ranks that know nothing of each other: into the scratch by a grant where there are
/// few bytes, otherwise into the output once the receiver has said that it is there.
#[derive(Clone, Copy)]
struct Parcel {
    is_eager: bool,
    /// True where both ranks put to each other: the peer's block of the last call says that it left the one before, so
    /// that its half of the scratch is free without a grant.
    is_mutual: bool,
    /// Number of its first message at the receiver.
    data: u32,
    /// Number of the receiver's signal at the sender.
    ready: u32,
    /// Offset at which it lands in the scratch.
    landing: u64,
    /// Offset in the receiver's output.
    at: u64,
}

impl Parcel {
    fn put(self, out: &mut Emitter, peer: u32, from: u64) {
        match self.is_eager {
            true if self.is_mutual => {}
            true => out.claim(peer),
            false => out.wait(peer, self.ready),
        }
        let to = match self.is_eager {
            true => scratch(self.landing),
            false => output(self.at),
        };
        out.put_range(peer, self.data, 0..out.seat.block(), |at| {
            (input(from + at), to.beyond(at))
        });
    }

    fn announce(self, out: &mut Emitter, peer: u32) {
        if !self.is_eager {
            out.signal(peer, self.ready);
        }
    }

    fn take(self, out: &mut Emitter, peer: u32) {
        for (message, chunk) in (self.data..).zip(out.seat.cut(0..out.seat.block())) {
            out.wait(peer, message);
            if self.is_eager {
                let to = output(self.at + chunk.at);
                out.copy(scratch(self.landing + chunk.at), to, chunk.bytes);
            }
        }
        if self.is_eager && !self.is_mutual {
            out.grant(peer);
        }
    }
}

/// Emits a gather.
pub(super) fn gather(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let (ranks, root, chunks) = (seat.ranks(), seat.shape.root, seat.count(seat.block()));
    let [data, ready] = out.number([chunks * u64::from(ranks), 1])?;
    let is_eager = seat.is_eager(seat.blocks(ranks));
    let parcel = |rank: u32| Parcel {
        is_eager,
        is_mutual: false,
        data: data + rank * chunks as u32,
        ready,
        landing: seat.blocks(rank),
        at: seat.blocks(rank),
    };
    if seat.rank != root {
        parcel(seat.rank).put(out, root, 0);
        return Ok(());
    }
    if is_eager {
        out.reserve(seat.blocks(ranks));
    }
    let peers = || (1..ranks).map(|step| seat.after(step));
    peers().for_each(|peer| parcel(peer).announce(out, peer));
    out.keep(0, seat.blocks(root), seat.block());
    peers().for_each(|peer| parcel(peer).take(out, peer));
    Ok(())
}

/// Emits a scatter.
pub(super) fn scatter(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let (ranks, root, chunks) = (seat.ranks(), seat.shape.root, seat.count(seat.block()));
    let [data, ready] = out.number([chunks, u64::from(ranks)])?;
    let parcel = |rank: u32| Parcel {
        is_eager: seat.is_eager(seat.block()),
        is_mutual: false,
        data,
        ready: ready + rank,
        landing: 0,
        at: 0,
    };
    if seat.rank != root {
        let own = parcel(seat.rank);
        if own.is_eager {
            out.reserve(seat.block());
        }
        own.announce(out, root);
        own.take(out, root);
        return Ok(());
    }
    for peer in (1..ranks).map(|step| seat.after(step)) {
        parcel(peer).put(out, peer, seat.blocks(peer));
    }
    out.keep(seat.blocks(root), 0, seat.block());
    Ok(())
}

/// Emits the sending of one block to a peer, the receiving of one, or both at once. A rank announces its output before
/// it waits for the announcement of the next one, so that a ring does not wait for itself.
pub(super) fn send_recv(out: &mut Emitter) -> Result<(), TooMany> {
    let seat = out.seat;
    let [data, ready] = out.number([seat.count(seat.block()), 1])?;
    let giver = seat.shape.receives_from(seat.rank);
    let taker = seat.shape.sends_to(seat.rank);
    let parcel = Parcel {
        is_eager: seat.is_eager(seat.block()),
        is_mutual: giver == taker,
        data,
        ready,
        landing: 0,
        at: 0,
    };
    if let Some(peer) = giver {
        if parcel.is_eager {
            out.reserve(seat.block());
        }
        parcel.announce(out, peer);
    }
    if let Some(peer) = taker {
        parcel.put(out, peer, 0);
    }
    if let Some(peer) = giver {
        parcel.take(out, peer);
    }
    Ok(())
}

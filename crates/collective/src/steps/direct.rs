//! Collectives in which each rank puts its blocks directly to their targets. No rank forwards data.

use super::emitter::{Emitter, TooManyMessages, input, output, scratch};
use super::ring::copy_others;

/// Emits an all-to-all. In each step, a rank puts to the next peer, then waits for the block of `lead` steps earlier.
pub(super) fn all_to_all(out: &mut Emitter, lead: u32) -> Result<(), TooManyMessages> {
    let context = out.context;
    let (ranks, chunks) = (context.ranks(), context.chunk_count(context.block_bytes()));
    let is_eager = context.is_eager(context.bytes_of_blocks(ranks));
    // The number of a data message follows from the rank that puts it, and the number of a signal from the rank that is
    // ready.
    let [data, ready] = out.number([chunks * u64::from(ranks), u64::from(ranks)])?;
    let own = context.bytes_of_blocks(context.rank);
    // A block from a peer proves that the peer has entered the call. So peers to which a rank puts late need not
    // signal.
    let is_unknown = |step: &u32| u64::from(*step) * 2 <= u64::from(ranks) + u64::from(lead);
    if is_eager {
        out.reserve(context.bytes_of_blocks(ranks));
    } else {
        let steps = (1..ranks).filter(is_unknown);
        steps.for_each(|step| out.signal(context.before(step), ready + context.rank));
    }
    for turn in 1..ranks + lead {
        if turn < ranks {
            let peer = context.after(turn);
            if !is_eager && is_unknown(&turn) {
                out.wait(peer, ready + peer);
            }
            let first = data + context.rank * chunks as u32;
            let to = if is_eager { scratch(own) } else { output(own) };
            out.put_range(peer, first, 0..context.block_bytes(), |at| {
                (input(context.bytes_of_blocks(peer) + at), to.beyond(at))
            });
        }
        if turn == 1 {
            out.keep(own, own, context.block_bytes());
        }
        if turn > lead {
            let peer = context.before(turn - lead);
            let first = data + peer * chunks as u32;
            out.wait_bytes(peer, first, context.block_bytes());
        }
    }
    if is_eager {
        copy_others(out);
    }
    Ok(())
}

/// A block for a rank that may not have entered the call. If it has few bytes, it goes into the scratch under a grant.
/// Otherwise it goes into the output after the receiver has signalled that it is ready.
#[derive(Clone, Copy)]
struct BlockTransfer {
    is_eager: bool,
    /// True if both ranks put to each other. Then the peer's block of call k - 1 proves that the peer has left call
    /// k - 2. So the peer's half of the scratch for call k is free, and no grant is needed.
    is_mutual: bool,
    /// Number of the first data message at the receiver.
    data: u32,
    /// Number of the receiver's signal at the sender.
    ready: u32,
    /// Offset of the block in the receiver's scratch.
    landing: u64,
    /// Offset of the block in the receiver's output.
    at: u64,
}

impl BlockTransfer {
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
        out.put_range(peer, self.data, 0..out.context.block_bytes(), |at| {
            (input(from + at), to.beyond(at))
        });
    }

    fn announce(self, out: &mut Emitter, peer: u32) {
        if !self.is_eager {
            out.signal(peer, self.ready);
        }
    }

    fn take(self, out: &mut Emitter, peer: u32) {
        for (message, chunk) in (self.data..).zip(out.context.cut(0..out.context.block_bytes())) {
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
pub(super) fn gather(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let (ranks, root, chunks) = (
        context.ranks(),
        context.shape.root,
        context.chunk_count(context.block_bytes()),
    );
    let [data, ready] = out.number([chunks * u64::from(ranks), 1])?;
    let is_eager = context.is_eager(context.bytes_of_blocks(ranks));
    let transfer = |rank: u32| BlockTransfer {
        is_eager,
        is_mutual: false,
        data: data + rank * chunks as u32,
        ready,
        landing: context.bytes_of_blocks(rank),
        at: context.bytes_of_blocks(rank),
    };
    if context.rank != root {
        transfer(context.rank).put(out, root, 0);
        return Ok(());
    }
    if is_eager {
        out.reserve(context.bytes_of_blocks(ranks));
    }
    let peers = || (1..ranks).map(|step| context.after(step));
    peers().for_each(|peer| transfer(peer).announce(out, peer));
    out.keep(0, context.bytes_of_blocks(root), context.block_bytes());
    peers().for_each(|peer| transfer(peer).take(out, peer));
    Ok(())
}

/// Emits a scatter.
pub(super) fn scatter(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let (ranks, root, chunks) = (
        context.ranks(),
        context.shape.root,
        context.chunk_count(context.block_bytes()),
    );
    let [data, ready] = out.number([chunks, u64::from(ranks)])?;
    let transfer = |rank: u32| BlockTransfer {
        is_eager: context.is_eager(context.block_bytes()),
        is_mutual: false,
        data,
        ready: ready + rank,
        landing: 0,
        at: 0,
    };
    if context.rank != root {
        let own = transfer(context.rank);
        if own.is_eager {
            out.reserve(context.block_bytes());
        }
        own.announce(out, root);
        own.take(out, root);
        return Ok(());
    }
    for peer in (1..ranks).map(|step| context.after(step)) {
        transfer(peer).put(out, peer, context.bytes_of_blocks(peer));
    }
    out.keep(context.bytes_of_blocks(root), 0, context.block_bytes());
    Ok(())
}

/// Emits sending a block to a peer, receiving a block, or both. A rank signals that it is ready before it waits for
/// another rank's signal, so that a ring does not deadlock.
pub(super) fn send_recv(out: &mut Emitter) -> Result<(), TooManyMessages> {
    let context = out.context;
    let [data, ready] = out.number([context.chunk_count(context.block_bytes()), 1])?;
    let giver = context.shape.receives_from(context.rank);
    let taker = context.shape.sends_to(context.rank);
    let transfer = BlockTransfer {
        is_eager: context.is_eager(context.block_bytes()),
        is_mutual: giver == taker,
        data,
        ready,
        landing: 0,
        at: 0,
    };
    if let Some(peer) = giver {
        if transfer.is_eager {
            out.reserve(context.block_bytes());
        }
        transfer.announce(out, peer);
    }
    if let Some(peer) = taker {
        transfer.put(out, peer, 0);
    }
    if let Some(peer) = giver {
        transfer.take(out, peer);
    }
    Ok(())
}

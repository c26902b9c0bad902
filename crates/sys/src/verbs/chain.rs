//! A list of work requests to submit with one doorbell, each with one or several ranges of local bytes.

use super::abi::{IBV_SEND_INLINE, ibv_send_wr, ibv_sge, ibv_wr_rdma};

/// Maximum work requests per doorbell.
pub(super) const LIST_MAX: usize = 64;

/// Maximum bytes of a work request with several ranges: every device supports this size.
const GATHERED_MAX: u32 = 1 << 30;

/// Index that means no target.
pub(super) const NO_TARGET: usize = usize::MAX;

/// Work requests of one queue pair that were not submitted yet.
pub(super) struct Chain {
    pub(super) pair: usize,
    pub(super) len: usize,
    /// Number of ranges of all work requests.
    pub(super) stretches_len: usize,
    /// Bytes of the last work request.
    pub(super) last_bytes: u32,
    pub(super) requests: Box<[ibv_send_wr; LIST_MAX]>,
    pub(super) stretches: Box<[ibv_sge; LIST_MAX]>,
    /// Indices of the targets, for DC initiators; [`NO_TARGET`] otherwise.
    pub(super) targets: Box<[usize; LIST_MAX]>,
}

impl Chain {
    pub(super) fn new() -> Self {
        Self {
            pair: 0,
            len: 0,
            stretches_len: 0,
            last_bytes: 0,
            requests: Box::new([ibv_send_wr::ZEROED; LIST_MAX]),
            stretches: Box::new([ibv_sge::ZEROED; LIST_MAX]),
            targets: Box::new([NO_TARGET; LIST_MAX]),
        }
    }

    /// Adds a local range to the last work request, if its remote range directly follows that request's remote range.
    /// Kind and key must be equal, and the request must then have at most `most` ranges. An inline request stays inline
    /// up to `inline_bytes_max`.
    #[inline]
    pub(super) fn gather(
        &mut self,
        (opcode, far): (u32, ibv_wr_rdma),
        stretch: ibv_sge,
        (most, inline_bytes_max): (u32, u32),
    ) -> Option<&mut ibv_send_wr> {
        let last = self.requests.get_mut(self.len.checked_sub(1)?)?;
        let bytes = self.last_bytes.checked_add(stretch.length)?;
        if last.opcode != opcode || last.num_sge.unsigned_abs() >= most || bytes > GATHERED_MAX {
            return None;
        }
        // SAFETY: this function is called only for reads and writes, and requests of these kinds have the remote range
        // of a copy.
        let before = unsafe { last.wr.rdma };
        let end = before.remote_addr.wrapping_add(self.last_bytes.into());
        if before.rkey != far.rkey || end != far.remote_addr || self.last_bytes == 0 {
            return None;
        }
        self.stretches[self.stretches_len] = stretch;
        self.stretches_len += 1;
        self.last_bytes = bytes;
        last.num_sge += 1;
        if bytes > inline_bytes_max {
            last.send_flags &= !IBV_SEND_INLINE;
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::{IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
    use super::*;

    fn far(remote_addr: u64, rkey: u32) -> ibv_wr_rdma {
        ibv_wr_rdma { remote_addr, rkey }
    }

    fn stretch(length: u32) -> ibv_sge {
        ibv_sge {
            addr: 7,
            length,
            lkey: 5,
        }
    }

    /// A list with one inline write of 64 bytes to remote address 1000.
    fn one() -> Chain {
        let mut chain = Chain::new();
        (chain.len, chain.stretches_len, chain.last_bytes) = (1, 1, 64);
        let request = &mut chain.requests[0];
        (request.opcode, request.num_sge) = (IBV_WR_RDMA_WRITE, 1);
        (request.wr.rdma, request.send_flags) = (far(1000, 3), IBV_SEND_INLINE);
        chain
    }

    #[test]
    fn ranges_that_continue_at_the_peer_are_merged() {
        let mut chain = one();
        let write = |chain: &mut Chain, at, length| {
            let limits = (3, 100);
            let added = chain.gather((IBV_WR_RDMA_WRITE, far(at, 3)), stretch(length), limits);
            added.map(|request| (request.num_sge, request.send_flags))
        };
        assert_eq!(write(&mut chain, 1064, 16), Some((2, IBV_SEND_INLINE)));
        assert_eq!(write(&mut chain, 1080, 64), Some((3, 0)));
        assert_eq!(
            (chain.len, chain.stretches_len, chain.last_bytes),
            (1, 3, 144)
        );
        assert_eq!(write(&mut chain, 1144, 8), None, "no more than three");
    }

    #[test]
    fn other_ranges_and_kinds_are_not_merged() {
        for (kind, at, key) in [
            (IBV_WR_RDMA_READ, 1064, 3),
            (IBV_WR_RDMA_WRITE, 1065, 3),
            (IBV_WR_RDMA_WRITE, 1000, 3),
            (IBV_WR_RDMA_WRITE, 1064, 4),
        ] {
            let mut chain = one();
            let added = chain.gather((kind, far(at, key)), stretch(8), (16, 0));
            assert!(added.is_none(), "{kind} {at} {key}");
            assert_eq!((chain.stretches_len, chain.requests[0].num_sge), (1, 1));
        }
        let mut huge = one();
        let write = (IBV_WR_RDMA_WRITE, far(1064, 3));
        assert!(huge.gather(write, stretch(GATHERED_MAX), (16, 0)).is_none());
        assert!(Chain::new().gather(write, stretch(8), (16, 0)).is_none());
    }
}

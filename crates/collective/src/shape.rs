//! Number of elements that each rank provides and receives, for a size as defined by nccl-tests.

use crate::{Collective, Dtype};

/// Elements of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The operation.
    pub op: Collective,
    /// Ranks of the group.
    pub ranks: u32,
    /// The root of a rooted operation; 0 otherwise.
    pub root: u32,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Elements of one block, which is the unit that one rank sends to another. For all-reduce, reduce, broadcast and
    /// send-recv-*, a block is all of the data. For the other operations, it is one rank's part. For a barrier, it has
    /// no elements.
    pub block: u64,
}

impl Shape {
    /// A call of size `size_bytes`, rounded down to whole elements per rank. The size is that of one rank for
    /// all-reduce, reduce, broadcast and send-recv-*, and the total for the other operations.
    pub fn from_size(
        (op, root): (Collective, u32),
        ranks: u32,
        dtype: Dtype,
        size_bytes: u64,
    ) -> Self {
        let elements = size_bytes / dtype.bytes();
        let block = match op {
            Collective::Barrier => 0,
            _ if Self::is_total(op) => elements / u64::from(ranks.max(1)),
            _ => elements,
        };
        Self {
            op,
            ranks,
            root,
            dtype,
            block,
        }
    }

    /// Whether an operation's size is the total over all ranks.
    pub fn is_total(op: Collective) -> bool {
        matches!(
            op,
            Collective::ReduceScatter
                | Collective::AllGather
                | Collective::AllToAll
                | Collective::Gather
                | Collective::Scatter
        )
    }

    /// Elements that a rank provides: the length of its input.
    pub fn input(&self, rank: u32) -> u64 {
        let all = self.block * u64::from(self.ranks);
        match self.op {
            Collective::AllReduce | Collective::Reduce | Collective::AllGather => self.block,
            Collective::Gather => self.block,
            Collective::ReduceScatter | Collective::AllToAll => all,
            Collective::Broadcast if rank == self.root => self.block,
            Collective::Scatter if rank == self.root => all,
            Collective::SendRecvPairs | Collective::SendRecvRing
                if self.sends_to(rank).is_some() =>
            {
                self.block
            }
            Collective::Broadcast
            | Collective::Scatter
            | Collective::SendRecvPairs
            | Collective::SendRecvRing
            | Collective::Barrier => 0,
        }
    }

    /// Elements that a rank receives: the length of its output.
    pub fn output(&self, rank: u32) -> u64 {
        let all = self.block * u64::from(self.ranks);
        match self.op {
            Collective::AllReduce | Collective::Broadcast => self.block,
            Collective::ReduceScatter | Collective::Scatter => self.block,
            Collective::AllGather | Collective::AllToAll => all,
            Collective::Reduce if rank == self.root => self.block,
            Collective::Gather if rank == self.root => all,
            Collective::SendRecvPairs | Collective::SendRecvRing
                if self.receives_from(rank).is_some() =>
            {
                self.block
            }
            Collective::Reduce
            | Collective::Gather
            | Collective::SendRecvPairs
            | Collective::SendRecvRing
            | Collective::Barrier => 0,
        }
    }

    /// The rank to which `rank` sends in send-recv-*; `None` for the upper half of pairs. A single rank in a ring sends
    /// to itself.
    pub fn sends_to(&self, rank: u32) -> Option<u32> {
        let half = self.ranks / 2;
        match self.op {
            Collective::SendRecvPairs => (rank < half).then_some(rank + half),
            Collective::SendRecvRing => Some((rank + 1) % self.ranks.max(1)),
            _ => None,
        }
    }

    /// The rank from which `rank` receives in send-recv-*; `None` for the lower half of pairs.
    pub fn receives_from(&self, rank: u32) -> Option<u32> {
        let half = self.ranks / 2;
        match self.op {
            Collective::SendRecvPairs => (half..2 * half).contains(&rank).then(|| rank - half),
            Collective::SendRecvRing => Some(rank.checked_sub(1).unwrap_or(self.ranks.max(1) - 1)),
            _ => None,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> u64 {
        self.block * self.dtype.bytes()
    }

    /// Bytes that a rank provides.
    pub fn input_bytes(&self, rank: u32) -> u64 {
        self.input(rank) * self.dtype.bytes()
    }

    /// Bytes that a rank receives.
    pub fn output_bytes(&self, rank: u32) -> u64 {
        self.output(rank) * self.dtype.bytes()
    }

    /// The size for computing algorithm bandwidth: that of one rank or the total, after rounding to whole elements.
    pub fn size_bytes(&self) -> u64 {
        match Self::is_total(self.op) {
            true => self.block_bytes() * u64::from(self.ranks),
            false => self.block_bytes(),
        }
    }
}

//! Names of algorithms, and the operations that each one supports.

use tonnage_units::{Error, Result};

use crate::Collective;

tonnage_units::names! {
    /// The pattern in which the ranks of a collective exchange messages.
    pub enum Algorithm: "algorithm" {
        /// Each rank sends only to the next rank, one part of the data at a time.
        Ring = "ring",
        /// Pairs exchange halves of the data, then quarters, at decreasing distance. An all-reduce then exchanges the
        /// results in the opposite order.
        HalvingDoubling = "halving-doubling",
        /// Pairs exchange all data that they hold, at twice the distance in each round.
        RecursiveDoubling = "recursive-doubling",
        /// A binomial tree.
        Tree = "tree",
        /// In each step, each rank sends to one peer and receives from one, until all peers are done.
        Pairwise = "pairwise",
        /// Each rank puts to one peer per round, at twice the distance of the round before. N ranks need log2(N)
        /// rounds, rounded up. For a barrier, this is the dissemination algorithm.
        Bruck = "bruck",
        /// One message for each pair of ranks, all at once.
        Linear = "linear",
    }
}

/// Algorithms that support an operation, the most common first.
pub fn algorithms(op: Collective) -> &'static [Algorithm] {
    use Algorithm::{Bruck, HalvingDoubling, Linear, Pairwise, RecursiveDoubling, Ring, Tree};
    match op {
        Collective::AllReduce => &[Ring, HalvingDoubling, RecursiveDoubling, Tree],
        Collective::ReduceScatter => &[Ring, Pairwise, HalvingDoubling],
        Collective::AllGather => &[Ring, Bruck, RecursiveDoubling],
        Collective::AllToAll => &[Pairwise, Bruck, Linear],
        Collective::Broadcast | Collective::Reduce => &[Tree, Ring],
        Collective::Gather | Collective::Scatter => &[Linear, Tree],
        Collective::Barrier => &[Bruck, Tree],
        Collective::SendRecvPairs | Collective::SendRecvRing => &[Linear],
    }
}

/// Checks that an operation can work in place. This is the same for all backends.
///
/// # Errors
/// `Usage` for `send-recv-ring`: each rank receives other elements than it sends, so one buffer cannot hold both.
pub fn check_in_place(op: Collective, in_place: bool) -> Result<()> {
    if in_place && op == Collective::SendRecvRing {
        return Err(Error::Usage(format!(
            "{op} cannot work in place: leave out --in-place, or use --op send-recv-pairs"
        )));
    }
    Ok(())
}

/// Checks that an algorithm supports an operation.
///
/// # Errors
/// `Usage`. If the algorithm does not support the operation, the error lists the algorithms that do. If only the
/// in-place call is unsupported, the error names an algorithm that supports it.
pub fn check(op: Collective, algorithm: Algorithm, in_place: bool) -> Result<()> {
    if !algorithms(op).contains(&algorithm) {
        let names: Vec<_> = algorithms(op).iter().map(|one| one.name()).collect();
        return Err(Error::Usage(format!(
            "algorithm {algorithm} does not support {op}: choose one of {}",
            names.join(", ")
        )));
    }
    check_in_place(op, in_place)?;
    // Arriving data would overwrite data that has not been put yet. Only bruck copies the input before it puts data.
    if in_place && op == Collective::AllToAll && algorithm != Algorithm::Bruck {
        return Err(Error::Usage(format!(
            "{op} with algorithm {algorithm} cannot work in place: use --algorithm bruck, or leave out --in-place"
        )));
    }
    Ok(())
}

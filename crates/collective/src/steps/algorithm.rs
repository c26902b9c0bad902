//! Names of algorithms, and the operations that each one supports.

use tonnage_units::{Error, Result};

use crate::Collective;

tonnage_units::names! {
    /// The pattern in which the ranks of a collective exchange messages.
    pub enum Algorithm: "algorithm" {
        /// Each rank puts only to the next one, one part of the data at a time.
        Ring = "ring",
        /// Halves of the data, then quarters, between ranks at decreasing distance, and back.
        HalvingDoubling = "halving-doubling",
        /// All data known so far, between ranks at twice the distance in each round.
        RecursiveDoubling = "recursive-doubling",
        /// A binomial tree.
        Tree = "tree",
        /// In each step one peer to put to and one to receive from, until all have been used.
        Pairwise = "pairwise",
        /// As many rounds as the number of ranks has binary digits, at twice the distance in each; for a barrier, the
        /// dissemination algorithm.
        Bruck = "bruck",
        /// One message for each pair, all at once.
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
/// `Usage` for the ring: each rank receives other elements than it sends, so one buffer cannot hold both.
pub fn check_in_place(op: Collective, in_place: bool) -> Result<()> {
    if in_place && op == Collective::SendRecvRing {
        return Err(Error::Usage(format!(
            "{op} cannot work in place: leave --in-place off, or use --op send-recv-pairs"
        )));
    }
    Ok(())
}

/// Checks that an algorithm supports an operation.
///
/// # Errors
/// `Usage`. If the algorithm does not support the operation, the error lists those that do. If it only fails to support
/// it in place, the error names one that does.
pub fn check(op: Collective, algorithm: Algorithm, in_place: bool) -> Result<()> {
    if !algorithms(op).contains(&algorithm) {
        let names: Vec<_> = algorithms(op).iter().map(|one| one.name()).collect();
        return Err(Error::Usage(format!(
            "algorithm {algorithm} does not support {op}: choose one of {}",
            names.join(", ")
        )));
    }
    check_in_place(op, in_place)?;
    // Arriving data would overwrite data that has not been put yet. Only bruck first copies the input before it puts
    // data.
    if in_place && op == Collective::AllToAll && algorithm != Algorithm::Bruck {
        return Err(Error::Usage(format!(
            "{op} by {algorithm} cannot work in place: choose the algorithm bruck, or leave --in-place off"
        )));
    }
    Ok(())
}

//! Algorithms, and the operations that each has a form for.

use tonnage_units::{Error, Result};

use crate::Collective;

tonnage_units::names! {
    /// Pattern in which the ranks of a collective exchange messages.
    pub enum Algorithm: "algorithm" {
        /// Each rank puts to the next one only, a part of the data at a time.
        Ring = "ring",
        /// Halves of the data, then quarters, between ranks ever nearer, and back.
        HalvingDoubling = "halving-doubling",
        /// Everything that is known, between ranks at twice the distance in each round.
        RecursiveDoubling = "recursive-doubling",
        /// A binomial tree.
        Tree = "tree",
        /// A peer to put to and a peer to get from in each step, until all have been met.
        Pairwise = "pairwise",
        /// As many rounds as the number of ranks has binary digits, at twice the distance in each; of the barrier, the
        /// dissemination.
        Bruck = "bruck",
        /// One message for each pair, all at once.
        Linear = "linear",
    }
}

/// Algorithms that have a form for an operation, the most usual first.
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

/// Checks that an operation can work in place, whoever carries it out.
///
/// # Errors
/// `Usage` for the ring, in which each rank gets other elements than it gives at the same time.
pub fn check_in_place(op: Collective, in_place: bool) -> Result<()> {
    if in_place && op == Collective::SendRecvRing {
        return Err(Error::Usage(format!(
            "{op} cannot work in place: leave --in-place off, or use --op send-recv-pairs"
        )));
    }
    Ok(())
}

/// Checks that an algorithm has a form for an operation.
///
/// # Errors
/// `Usage` with the algorithms that have one; with those that work in place, where the form does not.
pub fn check(op: Collective, algorithm: Algorithm, in_place: bool) -> Result<()> {
    if !algorithms(op).contains(&algorithm) {
        let names: Vec<_> = algorithms(op).iter().map(|one| one.name()).collect();
        return Err(Error::Usage(format!(
            "{op} has no form of the algorithm {algorithm}: it has {}",
            names.join(", ")
        )));
    }
    check_in_place(op, in_place)?;
    // What arrives would overwrite what has still to be put; only bruck puts nothing out of the input itself.
    if in_place && op == Collective::AllToAll && algorithm != Algorithm::Bruck {
        return Err(Error::Usage(format!(
            "{op} by {algorithm} cannot work in place: choose the algorithm bruck, or leave --in-place off"
        )));
    }
    Ok(())
}

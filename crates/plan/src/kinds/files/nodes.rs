//! Reading from another node: how many ranks that is, by IOR's rule, once it is known which ranks share a host.
//!
//! Before the ranks have joined no rank knows it for all: a launcher tells each only how many ranks its own host has,
//! and from unequal hosts unequal plans would follow.

use super::names::ReadShift;
use super::options::FileJob;
use crate::refuse::usage;
use tonnage_units::Result;

/// Returns the number of ranks in so many nodes; `None` where that comes back to the rank itself.
pub(super) fn behind(nodes: u64, ranks_of_node: u32, ranks: u32) -> Option<u32> {
    let ranks = u64::from(ranks.max(1));
    // Both factors are below 2^32.
    let shift = (nodes % ranks) * (u64::from(ranks_of_node) % ranks) % ranks;
    u32::try_from(shift).ok().filter(|&shift| shift > 0)
}

impl FileJob {
    /// Returns whether the job counts in nodes how far to read behind.
    pub(super) fn has_nodes(&self) -> bool {
        matches!(self.work.read_shift, Some(ReadShift::Nodes(_)))
    }

    /// Turns nodes into ranks.
    ///
    /// # Errors
    /// `Usage` where that comes back to a rank's own data.
    pub(super) fn nodes_to_ranks(&mut self, ranks_of_node: u32, ranks: u32) -> Result<()> {
        let Some(ReadShift::Nodes(nodes)) = self.work.read_shift else {
            return Ok(());
        };
        match behind(nodes, ranks_of_node, ranks) {
            Some(shift) => {
                self.work.read_shift = Some(ReadShift::Ranks(shift.into()));
                Ok(())
            }
            None => usage(format!(
                "read-shift {} comes back to a rank's own data, for {ranks} ranks with {ranks_of_node} to a step are \
                 round by then: write read-shift node, or start more ranks",
                ReadShift::Nodes(nodes)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_behind_are_ranks_behind() {
        assert_eq!(behind(1, 1, 2), Some(1));
        assert_eq!(behind(1, 4, 8), Some(4));
        assert_eq!(behind(2, 4, 12), Some(8));
        assert_eq!(behind(5, 4, 16), Some(4));
        assert_eq!(behind(2, 4, 8), None);
        assert_eq!(behind(1, 1, 1), None);
        assert_eq!(behind(u64::MAX, u32::MAX, u32::MAX), None);
    }
}

//! Reading from another node: how many ranks that is, by IOR's rule, once it is known which ranks share a host.
//!
//! Before the ranks have joined no rank knows it for all: a launcher tells each only how many ranks its own host has, and
//! from unequal hosts unequal plans would follow.

use super::{FileJob, ReadShift, usage};
use tonnage_units::Result;

/// Ranks that one node is taken to be: those of rank 0's host where rank 1 is there too, else 1, as in IOR. Where all
/// ranks are on one host it is 1 as well, because a whole round would lead back to a rank's own data.
pub(crate) fn ranks_of_node<H: PartialEq>(hosts: &[H]) -> u32 {
    let Some(first) = hosts.first() else {
        return 1;
    };
    let beside = hosts.iter().filter(|host| *host == first).count();
    if beside == hosts.len() || hosts.get(1) != Some(first) {
        return 1;
    }
    u32::try_from(beside).unwrap_or(u32::MAX)
}

/// Returns the number of ranks in so many nodes; `None` where that comes back to the rank itself.
pub(super) fn behind(nodes: u64, ranks_of_node: u32, ranks: u32) -> Option<u32> {
    let ranks = u64::from(ranks.max(1));
    // Both factors are below 2^32.
    let shift = (nodes % ranks) * (u64::from(ranks_of_node) % ranks) % ranks;
    u32::try_from(shift).ok().filter(|&shift| shift > 0)
}

impl FileJob {
    /// Returns whether the job counts in nodes how far to read behind.
    pub(crate) fn counts_nodes(&self) -> bool {
        matches!(self.work.read_shift, Some(ReadShift::Nodes(_)))
    }

    /// Turns nodes into ranks.
    ///
    /// # Errors
    /// `Usage` where that comes back to a rank's own data.
    pub(crate) fn resolve_nodes(&mut self, ranks_of_node: u32, ranks: u32) -> Result<()> {
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
    fn a_node_is_as_many_ranks_as_in_ior() {
        for (hosts, expected) in [
            ("", 1),
            ("a", 1),
            ("aaaa", 1),
            ("aabb", 2),
            // Hosts with unequal numbers: that of rank 0 counts, for all ranks alike.
            ("aaab", 3),
            ("abbb", 1),
            // One after the other.
            ("abab", 1),
        ] {
            let hosts: Vec<char> = hosts.chars().collect();
            assert_eq!(ranks_of_node(&hosts), expected, "{hosts:?}");
        }
    }

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

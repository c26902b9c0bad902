//! Rails: the devices of a rank, and how operations are shared among them.

use std::ops::Range;

use crate::Peer;

tonnage_units::names! {
    /// Use of the devices of a rank.
    pub enum Rails: "rails" {
        /// A worker has one device; the workers of a host take them in turn.
        Single = "single",
        /// Each operation is cut into equal parts, one for each device.
        Stripe = "stripe",
        /// All operations towards a peer take one device: the place (peer + rank) mod devices in the list of either
        /// end.
        RoundRobin = "round-robin",
    }
}

impl Rails {
    /// Value where nothing was asked for.
    pub fn single() -> Self {
        Self::Single
    }

    /// Returns whether a worker has one device.
    pub fn is_single(&self) -> bool {
        *self == Self::Single
    }

    /// Places, among `devices`, of those that carry what is between a rank and its peer. Both ends find the same.
    pub fn of_peer(self, rank: Peer, peer: Peer, devices: usize) -> Range<usize> {
        match self {
            Self::RoundRobin => {
                let at = (u64::from(rank) + u64::from(peer)) as usize % devices.max(1);
                at..at + 1
            }
            Self::Single | Self::Stripe => 0..devices,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_flow_find_the_same_rail() {
        for devices in 1..5 {
            for (rank, peer) in (0..6).flat_map(|rank| (0..6).map(move |peer| (rank, peer))) {
                let one = Rails::RoundRobin.of_peer(rank, peer, devices);
                assert_eq!(one, Rails::RoundRobin.of_peer(peer, rank, devices));
                assert!(one.len() == 1 && one.end <= devices);
                assert_eq!(Rails::Stripe.of_peer(rank, peer, devices), 0..devices);
            }
        }
        // Three targets of rank 0 over four rails use three of them.
        let used = [1, 2, 3].map(|peer| Rails::RoundRobin.of_peer(0, peer, 4).start);
        assert_eq!(used, [1, 2, 3]);
    }
}

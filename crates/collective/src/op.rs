//! Operations that all ranks of a group call together.

use serde::de::{Deserialize, Deserializer, Error};

tonnage_units::names! {
    /// Operation that all ranks of a group call together.
    pub enum Collective: "op" {
        /// Every rank gets the reduction of all inputs.
        AllReduce = "all-reduce",
        /// Rank i gets the i-th part of the reduction of all inputs.
        ReduceScatter = "reduce-scatter",
        /// Every rank gets all inputs, in rank order.
        AllGather = "all-gather",
        /// Rank i gets the i-th part of each rank's input, in rank order.
        AllToAll = "all-to-all",
        /// Every rank gets the root's input.
        Broadcast = "broadcast",
        /// The root gets the reduction of all inputs.
        Reduce = "reduce",
        /// The root gets all inputs, in rank order.
        Gather = "gather",
        /// Rank i gets the i-th part of the root's input.
        Scatter = "scatter",
        /// No rank leaves before all have entered.
        Barrier = "barrier",
        /// Rank i of the lower half sends to rank i + N/2, one way.
        SendRecvPairs = "send-recv-pairs",
        /// Each rank sends to the next one and receives from the previous one, at the same time.
        SendRecvRing = "send-recv-ring",
    }
}

impl Collective {
    /// Reads an operation's name from a record. In old records, `send-recv` means pairs, because there was no ring.
    ///
    /// # Errors
    /// If no version of the program has used the name.
    pub fn deserialize_recorded<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match name.as_str() {
            "send-recv" => Ok(Self::SendRecvPairs),
            name => name.parse().map_err(D::Error::custom),
        }
    }

    /// Whether the operation has a root.
    pub fn is_rooted(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Whether the operation combines elements.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

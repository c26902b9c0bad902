//! Operations that all ranks of a group call together.

use serde::de::{Deserialize, Deserializer, Error};

tonnage_units::names! {
    /// Operation that all ranks of a group call together.
    pub enum Collective: "op" {
        /// Every rank gets the reduction of what all gave.
        AllReduce = "all-reduce",
        /// Rank i gets the i-th part of the reduction of what all gave.
        ReduceScatter = "reduce-scatter",
        /// Every rank gets what all gave, in their order.
        AllGather = "all-gather",
        /// Rank i gets the i-th part of what each rank gave, in their order.
        AllToAll = "all-to-all",
        /// Every rank gets what the root gave.
        Broadcast = "broadcast",
        /// The root gets the reduction of what all gave.
        Reduce = "reduce",
        /// The root gets what all gave, in their order.
        Gather = "gather",
        /// Rank i gets the i-th part of what the root gave.
        Scatter = "scatter",
        /// Nobody leaves before all have come.
        Barrier = "barrier",
        /// Rank i of the lower half sends to rank i + N/2, one way.
        SendRecvPairs = "send-recv-pairs",
        /// Each rank sends to the next one and receives from the one before, at the same time.
        SendRecvRing = "send-recv-ring",
    }
}

impl Collective {
    /// Reads the name of an operation as records have it: before the ring there was one `send-recv`, in pairs.
    ///
    /// # Errors
    /// A name that no version has given.
    pub fn deserialize_recorded<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match name.as_str() {
            "send-recv" => Ok(Self::SendRecvPairs),
            name => name.parse().map_err(D::Error::custom),
        }
    }

    /// Returns whether a rank is the root of it.
    pub fn is_rooted(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter
        )
    }

    /// Returns whether elements are combined.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

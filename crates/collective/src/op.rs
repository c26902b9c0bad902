//! Operations that all ranks of a group call together.

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
        /// Rank i sends to rank i + N/2.
        SendRecv = "send-recv",
    }
}

impl Collective {
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

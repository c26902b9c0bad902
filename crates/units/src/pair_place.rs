//! Distance between workers that exchange bytes, as `--place` asks for it.

crate::names! {
    /// Sockets of two workers that exchange bytes.
    pub enum PairPlace: "place of pairs" {
        /// Both on one socket.
        Near = "near",
        /// Initiator and target on two sockets.
        Far = "far",
    }
}

impl PairPlace {
    /// The place in plain words, for titles of tables.
    pub fn about(self) -> &'static str {
        match self {
            Self::Near => "peers on one socket",
            Self::Far => "peers on two sockets",
        }
    }
}

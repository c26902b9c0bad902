//! Distance between workers that exchange bytes, as chosen with `--place`.

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
    /// Returns a plain description, for table titles.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Near => "peers on one socket",
            Self::Far => "peers on two sockets",
        }
    }
}

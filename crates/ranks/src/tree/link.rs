//! One connection of the control thread, and what is known of the rank behind it.

use std::time::Instant;

use super::collective::Member;
use super::shape::PeerConnection;
use crate::RankInfo;
use crate::channel::Channel;

/// Direction that a connection leads in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    /// The index among the children.
    Down(usize),
}

/// A connection and what is known of the rank behind it.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    pub(crate) info: RankInfo,
    pub(crate) way: Way,
    /// True when a network lies between.
    pub(crate) is_remote: bool,
    /// False until the peer's control thread has said something, where before that it may still wait for its children.
    pub(crate) armed: bool,
    pub(crate) heard: Instant,
    pub(crate) said: Instant,
    pub(crate) goodbye: bool,
    pub(crate) open: bool,
    /// True while it is waited for that it can be written to.
    pub(crate) writing_watched: bool,
}

impl Link {
    pub(crate) fn new(peer: PeerConnection, way: Way) -> Self {
        let now = Instant::now();
        Self {
            is_remote: peer.channel.is_remote(),
            channel: peer.channel,
            info: peer.info,
            way,
            armed: false,
            heard: now,
            said: now,
            goodbye: false,
            open: true,
            writing_watched: false,
        }
    }

    pub(crate) fn place(&self) -> Member {
        Member {
            rank: self.info.rank,
            host: self.info.host.to_string(),
        }
    }
}

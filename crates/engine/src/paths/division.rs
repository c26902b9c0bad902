//! How operations are divided: the number of paths between a worker and a peer, and the lengths of parts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::Peer;

/// How the operations between a worker and a peer are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Division {
    /// How a rank uses its devices.
    #[serde(skip_serializing_if = "Rails::is_single")]
    pub rails: Rails,
    /// Number of endpoints between a worker and a peer; operations use the endpoints in turn.
    #[serde(skip_serializing_if = "is_one")]
    pub queue_pairs: u32,
    /// Limits on the parts that operations are cut into; absent if operations are not cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Default for Division {
    fn default() -> Self {
        Self::NONE
    }
}

impl Division {
    /// One path, and operations are not cut.
    pub const NONE: Self = Self {
        queue_pairs: 1,
        cut: None,
        rails: Rails::Single,
    };

    /// The most queue pairs between a worker and a peer.
    pub const QUEUE_PAIRS_MAX: u32 = 64;

    /// Whether queue pairs are the only division.
    pub fn divides_only_queue_pairs(&self) -> bool {
        self.cut.is_none() && self.rails.is_single()
    }

    /// Whether operations towards one peer may use several paths, between which nothing is ordered.
    pub fn divides_flows(&self) -> bool {
        self.queue_pairs > 1 || self.cuts()
    }

    /// Whether an operation may be cut into parts.
    pub fn cuts(&self) -> bool {
        self.cut.is_some() || self.rails == Rails::Stripe
    }

    /// How operations are cut on a rank with this many devices.
    pub fn shares(&self, devices: usize) -> RailShares {
        let rails = match self.rails {
            Rails::Stripe => u32::try_from(devices).unwrap_or(u32::MAX).max(1),
            Rails::Single | Rails::RoundRobin => 1,
        };
        let of_share = |cut: Cut| Cut {
            chunks_max: (cut.chunks_max / rails).max(1),
            ..cut
        };
        RailShares {
            rails,
            cut: self.cut.map(of_share),
        }
    }
}

/// How an operation is cut: into one equal share per rail, and each share into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailShares {
    /// Number of rails that an operation is spread over.
    pub rails: u32,
    /// How a share is cut further.
    pub cut: Option<Cut>,
}

impl RailShares {
    /// An operation that is not cut.
    pub const WHOLE: Self = Self {
        rails: 1,
        cut: None,
    };

    /// Bytes of each share; the last may be shorter.
    #[inline]
    pub fn share_bytes(self, len: u32) -> u32 {
        match self.rails {
            1 => len,
            rails => len.div_ceil(rails),
        }
    }

    /// Number of shares of an operation of `len` bytes. Each share uses one rail, starting with the first rail. A short
    /// operation leaves the last rails unused.
    #[inline]
    pub fn count(self, len: u32) -> u32 {
        match self.share_bytes(len) {
            0 => 1,
            share => len.div_ceil(share),
        }
    }

    /// Number of parts of a share of `len` bytes, and the bytes of each part except the last.
    #[inline]
    pub fn parts_of_share(self, len: u32) -> (u32, u32) {
        self.cut.map_or((1, len), |cut| cut.parts(len))
    }

    /// Number of parts of an operation of `len` bytes.
    #[inline]
    pub fn parts(self, len: u32) -> u32 {
        let share = self.share_bytes(len);
        let (parts, _) = self.parts_of_share(share);
        if self.rails == 1 || share == 0 {
            return parts;
        }
        let rest = match len % share {
            0 => 0,
            rest => self.parts_of_share(rest).0,
        };
        len / share * parts + rest
    }

    /// The most parts that an operation can have.
    pub fn parts_max(self) -> u32 {
        let of_share = self.cut.map_or(1, |cut| cut.chunks_max.max(1));
        self.rails.saturating_mul(of_share)
    }
}

/// Limits on the parts of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Bytes of a part, more than 0; the last one may be shorter.
    pub chunk_bytes: u32,
    /// The most parts. An operation that would need more is cut into longer parts.
    pub chunks_max: u32,
}

impl Cut {
    /// Number of parts of an operation of `len` bytes, and the bytes of each part except the last.
    #[inline]
    pub fn parts(self, len: u32) -> (u32, u32) {
        if len <= self.chunk_bytes {
            return (1, len);
        }
        let bytes = self.chunk_bytes.max(len.div_ceil(self.chunks_max.max(1)));
        (len.div_ceil(bytes), bytes)
    }
}

tonnage_units::names! {
    /// How a rank uses its devices.
    pub enum Rails: "rails" {
        /// Each thread uses one device; the threads of a host are assigned to the devices in turn.
        Single = "single",
        /// Each operation is cut into equal parts, one for each device.
        Stripe = "stripe",
        /// All operations with a peer use one device: number (peer + rank) mod N of each end's N devices.
        RoundRobin = "round-robin",
    }
}

impl Rails {
    /// Returns whether a worker has one device.
    pub fn is_single(&self) -> bool {
        *self == Self::Single
    }

    /// Indices of the devices that carry data between a rank and its peer. Both ends compute the same indices.
    pub fn for_peer(self, rank: Peer, peer: Peer, devices: usize) -> Range<usize> {
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
    use proptest::prelude::*;

    use super::*;

    fn shares(devices: usize, cut: Option<(u32, u32)>) -> RailShares {
        let cut = cut.map(|(chunk_bytes, chunks_max)| Cut {
            chunk_bytes,
            chunks_max,
        });
        let division = Division {
            cut,
            rails: Rails::Stripe,
            ..Division::NONE
        };
        division.shares(devices)
    }

    #[test]
    fn an_operation_has_a_share_for_each_rail_while_there_are_bytes() {
        let parts = |devices, cut, len| shares(devices, cut).parts(len);
        assert_eq!(parts(4, None, 1 << 20), 4);
        assert_eq!(
            (parts(3, None, 10), shares(3, None).share_bytes(10)),
            (3, 4)
        );
        assert_eq!(
            (parts(4, None, 5), parts(4, None, 1), parts(4, None, 0)),
            (3, 1, 1)
        );
        let count = |len| shares(8, None).count(len);
        assert_eq!(
            (count(0), count(1), count(9), count(8), count(1 << 20)),
            (1, 1, 5, 8, 8)
        );
        // At most 64 parts for both rails together, so at most 32 for each.
        assert_eq!(parts(2, Some((64 << 10, 64)), 1 << 20), 16);
        assert_eq!(parts(2, Some((64, 64)), 1 << 20), 64);
        assert_eq!(parts(2, Some((64, 64)), 130), 2 + 2);
        assert_eq!(shares(4, Some((64, 2))).parts_max(), 4);
        assert_eq!(Division::NONE.shares(4), RailShares::WHOLE);
    }

    fn parts(len: u32, chunk_bytes: u32, chunks_max: u32) -> (u32, u32) {
        let cut = Cut {
            chunk_bytes,
            chunks_max,
        };
        cut.parts(len)
    }

    #[test]
    fn longer_operations_are_cut_into_chunks_and_longer_parts_past_the_maximum() {
        assert_eq!(parts(64 << 10, 64 << 10, 64), (1, 64 << 10));
        assert_eq!(parts((64 << 10) + 1, 64 << 10, 64), (2, 64 << 10));
        assert_eq!(parts(1 << 20, 64 << 10, 64), (16, 64 << 10));
        assert_eq!(parts(4 << 20, 64 << 10, 64), (64, 64 << 10));
        assert_eq!(parts(8 << 20, 64 << 10, 64), (64, 128 << 10));
        assert_eq!(parts(10, 4, 2), (2, 5));
        assert_eq!(parts(10, 4, 1), (1, 10));
        assert_eq!(parts(0, 4, 1), (1, 0));
    }

    proptest! {
        #[test]
        fn parts_cover_the_operation_and_none_is_empty(
            len in 1u32.., chunk_bytes in 1u32.., chunks_max in 1u32..1000,
        ) {
            let (parts, bytes) = parts(len, chunk_bytes, chunks_max);
            prop_assert!(parts <= chunks_max || len <= chunk_bytes);
            prop_assert!(u64::from(parts) * u64::from(bytes) >= u64::from(len));
            prop_assert!(u64::from(parts - 1) * u64::from(bytes) < u64::from(len));
        }
    }

    #[test]
    fn both_ends_of_a_flow_find_the_same_rail() {
        for devices in 1..5 {
            for (rank, peer) in (0..6).flat_map(|rank| (0..6).map(move |peer| (rank, peer))) {
                let one = Rails::RoundRobin.for_peer(rank, peer, devices);
                assert_eq!(one, Rails::RoundRobin.for_peer(peer, rank, devices));
                assert!(one.len() == 1 && one.end <= devices);
                assert_eq!(Rails::Stripe.for_peer(rank, peer, devices), 0..devices);
            }
        }
        // Rank 0 has three targets over four rails: three rails are used.
        let used = [1, 2, 3].map(|peer| Rails::RoundRobin.for_peer(0, peer, 4).start);
        assert_eq!(used, [1, 2, 3]);
    }
}

//! The sequence of transfers on the data of one rank in a phase. Each of the rank's N threads makes every N-th
//! transfer. Offsets follow from [`FilePattern`] alone, so ranks don't exchange offsets. Computing the n-th transfer
//! takes constant time.

use crate::permutation::{Permutation, mix_bits};
use tonnage_engine::calls::{FileLayout, FileOrder};

/// Offset and direction of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferPlace {
    /// Offset in the file.
    pub offset: u64,
    /// True for a write.
    pub write: bool,
}

/// A contiguous range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePiece {
    /// Offset in the file.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// The contiguous ranges of a file that some transfers cover. Each range is computed from its index, without a list.
#[derive(Debug, Clone, Copy)]
pub struct FilePieces {
    /// Transfers that cover the ranges. `None` for a single range that begins at offset 0.
    places: Option<Sequence>,
    transfers: u64,
    transfers_of_piece: u64,
    transfer_bytes: u64,
}

impl FilePieces {
    /// The first `bytes` bytes of a file.
    pub fn whole(bytes: u64) -> Self {
        Self {
            places: None,
            transfers: 1,
            transfers_of_piece: 1,
            transfer_bytes: bytes,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.transfers * self.transfer_bytes
    }

    /// Number of pieces.
    pub fn count(&self) -> u64 {
        self.transfers.div_ceil(self.transfers_of_piece)
    }

    /// Returns the piece with this index.
    pub fn at(&self, index: u64) -> FilePiece {
        let first = index.saturating_mul(self.transfers_of_piece);
        let transfers = self
            .transfers
            .saturating_sub(first)
            .min(self.transfers_of_piece);
        FilePiece {
            offset: self.places.map_or(0, |places| places.at(first).offset),
            bytes: transfers * self.transfer_bytes,
        }
    }
}

/// Transfers of all ranks in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePattern {
    /// Number of ranks that take part.
    pub ranks: u32,
    /// One shared file, or one per rank.
    pub layout: FileLayout,
    /// Order of a rank's transfers.
    pub order: FileOrder,
    /// Bytes of one rank in one segment: a whole number of transfers.
    pub block_bytes: u64,
    /// Bytes of one transfer.
    pub transfer_bytes: u64,
    /// Number of times that the sequence of all ranks' blocks is repeated.
    pub segments: u64,
    /// Reads per 100 transfers; the others are writes.
    pub read_percent: u32,
    /// Seeds the shuffled order and the choice between reads and writes.
    pub seed: u64,
}

impl FilePattern {
    fn block_transfers(&self) -> u64 {
        self.block_bytes / self.transfer_bytes.max(1)
    }

    /// Number of transfers on the data of one rank.
    fn transfers_of_rank(&self) -> u64 {
        self.block_transfers() * self.segments
    }
}

/// The transfers of one rank's data in one phase.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    part: u64,
    ranks: u64,
    /// Number of transfers on this rank's data.
    own: u64,
    transfer_bytes: u64,
    block_transfers: u64,
    shared: bool,
    shuffle: Option<Permutation>,
    seed: u64,
    /// Transfers per read-write cycle. `reads_of_turns` of them are reads.
    turns: u64,
    reads_of_turns: u64,
}

impl Sequence {
    /// Creates the sequence for the data of rank `part`.
    pub fn new(pattern: &FilePattern, part: u32) -> Self {
        let shared = pattern.layout == FileLayout::Shared;
        let own = pattern.transfers_of_rank();
        let shuffle = (pattern.order == FileOrder::Shuffled).then(|| {
            if shared {
                // One permutation covers the whole file. Ranks take its elements round-robin, so each rank gets the
                // same number.
                Permutation::new(own * u64::from(pattern.ranks), pattern.seed)
            } else {
                Permutation::new(own, mix_bits(pattern.seed) ^ u64::from(part))
            }
        });
        let percent = u64::from(pattern.read_percent);
        let shared_by_both = greatest_common_divisor(percent, 100);
        Self {
            part: u64::from(part),
            ranks: u64::from(pattern.ranks),
            own,
            transfer_bytes: pattern.transfer_bytes,
            block_transfers: pattern.block_transfers(),
            shared,
            shuffle,
            seed: pattern.seed,
            turns: 100 / shared_by_both,
            reads_of_turns: percent / shared_by_both,
        }
    }

    /// Returns the transfer with this index.
    #[inline]
    pub fn at(&self, index: u64) -> TransferPlace {
        let slot = match (&self.shuffle, self.shared) {
            (None, false) => index,
            (None, true) => {
                let (segment, in_block) =
                    (index / self.block_transfers, index % self.block_transfers);
                (segment * self.ranks + self.part) * self.block_transfers + in_block
            }
            (Some(order), false) => order.permute(index),
            (Some(order), true) => order.permute(index * self.ranks + self.part),
        };
        TransferPlace {
            offset: slot * self.transfer_bytes,
            write: self.writes(index),
        }
    }

    /// Returns the pieces of the file that the first `transfers` transfers cover.
    pub fn pieces(&self, transfers: u64) -> FilePieces {
        let everything = self
            .shuffle
            .is_some_and(|_| !self.shared && transfers == self.own);
        if everything {
            return FilePieces::whole(transfers * self.transfer_bytes);
        }
        let transfers_of_piece = match (self.shuffle, self.shared) {
            (Some(_), _) => 1,
            (None, false) => transfers,
            (None, true) => self.block_transfers,
        };
        FilePieces {
            places: Some(*self),
            transfers,
            transfers_of_piece: transfers_of_piece.max(1),
            transfer_bytes: self.transfer_bytes,
        }
    }

    /// Returns whether a transfer is a write. Reads and writes are shuffled within short cycles: for 70 % reads, 7 of
    /// every 10 transfers are reads. Each of N threads makes every N-th transfer, and therefore gets about the same
    /// share of reads.
    #[inline]
    fn writes(&self, index: u64) -> bool {
        match self.reads_of_turns {
            0 => true,
            reads if reads == self.turns => false,
            reads => {
                let order = Permutation::new(self.turns, self.seed ^ mix_bits(index / self.turns));
                order.permute(index % self.turns) >= reads
            }
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Blocks of four transfers of 16 bytes, two segments.
    fn pattern(ranks: u32) -> FilePattern {
        FilePattern {
            ranks,
            layout: FileLayout::Shared,
            order: FileOrder::Sequential,
            block_bytes: 64,
            transfer_bytes: 16,
            segments: 2,
            read_percent: 0,
            seed: 1,
        }
    }

    fn offsets(pattern: &FilePattern, part: u32) -> Vec<u64> {
        let places = Sequence::new(pattern, part);
        let all = 0..pattern.transfers_of_rank();
        all.map(|index| places.at(index).offset).collect()
    }

    #[test]
    fn blocks_of_a_shared_file_alternate_as_iors_do() {
        let pattern = pattern(3);
        // Offset of transfer j of rank p in segment i: i·N·b + p·b + j·t.
        assert_eq!(offsets(&pattern, 1), [64, 80, 96, 112, 256, 272, 288, 304]);
    }

    proptest! {
        #[test]
        fn pieces_are_what_the_transfers_move(
            ranks in 1u32..5,
            part in 0u32..5,
            left_out in 0u64..8,
            shared: bool,
            shuffled: bool,
        ) {
            let mut pattern = pattern(ranks);
            pattern.layout = if shared { FileLayout::Shared } else { FileLayout::PerProcess };
            pattern.order = if shuffled { FileOrder::Shuffled } else { FileOrder::Sequential };
            let transfers = pattern.transfers_of_rank() - left_out;
            let places = Sequence::new(&pattern, part % ranks);
            let pieces = places.pieces(transfers);
            let mut of_pieces: Vec<u64> = (0..pieces.count())
                .map(|index| pieces.at(index))
                .flat_map(|piece| (piece.offset..piece.offset + piece.bytes).step_by(16))
                .collect();
            let mut expected: Vec<u64> = (0..transfers).map(|index| places.at(index).offset).collect();
            prop_assert_eq!(pieces.bytes(), 16 * transfers);
            of_pieces.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(of_pieces, expected);
        }

        #[test]
        fn every_place_is_used_once_and_ranks_have_the_same_number(
            ranks in 1u32..9,
            segments in 1u64..5,
            shared: bool,
            shuffled: bool,
        ) {
            let mut pattern = pattern(ranks);
            pattern.segments = segments;
            pattern.layout = if shared { FileLayout::Shared } else { FileLayout::PerProcess };
            pattern.order = if shuffled { FileOrder::Shuffled } else { FileOrder::Sequential };
            let writers = if shared { ranks } else { 1 };
            let bytes = 16 * pattern.transfers_of_rank() * u64::from(writers);
            let mut seen = HashSet::new();
            for rank in 0..ranks {
                for offset in offsets(&pattern, rank) {
                    prop_assert!(offset < bytes);
                    let file = if shared { 0 } else { rank };
                    prop_assert!(seen.insert((file, offset)));
                }
            }
            prop_assert_eq!(seen.len() as u64, u64::from(ranks) * segments * 4);
        }

        #[test]
        fn mixed_phases_have_their_share_of_reads(percent in 1u32..100, begin in 0u64..1000) {
            let mut pattern = pattern(1);
            pattern.read_percent = percent;
            let places = Sequence::new(&pattern, 0);
            let reads = |range: std::ops::Range<u64>| {
                range.filter(|&index| !places.writes(index)).count() as u32
            };
            let begin = begin / 100 * 100;
            prop_assert_eq!(reads(begin..begin + 100), percent);
            // One of two threads makes every second transfer. It must get its share of the reads, not all of them.
            let even = (0..10_000u64).step_by(2).filter(|&index| !places.writes(index)).count() as f64;
            prop_assert!((even / 5000.0 - f64::from(percent) / 100.0).abs() < 0.05);
        }
    }
}

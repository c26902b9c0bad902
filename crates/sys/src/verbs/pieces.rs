//! Keys of registered memory. Some devices limit the bytes of a registration. Larger memory has several pieces, each
//! with its own registration and key.
//!
//! Pieces overlap: each is two strides long, and begins one stride after the previous one. So a range of at most one
//! stride always lies in one piece, and an operation needs one key.

use std::sync::Arc;

/// Pieces begin at a page boundary.
const PAGE_BYTES: u64 = 4096;

/// Keys of a memory, by offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionKeys {
    first: u32,
    pieces: Option<Pieces>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pieces {
    stride: u64,
    keys: Arc<[u32]>,
}

/// Returns the stride, the distance of the beginnings of two pieces, for this maximum piece size.
pub fn piece_stride(piece_bytes_max: u64) -> u64 {
    (piece_bytes_max / 2 / PAGE_BYTES).max(1) * PAGE_BYTES
}

/// Returns the ranges to register for a memory with this maximum piece size: one range if the memory fits.
pub(super) fn ranges(len: u64, piece_bytes_max: u64) -> impl Iterator<Item = (u64, u64)> {
    let stride = piece_stride(piece_bytes_max);
    let (count, bytes) = if len <= piece_bytes_max {
        (1, len)
    } else {
        (count(len, stride), 2 * stride)
    };
    (0..count).map(move |index| (index * stride, bytes.min(len - index * stride)))
}

/// Returns the number of registrations of a memory, and the sum of their bytes, in which overlaps count twice.
pub(super) fn totals(len: u64, piece_bytes_max: u64) -> (u64, u64) {
    ranges(len, piece_bytes_max).fold((0, 0), |(count, bytes), (_, more)| {
        (count + 1, bytes + more)
    })
}

/// Number of pieces of a memory.
fn count(len: u64, stride: u64) -> u64 {
    len.div_ceil(stride).saturating_sub(1).max(1)
}

impl RegionKeys {
    /// Makes keys of a memory with one key.
    pub fn one(key: u32) -> Self {
        Self {
            first: key,
            pieces: None,
        }
    }

    /// Makes keys of the pieces of a memory of `len` bytes. The pieces begin `stride` bytes apart. `None` if the number
    /// of keys differs from the number of pieces.
    pub fn of_pieces(len: u64, stride: u64, keys: &[u32]) -> Option<Self> {
        let &first = keys.first()?;
        if keys.len() == 1 {
            return Some(Self::one(first));
        }
        let fits = stride > 0 && count(len, stride) == keys.len() as u64;
        let keys = keys.into();
        fits.then_some(Self {
            first,
            pieces: Some(Pieces { stride, keys }),
        })
    }

    /// Returns the stride and all keys; a stride of 0 with a single key.
    pub fn parts(&self) -> (u64, Vec<u32>) {
        match &self.pieces {
            None => (0, vec![self.first]),
            Some(pieces) => (pieces.stride, pieces.keys.to_vec()),
        }
    }

    /// Returns the key for `len` bytes at an offset. `None` if `len` exceeds the stride: one piece need not contain
    /// all these bytes then.
    #[inline]
    pub(super) fn key(&self, offset: u64, len: u32) -> Option<u32> {
        match &self.pieces {
            None => Some(self.first),
            Some(pieces) if u64::from(len) <= pieces.stride => {
                let last = pieces.keys.len() - 1;
                let index = usize::try_from(offset / pieces.stride).unwrap_or(last);
                Some(pieces.keys[index.min(last)])
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_fits_has_one_registration_and_key() {
        for (len, most) in [(1, 8192), (8192, 8192), (1 << 40, u64::MAX)] {
            assert_eq!(ranges(len, most).collect::<Vec<_>>(), [(0, len)]);
        }
        let keys = RegionKeys::of_pieces(1 << 40, 0, &[7]).unwrap();
        assert_eq!(keys, RegionKeys::one(7));
        assert_eq!(keys.key(1 << 39, u32::MAX), Some(7));
    }

    #[test]
    fn every_range_up_to_a_stride_lies_in_the_piece_of_its_key() {
        for most in [8192, 12_288, 65_536] {
            let stride = piece_stride(most);
            for len in [most + 1, most + 4096, 3 * most - 1, 5 * most + 77] {
                let pieces: Vec<_> = ranges(len, most).collect();
                let numbers: Vec<u32> = (0..pieces.len() as u32).collect();
                assert!(pieces.iter().all(|&(_, bytes)| bytes <= most));
                let keys = RegionKeys::of_pieces(len, stride, &numbers).unwrap();
                for offset in (0..len).step_by(509).chain([len - 1]) {
                    for wanted in [1, 4096, stride] {
                        let wanted = wanted.min(len - offset);
                        let key = keys.key(offset, wanted as u32).unwrap();
                        let (from, bytes) = pieces[key as usize];
                        let inside = from <= offset && offset + wanted <= from + bytes;
                        assert!(inside, "{wanted} at {offset} of {len} in {from}+{bytes}");
                    }
                }
                assert_eq!(keys.key(0, stride as u32 + 1), None);
            }
        }
    }

    #[test]
    fn overlaps_are_locked_twice() {
        assert_eq!(totals(1 << 20, u64::MAX), (1, 1 << 20));
        // The pieces are 0 to 8192, 4096 to 12288, 8192 to 16384.
        assert_eq!(totals(16_384, 8192), (3, 24_576));
    }

    #[test]
    fn a_wrong_number_of_keys_is_refused() {
        let made = |len, stride, keys: &[u32]| RegionKeys::of_pieces(len, stride, keys).is_some();
        assert!(made(16_384, 4096, &[1, 2, 3]));
        assert!(!made(16_384, 4096, &[1, 2]));
        assert!(!made(16_384, 4096, &[1, 2, 3, 4]));
        assert!(!made(16_384, 0, &[1, 2, 3]));
        assert!(!made(16_384, 4096, &[]));
    }
}

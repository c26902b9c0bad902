//! The lengths of the parts that a long operation is cut into.

use serde::{Deserialize, Serialize};

/// Bounds of the parts of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Bytes of a part, more than 0; the last one may have fewer.
    pub chunk_bytes: u32,
    /// The most parts; where they do not suffice, parts are longer.
    pub chunks_max: u32,
}

impl Cut {
    /// Number of parts of an operation of so many bytes, and the bytes of each but the last.
    #[inline]
    pub fn parts(self, len: u32) -> (u32, u32) {
        if len <= self.chunk_bytes {
            return (1, len);
        }
        let bytes = self.chunk_bytes.max(len.div_ceil(self.chunks_max.max(1)));
        (len.div_ceil(bytes), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(len: u32, chunk_bytes: u32, chunks_max: u32) -> (u32, u32) {
        let cut = Cut {
            chunk_bytes,
            chunks_max,
        };
        cut.parts(len)
    }

    #[test]
    fn what_is_longer_than_a_chunk_is_cut_into_chunks_as_long_as_there_are_enough() {
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
}

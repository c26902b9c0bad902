//! The HdrHistogram V2 encoding of the one histogram shape that tonnage uses: 1 ns to 60 s, three significant digits.
//!
//! Every HDR library can read and write these bytes; a test compares them with those of the `hdrhistogram` crate. The
//! codec is written here because decoding must survive any input from a peer or a damaged file. It works on a bounded
//! slice, allocates no more memory than its input has bytes, and refuses every other shape. The meaning of the counts
//! is in [`super::histogram`].

use crate::{Error, Result};

/// Smallest value with a bin of its own.
pub const LOW_NS: u64 = 1;
/// Upper end of the range. Histograms count a larger latency as this value.
pub const HIGH_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a bin.
pub const DIGITS: u8 = 3;
/// Number of bins; every index is smaller.
pub const BINS: usize = (BUCKETS + 1) * HALF;
/// Length of the longest possible encoding.
pub const BYTES_MAX: usize = HEADER_BYTES + BINS * VARINT_BYTES_MAX;

/// Three digits need 2 × 10³ steps in a bucket, rounded up to a power of two: 2¹¹.
const SUB_BUCKET_BITS: u32 = 11;
/// Half the steps of a bucket. Every bucket but the first uses only its upper half.
const HALF: usize = 1 << (SUB_BUCKET_BITS - 1);
/// Doublings of 2¹¹ until `HIGH_NS` is covered, plus one.
const BUCKETS: usize = 26;
const COOKIE: u32 = 0x1c84_9303 | 0x10;
const HEADER_BYTES: usize = 40;
const VARINT_BYTES_MAX: usize = 9;
/// Largest accepted total count of a decoded histogram, so that thousands of them can be added without overflow.
const COUNT_MAX: u64 = 1 << 48;

/// The bin of a value; values beyond the range are in the last bin.
pub fn index_of(value_ns: u64) -> usize {
    let in_first = value_ns | ((1 << SUB_BUCKET_BITS) - 1);
    let bucket = u64::BITS - in_first.leading_zeros() - SUB_BUCKET_BITS;
    let index = (bucket as usize) * HALF + (value_ns >> bucket) as usize;
    index.min(BINS - 1)
}

/// The smallest value of a bin.
pub fn value_of(index: usize) -> u64 {
    match (index / HALF).checked_sub(1) {
        None => index as u64,
        Some(bucket) => ((index % HALF + HALF) as u64) << bucket,
    }
}

/// Encodes (bin, count) pairs, which must be in ascending order of bins and without zero counts.
pub fn encode(pairs: impl Iterator<Item = (usize, u64)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(&header(0));
    let mut next = 0;
    for (index, count) in pairs {
        match index - next {
            0 => {}
            1 => put_varint(&mut out, 0),
            gap => put_varint(&mut out, zig_zag(-(gap as i64))),
        }
        put_varint(&mut out, zig_zag(i64::try_from(count).unwrap_or(i64::MAX)));
        next = index + 1;
    }
    if next == 0 {
        // The reference encoder writes one zero count for an empty histogram.
        put_varint(&mut out, 0);
    }
    let header = header(out.len() - HEADER_BYTES);
    out[..HEADER_BYTES].copy_from_slice(&header);
    out
}

/// Decodes to (bin, count) pairs in ascending order of bins, without zero counts.
///
/// # Errors
///   When the bytes are not a V2 histogram of this shape.
pub fn decode(bytes: &[u8]) -> Result<Vec<(usize, u64)>> {
    if bytes.len() > BYTES_MAX {
        return Err(invalid("it is longer than any histogram of this shape"));
    }
    let Some((head, mut payload)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Err(invalid("it is shorter than its header"));
    };
    if head != header(payload.len()) {
        return Err(invalid(
            "its header is not that of 1 ns to 60 s with 3 digits",
        ));
    }
    let mut pairs = Vec::new();
    let mut next: usize = 0;
    let mut total: u64 = 0;
    while !payload.is_empty() {
        let (number, rest) =
            take_varint(payload).ok_or_else(|| invalid("it ends inside a number"))?;
        payload = rest;
        let number = un_zig_zag(number);
        if number < 0 {
            let gap = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
            next = next.saturating_add(gap);
        } else {
            if number > 0 {
                pairs.push((next, number.unsigned_abs()));
            }
            next = next.saturating_add(1);
            total = total.saturating_add(number.unsigned_abs());
        }
        if next > BINS || total > COUNT_MAX {
            return Err(invalid(
                "it has more bins or larger counts than this shape can have",
            ));
        }
    }
    Ok(pairs)
}

fn invalid(why: &str) -> Error {
    Error::Failed(format!("invalid latency histogram: {why}"))
}

/// Cookie, payload length, normalizing offset, digits, low, high, conversion ratio; all big endian.
fn header(payload_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    let length = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    head[0..4].copy_from_slice(&COOKIE.to_be_bytes());
    head[4..8].copy_from_slice(&length.to_be_bytes());
    head[12..16].copy_from_slice(&u32::from(DIGITS).to_be_bytes());
    head[16..24].copy_from_slice(&LOW_NS.to_be_bytes());
    head[24..32].copy_from_slice(&HIGH_NS.to_be_bytes());
    head[32..40].copy_from_slice(&1.0f64.to_be_bytes());
    head
}

fn zig_zag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn un_zig_zag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// LEB128 with at most nine bytes: the ninth carries eight bits.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    for _ in 1..VARINT_BYTES_MAX {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
    out.push(number as u8);
}

fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        let last = at + 1 == VARINT_BYTES_MAX;
        let bits = if last { byte } else { byte & 0x7f };
        number |= u64::from(bits) << (7 * at);
        if last || byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
    use proptest::prelude::*;

    use super::*;

    fn reference() -> Histogram<u64> {
        Histogram::new_with_bounds(LOW_NS, HIGH_NS, DIGITS).unwrap()
    }

    fn pairs_of(histogram: &Histogram<u64>) -> Vec<(usize, u64)> {
        histogram
            .iter_recorded()
            .map(|bin| {
                (
                    index_of(bin.value_iterated_to()),
                    bin.count_since_last_iteration(),
                )
            })
            .collect()
    }

    #[test]
    fn the_shape_is_that_of_the_crate() {
        assert_eq!(reference().distinct_values(), BINS);
        for index in 0..BINS {
            let value = value_of(index);
            assert_eq!(index_of(value), index);
            assert_eq!(reference().lowest_equivalent(value), value, "bin {index}");
        }
        assert_eq!(index_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn an_empty_histogram_is_encoded_as_the_crate_does() {
        let mut theirs = Vec::new();
        V2Serializer::new()
            .serialize(&reference(), &mut theirs)
            .unwrap();
        assert_eq!(encode(std::iter::empty()), theirs);
        assert_eq!(decode(&theirs).unwrap(), []);
    }

    #[test]
    fn the_largest_valid_counts_are_read_and_larger_ones_refused() {
        let last = |index, count| {
            let mut payload = Vec::new();
            put_varint(&mut payload, zig_zag(-(index as i64)));
            put_varint(&mut payload, zig_zag(count));
            decode(&[header(payload.len()).as_slice(), &payload].concat()).ok()
        };
        let most = COUNT_MAX.cast_signed();
        assert_eq!(last(BINS - 1, most), Some(vec![(BINS - 1, COUNT_MAX)]));
        assert_eq!(last(BINS, most), None);
        assert_eq!(last(BINS - 1, most + 1), None);
        let why = |bytes| decode(&vec![0; bytes]).unwrap_err().to_string();
        assert!(why(BYTES_MAX + 1).contains("longer than any"));
        assert!(why(BYTES_MAX).contains("its header"));
    }

    #[test]
    fn numbers_that_would_overflow_are_refused() {
        for number in [i64::MIN, i64::MIN + 1, -(BINS as i64) - 1, i64::MAX] {
            let mut payload = Vec::new();
            put_varint(&mut payload, zig_zag(number));
            let bytes = [header(payload.len()).as_slice(), &payload].concat();
            assert!(decode(&bytes).is_err(), "{number}");
        }
    }

    proptest! {
        #[test]
        fn encodes_byte_for_byte_like_the_crate(values in prop::collection::vec(0..HIGH_NS, 0..300)) {
            let mut histogram = reference();
            for &value in &values {
                histogram.record(value).unwrap();
            }
            let mut theirs = Vec::new();
            V2Serializer::new().serialize(&histogram, &mut theirs).unwrap();
            let ours = encode(pairs_of(&histogram).into_iter());
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(decode(&theirs).unwrap(), pairs_of(&histogram));
            let back: Histogram<u64> = Deserializer::new().deserialize(&mut ours.as_slice()).unwrap();
            prop_assert_eq!(back, histogram);
        }

        #[test]
        fn any_payload_is_decoded_or_refused(payload in prop::collection::vec(any::<u8>(), 0..400)) {
            let bytes = [header(payload.len()).as_slice(), &payload].concat();
            if let Ok(pairs) = decode(&bytes) {
                prop_assert!(pairs.iter().all(|&(index, count)| index < BINS && count <= COUNT_MAX));
                prop_assert!(pairs.is_sorted_by_key(|&(index, _)| index));
                prop_assert_eq!(decode(&encode(pairs.iter().copied())).unwrap(), pairs);
            }
        }

        #[test]
        fn varints_round_trip(number in any::<u64>()) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            prop_assert_eq!(take_varint(&bytes), Some((number, [].as_slice())));
            prop_assert_eq!(un_zig_zag(zig_zag(number.cast_signed())), number.cast_signed());
        }
    }
}

//! Data that is moved without being combined: random words derived from (seed, call, rank, position in the input).
//!
//! Floating-point numbers get an exponent near the middle of their range. So if a library computes with the elements,
//! it finds no NaN, and no subnormal that it might flush to 0.

use super::hash::DataKey;
use crate::Dtype;

/// Writes a rank's input, starting at byte `offset`. `key` is the key of the rank's data.
pub fn write(dtype: Dtype, key: DataKey, offset: u64, out: &mut [u8]) {
    let (clear, set) = exponent_bits(dtype);
    let word = |index| (key.word(index) & !clear | set).to_le_bytes();
    let mut index = offset / 8;
    let skip = (offset % 8) as usize;
    let (head, rest) = out.split_at_mut(((8 - skip) % 8).min(out.len()));
    if !head.is_empty() {
        head.copy_from_slice(&word(index)[skip..skip + head.len()]);
        index += 1;
    }
    let (words, tail) = rest.as_chunks_mut::<8>();
    for (place, slot) in words.iter_mut().enumerate() {
        *slot = word(index + place as u64);
    }
    let count = tail.len();
    tail.copy_from_slice(&word(index + words.len() as u64)[..count]);
}

/// Masks of the bits of a word to clear and to set, so that the two upper bits of each element's exponent become 01.
fn exponent_bits(dtype: Dtype) -> (u64, u64) {
    let upper = match dtype {
        Dtype::Float64 => 1 << 62,
        Dtype::Float32 => 0x4000_0000_4000_0000,
        Dtype::Float16 | Dtype::Bfloat16 => 0x4000_4000_4000_4000,
        Dtype::Int8 | Dtype::Uint8 | Dtype::Int32 | Dtype::Int64 => return (0, 0),
    };
    (upper, upper >> 1)
}

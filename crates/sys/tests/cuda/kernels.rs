//! Compares the kernels of both makers with a second implementation of the pattern, byte by byte. `tonnage_engines`
//! compares them with the host's implementation.

use tonnage_sys::cuda::{DeviceBuffer, PatternKernels, PatternNumbers};

use super::{opened, opened_everywhere};

const SIZE: u64 = 4096;

/// Byte that fills the memory before a kernel writes to it.
const RAW: u8 = 0xee;

pub fn numbers(place: u64) -> PatternNumbers {
    PatternNumbers {
        place,
        base: 0x0123_4567_89ab_cdef,
        inverted: 0,
    }
}

fn byte(numbers: PatternNumbers, at: u64) -> u8 {
    let place = numbers.place.wrapping_add(at);
    let mut x = numbers.base ^ (place / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= (x >> 31) ^ numbers.inverted;
    (x >> (8 * (place % 8))) as u8
}

/// Offsets, lengths and positions in the pattern: every alignment of both ends and of the data, zero and many bytes,
/// and positions that wrap around.
fn cases() -> Vec<(u64, u64, PatternNumbers)> {
    let mut all = Vec::new();
    for offset in 0..8 {
        for len in [0, 1, 5, 8, 9, 16, 23] {
            for place in [0, 3, 4096 + 5, u64::MAX - 6, u64::MAX / 2] {
                all.push((offset, len, numbers(place)));
            }
        }
    }
    let inverted = PatternNumbers {
        inverted: u64::MAX,
        ..numbers(1)
    };
    all.extend([
        (0, SIZE, numbers(8)),
        (3, SIZE - 3, inverted),
        (8, SIZE - 9, inverted),
    ]);
    all
}

#[test]
fn every_byte_of_a_range_is_written_and_none_beside_it() {
    for (_double, context) in opened_everywhere() {
        let kernels = PatternKernels::load(&context).unwrap();
        let buffer = DeviceBuffer::allocate(&context, SIZE).unwrap();
        let mut bytes = vec![0; SIZE as usize];
        for (offset, len, numbers) in cases() {
            buffer.write(0, &vec![RAW; SIZE as usize]).unwrap();
            kernels.fill(&buffer, offset, len, numbers).unwrap();
            buffer.read(0, &mut bytes).unwrap();
            for (at, &found) in (0..).zip(&bytes) {
                let inside = (offset..offset + len).contains(&at);
                let expected = if inside {
                    byte(numbers, at - offset)
                } else {
                    RAW
                };
                assert_eq!(
                    found, expected,
                    "byte {at} of {len} at {offset}: {numbers:?}"
                );
            }
            assert_eq!(kernels.verify(&buffer, offset, len, numbers).unwrap(), None);
        }
    }
}

#[test]
fn the_first_and_the_last_wrong_byte_are_named() {
    for (_double, context) in opened_everywhere() {
        let kernels = PatternKernels::load(&context).unwrap();
        let buffer = DeviceBuffer::allocate(&context, SIZE).unwrap();
        for (offset, len, numbers) in cases() {
            if len == 0 {
                continue;
            }
            kernels.fill(&buffer, offset, len, numbers).unwrap();
            for (first, last) in [(0, 0), (len - 1, len - 1), (0, len - 1), (len / 3, len / 2)] {
                for at in [first, last] {
                    buffer.write(offset + at, &[!byte(numbers, at)]).unwrap();
                }
                let found = kernels.verify(&buffer, offset, len, numbers).unwrap();
                assert_eq!(found, Some((first, last)), "{len} at {offset}: {numbers:?}");
                for at in [first, last] {
                    buffer.write(offset + at, &[byte(numbers, at)]).unwrap();
                }
            }
            // Bytes outside the range are ignored.
            buffer
                .write(offset + len - 1, &[byte(numbers, len - 1)])
                .unwrap();
            assert_eq!(kernels.verify(&buffer, offset, len, numbers).unwrap(), None);
        }
    }
}

#[test]
fn ranges_outside_and_memory_of_another_gpu_are_refused() {
    let (double, context) = opened("");
    let kernels = PatternKernels::load(&context).unwrap();
    let buffer = DeviceBuffer::allocate(&context, SIZE).unwrap();
    assert!(kernels.fill(&buffer, 1, SIZE, numbers(0)).is_err());
    assert!(kernels.verify(&buffer, u64::MAX, 2, numbers(0)).is_err());
    let library = super::loaded(&double).unwrap();
    let second = tonnage_sys::cuda::CudaContext::open(&library, 1).unwrap();
    let far = DeviceBuffer::allocate(&second, SIZE).unwrap();
    assert!(kernels.fill(&far, 0, 8, numbers(0)).is_err());
}

/// The test's own pattern detects a GPU that computes wrong results.
#[test]
fn a_wrong_product_shows() {
    let (_double, context) = opened("wrong 1");
    let kernels = PatternKernels::load(&context).unwrap();
    let buffer = DeviceBuffer::allocate(&context, 64 << 10).unwrap();
    kernels.fill(&buffer, 0, 64 << 10, numbers(0)).unwrap();
    let mut bytes = vec![0; 64 << 10];
    buffer.read(0, &mut bytes).unwrap();
    let right = (0..)
        .zip(&bytes)
        .filter(|&(at, &found)| byte(numbers(0), at) == found);
    assert_ne!(right.count(), 64 << 10);
}

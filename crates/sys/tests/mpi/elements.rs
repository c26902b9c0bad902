//! Elements of each type as bytes: whole numbers that all types represent exactly.

use tonnage_sys::mpi::{MpiReduction, MpiType};

/// Returns the bytes of a whole number as an element of this type.
pub fn bytes(element: MpiType, value: i64) -> Vec<u8> {
    match element {
        MpiType::Float32 => (value as f32).to_ne_bytes().to_vec(),
        MpiType::Float64 => (value as f64).to_ne_bytes().to_vec(),
        MpiType::Float16 => half(value).to_ne_bytes().to_vec(),
        MpiType::Bfloat16 => ((value as f32).to_bits() >> 16)
            .to_ne_bytes()
            .get(..2)
            .unwrap()
            .to_vec(),
        MpiType::Int8 => i8::try_from(value).unwrap().to_ne_bytes().to_vec(),
        MpiType::Uint8 => u8::try_from(value).unwrap().to_ne_bytes().to_vec(),
        MpiType::Int32 => i32::try_from(value).unwrap().to_ne_bytes().to_vec(),
        MpiType::Int64 => value.to_ne_bytes().to_vec(),
    }
}

/// Returns the bits of a whole number as an IEEE 754 number of 16 bits.
fn half(value: i64) -> u16 {
    let magnitude = value.unsigned_abs();
    assert!(magnitude < 2048, "{value} is not exact");
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    let fraction = (magnitude << 10 >> exponent) & 0x3ff;
    let sign = u16::from(value < 0) << 15;
    sign | (exponent as u16 + 15) << 10 | fraction as u16
}

/// Returns a rank's input element, small enough that no type overflows with five ranks.
pub fn given(element: MpiType, reduction: Option<MpiReduction>, rank: u32, index: u64) -> i64 {
    let (rank, index) = (i64::from(rank), index as i64);
    let signed = element != MpiType::Uint8;
    match reduction {
        // Factors are 1 and 2, some negative, so that each rank's factor has an effect. The product of five ranks is at
        // most 2^5.
        Some(MpiReduction::Prod) => {
            let factor = 1 + (rank + index) % 2;
            if signed && (rank * 3 + index) % 4 == 0 {
                -factor
            } else {
                factor
            }
        }
        Some(MpiReduction::Sum) => (rank * 5 + index * 3) % 17 - if signed { 8 } else { 0 },
        _ => (rank * 37 + index * 11) % 101 - if signed { 50 } else { 0 },
    }
}

/// Reduces the elements of all ranks.
pub fn reduced(reduction: MpiReduction, all: impl Iterator<Item = i64>) -> i64 {
    let all: Vec<i64> = all.collect();
    match reduction {
        MpiReduction::Sum => all.iter().sum(),
        MpiReduction::Prod => all.iter().product(),
        MpiReduction::Min => *all.iter().min().unwrap(),
        MpiReduction::Max => *all.iter().max().unwrap(),
        MpiReduction::Avg => panic!("MPI has no avg"),
    }
}

#[test]
fn halves_are_those_of_the_standard() {
    for (value, bits) in [
        (0, 0),
        (1, 0x3c00),
        (-2, 0xc000),
        (3, 0x4200),
        (2047, 0x67ff),
    ] {
        assert_eq!(half(value), bits, "{value}");
    }
}

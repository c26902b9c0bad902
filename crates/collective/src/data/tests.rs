//! Data compared with arithmetic in the type itself, and faults that the comparison must find and name.

mod arithmetic;
mod exact;
mod faults;
mod layout;

use super::Data;
use crate::{Collective, Dtype, Reduction, Shape};

/// Numbers of ranks: small ones, powers of two, odd ones, and ones around the limits of 8-bit types and bfloat16.
const RANKS: [u32; 17] = [
    1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 63, 100, 127, 128, 200, 256, 300,
];

/// An all-reduce of `block` elements.
fn all_reduce(dtype: Dtype, reduction: Reduction, ranks: u32, block: u64, call: u64) -> Data {
    let shape = Shape {
        op: Collective::AllReduce,
        ranks,
        root: 0,
        dtype,
        block,
    };
    Data::new(&shape, reduction, 5, call).unwrap()
}

/// A rank's whole input.
fn input(data: &Data, rank: u32) -> Vec<u8> {
    let mut bytes = vec![0; data.shape().input_bytes(rank) as usize];
    data.input(rank, 0, &mut bytes).unwrap();
    bytes
}

/// A rank's whole output.
fn expected(data: &Data, rank: u32) -> Vec<u8> {
    let mut bytes = vec![0; data.shape().output_bytes(rank) as usize];
    data.expected(rank, 0, &mut bytes).unwrap();
    bytes
}

/// Every type with every reduction.
fn all_kinds() -> impl Iterator<Item = (Dtype, Reduction)> {
    let with_all = |dtype| Reduction::ALL.map(|reduction| (dtype, reduction));
    Dtype::ALL.into_iter().flat_map(with_all)
}

//! Positions of elements: in pieces, in operations that only move data, and in mapped memory.

use proptest::prelude::*;
use tonnage_sys::mapping::{Arena, Pages, Sharing};

use super::super::compare::WrongElements;
use super::super::memory;
use super::{Data, expected, input};
use crate::{Collective, Dtype, Reduction, Shape};

fn shape(op: Collective, ranks: u32, dtype: Dtype, block: u64) -> Shape {
    Shape {
        op,
        ranks,
        root: if op.is_rooted() { ranks - 1 } else { 0 },
        dtype,
        block,
    }
}

/// The expected output of an operation that only moves data, built from the definition of the operation.
fn moved(data: &Data, rank: u32) -> Vec<u8> {
    let shape = data.shape();
    let block = shape.block_bytes() as usize;
    let part = |from: u32, part: u32| input(data, from)[part as usize * block..][..block].to_vec();
    let ranks = 0..shape.ranks;
    match shape.op {
        Collective::AllGather => ranks.flat_map(|from| part(from, 0)).collect(),
        Collective::Gather if rank == shape.root => ranks.flat_map(|from| part(from, 0)).collect(),
        Collective::AllToAll => ranks.flat_map(|from| part(from, rank)).collect(),
        Collective::Broadcast => part(shape.root, 0),
        Collective::Scatter => part(shape.root, rank),
        Collective::SendRecvPairs | Collective::SendRecvRing => match shape.receives_from(rank) {
            Some(from) => part(from, 0),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

#[test]
fn moved_outputs_are_made_of_the_inputs() {
    for op in Collective::ALL.into_iter().filter(|op| !op.reduces()) {
        for ranks in 1..=9 {
            for dtype in Dtype::ALL {
                let data = Data::new(&shape(op, ranks, dtype, 13), Reduction::Sum, 1, 2).unwrap();
                for rank in 0..ranks {
                    assert_eq!(expected(&data, rank), moved(&data, rank), "{op} {ranks}");
                }
            }
        }
    }
}

#[test]
fn moved_floats_are_normal_and_differ_between_ranks() {
    let data = Data::new(
        &shape(Collective::AllGather, 3, Dtype::Float32, 1000),
        Reduction::Sum,
        1,
        2,
    )
    .unwrap();
    let bytes = expected(&data, 0);
    let mut numbers: Vec<_> = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert!(numbers.iter().all(|number| number.is_normal()));
    numbers.sort_by(f32::total_cmp);
    numbers.dedup();
    assert!(numbers.len() > 2990);
}

#[test]
fn a_reduce_scatter_gives_the_parts_of_the_all_reduce() {
    let (ranks, block) = (7, 77);
    let whole = shape(Collective::AllReduce, ranks, Dtype::Int32, 7 * block);
    let whole = Data::new(&whole, Reduction::Sum, 1, 2).unwrap();
    let scattered = shape(Collective::ReduceScatter, ranks, Dtype::Int32, block);
    let scattered = Data::new(&scattered, Reduction::Sum, 1, 2).unwrap();
    let parts: Vec<u8> = (0..ranks)
        .flat_map(|rank| expected(&scattered, rank))
        .collect();
    assert_eq!(parts, expected(&whole, 0));
    assert_eq!(input(&scattered, 3), input(&whole, 3));
}

#[test]
fn ranges_outside_and_partial_elements_are_errors() {
    let reduce = shape(Collective::Reduce, 3, Dtype::Float32, 10);
    let data = Data::new(&reduce, Reduction::Max, 0, 0).unwrap();
    let mut piece = [0; 8];
    assert!(data.input(0, 8, &mut piece).is_ok());
    assert!(data.input(0, 9, &mut piece).is_err());
    assert!(data.input(0, u64::MAX, &mut piece).is_err());
    assert!(data.input(0, 0, &mut piece[..5]).is_err());
    assert!(data.expected(2, 0, &mut piece).is_ok());
    let error = data.expected(1, 0, &mut piece).unwrap_err().to_string();
    assert!(error.contains("output of 0 elements"), "{error}");
    let none = shape(Collective::AllReduce, 0, Dtype::Float32, 10);
    assert!(Data::new(&none, Reduction::Max, 0, 0).is_err());
}

#[test]
fn mapped_memory_holds_the_data_at_the_right_offset() {
    let data = Data::new(
        &shape(Collective::AllGather, 4, Dtype::Bfloat16, 1501),
        Reduction::Sum,
        1,
        2,
    )
    .unwrap();
    let bytes = data.shape().output_bytes(1);
    let arena = Arena::allocate(16_384, Pages::Normal, Sharing::Private, None).unwrap();
    memory::write_poison(&data, 1, &arena, 6).unwrap();
    let compare = || {
        let mut found = WrongElements::default();
        memory::compare_output(&data, 1, &arena, 6, &mut found).unwrap();
        found
    };
    assert_eq!(compare().wrong_elements, 4 * 1501);
    for rank in 0..4 {
        let at = 6 + u64::from(rank) * data.shape().block_bytes();
        memory::write_input(&data, rank, &arena, at).unwrap();
    }
    let found = compare();
    assert_eq!((found.wrong_elements, found.checked_elements), (0, 6004));
    arena.store_byte(6 + 5001, 0).unwrap();
    assert!(compare().describe().contains("rank 1, element 2500: "));
    let mut around = [1; 6];
    arena.read(0, &mut around).unwrap();
    assert_eq!(around, [0; 6]);
    arena.read(6 + bytes, &mut around).unwrap();
    assert_eq!(around, [0; 6]);
    assert!(memory::write_input(&data, 1, &arena, 16_384).is_err());
}

proptest! {
    #[test]
    fn pieces_make_the_same_whole(
        dtype in 0usize..8, op in 0usize..10, cuts in proptest::collection::vec(1u64..400, 1..12),
    ) {
        let (dtype, op) = (Dtype::ALL[dtype], Collective::ALL[op]);
        let data = Data::new(&shape(op, 6, dtype, 1000), Reduction::Prod, 1, 2).unwrap();
        let size = dtype.bytes();
        for (whole, is_input) in [(input(&data, 2), true), (expected(&data, 2), false)] {
            let mut at = 0;
            for cut in &cuts {
                let end = ((at + cut) * size).min(whole.len() as u64);
                let part = &whole[((at * size) as usize).min(end as usize)..end as usize];
                let mut piece = vec![0; part.len()];
                if !part.is_empty() {
                    match is_input {
                        true => data.input(2, at, &mut piece).unwrap(),
                        false => data.expected(2, at, &mut piece).unwrap(),
                    }
                }
                prop_assert_eq!(&piece, part);
                at += cut;
            }
        }
    }
}

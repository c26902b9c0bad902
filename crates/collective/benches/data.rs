//! Measures how fast inputs and expected results are generated: `cargo bench -p tonnage-collective --bench data`.

use std::hint::black_box;
use std::time::Instant;

use tonnage_collective::data::Data;
use tonnage_collective::{Collective, Dtype, Reduction, Shape};
use tonnage_units::Result;

const RANKS: u32 = 16;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 4096;

fn rate(mut block: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<f64> {
    let mut bytes = [0; BLOCK_BYTES];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for index in 0..BLOCKS {
            block(index, black_box(&mut bytes))?;
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok((BLOCKS * BLOCK_BYTES as u64) as f64 / best / 1e9)
}

fn row(op: Collective, dtype: Dtype, reduction: Reduction, ranks: u32) -> Result<()> {
    let shape = Shape::from_size((op, 0), ranks, dtype, 1 << 30);
    let data = Data::new(&shape, reduction, 1, 2)?;
    let elements = BLOCK_BYTES as u64 / dtype.bytes();
    let input = rate(|index, out| data.input(1, index * elements, out))?;
    let expected = rate(|index, out| data.expected(1, index * elements, out))?;
    println!(
        "{:12} {:9} {:5} {ranks:3} ranks  input {input:6.2} GB/s  expected {expected:6.2} GB/s",
        op.name(),
        dtype.name(),
        reduction.name()
    );
    Ok(())
}

fn main() -> Result<()> {
    for dtype in Dtype::ALL {
        for reduction in Reduction::ALL {
            row(Collective::AllReduce, dtype, reduction, RANKS)?;
        }
        row(Collective::AllReduce, dtype, Reduction::Avg, 7)?;
        row(Collective::AllToAll, dtype, Reduction::Sum, RANKS)?;
    }
    Ok(())
}

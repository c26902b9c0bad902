//! Transfers between two processes over `shm`, or over the engine given as an argument: `cargo run --example poll --
//! fabric:tcp`.
//!
//! The first process writes its memory to the second in a batch, and notifies the second process. Then it overwrites
//! its own memory and reads everything back.

mod common;

use std::error::Error;

use common::{BYTES, Side, TIMEOUT, pattern};
use tonnage_transfer::{Extent, Verb};

/// Immediate values: `WRITTEN` announces that the bytes have arrived, and `DONE` that the first process has finished.
const WRITTEN: u32 = 1;
const DONE: u32 = 2;

/// Bytes of one operation.
const PIECE: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let side = Side::open()?;
    match side.second {
        Some(_) => first(&side)?,
        None => side.check_at_arrivals([WRITTEN, DONE], &pattern(1))?,
    }
    side.close("wrote 1 MiB in a batch and read it back")
}

fn first(side: &Side) -> Result<(), Box<dyn Error>> {
    let session = side.endpoint.session(&side.memory, &side.remote)?;
    side.memory.write(0, &pattern(1))?;
    let starts = (0..BYTES as u64).step_by(PIECE);
    let pieces: Vec<Extent> = starts.map(|at| Extent::new(at, at, PIECE as u32)).collect();

    // A program can poll a ticket and do other work between the polls.
    let batch = session.batch(Verb::Write, &pieces)?;
    let mut polls = 1;
    while !batch.poll()? {
        polls += 1;
    }
    // It can also wait for a ticket. The flush proves that the writes have arrived; only then is the peer notified.
    session.flush(Verb::Write)?.wait(TIMEOUT)?;
    session.write_imm(0, 0, 0, WRITTEN)?.wait(TIMEOUT)?;

    side.memory.write(0, &vec![0; BYTES])?;
    session.batch(Verb::Read, &pieces)?.wait(TIMEOUT)?;
    side.check(&pattern(1))?;
    session.write_imm(0, 0, 0, DONE)?.wait(TIMEOUT)?;
    side.endpoint.wait_all(TIMEOUT)?;
    eprintln!(
        "the batch of {} writes was done at poll {polls}",
        pieces.len()
    );
    Ok(())
}

//! Transfers between two processes over `shm`, or over the engine given as an argument: `cargo run --example async --
//! fabric:tcp`.
//!
//! Tasks of the first process concurrently write parts of its memory to the second process. Then the first process
//! notifies the second, and reads everything back.

mod common;

use std::error::Error;

use common::{BYTES, Side, TIMEOUT, pattern};
use tonnage_transfer::{AsyncSession, Executor, TransferResult, Verb};

/// Immediate values: `WRITTEN` announces that the bytes have arrived, and `DONE` that the first process has finished.
const WRITTEN: u32 = 1;
const DONE: u32 = 2;

/// Number of tasks, and bytes of one operation.
const TASKS: usize = 8;
const PIECE: usize = 16 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let side = Side::open()?;
    match side.second {
        Some(_) => first(&side)?,
        None => side.check_at_arrivals([WRITTEN, DONE], &pattern(2))?,
    }
    side.close("wrote 1 MiB from 8 tasks and read it back")
}

fn first(side: &Side) -> Result<(), Box<dyn Error>> {
    let session = AsyncSession::new(side.endpoint.session(&side.memory, &side.remote)?);
    side.memory.write(0, &pattern(2))?;

    let results: Vec<_> = (0..TASKS).map(|_| std::cell::Cell::new(None)).collect();
    let mut executor = Executor::new(&side.endpoint);
    for (task, result) in results.iter().enumerate() {
        let session = &session;
        executor.spawn(async move {
            result.set(Some(write_part(session, task).await));
        });
    }
    executor.run(TIMEOUT)?;
    for result in &results {
        result.take().ok_or("a task did not end")??;
    }

    let rest = async {
        session.flush(Verb::Write).await?;
        session.write_imm(0, 0, 0, WRITTEN).await?;
        side.memory.write(0, &vec![0; BYTES])?;
        for at in (0..BYTES as u64).step_by(PIECE) {
            session.read(at, at, PIECE as u32).await?;
        }
        session.write_imm(0, 0, 0, DONE).await
    };
    executor.block_on(rest, TIMEOUT)??;
    side.check(&pattern(2))
}

/// Writes one task's part of the memory, one operation after the other.
async fn write_part(session: &AsyncSession, task: usize) -> TransferResult<()> {
    let part = BYTES / TASKS;
    for at in (task * part..(task + 1) * part).step_by(PIECE) {
        session.write(at as u64, at as u64, PIECE as u32).await?;
    }
    Ok(())
}

//! Inputs and outputs in mapped memory. They are written and compared piece by piece.

use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

use super::call::Data;
use super::compare::WrongElements;

/// Bytes that are generated or compared at a time, in a buffer on the stack.
const PIECE: usize = 4096;

/// Writes a rank's input to memory, starting at byte `at`.
///
/// # Errors
/// If the input extends beyond the memory.
pub fn write_input(data: &Data, rank: u32, arena: &Arena, at: u64) -> Result<()> {
    let total = data.shape().input_bytes(rank);
    write(data, total, arena, at, |first, piece| {
        data.input(rank, first, piece)
    })
}

/// Prepares a rank's output in memory for a call, starting at byte `at`. Every byte then differs from the expected
/// output.
///
/// # Errors
/// As for [`write_input`].
pub fn write_poison(data: &Data, rank: u32, arena: &Arena, at: u64) -> Result<()> {
    let total = data.shape().output_bytes(rank);
    write(data, total, arena, at, |first, piece| {
        data.poison(rank, first, piece)
    })
}

/// Compares a rank's output in memory, starting at byte `at`, with the expected output, and adds differences to
/// `found`.
///
/// # Errors
/// As for [`write_input`].
pub fn compare_output(
    data: &Data,
    rank: u32,
    arena: &Arena,
    at: u64,
    found: &mut WrongElements,
) -> Result<()> {
    let mut buffer = [0; PIECE];
    each_piece(
        data,
        data.shape().output_bytes(rank),
        |first, offset, bytes| {
            let piece = &mut buffer[..bytes];
            arena.read(at + offset, piece).map_err(outside)?;
            found.compare(data, rank, first, piece)
        },
    )
}

fn write(
    data: &Data,
    total: u64,
    arena: &Arena,
    at: u64,
    fill: impl Fn(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = [0; PIECE];
    each_piece(data, total, |first, offset, bytes| {
        let piece = &mut buffer[..bytes];
        fill(first, piece)?;
        arena.write(at + offset, piece).map_err(outside)
    })
}

/// Calls `visit` with the first element, the byte offset and the byte length of each piece.
fn each_piece(
    data: &Data,
    total: u64,
    mut visit: impl FnMut(u64, u64, usize) -> Result<()>,
) -> Result<()> {
    let mut offset = 0;
    while offset < total {
        let bytes = (total - offset).min(PIECE as u64);
        visit(offset / data.shape().dtype.bytes(), offset, bytes as usize)?;
        offset += bytes;
    }
    Ok(())
}

fn outside(error: impl std::fmt::Display) -> Error {
    Error::Failed(error.to_string())
}

//! The check that a GPU's kernels do as the host does, once for each GPU and process, before anything is measured.
//!
//! The kernels are compiled by the driver for a GPU that may be newer than this program, and nothing that they verify
//! is worth more than they are.

use std::sync::Arc;

use tonnage_engine::pattern::{self, Key};
use tonnage_sys::cuda::{
    CopyKernel, CopyMark, CudaContext, CudaCopier, CudaFailure, CudaRegion, DeviceBuffer,
    PatternKernels,
};

use super::numbers;

/// Bytes that are filled and verified.
const BYTES: u64 = 1 << 20;

/// Bytes beside them, on either side, that must stay as they are.
const BESIDE: u64 = 19;

/// The byte that they are.
const RAW: u8 = 0xa5;

/// Proves the kernels, or says what they did otherwise than the host.
pub(super) fn prove(
    context: &Arc<CudaContext>,
    kernels: &PatternKernels,
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the proof of its kernels failed: {failure}");
    let buffer = DeviceBuffer::allocate(context, BYTES + 2 * BESIDE).map_err(said)?;
    let proof = Proof { buffer, kernels };
    // An odd place in memory, with data that are aligned otherwise.
    let key = Key::new(0x70_72_6f_6f_66, 1, 2, 3);
    proof.fills(BESIDE, BYTES, key.ahead(5))?;
    // Both aligned, and the filler's inverted words.
    proof.fills(24, 4096 + 3, key.poison())?;
    proof.finds(BESIDE, 4096, key.ahead(2))
}

/// Proves the kernel that copies, or says what it did otherwise than the host.
pub(super) fn prove_copies(
    context: &Arc<CudaContext>,
    kernel: &Arc<CopyKernel>,
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the proof of its kernel failed: {failure}");
    // Aligned alike, and otherwise: of the second sort each byte goes alone.
    let ranges = [(BESIDE, BESIDE, BYTES), (24, 16, 4099), (BESIDE, 24, 4099)];
    prove_ranges(context, kernel, &ranges)?;
    // On a GPU with many processors each thread has one word of these. In one block it has many, as of a large copy.
    let narrow = Arc::new(CopyKernel::load(context, Some(1)).map_err(said)?);
    prove_ranges(context, &narrow, &[(BESIDE, BESIDE, 64 << 10)])
}

/// Proves it for ranges of a source, of a target, and so many bytes.
fn prove_ranges(
    context: &Arc<CudaContext>,
    kernel: &Arc<CopyKernel>,
    ranges: &[(u64, u64, u64)],
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the proof of its kernel failed: {failure}");
    let longest = ranges.iter().map(|range| range.2).max().unwrap_or(0);
    let room = longest + 2 * BESIDE;
    let buffer = || DeviceBuffer::allocate(context, room).map(Arc::new);
    let (from, to) = (buffer().map_err(said)?, buffer().map_err(said)?);
    let bytes: Vec<u8> = (0..room)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect();
    from.write(0, &bytes).map_err(said)?;
    let ends = (
        CudaRegion::Device(Arc::clone(&from)),
        CudaRegion::Device(Arc::clone(&to)),
    );
    let mut copier =
        CudaCopier::new(context, ends, Some(Arc::clone(kernel)), (1, 1)).map_err(said)?;
    for &(source, target, len) in ranges {
        let mut expected = vec![RAW; room as usize];
        to.write(0, &expected).map_err(said)?;
        let mark = CopyMark {
            tag: 0,
            len: len as u32,
        };
        copier.post(source, target, mark).map_err(said)?;
        while copier.pending() > 0 {
            copier.poll(1, |_| ()).map_err(said)?;
        }
        expected[target as usize..][..len as usize]
            .copy_from_slice(&bytes[source as usize..][..len as usize]);
        let mut found = vec![0; room as usize];
        to.read(0, &mut found).map_err(said)?;
        if let Some(at) = expected
            .iter()
            .zip(&found)
            .position(|(expected, found)| expected != found)
        {
            return Err(format!(
                "its kernel for copies left {:02x} at byte {at} of the proof, where {:02x} belongs",
                found[at], expected[at]
            ));
        }
    }
    Ok(())
}

struct Proof<'a> {
    buffer: DeviceBuffer,
    kernels: &'a PatternKernels,
}

impl Proof<'_> {
    /// Bytes that the host would have written.
    fn expected(&self, offset: u64, len: u64, key: Key) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = vec![RAW; self.buffer.bytes() as usize];
        let filled = pattern::fill_by(0, offset, len, key, |at, piece| {
            bytes[at as usize..][..piece.len()].copy_from_slice(piece);
            Ok(())
        });
        filled.map(|()| bytes).map_err(|error| error.to_string())
    }

    /// The fill kernel writes what the host would, and nothing beside it; and the verify kernel finds it right.
    fn fills(&self, offset: u64, len: u64, key: Key) -> std::result::Result<(), String> {
        let said = |failure: CudaFailure| format!("the proof of its kernels failed: {failure}");
        let expected = self.expected(offset, len, key)?;
        let numbers = numbers(key, 0, offset).map_err(|error| error.to_string())?;
        let mut bytes = vec![RAW; expected.len()];
        self.buffer.write(0, &bytes).map_err(said)?;
        self.kernels
            .fill(&self.buffer, offset, len, numbers)
            .map_err(said)?;
        self.buffer.read(0, &mut bytes).map_err(said)?;
        let mut pairs = expected.iter().zip(&bytes);
        if let Some(at) = pairs.position(|(expected, found)| expected != found) {
            return Err(format!(
                "its kernel for filling wrote {:02x} at byte {at} of the proof, where the host writes {:02x}",
                bytes[at], expected[at]
            ));
        }
        self.verifies(offset, len, key, None)
    }

    /// The verify kernel finds the host's bytes right, and names bytes that are changed.
    fn finds(&self, offset: u64, len: u64, key: Key) -> std::result::Result<(), String> {
        let said = |failure: CudaFailure| format!("the proof of its kernels failed: {failure}");
        let expected = self.expected(offset, len, key)?;
        self.buffer.write(0, &expected).map_err(said)?;
        self.verifies(offset, len, key, None)?;
        for (first, last) in [(0, 0), (len / 2 + 1, len / 2 + 1), (3, len - 1)] {
            for at in [first, last].map(|at| offset + at) {
                let flipped = [expected[at as usize] ^ 0x10];
                self.buffer.write(at, &flipped).map_err(said)?;
            }
            self.verifies(offset, len, key, Some((first, last)))?;
            self.buffer.write(0, &expected).map_err(said)?;
        }
        Ok(())
    }

    fn verifies(
        &self,
        offset: u64,
        len: u64,
        key: Key,
        expected: Option<(u64, u64)>,
    ) -> std::result::Result<(), String> {
        let numbers = numbers(key, 0, offset).map_err(|error| error.to_string())?;
        let found = self
            .kernels
            .verify(&self.buffer, offset, len, numbers)
            .map_err(|failure| format!("the proof of its kernels failed: {failure}"))?;
        if found == expected {
            return Ok(());
        }
        Err(format!(
            "its kernel for verifying found {} wrong in the proof, where {} are",
            named(found),
            named(expected)
        ))
    }
}

fn named(bytes: Option<(u64, u64)>) -> String {
    match bytes {
        None => "no bytes".to_owned(),
        Some((first, last)) => format!("bytes {first} to {last}"),
    }
}

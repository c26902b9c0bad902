//! Self-test of a GPU's kernels against the host, once per GPU and process, before any measurement.
//!
//! The driver compiles the kernels, possibly for a GPU that is newer than this program. Results of verification are
//! only as reliable as these kernels.

use std::sync::Arc;

use tonnage_engine::pattern::{self, Key};
use tonnage_sys::cuda::{
    CopyKernel, CopyMark, CudaContext, CudaCopier, CudaFailure, CudaRegion, DeviceBuffer,
    PatternKernels,
};

use super::numbers;

/// Number of bytes that are filled and verified.
const BYTES: u64 = 1 << 20;

/// Number of bytes before and after them that must not change.
const MARGIN: u64 = 19;

/// Initial value of all bytes.
const RAW: u8 = 0xa5;

/// Self-tests the pattern kernels. A difference from the host is an error.
pub(super) fn prove(
    context: &Arc<CudaContext>,
    kernels: &PatternKernels,
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the self-test of its kernels failed: {failure}");
    let buffer = DeviceBuffer::allocate(context, BYTES + 2 * MARGIN).map_err(said)?;
    let proof = Proof { buffer, kernels };
    // First case: an odd address, and data with a different alignment.
    let key = Key::new(0x70_72_6f_6f_66, 1, 2, 3);
    proof.fills(MARGIN, BYTES, key.ahead(5))?;
    // Second case: address and data aligned, with inverted words.
    proof.fills(24, 4096 + 3, key.poison())?;
    proof.finds(MARGIN, 4096, key.ahead(2))
}

/// Self-tests the copy kernel. A difference from the host is an error.
pub(super) fn prove_copies(
    context: &Arc<CudaContext>,
    kernel: &Arc<CopyKernel>,
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the self-test of its kernel failed: {failure}");
    // Ranges with the same alignment at source and target, and ranges with different ones. If the alignments differ,
    // the kernel copies byte by byte.
    let ranges = [(MARGIN, MARGIN, BYTES), (24, 16, 4099), (MARGIN, 24, 4099)];
    prove_ranges(context, kernel, &ranges)?;
    // On a GPU with many processors, each thread copies only one word of these ranges. With a single block, each thread
    // copies many words, as in a large copy.
    let narrow = Arc::new(CopyKernel::load(context, Some(1)).map_err(said)?);
    prove_ranges(context, &narrow, &[(MARGIN, MARGIN, 64 << 10)])
}

/// Tests the kernel for ranges: source offset, target offset, and length.
fn prove_ranges(
    context: &Arc<CudaContext>,
    kernel: &Arc<CopyKernel>,
    ranges: &[(u64, u64, u64)],
) -> std::result::Result<(), String> {
    let said = |failure: CudaFailure| format!("the self-test of its kernel failed: {failure}");
    let longest = ranges.iter().map(|range| range.2).max().unwrap_or(0);
    let room = longest + 2 * MARGIN;
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
                "the self-test of its copy kernel found {:02x} at byte {at}, expected {:02x}",
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
    /// Returns the expected bytes of the whole buffer, computed by the host.
    fn expected(&self, offset: u64, len: u64, key: Key) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = vec![RAW; self.buffer.bytes() as usize];
        let filled = pattern::fill_by(0, offset, len, key, |at, piece| {
            bytes[at as usize..][..piece.len()].copy_from_slice(piece);
            Ok(())
        });
        filled.map(|()| bytes).map_err(|error| error.to_string())
    }

    /// Checks that the fill kernel writes the same bytes as the host and no others, and that the verify kernel accepts
    /// them.
    fn fills(&self, offset: u64, len: u64, key: Key) -> std::result::Result<(), String> {
        let said = |failure: CudaFailure| format!("the self-test of its kernels failed: {failure}");
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
                "the self-test of its fill kernel found {:02x} at byte {at}, expected {:02x}",
                bytes[at], expected[at]
            ));
        }
        self.verifies(offset, len, key, None)
    }

    /// Checks that the verify kernel accepts the host's bytes, and reports bytes that were changed.
    fn finds(&self, offset: u64, len: u64, key: Key) -> std::result::Result<(), String> {
        let said = |failure: CudaFailure| format!("the self-test of its kernels failed: {failure}");
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
            .map_err(|failure| format!("the self-test of its kernels failed: {failure}"))?;
        if found == expected {
            return Ok(());
        }
        Err(format!(
            "the self-test of its verify kernel found {} wrong, expected {}",
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

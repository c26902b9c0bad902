//! Copy rate of a GPU within its own memory.

use tonnage_engine::memory::Stretch;
use tonnage_sys::cuda::{CudaEvent, CudaFailure, CudaStream, DeviceBuffer};

/// Turns of which the best counts; the first of them comes after one that does not.
const TURNS: usize = 3;

/// Time that one turn copies, at least; a whole footprint if that takes longer.
const TURN_NS_MIN: f64 = 3e6;

/// A turn ends after this long, however large the footprint is.
const TURN_NS_MAX: f64 = 50e6;

/// Copies that are handed over between two looks at the time, at most.
const COPIES_MAX: usize = 256;

/// Bytes that are handed over between two looks at the time, at most, unless one copy has more.
const BYTES_MAX: u64 = 256 << 20;

/// Bytes per second of asynchronous copies between two stretches, by the GPU's own clock.
pub(super) fn rate(
    buffer: &DeviceBuffer,
    stretch: &Stretch,
    slots: &mut dyn FnMut() -> (u64, u64),
) -> Result<f64, CudaFailure> {
    let context = buffer.context();
    let stream = CudaStream::new(context)?;
    let (before, after) = (CudaEvent::new(context)?, CudaEvent::new(context)?);
    let mut batch = || {
        let (mut bytes, mut copies) = (0, 0);
        before.record(&stream)?;
        while copies < COPIES_MAX && bytes < BYTES_MAX {
            let (from, to, len) = stretch.copy(slots());
            let from = buffer.part(stretch.from + from, len)?;
            stream.copy(from, buffer.part(stretch.to + to, len)?)?;
            bytes += len;
            copies += 1;
        }
        after.record(&stream)?;
        after.wait()?;
        Ok::<_, CudaFailure>((bytes, after.ns_since(&before)?))
    };
    let mut best = 0f64;
    for turn in 0..=TURNS {
        let (mut bytes, mut ns) = (0, 0f64);
        while ns < TURN_NS_MIN || (bytes < stretch.pass_bytes() && ns < TURN_NS_MAX) {
            let (more_bytes, more_ns) = batch()?;
            bytes += more_bytes;
            // The clock counts in steps: a batch of no time at all must not go on for ever.
            ns += more_ns.max(1000.0);
        }
        if turn > 0 {
            best = best.max(bytes as f64 * 1e9 / ns);
        }
    }
    Ok(best)
}

//! Copy rate of a GPU within its own memory.
//!
//! Copies are large, whatever the operations are that they are set beside: small ones would be bounded by the time of a
//! launch and not by the memory. They go over the bytes of the operations, which a cache of the GPU may hold, and where
//! these are few also over memory that none holds; the faster of the two is the bound.

use std::sync::Arc;

use tonnage_engine::memory::{CopyRate, Stretch};
use tonnage_sys::cuda::{CudaContext, CudaEvent, CudaFailure, CudaStream, DeviceBuffer};
use tonnage_units::quantity::human::{gigabytes_per_s, size};

/// Turns of which the best counts; the first of them comes after one that does not.
const TURNS: usize = 3;

/// Time that one turn copies, at least.
const TURN_NS_MIN: f64 = 3e6;

/// Bytes of one copy, at most.
const PIECE_BYTES_MAX: u64 = 16 << 20;

/// Copies that are handed over between two looks at the time, at most.
const COPIES_MAX: usize = 64;

/// Bytes that are handed over between two looks at the time, at most, unless one copy has more.
const BYTES_MAX: u64 = 256 << 20;

/// Bytes that no GPU's cache holds.
const UNCACHED_BYTES: u64 = 128 << 20;

/// Stretches of one length between which is copied.
struct CopiedRange {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Rates of copies by the driver's call `copying`: over the slices of a stretch, and over memory that is in no cache
/// where these are small.
pub(super) fn rates(
    buffer: &DeviceBuffer,
    stretch: &Stretch,
    copying: &str,
) -> Result<Vec<CopyRate>, CudaFailure> {
    let slice_bytes = (stretch.pieces - 1) * stretch.stride_bytes + stretch.last_piece_bytes;
    let slice = |index: u64| CopiedRange {
        from: stretch.from + index * stretch.slice_bytes,
        to: stretch.to + index * stretch.slice_bytes,
        bytes: slice_bytes,
    };
    let slices: Vec<CopiedRange> = (0..stretch.slices).map(slice).collect();
    let context = buffer.context();
    let named = |piece_bytes: u64, over: &str, bytes_per_s| CopyRate {
        method: format!(
            "the GPU's {copying} of {}{over}{}",
            size(piece_bytes),
            nominal(context)
        ),
        bytes_per_s,
    };
    let piece_bytes = slice_bytes.min(PIECE_BYTES_MAX);
    let mut rates = vec![named(piece_bytes, "", rate(buffer, &slices)?)];
    if stretch.slices * slice_bytes >= UNCACHED_BYTES {
        return Ok(rates);
    }
    // Where there is no room for it, the operations' own bytes have to do.
    if let Ok(uncached) = DeviceBuffer::allocate(context, 2 * UNCACHED_BYTES) {
        let halves = CopiedRange {
            from: 0,
            to: UNCACHED_BYTES,
            bytes: UNCACHED_BYTES,
        };
        let over = format!(" over {}", size(UNCACHED_BYTES));
        rates.push(named(PIECE_BYTES_MAX, &over, rate(&uncached, &[halves])?));
    }
    Ok(rates)
}

/// The nominal speed of the GPU's memory in words, where the driver tells it.
fn nominal(context: &Arc<CudaContext>) -> String {
    let rate = context.device().memory_bytes_per_s;
    rate.map_or_else(String::new, |rate| {
        let rate = gigabytes_per_s(rate as f64);
        format!(", of nominal {rate} for what it reads and writes")
    })
}

/// Bytes per second of asynchronous copies between stretches, by the GPU's own clock.
fn rate(buffer: &DeviceBuffer, ranges: &[CopiedRange]) -> Result<f64, CudaFailure> {
    let context = buffer.context();
    let stream = CudaStream::new(context)?;
    let (before, after) = (CudaEvent::new(context)?, CudaEvent::new(context)?);
    let pieces = ranges.iter().flat_map(|range| {
        let starts = (0..range.bytes).step_by(PIECE_BYTES_MAX as usize);
        starts.map(|at| {
            let len = PIECE_BYTES_MAX.min(range.bytes - at);
            (range.from + at, range.to + at, len)
        })
    });
    let mut pieces = pieces.cycle();
    let mut batch = || {
        let (mut bytes, mut copies) = (0, 0);
        before.record(&stream)?;
        while copies < COPIES_MAX
            && bytes < BYTES_MAX
            && let Some((from, to, len)) = pieces.next()
        {
            stream.copy(buffer.part(from, len)?, buffer.part(to, len)?)?;
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
        while ns < TURN_NS_MIN {
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

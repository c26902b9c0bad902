//! Copy rate of a GPU within its own memory.
//!
//! Copies are large, whatever the operations are that they are set beside: small ones would be bounded by the time of a
//! launch and not by the memory. They go over the slices of the operations, gaps between strided ones included, which a
//! cache of the GPU may hold, and where these are few also over memory that none holds; each by the driver's call on
//! one stream, and on several, and by our kernel where some engine copies by it. The fastest of all is the bound.
//!
//! Several GPUs begin at once and take the same ways in the same order. They share no memory, so that a turn of one
//! that begins a little later than that of another measures the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_engine::memory::{CopyRate, Stretch};
use tonnage_sys::cuda::{
    CopyKernel, CopyMark, CudaContext, CudaCopier, CudaEvent, CudaFailure, CudaRegion, CudaStream,
    DeviceBuffer,
};
use tonnage_units::quantity::human::{gigabytes_per_s, size};

use super::super::vendor::OUT_OF_MEMORY;

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

/// Streams of copies that run at once, and copies of each.
const STREAMS: (u32, u32) = (4, 4);

/// One stream, with as many copies in all.
const ONE_STREAM: (u32, u32) = (1, 16);

/// Time that one turn of these copies takes, at least. It is the host's, so that its ends must be little of it.
const STREAMS_TURN: Duration = Duration::from_millis(6);

/// Multiple of a cache's size that each of two stretches has of which it is to hold little: an eighth of both stays.
const CACHES: u64 = 4;

/// The driver's call that copies, and what a maker says of caches.
pub(super) struct CopiesBy {
    /// The driver's own name of the call.
    pub(super) call: &'static str,
    /// Bytes that no cache of the maker's GPUs holds, at least.
    pub(super) uncached_bytes_min: u64,
    /// The kernel, where it is trusted.
    pub(super) kernel: Option<Arc<CopyKernel>>,
}

/// Stretches of one length between which is copied.
struct CopiedRange {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Rates of copies: over the slices of a stretch, and over memory that is in no cache where these are small.
pub(super) fn rates(
    buffer: &Arc<DeviceBuffer>,
    stretch: &Stretch,
    by: &CopiesBy,
) -> Result<Vec<CopyRate>, CudaFailure> {
    let slice_bytes = (stretch.pieces - 1) * stretch.stride_bytes + stretch.last_piece_bytes;
    let slice = |index: u64| CopiedRange {
        from: stretch.from + index * stretch.slice_bytes,
        to: stretch.to + index * stretch.slice_bytes,
        bytes: slice_bytes,
    };
    let slices: Vec<CopiedRange> = (0..stretch.slices).map(slice).collect();
    let context = buffer.context();
    let piece_bytes = slice_bytes.min(PIECE_BYTES_MAX);
    let mut rates = of_all(buffer, &slices, (piece_bytes, ""), by)?;
    let cache_bytes = context.device().cache_bytes.unwrap_or(0);
    let uncached_bytes = by.uncached_bytes_min.max(CACHES * cache_bytes);
    if stretch.slices * slice_bytes >= uncached_bytes {
        return Ok(rates);
    }
    let uncached = match DeviceBuffer::allocate(context, 2 * uncached_bytes) {
        Ok(uncached) => Arc::new(uncached),
        // The operations' own bytes have to do.
        Err(failure) if failure.code() == Some(OUT_OF_MEMORY) => return Ok(rates),
        Err(failure) => return Err(failure),
    };
    let halves = CopiedRange {
        from: 0,
        to: uncached_bytes,
        bytes: uncached_bytes,
    };
    let over = format!(" over {}", size(uncached_bytes));
    rates.extend(of_all(&uncached, &[halves], (PIECE_BYTES_MAX, &over), by)?);
    Ok(rates)
}

/// Rates over these ranges, on one stream and on several.
fn of_all(
    buffer: &Arc<DeviceBuffer>,
    ranges: &[CopiedRange],
    (piece_bytes, over): (u64, &str),
    by: &CopiesBy,
) -> Result<Vec<CopyRate>, CudaFailure> {
    let named = |how: &str, behind: &str, turns_bytes_per_s| CopyRate {
        is_choice: false,
        method: format!(
            "the GPU's {how} of {}{over}{behind}{}",
            size(piece_bytes),
            nominal(buffer.context())
        ),
        turns_bytes_per_s,
    };
    let streams = format!(" by {} streams", STREAMS.0);
    let of_streams = |kernel, streams| rate_of_streams(buffer, ranges, kernel, streams);
    let mut rates = vec![
        named(by.call, "", rate(buffer, ranges)?),
        named(by.call, &streams, of_streams(None, STREAMS)?),
    ];
    if let Some(kernel) = &by.kernel {
        const KERNEL: &str = "kernel (by=sm)";
        for (behind, streams) in [("", ONE_STREAM), (&streams, STREAMS)] {
            let turns = of_streams(Some(kernel), streams)?;
            rates.push(named(KERNEL, behind, turns));
        }
    }
    Ok(rates)
}

/// Pieces of ranges, over and over: from, to, length.
fn pieces(ranges: &[CopiedRange]) -> impl Iterator<Item = (u64, u64, u64)> {
    let pieces = ranges.iter().flat_map(|range| {
        let starts = (0..range.bytes).step_by(PIECE_BYTES_MAX as usize);
        starts.map(|at| {
            let len = PIECE_BYTES_MAX.min(range.bytes - at);
            (range.from + at, range.to + at, len)
        })
    });
    pieces.cycle()
}

/// Bytes per second in each turn of copies by a kernel, or by the driver's call, on so many streams with so many copies
/// each, by the host's clock.
fn rate_of_streams(
    buffer: &Arc<DeviceBuffer>,
    ranges: &[CopiedRange],
    kernel: Option<&Arc<CopyKernel>>,
    streams: (u32, u32),
) -> Result<Vec<f64>, CudaFailure> {
    let end = || CudaRegion::Device(Arc::clone(buffer));
    let kernel = kernel.cloned();
    let mut copier = CudaCopier::new(buffer.context(), (end(), end()), kernel, streams)?;
    let mut pieces = pieces(ranges);
    let mut turns = Vec::with_capacity(TURNS);
    for turn in 0..=TURNS {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < STREAMS_TURN
            && let Some((from, to, len)) = pieces.next()
        {
            let mark = CopyMark {
                tag: 0,
                len: len as u32,
            };
            while !copier.post(from, to, mark)? {
                copier.poll(usize::MAX, |_| ())?;
            }
            bytes += len;
        }
        while copier.pending() > 0 {
            copier.poll(usize::MAX, |_| ())?;
        }
        if turn > 0 {
            turns.push(bytes as f64 / began.elapsed().as_secs_f64());
        }
    }
    Ok(turns)
}

/// The nominal speed of the GPU's memory in words, where the driver tells it.
fn nominal(context: &Arc<CudaContext>) -> String {
    let rate = context.device().memory_bytes_per_s;
    rate.map_or_else(String::new, |rate| {
        let rate = gigabytes_per_s(rate as f64);
        format!(", of nominal {rate} for what it reads and writes")
    })
}

/// Bytes per second in each turn of asynchronous copies between stretches, by the GPU's own clock.
fn rate(buffer: &DeviceBuffer, ranges: &[CopiedRange]) -> Result<Vec<f64>, CudaFailure> {
    let context = buffer.context();
    let stream = CudaStream::new(context)?;
    let (before, after) = (CudaEvent::new(context)?, CudaEvent::new(context)?);
    let mut pieces = pieces(ranges);
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
    let mut turns = Vec::with_capacity(TURNS);
    for turn in 0..=TURNS {
        let (mut bytes, mut ns) = (0, 0f64);
        while ns < TURN_NS_MIN {
            let (more_bytes, more_ns) = batch()?;
            bytes += more_bytes;
            // The clock counts in steps: a batch of no time at all must not go on for ever.
            ns += more_ns.max(1000.0);
        }
        if turn > 0 {
            turns.push(bytes as f64 * 1e9 / ns);
        }
    }
    Ok(turns)
}

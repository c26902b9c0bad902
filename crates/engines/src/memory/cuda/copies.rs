//! Measures a GPU's copy rate within its own memory.
//!
//! The copies are large even if the operations compared with them are small. Small copies would be limited by the
//! launch time instead of the memory. The copies cover the slices of the operations, including gaps in strided slices.
//! If the slices are small, a cache of the GPU may hold them, so copies of memory larger than any cache are measured
//! too. Each of these copies is measured with the driver's call on one stream and on several, and with our kernel if it
//! may be used. The fastest result is the bound.
//!
//! Several GPUs start together and use the same methods in the same order. They share no memory, so it does not matter
//! if a GPU starts its turn a little later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonnage_engine::memory::{CopyRange, CopyRate};
use tonnage_sys::cuda::{
    CopyKernel, CopyMark, CudaContext, CudaCopier, CudaEvent, CudaFailure, CudaRegion, CudaStream,
    DeviceBuffer,
};
use tonnage_units::quantity::human::{gigabytes_per_s, size};

use super::super::vendor::OUT_OF_MEMORY;

/// Number of turns. One more turn before them is not counted. The best turn counts.
const TURNS: usize = 3;

/// Minimum copy time of one turn.
const TURN_NS_MIN: f64 = 3e6;

/// Maximum size of one copy.
const PIECE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of copies between two time checks.
const COPIES_MAX: usize = 64;

/// Maximum number of bytes between two time checks, unless one copy is larger.
const BYTES_MAX: u64 = 256 << 20;

/// Number of streams that copy at once, and copies in flight on each.
const STREAMS: (u32, u32) = (4, 4);

/// One stream, with the same total number of copies in flight.
const ONE_STREAM: (u32, u32) = (1, 16);

/// Minimum duration of one turn on several streams. The host's clock measures it, so starting and ending must take only
/// a small part of it.
const STREAMS_TURN: Duration = Duration::from_millis(6);

/// Size of each of two ranges, as a multiple of the cache size. With it, the cache holds at most an eighth of both.
const CACHES: u64 = 4;

/// The driver's copy call, and properties of the vendor's caches.
pub(super) struct CopiesBy {
    /// The driver's own name of the call.
    pub(super) call: &'static str,
    /// A size that exceeds all caches of the vendor's GPUs.
    pub(super) uncached_bytes_min: u64,
    /// The kernel, if it passed its self-test.
    pub(super) kernel: Option<Arc<CopyKernel>>,
}

/// Source and destination of copies, with the same length.
struct CopiedRange {
    from: u64,
    to: u64,
    bytes: u64,
}

/// Measures copy rates over the slices, and if these are small, also over memory larger than any cache.
pub(super) fn rates(
    buffer: &Arc<DeviceBuffer>,
    stretch: &CopyRange,
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
    let mut rates = rates_over(buffer, &slices, (piece_bytes, ""), by)?;
    let cache_bytes = context.device().cache_bytes.unwrap_or(0);
    let uncached_bytes = by.uncached_bytes_min.max(CACHES * cache_bytes);
    if stretch.slices * slice_bytes >= uncached_bytes {
        return Ok(rates);
    }
    let uncached = match DeviceBuffer::allocate(context, 2 * uncached_bytes) {
        Ok(uncached) => Arc::new(uncached),
        // Without more memory, only the rates over the operations' own bytes are returned.
        Err(failure) if failure.code() == Some(OUT_OF_MEMORY) => return Ok(rates),
        Err(failure) => return Err(failure),
    };
    let halves = CopiedRange {
        from: 0,
        to: uncached_bytes,
        bytes: uncached_bytes,
    };
    let over = format!(" over {}", size(uncached_bytes));
    rates.extend(rates_over(
        &uncached,
        &[halves],
        (PIECE_BYTES_MAX, &over),
        by,
    )?);
    Ok(rates)
}

/// Measures rates over these ranges, on one stream and on several streams.
fn rates_over(
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
    let streams_rate = |kernel, streams| rate_of_streams(buffer, ranges, kernel, streams);
    let mut rates = vec![
        named(by.call, "", rate(buffer, ranges)?),
        named(by.call, &streams, streams_rate(None, STREAMS)?),
    ];
    if let Some(kernel) = &by.kernel {
        const KERNEL: &str = "kernel (by=sm)";
        for (behind, streams) in [("", ONE_STREAM), (&streams, STREAMS)] {
            let turns = streams_rate(Some(kernel), streams)?;
            rates.push(named(KERNEL, behind, turns));
        }
    }
    Ok(rates)
}

/// Iterates endlessly over pieces of the ranges (source, destination, length).
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

/// Measures bytes per second in each turn with the host's clock. A kernel or the driver's call makes the copies, on
/// this number of streams with this number of copies each.
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

/// Describes the nominal memory speed of the GPU, if the driver reports it.
fn nominal(context: &Arc<CudaContext>) -> String {
    let rate = context.device().memory_bytes_per_s;
    rate.map_or_else(String::new, |rate| {
        let rate = gigabytes_per_s(rate as f64);
        format!(", of nominal {rate} for reads and writes together")
    })
}

/// Measures bytes per second of asynchronous copies in each turn, with the GPU's own clock.
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
            // The clock has limited resolution. Without a minimum, batches with a measured time of 0 would repeat
            // forever.
            ns += more_ns.max(1000.0);
        }
        if turn > 0 {
            turns.push(bytes as f64 * 1e9 / ns);
        }
    }
    Ok(turns)
}

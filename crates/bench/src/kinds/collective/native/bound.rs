//! The upper bound of the bus bandwidth over an engine. It is measured by simultaneous copies in the memory of all
//! sending ranks, or it is the nominal speed of the links. The bound applies to operations in which every sending rank
//! sends at the bus bandwidth. In rooted operations the number of simultaneous senders depends on the algorithm, so
//! they have no bound. Socket streams are measured for transfers only.

use super::open::OpenNative;
use crate::bound::SummedCopies;
use crate::bound::memory_copy::{agree_on_turns, describe, with_choice};
use crate::deadlines::DEADLINES;
use crate::kinds::kind::Stage;
use tonnage_collective::Collective;
use tonnage_engine::BoundKind;
use tonnage_engine::memory::CopyRange;
use tonnage_plan::collective::CollectivePoint;
use tonnage_record::Bound;
use tonnage_units::Result;

/// Minimum size of calls that get a bound from copies. In smaller calls the fixed cost per call dominates.
const BYTES_MIN: u64 = 64 << 10;

/// Bytes of one copy.
const PIECE_BYTES: u64 = 1 << 20;

/// Measures the upper bound of the bytes per second that each rank sends while all ranks send. Returns `None` if the
/// operation or the engine has no bound.
pub fn measure(
    open: &OpenNative,
    point: &CollectivePoint,
    stage: &mut Stage<'_>,
) -> Result<Option<Bound>> {
    let Some(sends) = is_sender(point, open.rank).filter(|_| !open.engine.yielding) else {
        return Ok(None);
    };
    match open.engine.opened.common.bound {
        BoundKind::MemoryCopy if point.shape().size_bytes() >= BYTES_MIN => {
            measure_copies(open, point, sends, stage)
        }
        BoundKind::Link { .. } => Ok(slowest_link(open, stage)),
        BoundKind::MemoryCopy | BoundKind::SocketStream | BoundKind::None => Ok(None),
    }
}

/// Returns whether a rank sends. `None` if some senders of the operation don't send at the bus bandwidth.
fn is_sender(point: &CollectivePoint, rank: u32) -> Option<bool> {
    let grouping = point.grouping();
    let (place, ranks) = (grouping.position(rank).place, grouping.size());
    match point.op {
        _ if ranks < 2 => None,
        Collective::AllReduce
        | Collective::ReduceScatter
        | Collective::AllGather
        | Collective::AllToAll
        | Collective::SendRecvRing => Some(true),
        Collective::SendRecvPairs => Some(place < ranks / 2),
        Collective::Broadcast
        | Collective::Reduce
        | Collective::Gather
        | Collective::Scatter
        | Collective::Barrier => None,
    }
}

/// Measures copies of one call's bytes, from one half of each sender's memory to the other half.
fn measure_copies(
    open: &OpenNative,
    point: &CollectivePoint,
    sends: bool,
    stage: &mut Stage<'_>,
) -> Result<Option<Bound>> {
    let stretch = sends.then(|| {
        let half = open.layout.token().local / 2;
        copy_stretch(point.shape().size_bytes().min(half), half)
    });
    let pass_bytes = stretch.as_ref().map_or(0, CopyRange::pass_bytes);
    let turns = agree_on_turns(stage.rank, pass_bytes)?;
    let mut own = SummedCopies::default();
    if let Some(stretch) = stretch {
        let mut next = 0;
        let mut slots = || {
            let slot = next % stretch.pieces;
            next += 1;
            (slot, slot)
        };
        let memory = &open.engine.workers[0].memory;
        let rates = memory.copy_rates(&stretch, &mut slots, &stage.settings.clock, turns)?;
        own.add(with_choice(rates));
    }
    let sum = stage
        .rank
        .reduce("add up the copy bound", own, DEADLINES.step)?;
    let copiers = sum.copiers.max(1);
    let bound = describe(&sum.rates, copiers, None);
    Ok(bound.map(|bound| Bound {
        // The name of the copy method is left out: the fastest method may differ between sizes.
        what: match copiers {
            1 => "memory copy by it alone".to_owned(),
            copiers => format!("memory copy by {copiers} of them at once"),
        },
        bytes_per_s: bound.bytes_per_s / copiers as f64,
        ..bound
    }))
}

fn copy_stretch(bytes: u64, to: u64) -> CopyRange {
    let piece_bytes = bytes.min(PIECE_BYTES);
    CopyRange {
        from: 0,
        to,
        piece_bytes,
        last_piece_bytes: piece_bytes,
        stride_bytes: piece_bytes,
        pieces: bytes / piece_bytes,
        slices: 1,
        slice_bytes: bytes,
    }
}

/// Returns the speed of the slowest link of any rank. `None` if two ranks are on one machine and thus share a link.
fn slowest_link(open: &OpenNative, stage: &Stage<'_>) -> Option<Bound> {
    let hosts = stage.rank.hosts();
    // Pairs each rank with the lowest rank of its machine.
    let mut each = (0u32..).zip(hosts.machines());
    if each.any(|(rank, machine)| rank != *machine) {
        return None;
    }
    let devices = open.engine.opened.all.iter();
    let devices = devices.flat_map(|it| it.used_devices());
    let speeds = devices.filter_map(|device| match device.bound {
        BoundKind::Link { bytes_per_s } => Some((bytes_per_s, device)),
        _ => None,
    });
    let (bytes_per_s, device) = speeds.min_by_key(|(bytes_per_s, _)| *bytes_per_s)?;
    let stated = if device.link_stated { "stated " } else { "" };
    let name = device.interface.as_deref().unwrap_or("1 device");
    let what = format!("{stated}link speed of {name}");
    Some(Bound::new(what, bytes_per_s as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_cover_the_bytes_of_a_call() {
        for (bytes, piece, pieces) in [
            (BYTES_MIN, BYTES_MIN, 1),
            (PIECE_BYTES, PIECE_BYTES, 1),
            (100_000_000, PIECE_BYTES, 95),
        ] {
            let stretch = copy_stretch(bytes, bytes);
            assert_eq!((stretch.piece_bytes, stretch.pieces), (piece, pieces));
            assert!(stretch.pieces * stretch.stride_bytes <= bytes);
        }
    }
}

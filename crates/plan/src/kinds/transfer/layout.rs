//! Layout of the slots: the combined meaning of `sizes`, `stride`, `gap` and `footprint`.

use super::options::MemoryOptions;
use super::slots::{ALIGNMENT_BYTES, TargetFootprint};
use crate::bounds::{MEMORY_BYTES_MAX, SIZE_BYTES_MAX};
use crate::conflicts::Conflict;
use crate::point::Traffic;
use crate::refuse::usage_error;
use crate::roles::Roles;
use crate::sweep::Sweep;
use tonnage_engine::Verb;
use tonnage_units::Bytes;
use tonnage_units::{Error, Result};

/// Largest default footprint. Up to this size, every operation in flight has its own slot.
const FOOTPRINT_BYTES_DEFAULT_MAX: u64 = 64 << 20;

/// Layout of the slots of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotLayout {
    /// A whole number of strides.
    pub footprint_bytes: u64,
    /// At least the size of one operation.
    pub stride_bytes: u64,
}

/// Checks and returns the values of `sizes`.
pub(super) fn sizes(sweep: &Sweep) -> Result<Vec<u32>> {
    let checked = |&value: &u64| match u32::try_from(value) {
        Ok(0) => usage_error("--sizes 0 would move nothing: the smallest is --sizes 1"),
        Ok(size) if size <= SIZE_BYTES_MAX => Ok(size),
        _ => usage_error(format!(
            "--sizes {} is too large for one operation: the largest is --sizes {}; for more bytes in flight use \
             several operations, as in --batch 8",
            Bytes(value),
            Bytes(SIZE_BYTES_MAX.into())
        )),
    };
    sweep.values().iter().map(checked).collect()
}

pub(super) const CONFLICTS: &[Conflict] = &[Conflict::both(
    "gap",
    "stride",
    "both set the distance between slots",
    "leave one of them out",
)];

/// Returns the distance between the starts of neighbouring slots of `size` bytes.
fn stride(options: &MemoryOptions, size: u64) -> Result<u64> {
    let stride_bytes = match (options.stride, options.gap) {
        (Some(Bytes(stride)), _) => stride,
        (None, Some(Bytes(gap))) if gap > MEMORY_BYTES_MAX - size => {
            return usage_error(format!(
                "--gap {} is too large: the largest for --sizes {} is --gap {}",
                Bytes(gap),
                Bytes(size),
                Bytes(MEMORY_BYTES_MAX - size)
            ));
        }
        (None, Some(Bytes(gap))) => size + gap,
        (None, None) => size.next_multiple_of(ALIGNMENT_BYTES),
    };
    if stride_bytes < size {
        return usage_error(format!(
            "--stride {} is less than --sizes {size}, so that slots would overlap: use --stride {} or more",
            Bytes(stride_bytes),
            Bytes(size),
            size = Bytes(size)
        ));
    }
    if stride_bytes > MEMORY_BYTES_MAX {
        return Err(too_large_error("stride", stride_bytes));
    }
    Ok(stride_bytes)
}

/// Returns the layout for operations of `size` bytes, with `depth` of them in flight on one lane.
pub(super) fn slot_layout(options: &MemoryOptions, size: u32, depth: u32) -> Result<SlotLayout> {
    let size = u64::from(size);
    let stride_bytes = stride(options, size)?;
    let Some(Bytes(given)) = options.footprint else {
        let most = FOOTPRINT_BYTES_DEFAULT_MAX / stride_bytes;
        let slots = u64::from(depth).min(most).max(1);
        return Ok(SlotLayout {
            footprint_bytes: slots * stride_bytes,
            stride_bytes,
        });
    };
    if given > MEMORY_BYTES_MAX {
        return Err(too_large_error("footprint", given));
    }
    if given < stride_bytes {
        return usage_error(format!(
            "--footprint {} is less than one slot of --sizes {}: use --footprint {} or more",
            Bytes(given),
            Bytes(size),
            Bytes(stride_bytes)
        ));
    }
    Ok(SlotLayout {
        footprint_bytes: given / stride_bytes * stride_bytes,
        stride_bytes,
    })
}

fn too_large_error(what: &str, bytes: u64) -> Error {
    Error::Usage(format!(
        "--{what} {} is too large: the largest is {}",
        Bytes(bytes),
        Bytes(MEMORY_BYTES_MAX)
    ))
}

/// Refuses a shared target footprint if initiators would write to it, or if only one initiator would use it.
pub(super) fn check_shared(options: &MemoryOptions, roles: &[Roles], op: Verb) -> Result<()> {
    if options.target_footprint != Some(TargetFootprint::Shared) {
        return Ok(());
    }
    if !op.returns_bytes() {
        return usage_error(format!(
            "--target-footprint shared and --op {} are mutually exclusive, because initiators would overwrite each \
             other's data: use --op read, or --target-footprint own",
            op.name()
        ));
    }
    let several = |roles: &Roles| match roles.traffic {
        Traffic::FanIn | Traffic::AllToAll | Traffic::Matrix | Traffic::File => true,
        _ => roles.initiators_max() > 1,
    };
    if roles.iter().any(several) {
        return Ok(());
    }
    usage_error(
        "--target-footprint shared changes nothing if each target has one initiator: leave --target-footprint out, \
         or use --traffic fan-in",
    )
}

/// Refuses layouts that need too much memory in one rank. Every lane of every thread has a footprint at both ends,
/// unless the target's is shared.
pub(super) fn check_memory(
    layout: SlotLayout,
    target: TargetFootprint,
    roles: Roles,
    threads: u32,
) -> Result<()> {
    let lanes = match target {
        TargetFootprint::Own => roles.peers_max(),
        TargetFootprint::Shared => roles.initiating_ranks().1,
    };
    let lanes = u64::from(lanes.max(1));
    let footprints = lanes * 2 * u64::from(threads);
    if layout.footprint_bytes.saturating_mul(footprints) <= MEMORY_BYTES_MAX {
        return Ok(());
    }
    let fits = MEMORY_BYTES_MAX / footprints / layout.stride_bytes * layout.stride_bytes;
    let instead = match fits {
        0 => "use smaller sizes, fewer threads or fewer ranks".to_owned(),
        fits => format!("use --footprint {} or less", Bytes(fits)),
    };
    usage_error(format!(
        "--footprint {} for {footprints} lane ends needs more than {} in one rank: {instead}",
        Bytes(layout.footprint_bytes),
        Bytes(MEMORY_BYTES_MAX)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Refused, cases, options};
    use crate::point::Traffic;

    fn of(lines: &str, size: u32, depth: u32) -> (u64, u64) {
        let layout = slot_layout(&options(lines), size, depth).unwrap();
        (layout.footprint_bytes, layout.stride_bytes)
    }

    #[test]
    fn by_default_every_operation_in_flight_has_a_slot_up_to_64_mib() {
        for (size, depth, expected) in [
            (8, 64, (512, 8)),
            (1, 4, (32, 8)),
            (9, 1, (16, 16)),
            (1 << 20, 128, (64 << 20, 1 << 20)),
            (1 << 30, 2, (1 << 30, 1 << 30)),
            (3 << 20, 64, (63 << 20, 3 << 20)),
        ] {
            assert_eq!(of("", size, depth), expected);
        }
        assert_eq!(of("stride = 4096", 8, 4), (16384, 4096));
    }

    #[test]
    fn a_footprint_is_rounded_down_to_whole_strides() {
        assert_eq!(of("footprint = 100", 24, 64), (96, 24));
        assert_eq!(of("footprint = '1G'", 8, 1), (1 << 30, 8));
    }

    /// A gap is exact. Slots with a gap do not get the default alignment.
    #[test]
    fn a_gap_is_what_lies_between_the_size_and_the_next_slot() {
        assert_eq!(of("gap = 0", 9, 4), (36, 9));
        assert_eq!(of("gap = 0", 8, 4), (32, 8));
        assert_eq!(of("gap = 1", 64, 4), (260, 65));
        assert_eq!(of("gap = 4032", 64, 2), (8192, 4096));
        assert_eq!(of("gap = 1099511627712", 64, 1), (1 << 40, 1 << 40));
    }

    #[test]
    fn impossible_layouts_name_the_nearest_possible_one() {
        for (lines, part) in cases([
            "gap = 1099511627713 => for --sizes 64 is --gap 1099511627712",
            "gap = '16777215T' => is too large",
            "stride = 32 => stride 32 is less than --sizes 64, so that slots would overlap: use --stride 64 or more",
            "footprint = 32 => footprint 32 is less than one slot of --sizes 64: use --footprint 64 or more",
            "footprint = '2T' => --footprint 2T is too large: the largest is 1T",
            "stride = '16777215T' => the largest is 1T",
            "footprint = 0 => use --footprint 64 or more",
        ]) {
            slot_layout(&options(lines), 64, 64).refused(part);
        }
    }

    #[test]
    fn sizes_are_from_1_to_1_gib() {
        let of = |text: &str| sizes(&text.parse().unwrap());
        assert_eq!(of("1,1G").unwrap(), [1, 1 << 30]);
        of("0,8").refused("--sizes 0 would move nothing: the smallest is --sizes 1");
        for text in ["2G", "8G", "16T"] {
            of(text).refused(&format!(
                "--sizes {text} is too large for one operation: the largest is --sizes 1G"
            ));
        }
    }

    #[test]
    fn more_memory_than_any_rank_has_is_refused() {
        const OWN: TargetFootprint = TargetFootprint::Own;
        let layout = SlotLayout {
            footprint_bytes: 1 << 30,
            stride_bytes: 8,
        };
        assert!(check_memory(layout, OWN, Roles::new(Traffic::Pair, 1000), 512).is_ok());
        assert!(check_memory(layout, OWN, Roles::new(Traffic::AllToAll, 129), 1).is_ok());
        check_memory(layout, OWN, Roles::new(Traffic::AllToAll, 1025), 1).refused(
            "--footprint 1G for 2048 lane ends needs more than 1T in one rank: use --footprint 512M or less",
        );
        let huge = SlotLayout {
            footprint_bytes: 1 << 30,
            stride_bytes: 1 << 30,
        };
        check_memory(huge, OWN, Roles::new(Traffic::FanIn, 1025), 1)
            .refused("use smaller sizes, fewer threads or fewer ranks");
        // A shared footprint exists once, even with a thousand initiators.
        let shared = TargetFootprint::Shared;
        assert!(check_memory(huge, shared, Roles::new(Traffic::FanIn, 1025), 1).is_ok());
    }

    #[test]
    fn a_footprint_is_shared_by_initiators_that_read_it() {
        let options: MemoryOptions = options("target-footprint = 'shared'");
        let check = |traffic, op| check_shared(&options, &[Roles::new(traffic, 4)], op);
        assert!(check(Traffic::FanIn, Verb::Read).is_ok());
        assert!(check(Traffic::AllToAll, Verb::Read).is_ok());
        assert!(check(Traffic::FanIn, Verb::CompareSwap).is_ok());
        for op in [Verb::Write, Verb::WriteImm, Verb::Send] {
            check(Traffic::FanIn, op).refused("use --op read, or --target-footprint own");
        }
        for traffic in [Traffic::Pair, Traffic::FanOut] {
            check(traffic, Verb::Read)
                .refused("leave --target-footprint out, or use --traffic fan-in");
        }
        let pairs = Roles {
            initiators: Some(3),
            ..Roles::new(Traffic::Pair, 4)
        };
        assert!(check_shared(&options, &[pairs], Verb::Read).is_ok());
        assert!(check_shared(&MemoryOptions::default(), &[pairs], Verb::Write).is_ok());
    }
}

//! The memory-copy bound of a point: the best rate at which the initiators' memories copy bytes. Copies use the same
//! footprint, stride and order of addresses as the operations, but small slots without gaps are copied 64 KiB at a
//! time. [`Memory::copy_rates`] does the copying. All copiers copy simultaneously, in the same turns. In each turn, the
//! rates of all copiers are added up. The largest of these sums is the bound.

use tonnage_engine::Verb;
use tonnage_engine::memory::{CopyRange, CopyRate, CopyRepetitions, Memory};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::Rank;
use tonnage_record::Bound;
use tonnage_sys::clock::Clock;
use tonnage_units::Result;
use tonnage_units::reduce::ReduceMax;

use crate::deadlines::DEADLINES;
use crate::kinds::transfer::layout::{SLICE_BYTES_MIN, SliceLayout};
use tonnage_loops::flow_walk::FlowWalk;

/// Minimum length of one copy if the slots have no gaps. Smaller slots are copied several at a time, so that the bound
/// is the hardware's. The overhead of small operations then shows in the utilization.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Measures the copy rates of one worker, from its outgoing slices to an equal number of incoming slices. All copiers
/// use the same turns.
pub fn copy_rates(
    memory: &dyn Memory,
    layout: &SliceLayout,
    point: &TransferPoint,
    clock: &Clock,
    turns: CopyRepetitions,
) -> Result<Vec<CopyRate>> {
    let stretch = copy_stretch(layout, point);
    let mut walk = FlowWalk::with_orders(point.slots.orders(), stretch.slots(), point.slots.seed);
    let mut slots = || from_and_to(walk.next_slots(), point.op);
    memory.copy_rates(&stretch, &mut slots, clock, turns)
}

/// Returns the source and the destination of an operation. `local` is the slot at the initiator, `remote` the slot at
/// the target.
fn from_and_to((local, remote): (u64, u64), op: Verb) -> (u64, u64) {
    match op.returns_bytes() {
        true => (remote, local),
        false => (local, remote),
    }
}

/// Returns the range to copy, in pieces. The pieces are the slots of the operations, except that small slots without
/// gaps are joined. The last piece ends where the footprint ends.
pub fn copy_stretch(layout: &SliceLayout, point: &TransferPoint) -> CopyRange {
    let footprint_bytes = point.slots.footprint_bytes.max(SLICE_BYTES_MIN);
    let size_bytes = u64::from(point.slots.size_bytes);
    let joined = size_bytes < PIECE_BYTES_MIN && !point.slots.has_gaps();
    let (piece_bytes, stride_bytes) = if joined {
        (PIECE_BYTES_MIN, PIECE_BYTES_MIN)
    } else {
        (size_bytes, point.slots.stride_bytes)
    };
    let pieces = if joined {
        footprint_bytes.div_ceil(stride_bytes)
    } else {
        footprint_bytes / stride_bytes
    };
    let last_at = (pieces - 1) * stride_bytes;
    CopyRange {
        from: layout.out_origin(0),
        to: layout.into_origin(0),
        piece_bytes,
        last_piece_bytes: piece_bytes.min(footprint_bytes - last_at),
        stride_bytes,
        pieces,
        slices: (layout.out_slices() / u64::from(point.roles.round_count())).max(1),
        slice_bytes: layout.slice_bytes(),
    }
}

/// Makes all copiers agree on the start of the first turn, and on the bytes of one pass, which determine the length of
/// a turn. A rank that does not copy passes 0 bytes.
pub fn agree_on_turns(rank: &mut Rank, pass_bytes: u64) -> Result<CopyRepetitions> {
    let ReduceMax(pass_bytes) = rank.reduce(
        "turns of the copy bound",
        ReduceMax(pass_bytes),
        DEADLINES.step,
    )?;
    Ok(CopyRepetitions {
        start_ns: rank.aligned_start("start of the copy bound", DEADLINES.step)?,
        pass_bytes,
    })
}

/// Name of the method if copiers differ in their fastest method.
const FASTEST: &str = "each copier's fastest method";

/// Ensures that a copier's rates include one for its own choice of method. Each engine chooses a method per worker, so
/// the sum of these rates is the bound of all workers. Some memories measure no turns with their chosen method, for
/// example on a device that shares nothing with other copiers. Then the turns with the copier's fastest method are
/// used.
pub fn with_choice(mut rates: Vec<CopyRate>) -> Vec<CopyRate> {
    if rates.iter().any(|rate| rate.is_choice) {
        return rates;
    }
    let fastest = rates.iter();
    let fastest = fastest.max_by(|one, other| one.bytes_per_s().total_cmp(&other.bytes_per_s()));
    let choice = fastest.map(|fastest| CopyRate {
        is_choice: true,
        ..fastest.clone()
    });
    rates.extend(choice);
    rates
}

/// Adds the rates of another worker or rank, separately for each method and turn. Only the rates of simultaneous copies
/// are added up.
pub fn add_rates(sum: &mut Vec<CopyRate>, others: Vec<CopyRate>) {
    for other in others {
        let known = |rate: &&mut CopyRate| {
            rate.is_choice == other.is_choice && (rate.is_choice || rate.method == other.method)
        };
        let Some(rate) = sum.iter_mut().find(known) else {
            sum.push(other);
            continue;
        };
        if rate.method != other.method {
            FASTEST.clone_into(&mut rate.method);
        }
        let turns = rate.turns_bytes_per_s.iter().zip(&other.turns_bytes_per_s);
        rate.turns_bytes_per_s = turns.map(|(one, other)| one + other).collect();
    }
}

/// Joins the turns of two measurements, such as those before and after a point. No mean is taken: the best turn of
/// either counts.
pub fn join_turns(before: &[CopyRate], after: &[CopyRate]) -> Vec<CopyRate> {
    let all = before.iter().chain(after);
    all.cloned().collect()
}

/// Describes the slots of a point if there are gaps between them, because these slots are copied one by one.
pub fn describe_gaps(point: &TransferPoint) -> Option<String> {
    point.slots.has_gaps().then(|| {
        let (size, stride) = (point.slots.size_bytes, point.slots.stride_bytes);
        format!("slots of {size} B, {stride} B apart")
    })
}

/// Returns the bound and its description: the best turn of the summed rates of `copiers` workers. `slots` is the result
/// of `describe_gaps`. `None` if nothing was copied.
pub fn describe(rates: &[CopyRate], copiers: u64, slots: Option<&str>) -> Option<Bound> {
    let best = rates
        .iter()
        .reduce(|best, rate| match rate.bytes_per_s() > best.bytes_per_s() {
            true => rate,
            false => best,
        })?;
    let who = if copiers == 1 {
        "1 copier".to_owned()
    } else {
        format!("{copiers} copiers at once")
    };
    let slots = slots.map_or_else(String::new, |slots| format!(", {slots}"));
    let what = format!("memory copy by {}, {who}{slots}", best.method);
    Some(Bound::new(what, best.bytes_per_s()))
}

#[cfg(test)]
mod tests {
    use super::*;

    use tonnage_engine::memory::Request;
    use tonnage_engines::memory::HOST;
    use tonnage_plan::transfer::Access;

    fn rate(method: &str, turns: &[f64]) -> CopyRate {
        CopyRate {
            method: method.to_owned(),
            is_choice: false,
            turns_bytes_per_s: turns.to_vec(),
        }
    }

    fn choice(method: &str, turns: &[f64]) -> CopyRate {
        CopyRate {
            is_choice: true,
            ..rate(method, turns)
        }
    }

    fn bound(copiers: [Vec<CopyRate>; 2]) -> (String, f64) {
        let mut sum = Vec::new();
        for rates in copiers {
            add_rates(&mut sum, with_choice(rates));
        }
        let bound = describe(&sum, 2, None).unwrap();
        (bound.what, bound.bytes_per_s)
    }

    /// In some turns, one copier may have the memory to itself. The bound is the best rate that both reach together.
    #[test]
    fn the_bound_is_the_best_of_sums_and_never_a_sum_of_bests() {
        let (what, bytes_per_s) = bound([
            vec![rate("memcpy", &[10.0, 5.0, 5.0])],
            vec![rate("memcpy", &[1.0, 5.5, 11.0])],
        ]);
        assert_eq!(what, "memory copy by memcpy, 2 copiers at once");
        assert_eq!(bytes_per_s, 16.0, "not 21");
        // Turns before and after the trials were not simultaneous, so their rates are not added up.
        let before = [rate("memcpy", &[3.0, 4.0])];
        let after = [rate("memcpy", &[2.0, 7.0])];
        let bound = describe(&join_turns(&before, &after), 1, None).unwrap();
        assert_eq!(bound.bytes_per_s, 7.0);
    }

    /// Two copiers may have different fastest methods. If both have the same one, the bound names it.
    #[test]
    fn each_copier_may_use_its_own_fastest_method() {
        let copier = |memcpy: f64, stores: f64, fastest: &str, again: f64| {
            vec![
                rate("memcpy", &[memcpy]),
                rate("stores", &[stores]),
                choice(fastest, &[again]),
            ]
        };
        let differ = bound([
            copier(10.0, 7.0, "memcpy", 10.5),
            copier(6.0, 9.0, "stores", 9.0),
        ]);
        let what = "memory copy by each copier's fastest method, 2 copiers at once";
        assert_eq!(differ, (what.to_owned(), 19.5));
        let agree = bound([
            copier(10.0, 7.0, "memcpy", 11.0),
            copier(9.0, 8.0, "memcpy", 9.0),
        ]);
        let what = "memory copy by memcpy, 2 copiers at once";
        assert_eq!(agree, (what.to_owned(), 20.0));
        // Devices measure no turns with their choice of method, so the rates of the fastest method are used.
        let devices = bound([
            vec![rate("call", &[10.0]), rate("kernel", &[7.0])],
            vec![rate("call", &[6.0]), rate("kernel", &[9.0])],
        ]);
        assert_eq!(devices.1, 19.0);
    }

    #[test]
    fn every_method_gets_a_rate_over_the_slices_of_a_point() {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
        point.slots.size_bytes = 8;
        let layout = SliceLayout::new(&point, 0);
        let memory = (HOST.allocate)(&Request {
            bytes: layout.bytes(),
            ..Request::default()
        });
        let rates = copy_rates(
            &*memory.unwrap(),
            &layout,
            &point,
            &Clock::new(),
            CopyRepetitions::default(),
        )
        .unwrap();
        let all = rates.iter().flat_map(|rate| &rate.turns_bytes_per_s);
        assert!(all.into_iter().all(|rate| *rate > 0.0), "{rates:?}");
        let bound = describe(&rates, 2, None).unwrap();
        assert!(bound.what.ends_with("2 copiers at once"), "{bound:?}");
    }

    /// Returns offsets and lengths of all copies of one pass.
    fn pieces(size_bytes: u32, stride_bytes: u64, footprint_bytes: u64) -> Vec<(u64, u64)> {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1);
        (point.slots.size_bytes, point.slots.stride_bytes) = (size_bytes, stride_bytes);
        point.slots.footprint_bytes = footprint_bytes;
        let layout = SliceLayout::new(&point, 0);
        let stretch = copy_stretch(&layout, &point);
        let all: Vec<_> = (0..stretch.slots())
            .map(|slot| stretch.piece_range(slot))
            .collect();
        let sum: u64 = all.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(stretch.pass_bytes(), sum);
        let end = all.iter().map(|(at, bytes)| at + bytes).max().unwrap();
        assert!(end <= layout.slice_bytes());
        all
    }

    #[test]
    fn a_footprint_is_copied_up_to_its_last_byte() {
        const KIB: u64 = 1 << 10;
        let end_in_part = [(0, 64 * KIB), (64 * KIB, 36 * KIB)];
        assert_eq!(pieces(4096, 4096, 100 * KIB), end_in_part);
        // Slots with gaps of a few bytes count as slots without gaps: copies touch every cache line anyway.
        assert_eq!(pieces(4089, 4096, 100 * KIB), end_in_part);
        assert_eq!(pieces(4096, 4096, 128 * KIB), [(0, 65536), (65536, 65536)]);
        assert_eq!(pieces(8, 8, 8), [(0, 64 * KIB)]);
        // Slots that are at least as long as a piece are copied one by one, and only as whole slots.
        assert_eq!(
            pieces(65536, 65536, 160 * KIB),
            [(0, 65536), (65536, 65536)]
        );
        let odd = [(0, 100_001), (100_008, 100_001)];
        assert_eq!(pieces(100_001, 100_008, 200_016), odd);
    }

    #[test]
    fn slots_with_gaps_are_copied_one_by_one() {
        const KIB: u64 = 1 << 10;
        let apart: Vec<_> = (0..4).map(|at| (at * 128 * KIB, 64 * KIB)).collect();
        assert_eq!(pieces(64 << 10, 128 * KIB, 512 * KIB), apart);
        let small: Vec<_> = (0..256).map(|at| (at * 4096, 8)).collect();
        assert_eq!(pieces(8, 4096, 1024 * KIB), small);
        // A footprint that is smaller than the minimum slice is extended to it, and filled with slots.
        let few: Vec<_> = (0..21).map(|at| (at * 3000, 24)).collect();
        assert_eq!(pieces(24, 3000, 6000), few);
    }

    #[test]
    fn copies_have_the_direction_of_the_payload() {
        assert_eq!(from_and_to((1, 2), Verb::Write), (1, 2));
        assert_eq!(from_and_to((1, 2), Verb::Send), (1, 2));
        assert_eq!(from_and_to((1, 2), Verb::Read), (2, 1));
    }

    /// A worker copies only the slices of one round at a time, not of all rounds.
    #[test]
    fn slices_of_rounds_are_not_all_copied_at_once() {
        use tonnage_plan::point::Traffic;
        let slices = |traffic| {
            let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
            (point.roles.traffic, point.roles.ranks) = (traffic, 4);
            copy_stretch(&SliceLayout::new(&point, 0), &point).slices
        };
        assert_eq!(slices(Traffic::FanOut), 3);
        assert_eq!(slices(Traffic::InTurn), 1);
        assert_eq!(slices(Traffic::FanIn), 1);
    }

    /// Three ranks initiate towards one target, which also initiates towards all of them. Their passes differ in
    /// length, and all ranks agree on the longest one.
    #[test]
    fn ranks_with_unequal_stretches_agree_on_the_longest() {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 15);
        (
            point.roles.ranks,
            point.roles.initiators,
            point.roles.bidirectional,
        ) = (4, Some(3), true);
        let all = tonnage_ranks::testing::run(4, move |mut rank| {
            let layout = SliceLayout::new(&point, rank.id());
            let own_bytes = copy_stretch(&layout, &point).pass_bytes();
            let turns = agree_on_turns(&mut rank, own_bytes).unwrap();
            (own_bytes, turns.pass_bytes)
        });
        let longest_bytes = all.iter().map(|(own, _)| *own).max().unwrap();
        assert!(all.iter().any(|(own, _)| *own < longest_bytes), "{all:?}");
        assert!(
            all.iter().all(|(_, agreed)| *agreed == longest_bytes),
            "{all:?}"
        );
    }

    #[test]
    fn rates_of_hosts_that_differ_are_joined_by_name() {
        let mut sum = vec![rate("memcpy", &[2.0])];
        let other = vec![rate("rep movsb", &[5.0]), rate("memcpy", &[1.0])];
        add_rates(&mut sum, other);
        assert_eq!(sum, [rate("memcpy", &[3.0]), rate("rep movsb", &[5.0])]);
        assert_eq!(describe(&[], 0, None), None);
    }

    #[test]
    fn the_fastest_method_is_the_bound_and_the_first_wins_ties() {
        let rates = [("a", 2.0), ("b", 5.0), ("c", 5.0), ("d", 3.0)];
        let rates = rates.map(|(method, speed)| rate(method, &[speed]));
        let bound = describe(&rates, 1, Some("slots of 8 B")).unwrap();
        assert_eq!(bound.bytes_per_s, 5.0);
        assert_eq!(bound.what, "memory copy by b, 1 copier, slots of 8 B");
    }

    #[test]
    fn slots_are_described_if_there_are_gaps_between_them() {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1);
        assert_eq!(describe_gaps(&point), None);
        point.slots.stride_bytes = 4096;
        assert_eq!(describe_gaps(&point).unwrap(), "slots of 8 B, 4096 B apart");
    }
}

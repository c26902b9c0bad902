//! The memory-copy limit of a point: the fastest of all ways in which the memory copies the same footprint in the same
//! address order, measured by all initiating workers at once. The copying itself is the memory's
//! ([`Memory::copy_rates`]).

use tonnage_engine::memory::{CopyRate, Memory, Stretch};
use tonnage_plan::transfer::TransferPoint;
use tonnage_sys::clock::Clock;
use tonnage_units::Result;

use crate::drive::walk::Walk;
use crate::kinds::transfer::layout::{SLICE_BYTES_MIN, SliceLayout};

/// Smallest copy that operations are compared with: the limit is the hardware's, and the cost of each small operation
/// is what utilization should show.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Measures the copy rates of one worker from its outgoing slices to as many incoming ones.
///
/// # Errors
/// When the slices do not lie in the memory.
pub fn copy_rates(
    memory: &dyn Memory,
    layout: &SliceLayout,
    point: &TransferPoint,
    clock: &Clock,
) -> Result<Vec<CopyRate>> {
    let footprint = point.footprint_bytes.max(SLICE_BYTES_MIN);
    let piece_bytes = u64::from(point.size_bytes).max(PIECE_BYTES_MIN);
    let stretch = Stretch {
        from: layout.out_origin(0),
        to: layout.into_origin(0),
        piece_bytes,
        pieces: footprint / piece_bytes,
        slices: layout.out_slices(),
        slice_bytes: layout.slice_bytes(),
    };
    let mut walk = Walk::over(point.addresses, stretch.slots(), point.seed);
    memory.copy_rates(&stretch, &mut || walk.next_slot(), clock)
}

/// Adds the rates of another worker or rank, way by way.
pub fn add(sum: &mut Vec<CopyRate>, others: Vec<CopyRate>) {
    merge(sum, others, |one, other| one + other);
}

/// The better of two measurements of each way, as before and after a point.
pub fn better(before: &[CopyRate], after: &[CopyRate]) -> Vec<CopyRate> {
    let mut best = before.to_vec();
    merge(&mut best, after.to_vec(), f64::max);
    best
}

fn merge(all: &mut Vec<CopyRate>, others: Vec<CopyRate>, join: fn(f64, f64) -> f64) {
    for other in others {
        match all.iter_mut().find(|known| known.method == other.method) {
            Some(known) => known.bytes_per_s = join(known.bytes_per_s, other.bytes_per_s),
            None => all.push(other),
        }
    }
}

/// The limit in words and bytes per second, from the summed rates of `copiers` workers; `None` where nothing was
/// copied.
pub fn describe(rates: &[CopyRate], copiers: u64) -> Option<tonnage_record::Limit> {
    let best = rates
        .iter()
        .reduce(|best, rate| match rate.bytes_per_s > best.bytes_per_s {
            true => rate,
            false => best,
        })?;
    let who = if copiers == 1 {
        "1 copier".to_owned()
    } else {
        format!("{copiers} copiers at once")
    };
    Some(tonnage_record::Limit {
        what: format!("memory copy by {}, {who}", best.method),
        bytes_per_s: best.bytes_per_s,
        ci95_bytes_per_s: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::memory::Request;
    use tonnage_engines::memory::HOST;
    use tonnage_plan::transfer::Addresses;

    #[test]
    fn every_way_gets_a_rate_over_the_slices_of_a_point() {
        let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 15);
        point.size_bytes = 8;
        let layout = SliceLayout::new(&point, 0);
        let memory = (HOST.allocate)(&Request {
            bytes: layout.bytes(),
            ..Request::default()
        });
        let rates = copy_rates(&*memory.unwrap(), &layout, &point, &Clock::new()).unwrap();
        assert!(rates.iter().all(|rate| rate.bytes_per_s > 1e8), "{rates:?}");
        let limit = describe(&rates, 2).unwrap();
        assert!(limit.what.ends_with("2 copiers at once"), "{limit:?}");
    }

    fn rate(method: &str, bytes_per_s: f64) -> CopyRate {
        CopyRate {
            method: method.to_owned(),
            bytes_per_s,
        }
    }

    #[test]
    fn rates_of_hosts_that_differ_are_joined_by_name() {
        let mut sum = vec![rate("memcpy", 2.0)];
        add(&mut sum, vec![rate("rep movsb", 5.0), rate("memcpy", 1.0)]);
        assert_eq!(sum, [rate("memcpy", 3.0), rate("rep movsb", 5.0)]);
        let best = better(&sum, &[rate("memcpy", 4.0)]);
        assert_eq!(best, [rate("memcpy", 4.0), rate("rep movsb", 5.0)]);
        assert_eq!(describe(&[], 0), None);
    }
}

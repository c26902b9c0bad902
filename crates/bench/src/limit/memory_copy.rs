//! The memory-copy limit of a point: the fastest of all copy methods over the same memory, footprint and address
//! order, measured by all initiating workers at once.

use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::Arena;

use crate::drive::walk::Walk;
use crate::kinds::transfer::layout::{Layout, SLICE_BYTES_MIN};
use tonnage_plan::transfer::TransferPoint;
use tonnage_units::{Error, Result};

/// Smaller operations are set beside copies of this size: the limit is the hardware's, and the cost of each small
/// operation is what utilization should show.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;

/// How long one method copies at a stretch, at least; a whole footprint if that takes longer.
const SLICE_NS: u64 = 3_000_000;

/// An untimed pass ends after this long, however large the footprint is.
const WARM_NS_MAX: u64 = 50_000_000;

/// Stretches of each method, taken in turn.
const ROUNDS: usize = 3;

/// Bytes per second of each method of [`Method::available`], in its order; 0 where this CPU lacks it.
pub type CopyRates = [f64; 3];

/// Two stretches of one memory between which is copied, piece by piece.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Where the source starts.
    pub from: u64,
    /// Where the destination starts.
    pub to: u64,
    /// Bytes of one copy, and the distance between two.
    pub piece_bytes: u64,
    /// Pieces of one slice.
    pub pieces: u64,
    /// Distance between the starts of two slices; of no account where there is one.
    pub slice_bytes: u64,
}

/// Measures the copy rates of one worker from its outgoing slices to as many incoming ones.
///
/// # Errors
/// When the slices do not lie in the memory.
pub fn copy_rates(
    arena: &Arena,
    layout: &Layout,
    point: &TransferPoint,
    clock: &Clock,
) -> Result<CopyRates> {
    let footprint = point.footprint_bytes.max(SLICE_BYTES_MIN);
    let piece_bytes = u64::from(point.size_bytes).max(PIECE_BYTES_MIN);
    let stretch = Stretch {
        from: layout.out_origin(0),
        to: layout.into_origin(0),
        piece_bytes,
        pieces: footprint / piece_bytes,
        slice_bytes: layout.slice_bytes(),
    };
    let walk = Walk::over(
        point.addresses,
        layout.out_slices() * stretch.pieces,
        point.seed,
    );
    rates(arena, &stretch, walk, clock)
}

/// Copies by every method in turn and returns the best rate of each.
///
/// Each turn begins with an untimed pass over the footprint, which brings the caches into the state that this method
/// leaves them in.
///
/// # Errors
/// When a stretch does not lie in the memory.
pub fn rates(arena: &Arena, stretch: &Stretch, mut walk: Walk, clock: &Clock) -> Result<CopyRates> {
    let pass_bytes = walk.slots() * stretch.piece_bytes;
    let mut best = CopyRates::default();
    for _ in 0..ROUNDS {
        for (rate, &method) in best.iter_mut().zip(Method::available()) {
            let mut copier = Copier {
                arena,
                stretch,
                walk: &mut walk,
                clock,
                method,
            };
            copier.copy(|bytes, ns| bytes >= pass_bytes || ns >= WARM_NS_MAX)?;
            let (bytes, ns) = copier
                .copy(|bytes, ns| ns >= SLICE_NS && (bytes >= pass_bytes || ns >= WARM_NS_MAX))?;
            *rate = rate.max(bytes as f64 * 1e9 / ns as f64);
        }
    }
    Ok(best)
}

struct Copier<'a> {
    arena: &'a Arena,
    stretch: &'a Stretch,
    walk: &'a mut Walk,
    clock: &'a Clock,
    method: Method,
}

impl Copier<'_> {
    /// Copies pieces until `enough` (bytes, nanoseconds) says so; returns both.
    fn copy(&mut self, enough: impl Fn(u64, u64) -> bool) -> Result<(u64, u64)> {
        let piece_bytes = self.stretch.piece_bytes;
        let len = u32::try_from(piece_bytes).unwrap_or(u32::MAX);
        let start_ns = self.clock.now_ns();
        let mut bytes = 0;
        loop {
            let slot = self.walk.next_slot();
            let (slice, piece) = (slot / self.stretch.pieces, slot % self.stretch.pieces);
            let offset = slice * self.stretch.slice_bytes + piece * piece_bytes;
            let (from, to) = (self.stretch.from + offset, self.stretch.to + offset);
            self.arena
                .copy_to(from, self.arena, to, len, self.method)
                .map_err(|error| Error::Failed(format!("copy limit: {error}")))?;
            bytes += piece_bytes;
            let ns = self.clock.now_ns() - start_ns;
            if enough(bytes, ns) {
                return Ok((bytes, ns.max(1)));
            }
        }
    }
}

/// The better of two measurements of each method, as before and after a point.
pub fn better(before: &CopyRates, after: &CopyRates) -> CopyRates {
    std::array::from_fn(|method| before[method].max(after[method]))
}

/// The limit in words and bytes per second, from the summed rates of `copiers` workers.
pub fn describe(rates: &CopyRates, copiers: u64) -> tonnage_record::Limit {
    let mut best = 0;
    for index in 1..Method::available().len() {
        if rates[index] > rates[best] {
            best = index;
        }
    }
    let name = Method::available()[best].name();
    let who = if copiers == 1 {
        "1 copier".to_owned()
    } else {
        format!("{copiers} copiers at once")
    };
    tonnage_record::Limit {
        what: format!("memory copy by {name}, {who}"),
        bytes_per_s: rates[best],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_plan::transfer::Addresses;
    use tonnage_sys::mapping::{Pages, Sharing};

    #[test]
    fn every_method_that_the_cpu_has_gets_a_rate() {
        let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 15);
        point.size_bytes = 8;
        let layout = Layout::new(&point, 0);
        let arena = Arena::allocate(
            layout.bytes() as usize,
            Pages::Normal,
            Sharing::Private,
            None,
        )
        .unwrap();
        let rates = copy_rates(&arena, &layout, &point, &Clock::new()).unwrap();
        let available = Method::available().len();
        assert!(
            rates[..available].iter().all(|&rate| rate > 1e8),
            "{rates:?}"
        );
        assert!(describe(&rates, 2).what.ends_with("2 copiers at once"));
    }
}

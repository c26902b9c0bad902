//! Copy rates of the CPU in host memory: every method that it has, over the same bytes in the same order, in turn.

use tonnage_engine::memory::{CopyRate, Stretch};
use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

/// Time that one method copies at a stretch, at least; a whole footprint if that takes longer.
const SLICE_NS: u64 = 3_000_000;

/// An untimed pass ends after this long, however large the footprint is.
const WARM_NS_MAX: u64 = 50_000_000;

/// Stretches of each method, taken in turn.
const ROUNDS: usize = 3;

/// Copies by every method in turn and returns the best rate of each.
///
/// Each turn begins with an untimed pass over the footprint, which brings the caches into the state that this method
/// leaves them in.
///
/// # Errors
/// When a stretch does not lie in the memory.
pub(super) fn rates(
    arena: &Arena,
    stretch: &Stretch,
    slot: &mut dyn FnMut() -> u64,
    clock: &Clock,
) -> Result<Vec<CopyRate>> {
    let pass_bytes = stretch.slots() * stretch.piece_bytes;
    let methods = Method::available();
    let mut best = vec![0f64; methods.len()];
    for _ in 0..ROUNDS {
        for (rate, &method) in best.iter_mut().zip(methods) {
            let mut copier = Copier {
                arena,
                stretch,
                slot,
                clock,
                method,
            };
            copier.copy(|bytes, ns| bytes >= pass_bytes || ns >= WARM_NS_MAX)?;
            let (bytes, ns) = copier
                .copy(|bytes, ns| ns >= SLICE_NS && (bytes >= pass_bytes || ns >= WARM_NS_MAX))?;
            *rate = rate.max(bytes as f64 * 1e9 / ns as f64);
        }
    }
    let rates = methods.iter().zip(best);
    let rates = rates.map(|(method, bytes_per_s)| CopyRate {
        method: method.name().to_owned(),
        bytes_per_s,
    });
    Ok(rates.collect())
}

struct Copier<'a> {
    arena: &'a Arena,
    stretch: &'a Stretch,
    slot: &'a mut dyn FnMut() -> u64,
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
            let offset = self.stretch.offset((self.slot)());
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

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    #[test]
    fn every_method_that_the_cpu_has_gets_a_rate() {
        let bytes = 256 << 10;
        let arena = Arena::allocate(2 * bytes, Pages::Normal, Sharing::Private, None).unwrap();
        let stretch = Stretch {
            from: 0,
            to: bytes as u64,
            piece_bytes: 64 << 10,
            pieces: 4,
            slices: 1,
            slice_bytes: 0,
        };
        let mut turn = 0;
        let mut slot = || {
            turn += 1;
            turn % stretch.slots()
        };
        let rates = rates(&arena, &stretch, &mut slot, &Clock::new()).unwrap();
        assert_eq!(rates.len(), Method::available().len());
        assert!(rates.iter().all(|rate| rate.bytes_per_s > 1e8), "{rates:?}");
    }
}

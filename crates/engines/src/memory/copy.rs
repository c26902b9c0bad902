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

/// Bytes between two looks at the clock, at least: a look costs more than a small piece does.
const TIMED_BYTES_MIN: u64 = 64 << 10;

/// The most pieces between two looks at the clock.
const TIMED_PIECES_MAX: usize = 1024;

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
    slots: &mut dyn FnMut() -> (u64, u64),
    clock: &Clock,
) -> Result<Vec<CopyRate>> {
    let pass_bytes = stretch.pass_bytes();
    let is_own = |method: &&Method| method.bytes_min() <= stretch.piece_bytes;
    let methods: Vec<Method> = Method::available().iter().filter(is_own).copied().collect();
    let mut best = vec![0f64; methods.len()];
    let mut pieces = Vec::with_capacity(TIMED_PIECES_MAX);
    for _ in 0..ROUNDS {
        for (rate, &method) in best.iter_mut().zip(&methods) {
            let mut copier = Copier {
                arena,
                stretch,
                slots,
                clock,
                method,
                pieces: &mut pieces,
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
    slots: &'a mut dyn FnMut() -> (u64, u64),
    clock: &'a Clock,
    method: Method,
    /// Sources, destinations and lengths of the copies until the next look at the clock.
    pieces: &'a mut Vec<(u64, u64, u32)>,
}

impl Copier<'_> {
    /// Copies pieces until `enough` (bytes, nanoseconds) says so; returns both.
    fn copy(&mut self, enough: impl Fn(u64, u64) -> bool) -> Result<(u64, u64)> {
        let (mut bytes, mut ns) = (0, 0);
        loop {
            // Outside the clock: finding the places of small pieces takes as long as copying them.
            bytes += self.next_pieces();
            let start_ns = self.clock.now_ns();
            for &(from, to, len) in &*self.pieces {
                self.arena
                    .copy_to(from, self.arena, to, len, self.method)
                    .map_err(|error| Error::Failed(format!("copy limit: {error}")))?;
            }
            ns += self.clock.now_ns() - start_ns;
            if enough(bytes, ns) {
                return Ok((bytes, ns.max(1)));
            }
        }
    }

    /// Takes the next pieces of the walk; returns their bytes.
    fn next_pieces(&mut self) -> u64 {
        self.pieces.clear();
        let mut sum = 0;
        while sum < TIMED_BYTES_MIN && self.pieces.len() < TIMED_PIECES_MAX {
            let (from, to, bytes) = self.stretch.copy((self.slots)());
            let (from, to) = (self.stretch.from + from, self.stretch.to + to);
            self.pieces
                .push((from, to, u32::try_from(bytes).unwrap_or(u32::MAX)));
            sum += bytes;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_sys::mapping::{Pages, Sharing};

    const SIDE_BYTES: u64 = 512 << 10;

    /// Rates over a stretch from the first half of a memory full of ones to the second, full of zeros, and what that
    /// half holds afterwards.
    fn copied(stretch: Stretch) -> (Vec<CopyRate>, Vec<u8>) {
        let bytes = 2 * SIDE_BYTES as usize;
        let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        arena.write(0, &vec![1; SIDE_BYTES as usize]).unwrap();
        let mut turn = 0;
        let mut slots = || {
            turn += 1;
            let slot = turn % stretch.slots();
            (slot, slot)
        };
        let rates = rates(&arena, &stretch, &mut slots, &Clock::new()).unwrap();
        let mut target = vec![0; SIDE_BYTES as usize];
        arena.read(SIDE_BYTES, &mut target).unwrap();
        (rates, target)
    }

    const WHOLE: Stretch = Stretch {
        from: 0,
        to: SIDE_BYTES,
        piece_bytes: 64 << 10,
        last_piece_bytes: 64 << 10,
        stride_bytes: 64 << 10,
        pieces: 4,
        slices: 1,
        slice_bytes: 0,
    };

    #[test]
    fn every_method_that_the_cpu_has_gets_a_rate() {
        let (rates, _) = copied(WHOLE);
        assert_eq!(rates.len(), Method::available().len());
        assert!(rates.iter().all(|rate| rate.bytes_per_s > 1e8), "{rates:?}");
    }

    #[test]
    fn what_is_copied_is_the_pieces_and_nothing_between_them() {
        let stretch = Stretch {
            piece_bytes: 24,
            last_piece_bytes: 5,
            stride_bytes: 4096,
            pieces: 3,
            slices: 2,
            slice_bytes: 256 << 10,
            ..WHOLE
        };
        assert_eq!((stretch.slots(), stretch.pass_bytes()), (6, 106));
        let (_, target) = copied(stretch);
        let ones: Vec<usize> = (0..target.len()).filter(|&at| target[at] == 1).collect();
        let pieces = [(0, 24), (4096, 24), (8192, 5)];
        let slices = [0, 256 << 10].into_iter();
        let expected: Vec<usize> = slices
            .flat_map(|slice| pieces.map(|(at, len)| slice + at..slice + at + len))
            .flatten()
            .collect();
        assert_eq!(ones, expected);
    }
}

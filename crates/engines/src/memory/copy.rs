//! Copy rates of the CPU in host memory. All copy methods take turns over the same bytes in the same order.

use tonnage_engine::memory::{CopyRange, CopyRate, CopyRepetitions};
use tonnage_sys::clock::Clock;
use tonnage_sys::copy::Method;
use tonnage_sys::mapping::Arena;
use tonnage_units::{Error, Result};

/// Minimum duration of the timed part of a turn.
const TIMED_NS_MIN: u64 = 3_000_000;

/// Minimum duration of the untimed part of a turn.
const LEAD_NS_MIN: u64 = 500_000;

/// Maximum duration of each part, for any footprint, unless a single piece takes longer.
const PART_NS_MAX: u64 = 50_000_000;

/// Copy speed for which durations are planned: at this speed, each part of a turn covers the whole footprint. A slower
/// copier continues in the next turn where it stopped.
const BYTES_PER_NS: u64 = 8;

/// Turns per method.
const TURNS: usize = 3;

/// Minimum number of bytes between two clock reads, because a clock read costs more than a small piece.
const TIMED_BYTES_MIN: u64 = 64 << 10;

/// Maximum number of pieces between two clock reads.
const TIMED_PIECES_MAX: usize = 1024;

/// Copies with every method in turn, then with the fastest method again. Returns the rates of all turns.
///
/// Turns have the same times for all copiers with the same `turns`, independent of their speed and number of bytes. The
/// untimed part of a turn brings the caches into the state in which this method leaves them. It also ensures that all
/// copiers have started the turn before any is timed.
///
/// # Errors
/// If the range does not lie in the memory.
pub(super) fn rates(
    arena: &Arena,
    stretch: &CopyRange,
    slots: &mut dyn FnMut() -> (u64, u64),
    clock: &Clock,
    turns: CopyRepetitions,
) -> Result<Vec<CopyRate>> {
    let is_own = |method: &&Method| method.bytes_min() <= stretch.piece_bytes;
    let methods: Vec<Method> = Method::available().iter().filter(is_own).copied().collect();
    let rate = |method: &Method, is_choice| CopyRate {
        method: method.name().to_owned(),
        is_choice,
        turns_bytes_per_s: Vec::with_capacity(TURNS),
    };
    let mut rates: Vec<CopyRate> = methods.iter().map(|method| rate(method, false)).collect();
    let mut copier = Copier {
        arena,
        stretch,
        slots,
        clock,
        pieces: Vec::with_capacity(TIMED_PIECES_MAX),
    };
    while clock.now_ns() < turns.start_ns {
        std::hint::spin_loop();
    }
    let start_ns = match turns.start_ns {
        0 => clock.now_ns(),
        start_ns => start_ns,
    };
    let mut turn_times = TurnTimes::new(stretch, CopyRepetitions { start_ns, ..turns });
    for _ in 0..TURNS {
        for (rate, &method) in rates.iter_mut().zip(&methods) {
            let turn = copier.turn(method, turn_times.next())?;
            rate.turns_bytes_per_s.push(turn);
        }
    }
    let own = methods.iter().zip(&rates);
    let own = own.max_by(|one, other| one.1.bytes_per_s().total_cmp(&other.1.bytes_per_s()));
    if let Some((&method, _)) = own {
        let mut choice = rate(&method, true);
        for _ in 0..TURNS {
            let turn = copier.turn(method, turn_times.next())?;
            choice.turns_bytes_per_s.push(turn);
        }
        rates.push(choice);
    }
    Ok(rates)
}

/// Start times of consecutive turns.
struct TurnTimes {
    next_ns: u64,
    lead_ns: u64,
    timed_ns: u64,
}

/// The timed part of a turn.
struct TimedPart {
    from_ns: u64,
    until_ns: u64,
}

impl TurnTimes {
    fn new(stretch: &CopyRange, turns: CopyRepetitions) -> Self {
        let pass_ns = turns.pass_bytes.max(stretch.pass_bytes()) / BYTES_PER_NS;
        let piece_ns = stretch.piece_bytes / BYTES_PER_NS;
        Self {
            next_ns: turns.start_ns,
            lead_ns: pass_ns.clamp(LEAD_NS_MIN, PART_NS_MAX).max(piece_ns),
            timed_ns: pass_ns.clamp(TIMED_NS_MIN, PART_NS_MAX).max(2 * piece_ns),
        }
    }

    fn next(&mut self) -> TimedPart {
        let from_ns = self.next_ns + self.lead_ns;
        let until_ns = from_ns + self.timed_ns;
        self.next_ns = until_ns;
        TimedPart { from_ns, until_ns }
    }
}

struct Copier<'a> {
    arena: &'a Arena,
    stretch: &'a CopyRange,
    slots: &'a mut dyn FnMut() -> (u64, u64),
    clock: &'a Clock,
    /// Sources, destinations and lengths of the copies before the next clock read.
    pieces: Vec<(u64, u64, u32)>,
}

impl Copier<'_> {
    /// Copies until the end of a turn, and returns the rate of the timed part. Even a copier that starts too late
    /// copies once.
    fn turn(&mut self, method: Method, timed: TimedPart) -> Result<f64> {
        let (mut bytes, mut ns) = (0, 0);
        loop {
            // Finding the offsets is not timed, because for small pieces it takes as long as copying.
            let these_bytes = self.next_pieces();
            let start_ns = self.clock.now_ns();
            for &(from, to, len) in &self.pieces {
                self.arena
                    .copy_to(from, self.arena, to, len, method)
                    .map_err(|error| Error::Failed(format!("copy limit: {error}")))?;
            }
            let end_ns = self.clock.now_ns();
            if start_ns >= timed.from_ns {
                bytes += these_bytes;
                ns += end_ns - start_ns;
            }
            if end_ns >= timed.until_ns && bytes > 0 {
                return Ok(bytes as f64 * 1e9 / ns.max(1) as f64);
            }
        }
    }

    /// Fetches the next pieces of the walk, and returns their total size.
    fn next_pieces(&mut self) -> u64 {
        self.pieces.clear();
        let mut sum = 0;
        while sum < TIMED_BYTES_MIN && self.pieces.len() < TIMED_PIECES_MAX {
            let (from, to, bytes) = self.stretch.copy_offsets((self.slots)());
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

    /// Copies a range from the first half of a memory (all ones) to the second half (all zeros). Returns the rates, and
    /// the bytes of the second half afterwards.
    fn copied(stretch: CopyRange) -> (Vec<CopyRate>, Vec<u8>) {
        let bytes = 2 * SIDE_BYTES as usize;
        let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        arena.write(0, &vec![1; SIDE_BYTES as usize]).unwrap();
        let mut turn = 0;
        let mut slots = || {
            turn += 1;
            let slot = turn % stretch.slots();
            (slot, slot)
        };
        let rates = rates(
            &arena,
            &stretch,
            &mut slots,
            &Clock::new(),
            CopyRepetitions::default(),
        )
        .unwrap();
        let mut target = vec![0; SIDE_BYTES as usize];
        arena.read(SIDE_BYTES, &mut target).unwrap();
        (rates, target)
    }

    const WHOLE: CopyRange = CopyRange {
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
    fn every_method_of_the_cpu_gets_a_rate() {
        let (rates, _) = copied(WHOLE);
        assert_eq!(rates.len(), Method::available().len() + 1);
        let turns = rates.iter().map(|rate| rate.turns_bytes_per_s.len());
        assert!(turns.into_iter().all(|turns| turns == TURNS), "{rates:?}");
        let (choice, ways) = rates.split_last().unwrap();
        let best = ways.iter().map(CopyRate::bytes_per_s).fold(0.0, f64::max);
        let chosen = ways.iter().find(|way| way.method == choice.method).unwrap();
        assert!(choice.is_choice && !ways.iter().any(|way| way.is_choice));
        assert_eq!(chosen.bytes_per_s(), best);
    }

    /// A copier that has finished its pass continues to copy until the turn ends for all copiers.
    #[test]
    fn copiers_with_one_start_have_the_same_turns() {
        let at = |pass_bytes| CopyRepetitions {
            start_ns: 1_000,
            pass_bytes,
        };
        let of = |bytes: u64| {
            let stretch = CopyRange {
                piece_bytes: bytes,
                last_piece_bytes: bytes,
                pieces: 1,
                ..WHOLE
            };
            let mut turn_times = TurnTimes::new(&stretch, at(0));
            let (first, second) = (turn_times.next(), turn_times.next());
            assert_eq!(second.from_ns - first.until_ns, first.from_ns - 1_000);
            (first.from_ns - 1_000, first.until_ns - first.from_ns)
        };
        assert_eq!(of(64 << 10), (LEAD_NS_MIN, TIMED_NS_MIN));
        // A turn covers a whole pass or most of it, and at least two pieces.
        assert_eq!(of(64_000_000), (8_000_000, 16_000_000));
        assert_eq!(of(2_400_000_000), (300_000_000, 600_000_000));
        // One copier has three peers. Each peer copies only to this copier.
        let [long, short] = [3, 1].map(|slices| CopyRange {
            pieces: 1_000,
            slices,
            ..WHOLE
        });
        let [mut long_turns, mut short_turns] =
            [long, short].map(|stretch| TurnTimes::new(&stretch, at(long.pass_bytes())));
        for _ in 0..3 {
            let (one, other) = (long_turns.next(), short_turns.next());
            assert_eq!(one.from_ns, other.from_ns);
            assert_eq!(one.until_ns, other.until_ns);
        }
        let bytes = 2 * SIDE_BYTES as usize;
        let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
        let clock = Clock::new();
        let start_ns = clock.now_ns() + 5_000_000;
        let turns = CopyRepetitions {
            start_ns,
            pass_bytes: 0,
        };
        let rates = rates(&arena, &WHOLE, &mut || (0, 0), &clock, turns).unwrap();
        let turns = (rates.len() * TURNS) as u64;
        let all_ns = turns * (LEAD_NS_MIN + TIMED_NS_MIN);
        assert!(clock.now_ns() >= start_ns + all_ns);
    }

    #[test]
    fn only_the_pieces_are_copied_and_no_bytes_between_them() {
        let stretch = CopyRange {
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

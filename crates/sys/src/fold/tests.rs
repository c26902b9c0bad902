//! Compares every kernel with a scalar reference, element by element and bit by bit.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use half::{bf16, f16};

use super::*;
use crate::mapping::Arena;

/// Bytes that begin at a multiple of 64, in a separate arena that may begin at any address.
struct Memory {
    arena: Arena,
    start: u64,
    len: usize,
}

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let owned: Arc<[AtomicU8]> = (0..bytes.len() + 64).map(|_| AtomicU8::new(0)).collect();
        let arena = Arena::over_atomics(owned).unwrap();
        let start = arena.address().next_multiple_of(64) - arena.address();
        arena.write(start, bytes).unwrap();
        Self {
            arena,
            start,
            len: bytes.len(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.arena.read(self.start, &mut bytes).unwrap();
        bytes
    }
}

/// Number of elements after the folded ones. They must not change. Under Miri there are fewer, because Miri is slow.
const PAD: usize = if cfg!(miri) { 2 } else { 70 };

/// A small generator, so that tests are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Special values: zeros, ones, infinities, NaN, subnormals, the greatest and the smallest.
fn special(number: Number) -> Vec<u64> {
    match number {
        Number::F32 => [0.0, 1.0, f32::INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45]
            .iter()
            .chain(&[f32::MAX, f32::MIN_POSITIVE / 2.0])
            .flat_map(|f| [f.to_bits().into(), (-f).to_bits().into()])
            .collect(),
        Number::F64 => [0.0, 1.0, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE, 5e-324]
            .iter()
            .chain(&[f64::MAX, f64::MIN_POSITIVE / 2.0])
            .flat_map(|f| [f.to_bits(), (-f).to_bits()])
            .collect(),
        Number::F16 => [0, 0x3c00, 0x7c00, 0x7e00, 0x7c01, 0x0400, 0x7bff, 1, 0x3ff]
            .iter()
            .flat_map(|bits| [*bits, bits | 0x8000])
            .collect(),
        Number::Bf16 => [0, 0x3f80, 0x7f80, 0x7fc0, 0x7f81, 0x0080, 0x7f7f, 1, 0x7f]
            .iter()
            .flat_map(|bits| [*bits, bits | 0x8000])
            .collect(),
        Number::I8 | Number::U8 | Number::I32 | Number::I64 => {
            let top = 1_u64 << (8 * number.size_bytes() - 1);
            vec![0, 1, u64::MAX, top, top - 1]
        }
    }
}

/// Makes `elements` elements with random bits. About one in four is a special value.
fn elements(number: Number, elements: usize, random: &mut Random) -> Vec<u8> {
    let special = special(number);
    let size = number.size_bytes() as usize;
    let mut bytes = Vec::with_capacity(elements * size);
    for _ in 0..elements {
        let choice = random.next();
        let bits = match choice % 4 {
            0 => special[(choice >> 8) as usize % special.len()],
            _ => random.next(),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    bytes
}

/// Computes the reference result of a float operation, as bits.
macro_rules! float {
    ($float:ty, $bits:ty, $fold:expr, $a:expr, $b:expr) => {{
        let [a, b] = [$a, $b].map(|bits| <$float>::from_bits(bits as $bits));
        let result: $float = match $fold {
            Fold::Sum => a + b,
            Fold::Prod => a * b,
            _ if a.is_nan() || b.is_nan() => <$float>::NAN,
            Fold::Min if a < b || (a == b && a.is_sign_negative()) => a,
            Fold::Max if a > b || (a == b && a.is_sign_positive()) => a,
            Fold::Min | Fold::Max => b,
        };
        result.to_bits().into()
    }};
}

macro_rules! integer {
    ($integer:ty, $fold:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a as $integer, $b as $integer);
        let result = match $fold {
            Fold::Sum => a.wrapping_add(b),
            Fold::Prod => a.wrapping_mul(b),
            Fold::Min => a.min(b),
            Fold::Max => a.max(b),
        };
        result as u64
    }};
}

fn reference(number: Number, fold: Fold, a: u64, b: u64) -> u64 {
    match number {
        Number::F32 => float!(f32, u32, fold, a, b),
        Number::F64 => float!(f64, u64, fold, a, b),
        Number::F16 => float!(f16, u16, fold, a, b),
        Number::Bf16 => float!(bf16, u16, fold, a, b),
        Number::I8 => integer!(i8, fold, a, b),
        Number::U8 => integer!(u8, fold, a, b),
        Number::I32 => integer!(i32, fold, a, b),
        Number::I64 => integer!(i64, fold, a, b),
    }
}

fn divided(number: Number, a: u64, by: u32) -> u64 {
    let wide = i64::from(by);
    match number {
        Number::F32 => (f32::from_bits(a as u32) / by as f32).to_bits().into(),
        Number::F64 => (f64::from_bits(a) / f64::from(by)).to_bits(),
        Number::F16 => {
            let value = f16::from_bits(a as u16).to_f64() / f64::from(by as f32);
            f16::from_f64(value).to_bits().into()
        }
        Number::Bf16 => {
            let value = bf16::from_bits(a as u16).to_f32() / by as f32;
            bf16::from_f32(value).to_bits().into()
        }
        Number::I8 => (i64::from(a as i8) / wide) as u64,
        Number::U8 => (i64::from(a as u8) / wide) as u64,
        Number::I32 => (i64::from(a as i32) / wide) as u64,
        Number::I64 => (a as i64 / wide) as u64,
    }
}

fn bits(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Returns the bits of an element, with one value for all NaNs.
fn seen(number: Number, element: u64) -> u64 {
    let is_nan = match number {
        Number::F32 => f32::from_bits(element as u32).is_nan(),
        Number::F64 => f64::from_bits(element).is_nan(),
        Number::F16 => f16::from_bits(element as u16).is_nan(),
        Number::Bf16 => bf16::from_bits(element as u16).is_nan(),
        Number::I8 | Number::U8 | Number::I32 | Number::I64 => false,
    };
    let unused = 64 - 8 * number.size_bytes();
    if is_nan {
        u64::MAX
    } else {
        element << unused >> unused
    }
}

/// Compares a whole memory: folded elements as numbers, and all bytes around them exactly.
fn compare(what: &str, number: Number, found: &[u8], expected: &[u8], at: usize, len: usize) {
    let size = number.size_bytes() as usize;
    assert_eq!(found[..at], expected[..at], "{what}: bytes before");
    assert_eq!(
        found[at + len..],
        expected[at + len..],
        "{what}: bytes behind"
    );
    let pairs = found[at..at + len]
        .chunks(size)
        .zip(expected[at..at + len].chunks(size));
    for (element, (found, expected)) in pairs.enumerate() {
        let (found, expected) = (bits(found), bits(expected));
        assert!(
            seen(number, found) == seen(number, expected),
            "{what}: element {element} is {found:#x}, should be {expected:#x}"
        );
    }
}

fn every_kernel(check: impl Fn(Kernel)) {
    for number in Number::ALL {
        for fold in Fold::ALL {
            Kernel::available(number, fold).into_iter().for_each(&check);
        }
    }
}

/// Folds `len` elements in place and from two operands, beginning `shift` elements after a multiple of 64 bytes.
fn check_fold(kernel: &Kernel, len: usize, shift: usize, random: &mut Random) {
    let number = kernel.number();
    let size = number.size_bytes() as usize;
    let what = format!(
        "{} {number:?} {:?} of {len} at {shift}",
        kernel.name(),
        kernel.operation()
    );
    let one = elements(number, len + shift + PAD, random);
    let other = elements(number, len + PAD, random);
    let (at, bytes) = (shift * size, len * size);
    let mut expected = one.clone();
    for element in 0..len {
        let (here, there) = (at + element * size, element * size);
        let (a, b) = (
            bits(&one[here..here + size]),
            bits(&other[there..there + size]),
        );
        let result = reference(number, kernel.operation(), a, b);
        expected[here..here + size].copy_from_slice(&result.to_le_bytes()[..size]);
    }
    let (to, from) = (Memory::new(&one), Memory::new(&other));
    let offset = to.start + at as u64;
    to.arena
        .fold(kernel, offset, &from.arena, from.start, len as u64)
        .unwrap();
    compare(&what, number, &to.bytes(), &expected, at, bytes);
    assert_eq!(from.bytes(), other, "{what}: the other operand");

    let third = Memory::new(&vec![0xee; expected.len()]);
    let source = Memory::new(&one);
    let (one, other) = (
        (&source.arena, source.start + at as u64),
        (&from.arena, from.start),
    );
    let offset = third.start + at as u64;
    let combined = third.arena.combine(kernel, offset, one, other, len as u64);
    combined.unwrap();
    expected[..at].fill(0xee);
    expected[at + bytes..].fill(0xee);
    compare(&what, number, &third.bytes(), &expected, at, bytes);
}

#[test]
fn every_kernel_folds_as_the_reference_does() {
    let lengths: Vec<usize> = if cfg!(miri) {
        vec![9]
    } else {
        (0..200).chain([511, 1023, 1025, 2049, 5001]).collect()
    };
    every_kernel(|kernel| {
        let mut random = Random(0x1234_5678);
        for &len in &lengths {
            for shift in [0, 1, 5] {
                check_fold(&kernel, len, shift, &mut random);
            }
        }
    });
}

/// Divides `len` elements that begin `shift` elements after a multiple of 64 bytes, and compares the results.
fn check_division(kernel: &Kernel, len: usize, shift: usize, by: u32, random: &mut Random) {
    let number = kernel.number();
    let size = number.size_bytes() as usize;
    let before = elements(number, len + shift + PAD, random);
    let (at, bytes) = (shift * size, len * size);
    let mut expected = before.clone();
    for element in expected[at..at + bytes].chunks_mut(size) {
        let result = divided(number, bits(element), by);
        element.copy_from_slice(&result.to_le_bytes()[..size]);
    }
    let memory = Memory::new(&before);
    let offset = memory.start + at as u64;
    let divisor = NonZeroU32::new(by).unwrap();
    memory
        .arena
        .divide(kernel, offset, len as u64, divisor)
        .unwrap();
    let what = format!("{} {number:?} of {len} at {shift} by {by}", kernel.name());
    compare(&what, number, &memory.bytes(), &expected, at, bytes);
}

#[test]
fn every_kernel_divides_as_the_reference_does() {
    let (lengths, divisors): (&[usize], &[u32]) = if cfg!(miri) {
        (&[7, 20], &[3, u32::MAX])
    } else {
        (
            &[0, 1, 7, 31, 64, 199, 2049, 5001],
            &[1, 2, 3, 7, 127, 128, 255, 1000, 65_537, u32::MAX],
        )
    };
    let kernels = Number::ALL.map(|number| Kernel::available(number, Fold::Sum));
    for kernel in kernels.iter().flatten() {
        let mut random = Random(0x9876_5432);
        for (&len, shift) in lengths.iter().zip([0, 1, 5].into_iter().cycle()) {
            for &by in divisors {
                check_division(kernel, len, shift, by, &mut random);
            }
        }
    }
}

#[test]
fn every_half_meets_others() {
    if cfg!(miri) {
        println!("skip: too many for Miri");
        return;
    }
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut random = Random(77);
    for number in [Number::F16, Number::Bf16] {
        for kernel in Fold::ALL
            .into_iter()
            .flat_map(|fold| Kernel::available(number, fold))
        {
            for _ in 0..4 {
                let other: Vec<u8> = (0..=u16::MAX)
                    .flat_map(|_| (random.next() as u16).to_le_bytes())
                    .collect();
                let expected: Vec<u8> = all
                    .chunks(2)
                    .zip(other.chunks(2))
                    .map(|(a, b)| reference(number, kernel.operation(), bits(a), bits(b)) as u16)
                    .flat_map(u16::to_le_bytes)
                    .collect();
                let (to, from) = (Memory::new(&all), Memory::new(&other));
                to.arena
                    .fold(&kernel, to.start, &from.arena, from.start, 1 << 16)
                    .unwrap();
                compare(kernel.name(), number, &to.bytes(), &expected, 0, all.len());
            }
        }
    }
}

#[test]
fn halves_are_those_of_another_library() {
    for half in (0..=u16::MAX).step_by(if cfg!(miri) { 101 } else { 1 }) {
        let (found, expected) = (halves::from_f16(half), f16::from_bits(half).to_f32());
        assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
        let (found, expected) = (halves::from_bf16(half), bf16::from_bits(half).to_f32());
        assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
    }
    // Values halfway between two halves, where rounding decides, and values next to them.
    let step = if cfg!(miri) { 9973 } else { 1 };
    let uppers = (1..=u32::MAX >> 12).step_by(step).map(|upper| upper << 12);
    for bits in uppers.flat_map(|bits| [bits - 1, bits, bits | 1]) {
        let value = f32::from_bits(bits);
        let (found, expected) = (halves::to_f16(value), f16::from_f32_const(value));
        assert_eq!(
            seen(Number::F16, found.into()),
            seen(Number::F16, expected.to_bits().into())
        );
        let (found, expected) = (halves::to_bf16(value), bf16::from_f32(value));
        assert_eq!(
            seen(Number::Bf16, found.into()),
            seen(Number::Bf16, expected.to_bits().into())
        );
    }
}

#[test]
fn what_lies_outside_is_refused() {
    every_kernel(|kernel| {
        let size = kernel.number().size_bytes();
        let memory = Memory::new(&[1; 256]);
        let (arena, start) = (&memory.arena, memory.start);
        let room = (arena.len() as u64 - start) / size;
        let huge = u64::MAX / size;
        for (to, from, elements) in [
            (start, start, room + 1),
            (start + size, start + size, room),
            (start, u64::MAX - size + 1, 1),
            (u64::MAX - size + 1, start, 1),
            (start, start, huge),
        ] {
            let result = arena.fold(&kernel, to, arena, from, elements);
            assert!(matches!(result, Err(FoldError::Outside(_))), "{result:?}");
        }
        let result = arena.divide(&kernel, start, room + 1, NonZeroU32::MIN);
        assert!(matches!(result, Err(FoldError::Outside(_))));
        assert_eq!(memory.bytes(), [1; 256]);
    });
}

#[test]
fn partial_overlap_and_misaligned_elements_are_refused() {
    every_kernel(|kernel| {
        let size = kernel.number().size_bytes();
        let memory = Memory::new(&[0; 2048]);
        let (arena, start) = (&memory.arena, memory.start);
        for (to, from) in [(0, 1), (1, 0), (0, 99), (99, 0)] {
            let (to, from) = (start + to * size, start + from * size);
            let result = arena.fold(&kernel, to, arena, from, 100);
            assert!(matches!(result, Err(FoldError::Overlap { .. })));
        }
        let (one, other) = ((arena, start), (arena, start + size));
        for result in [
            arena.fold(&kernel, start, arena, start, 100),
            arena.fold(&kernel, start, arena, start + 20 * size, 20),
            arena.combine(&kernel, start + 40 * size, one, other, 30),
        ] {
            result.unwrap();
        }
        for shift in 1..size {
            let (off, other) = (start + shift, start + 64);
            for result in [
                arena.fold(&kernel, off, arena, other, 1),
                arena.fold(&kernel, start, arena, other + shift, 1),
                arena.divide(&kernel, off, 1, NonZeroU32::MIN),
            ] {
                assert!(matches!(result, Err(FoldError::Unaligned { .. })));
            }
        }
    });
}

#[test]
fn the_best_kernel_is_the_last_available_one() {
    for number in Number::ALL {
        let available = Kernel::available(number, Fold::Max);
        let best = Kernel::best(number, Fold::Max);
        assert_eq!(available[0].name(), "portable");
        assert_eq!(available.last().map(Kernel::name), Some(best.name()));
        assert_eq!((best.number(), best.operation()), (number, Fold::Max));
    }
}

//! Measures reductions and, for comparison, a plain loop over slices and copies of the same bytes. The methods
//! alternate, so that a change of the machine's speed affects all of them.
//!
//! Figures are GB/s of bytes read and written. A fold `to = to op from` reads two streams and writes one; a copy reads
//! one and writes one. Reads that a cache makes before it writes a line are not counted. `combine` causes such reads,
//! so only three of its four streams count.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tonnage_sys::copy::Method;
use tonnage_sys::fold::{Fold, Kernel, Number};
use tonnage_sys::mapping::{Arena, Pages, Sharing};

type Failure = Box<dyn std::error::Error>;

/// A method: name, number of streams to count, and a function that processes a number of bytes once.
type Way<'a> = (String, f64, Box<dyn FnMut(u64) + 'a>);

const LARGEST: u64 = 64 << 20;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(12);

/// Memory for reductions and copies, and slices for the plain loop.
struct Bench {
    to: Arena,
    one: Arena,
    other: Arena,
    plain: (Vec<f32>, Vec<f32>),
}

fn main() -> Result<(), Failure> {
    // `cargo test --benches` only checks that the benchmark runs.
    let is_test = !std::env::args().any(|argument| argument == "--bench");
    let (largest, rounds) = if is_test {
        (4096, 1)
    } else {
        (LARGEST, ROUNDS)
    };
    let memory = || Arena::allocate(largest as usize, Pages::Transparent, Sharing::Private, None);
    let plain = || vec![0.0; largest as usize / 4];
    let mut bench = Bench {
        to: memory()?,
        one: memory()?,
        other: memory()?,
        plain: (plain(), plain()),
    };
    let sizes: Vec<u64> = (0..11)
        .map(|step| 64 << (2 * step))
        .filter(|&size| size <= largest)
        .collect();
    by_size(&mut bench, &sizes, rounds);
    for size in [16 << 10, 1 << 20, largest] {
        if size <= largest {
            by_kernel(&bench, size, rounds);
        }
    }
    Ok(())
}

/// Measures f32 sums of each size with each kernel.
fn by_size(bench: &mut Bench, sizes: &[u64], rounds: usize) {
    let Bench {
        to,
        one,
        other,
        plain,
    } = bench;
    let (to, one, other) = (&*to, &*one, &*other);
    let mut ways: Vec<Way> = Vec::new();
    for &method in Method::available() {
        let run = move |bytes: u64| {
            let copied = one.copy_to(0, to, 0, bytes as u32, method);
            assert_eq!(copied, Ok(()));
        };
        ways.push((method.name().into(), 2.0, Box::new(run)));
    }
    let run = |bytes: u64| {
        let elements = bytes as usize / 4;
        let (to, from) = (&mut plain.0[..elements], &plain.1[..elements]);
        for (to, from) in to.iter_mut().zip(from) {
            *to += from;
        }
        black_box(to);
    };
    ways.push(("plain loop".into(), 3.0, Box::new(run)));
    for kernel in Kernel::available(Number::F32, Fold::Sum) {
        let run = move |bytes: u64| {
            let folded = to.fold(&kernel, 0, one, 0, bytes / 4);
            assert_eq!(folded, Ok(()));
        };
        ways.push((kernel.name().into(), 3.0, Box::new(run)));
    }
    for kernel in Kernel::available(Number::F32, Fold::Sum) {
        let run = move |bytes: u64| {
            let folded = to.combine(&kernel, 0, (one, 0), (other, 0), bytes / 4);
            assert_eq!(folded, Ok(()));
        };
        ways.push((format!("combine {}", kernel.name()), 3.0, Box::new(run)));
    }
    println!("f32 sum, GB/s of bytes read and written (ns for each call)");
    for &size in sizes {
        println!("{size:>9} B");
        for ((name, streams, _), seconds) in measured(&mut ways, size, rounds) {
            let rate = size as f64 * streams / seconds / 1e9;
            println!("    {name:<20} {rate:>8.1} ({:.1})", seconds * 1e9);
        }
    }
}

/// Measures each type and operation with each kernel.
fn by_kernel(bench: &Bench, size: u64, rounds: usize) {
    println!("{size} B, GB/s of bytes read and written");
    for number in Number::ALL {
        let elements = move |bytes: u64| bytes / number.size_bytes();
        for fold in Fold::ALL {
            let mut ways: Vec<Way> = Vec::new();
            for kernel in Kernel::available(number, fold) {
                let run = move |bytes: u64| {
                    let folded = bench.to.fold(&kernel, 0, &bench.one, 0, elements(bytes));
                    assert_eq!(folded, Ok(()));
                };
                ways.push((kernel.name().into(), 3.0, Box::new(run)));
            }
            let figures: Vec<String> = measured(&mut ways, size, rounds.div_ceil(3))
                .iter()
                .map(|((name, streams, _), seconds)| {
                    format!("{name} {:.1}", size as f64 * streams / seconds / 1e9)
                })
                .collect();
            println!("    {number:?} {fold:?}: {}", figures.join(", "));
        }
    }
}

/// Returns the median seconds per pass of each method.
fn measured<'w, 'a>(ways: &'w mut [Way<'a>], size: u64, rounds: usize) -> Vec<(&'w Way<'a>, f64)> {
    let mut seconds = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for ((_, _, run), seconds) in ways.iter_mut().zip(&mut seconds) {
            run(size);
            let start = Instant::now();
            let mut passes = 0;
            while passes == 0 || start.elapsed() < ROUND {
                // Short passes are timed in batches, because a clock read costs more than a short pass.
                let batch = (65_536 / size).max(1);
                (0..batch).for_each(|_| run(black_box(size)));
                passes += batch;
            }
            seconds.push(start.elapsed().as_secs_f64() / passes as f64);
        }
    }
    let median = |seconds: &mut Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    ways.iter().zip(seconds.iter_mut().map(median)).collect()
}

//! Speed of the engines on a real GPU of each vendor, compared with a raw loop of the same driver calls. The two sides
//! take turns. Only the better half of each side's turns counts, because other load on the machine comes and goes.

use std::sync::Arc;
use std::time::Instant;

use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{Completion, Verb};
use tonnage_machine::devices::nominal_link_bytes_per_s;
use tonnage_sys::cuda::{
    CudaContext, CudaEvent, CudaPart, CudaStream, DeviceBuffer, NVIDIA, PinnedArena, RawLoop,
};
use tonnage_sys::mapping::{Arena, Pages, Sharing};

use super::{Driver, Line};

/// Number of turns of each side.
const TURNS: usize = 7;

/// Number of turns of each side with small copies. It is larger, because their time varies more between turns than
/// between the sides.
const TURNS_OF_SMALL: usize = 41;

const DEPTH: usize = 4;

/// Returns the median of the better half of these times.
fn middle_of_better(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 4]
}

/// Returns the median.
fn middle(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// Returns the seconds that the engine needs for `copies` copies of `len` bytes.
fn by_engine(line: &mut Line, copies: usize, len: u32) -> f64 {
    let begun = Instant::now();
    let (mut posted, mut ended) = (0, 0);
    let mut done = [Completion::EMPTY; DEPTH];
    while ended < copies {
        while posted < copies && posted - ended < DEPTH {
            let op = line.op(posted as u32, 0, 0, len);
            posted += line.engine.post(&[op]).unwrap();
        }
        ended += line.engine.poll(&mut done).unwrap();
    }
    begun.elapsed().as_secs_f64()
}

/// Memories of a raw loop, and a stream with two timed events.
struct Raw {
    raw: RawLoop,
    stream: CudaStream,
    events: [CudaEvent; 2],
    pinned: PinnedArena,
    buffer: DeviceBuffer,
}

impl Raw {
    fn new(context: &Arc<CudaContext>, bytes: u64) -> Self {
        let arena = Arena::allocate(bytes as usize, Pages::Normal, Sharing::Private, None).unwrap();
        Self {
            raw: RawLoop::new(context, DEPTH).unwrap(),
            stream: CudaStream::new(context).unwrap(),
            events: [(); 2].map(|()| CudaEvent::new(context).unwrap()),
            pinned: PinnedArena::pin(context, Arc::new(arena)).unwrap(),
            buffer: DeviceBuffer::allocate(context, bytes).unwrap(),
        }
    }

    fn parts(&self, len: u64) -> (CudaPart<'_>, CudaPart<'_>) {
        (
            self.pinned.part(0, len).unwrap(),
            self.buffer.part(0, len).unwrap(),
        )
    }

    /// Returns the seconds that the driver's calls alone need: a copy, an event after the copy, and queries of the
    /// oldest event.
    fn copies(&self, copies: usize, len: u32) -> f64 {
        let begun = Instant::now();
        self.raw.copies(self.parts(len.into()), copies).unwrap();
        begun.elapsed().as_secs_f64()
    }

    /// Returns the seconds of one copy, by the GPU's clock and by the host's.
    fn both_clocks(&self, len: u64) -> (f64, f64) {
        let begun = Instant::now();
        let (from, to) = self.parts(len);
        self.events[0].record(&self.stream).unwrap();
        self.stream.copy(from, to).unwrap();
        self.events[1].record(&self.stream).unwrap();
        self.events[1].wait().unwrap();
        let host = begun.elapsed().as_secs_f64();
        (
            self.events[1].ns_since(&self.events[0]).unwrap() / 1e9,
            host,
        )
    }
}

pub(super) const LARGE: u32 = 256 << 20;

/// Names of memories, and options of the engine.
type LineOf<'a> = (&'a str, &'a str);
type Options<'a> = &'a [(&'a str, &'a str)];

fn line(driver: &Driver, ends: LineOf<'_>, (verb, options): (Verb, Options<'_>), len: u32) -> Line {
    let [own, far] = [ends.0, ends.1].map(|name| driver.memory(name, len.into()).unwrap());
    Line::new(driver, (&own, &far), verb, (options, DEPTH as u32)).unwrap()
}

/// Returns the bytes per second of copies of this size between these memories.
pub(super) fn rate_of(
    driver: &Driver,
    ends: LineOf<'_>,
    (verb, options): (Verb, Options<'_>),
    len: u32,
) -> f64 {
    let mut line = line(driver, ends, (verb, options), len);
    by_engine(&mut line, 2, len);
    let turns = (0..TURNS).map(|_| by_engine(&mut line, 4, len)).collect();
    4.0 * f64::from(len) / middle_of_better(turns)
}

#[test]
fn the_engine_is_as_fast_as_the_driver() {
    // The calls are the same for all vendors.
    Driver::for_figures().iter().for_each(beside_the_raw_loop);
}

fn beside_the_raw_loop(driver: &Driver) {
    let context = CudaContext::open(&driver.library(), 0).unwrap();
    let (raw, mut line) = (
        Raw::new(&context, LARGE.into()),
        line(driver, ("cuda-pinned", "cuda"), (Verb::Write, &[]), LARGE),
    );
    for (len, copies, turns) in [
        (64, 5_000, TURNS_OF_SMALL),
        (16 << 20, 32, TURNS),
        (LARGE, 4, TURNS),
    ] {
        by_engine(&mut line, copies, len);
        // The engine runs between two runs of the raw calls, so that neither side is always first.
        let turn = |_| {
            let before = raw.copies(copies, len);
            let engine = by_engine(&mut line, copies, len);
            [engine, before, raw.copies(copies, len)].map(|seconds| seconds / copies as f64)
        };
        let turns: Vec<[f64; 3]> = (0..turns).map(turn).collect();
        let each = |of: fn(&[f64; 3]) -> f64| turns.iter().map(of).collect();
        let (engine, calls) = (
            middle_of_better(each(|turn| turn[0])),
            middle_of_better(each(|turn| turn[1])),
        );
        let beyond = middle(each(|[engine, before, after]| {
            engine - (before + after) / 2.0
        }));
        let noise = middle(each(|[_, before, after]| (before - after).abs()));
        let of_median = noise / (turns.len() as f64).sqrt();
        println!(
            "{len} B: engine {:.0} ns, calls {:.0} ns for each copy; turn by turn {:.0} ns more, where two runs of the \
             calls differ by {:.0} ns",
            engine * 1e9,
            calls * 1e9,
            beyond * 1e9,
            noise * 1e9
        );
        match len {
            64 => assert!(
                beyond <= 100e-9 + of_median,
                "{beyond} {noise}: {engine} {calls}"
            ),
            _ => assert!(calls / engine >= 0.98, "{len}: {engine} {calls}"),
        }
    }
    // Both clocks are compared for a copy that takes longer than a millisecond. The median of several copies counts.
    let mut pairs: Vec<(f64, f64)> = (0..TURNS).map(|_| raw.both_clocks(LARGE.into())).collect();
    pairs.sort_by(|one, other| (one.1 - one.0).total_cmp(&(other.1 - other.0)));
    let (gpu, host) = pairs[TURNS / 2];
    println!(
        "256 MiB: {:.3} ms by events, {:.3} ms by the host",
        gpu * 1e3,
        host * 1e3
    );
    assert!((gpu - host).abs() <= 0.01 * host, "{gpu} {host}");
}

#[test]
fn ways_of_copying_have_the_expected_order() {
    Driver::for_figures().iter().for_each(order_of_ways);
}

fn order_of_ways(driver: &Driver) {
    let devices = driver.library().devices().unwrap();
    // AMD's runtime chooses the copy method itself. The link that the kernel reports may be inside the GPU's board. So
    // there is no nominal rate to compare with.
    let is_known = driver.maker.driver.name == NVIDIA.name;
    let nominal = nominal_link_bytes_per_s(&devices[0].pci_address).filter(|_| is_known);
    let of = |ends, how| rate_of(driver, ends, how, LARGE);
    let within = of(("cuda", "cuda"), (Verb::Write, &[]));
    println!("256 MiB within the GPU: {:.1} GB/s", within / 1e9);
    for (way, verb) in [("to the GPU", Verb::Write), ("to the host", Verb::Read)] {
        let pinned = of(("cuda-pinned", "cuda"), (verb, &[]));
        let pageable = of(("host", "cuda"), (verb, &[]));
        let by_kernel = of(("cuda-pinned", "cuda"), (verb, &[("by", "sm")]));
        println!(
            "256 MiB {way}, GB/s: pinned {:.2}, pageable {:.2}, by a kernel {:.2}, nominal link {:.2}",
            pinned / 1e9,
            pageable / 1e9,
            by_kernel / 1e9,
            nominal.map_or(f64::NAN, |nominal| nominal as f64 / 1e9)
        );
        assert!(pageable < pinned, "{way}: {pageable} {pinned}");
        assert!(
            !is_known || (by_kernel / pinned - 1.0).abs() < 0.1,
            "{way}: {by_kernel} {pinned}"
        );
        if let Some(nominal) = nominal.map(|nominal| nominal as f64) {
            // Packets have headers, so the rate is less than nominal. It is between these two values if the link is not
            // shared.
            let fits = 0.5 * nominal..=1.02 * nominal;
            assert!(fits.contains(&pinned), "{way}: {pinned} {nominal}");
        }
    }
    if let Some(nominal) = devices[0].memory_bytes_per_s {
        // A copy reads and writes each byte.
        assert!(2.0 * within >= 0.8 * nominal as f64, "{within} {nominal}");
    }
}

/// Returns the seconds that a call needs. The first call does not count.
fn seconds(mut call: impl FnMut()) -> f64 {
    call();
    let turn = |_| {
        let begun = Instant::now();
        call();
        begun.elapsed().as_secs_f64()
    };
    middle_of_better((0..TURNS).map(turn).collect())
}

#[test]
fn filling_and_verifying_reach_half_of_the_memorys_speed() {
    Driver::for_figures().iter().for_each(filled_and_verified);
}

fn filled_and_verified(driver: &Driver) {
    let memory = driver.memory("cuda", LARGE.into()).unwrap();
    assert_eq!(memory.report().why_filled_by_copies, None);
    let key = Key::new(1, 2, 3, 4);
    let bytes = u64::from(LARGE);
    let fill = seconds(|| memory.fill(0, 0, bytes, key).unwrap());
    let verify = seconds(|| {
        let mut found = Mismatches::default();
        memory.verify(0, 0, bytes, key, &mut found).unwrap();
        assert!(found.is_clean());
    });
    // A copy reads and writes. Filling only writes, and verifying only reads.
    let memory_rate = 2.0 * rate_of(driver, ("cuda", "cuda"), (Verb::Write, &[]), LARGE);
    let [fill, verify] = [fill, verify].map(|seconds| bytes as f64 / seconds);
    println!(
        "GB/s: fill {:.1}, verify {:.1}, memory {:.1}",
        fill / 1e9,
        verify / 1e9,
        memory_rate / 1e9
    );
    assert!(
        fill >= 0.5 * memory_rate && verify >= 0.5 * memory_rate,
        "{fill} {verify} {memory_rate}"
    );
}

//! Engines `cuda` and `hip`: the same cases over simulated drivers and, if this machine has a GPU, over the real
//! driver. On a GPU, their speed is also compared with a raw loop of the same driver calls. `make test-gpu` runs these
//! tests.
//!
//! | file | contents |
//! | --- | --- |
//! | `main` | drivers, a lane between two memories, and cases for every driver |
//! | `cards` | the functions that NICs need: exporting memory, and flushing writes of NICs |
//! | `speed` | measurements, only on real drivers |
//! | `nvbandwidth` | comparison with NVIDIA's own program |
#![cfg(test)]

mod cards;
#[path = "../../../sys/tests/cuda/double.rs"]
mod double;
mod nvbandwidth;
mod speed;

use std::sync::Arc;

use double::Double;
use tonnage_engine::Entry;
use tonnage_engine::memory::{CopyRange, CopyRepetitions, Memory, Request};
use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{
    Completion, Engine, EngineOptions, Lane, LaneKind, LaneSpec, Libraries, Op, OpenRequest,
    PlannedMemory, RegionId, Verb, WorkerConfig, split_name,
};
use tonnage_engines::{LISTS, cuda, hip};
use tonnage_sys::clock::Clock;
use tonnage_sys::cuda::{GpuDriver, Libcuda, NVIDIA};
use tonnage_sys::hip::AMD;
use tonnage_units::{Error, Result};

/// A GPU vendor.
struct Maker {
    driver: &'static GpuDriver,
    entry: &'static Entry,
    library: &'static str,
    double: fn(&str) -> Option<Double>,
}

static MAKERS: [Maker; 2] = [
    Maker {
        driver: &NVIDIA,
        entry: &cuda::ENTRY,
        library: "libcuda",
        double: Double::with,
    },
    Maker {
        driver: &AMD,
        entry: &hip::ENTRY,
        library: "libamdhip64",
        double: Double::hip,
    },
];

/// Suffix in the names of these tests for memory that is allocated by virtual-memory handles.
const BY_HANDLES: &str = "/vmm";

/// A driver on which the cases run.
struct Driver {
    maker: &'static Maker,
    libraries: Libraries,
    gpus: usize,
    _double: Option<Double>,
}

impl Driver {
    /// Returns NVIDIA's simulated driver with two GPUs. Without a C compiler, prints a message and returns `None`.
    fn double(lines: &str) -> Option<Self> {
        Self::double_of(&MAKERS[0], lines)
    }

    fn double_of(maker: &'static Maker, lines: &str) -> Option<Self> {
        let double = (maker.double)(lines)?;
        let libraries = Libraries::from([(maker.library.to_owned(), double.path())]);
        Some(Self {
            maker,
            libraries,
            gpus: 2,
            _double: Some(double),
        })
    }

    /// Returns a vendor's real driver. If the machine has no GPU of this vendor, prints a message and returns `None`.
    fn real(maker: &'static Maker) -> Option<Self> {
        let engine = maker.entry.name;
        let found = Libcuda::load_of(maker.driver, None).and_then(|library| library.devices());
        match found {
            Ok(devices) if !devices.is_empty() => Some(Self {
                maker,
                libraries: Libraries::new(),
                gpus: devices.len(),
                _double: None,
            }),
            Ok(_) => {
                println!("skip: the driver sees no GPU: engine {engine} ran over its double only");
                None
            }
            Err(why) => {
                println!("skip: no GPU: {why}: engine {engine} ran over its double only");
                None
            }
        }
    }

    /// Returns the real drivers for measurements; none unless an environment variable is set. `make test-gpu` sets it,
    /// and runs nothing else at the same time.
    fn for_figures() -> Vec<Self> {
        if std::env::var_os("TONNAGE_GPU_FIGURES").is_none() {
            println!("skip: figures of a GPU, which `make test-gpu` measures");
            return Vec::new();
        }
        MAKERS.iter().filter_map(Self::real).collect()
    }

    /// Returns the driver's library, for direct calls.
    fn library(&self) -> Arc<Libcuda> {
        let named = self.libraries.get(self.maker.library);
        let named = named.and_then(|path| path.to_str());
        Libcuda::load_of(self.maker.driver, named).unwrap()
    }

    /// Returns all drivers of this machine, simulated and real.
    fn all() -> impl Iterator<Item = Self> {
        let doubles = MAKERS.iter().filter_map(|maker| Self::double_of(maker, ""));
        doubles.chain(MAKERS.iter().filter_map(Self::real))
    }

    /// Allocates a memory. `name` is NVIDIA's name of the memory, even for other vendors.
    fn memory(&self, name: &str, bytes: u64) -> Result<Arc<dyn Memory>> {
        let by_handles = name.ends_with(BY_HANDLES);
        let name = name.trim_end_matches(BY_HANDLES);
        let name = name.replace(NVIDIA.name, self.maker.driver.name);
        let options: EngineOptions = match by_handles {
            true => [("alloc".to_owned(), "vmm".to_owned())].into(),
            false => EngineOptions::new(),
        };
        (LISTS.memory(&name)?.allocate)(&Request {
            variant: split_name(&name).1,
            bytes,
            options: Some(&options),
            libraries: Some(&self.libraries),
            ..Request::default()
        })
    }

    fn worker(&self, options: &EngineOptions, depth: u32) -> Box<dyn Engine + Send> {
        let domains = (self.maker.entry.open)(&OpenRequest {
            options,
            libraries: &self.libraries,
            memories: (PlannedMemory::default(), &[]),
            ..OpenRequest::default()
        });
        let config = WorkerConfig::polling(0, 1, depth);
        domains.unwrap()[0].worker(&config).unwrap()
    }
}

/// A lane between two memories, with the workers at both ends.
struct Line {
    engine: Box<dyn Engine + Send>,
    lane: Lane,
    _peer: Box<dyn Engine + Send>,
}

impl Line {
    fn new(
        driver: &Driver,
        (own, far): (&Arc<dyn Memory>, &Arc<dyn Memory>),
        verb: Verb,
        (options, depth): (&[(&str, &str)], u32),
    ) -> Result<Self> {
        let options = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options: EngineOptions = options.collect();
        let (mut engine, mut peer) = (
            driver.worker(&options, depth),
            driver.worker(&options, depth),
        );
        let local = engine.register(own)?.id;
        let remote = peer.register(far)?.descriptor;
        let lane = engine.lane(&LaneSpec {
            kind: LaneKind::Initiate(verb),
            peer: 1,
            local,
            remote: &remote,
            ordered: false,
            in_order: false,
            delivered: true,
        })?;
        Ok(Self {
            engine,
            lane,
            _peer: peer,
        })
    }

    fn op(&self, tag: u32, local: u64, remote: u64, len: u32) -> Op {
        Op {
            lane: self.lane,
            tag,
            local,
            remote,
            len,
            imm: 0,
        }
    }

    /// Posts the operations, and returns their tags in the order of completion.
    fn carry_out(&mut self, ops: &[Op]) -> Vec<u32> {
        let (mut posted, mut tags) = (0, Vec::new());
        let mut done = [Completion::EMPTY; 8];
        while tags.len() < ops.len() {
            posted += self.engine.post(&ops[posted..]).unwrap();
            let count = self.engine.poll(&mut done).unwrap();
            tags.extend(done[..count].iter().map(|completion| completion.tag));
        }
        tags
    }
}

const BYTES: u64 = 256 << 10;

/// Names of the memories at both ends, and the engine's options.
type Ends = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Returns pairs of memories between which the driver can copy.
fn ends(driver: &Driver) -> Vec<Ends> {
    let gpus = driver.gpus;
    let mut all: Vec<(_, _, &'static [_])> = Vec::new();
    for options in [&[][..], &[("streams", "3")], &[("by", "sm")]] {
        all.extend([
            ("cuda-pinned", "cuda", options),
            ("cuda", "cuda-pinned", options),
            ("cuda", "cuda", options),
        ]);
        if gpus > 1 {
            all.push(("cuda:0", "cuda:1", options));
        }
    }
    all.extend([("host", "cuda", &[][..]), ("cuda", "host", &[])]);
    for options in [&[][..], &[("by", "sm")]] {
        all.push(("cuda-pinned", "cuda/vmm", options));
        if gpus > 1 {
            all.push(("cuda:0/vmm", "cuda:1/vmm", options));
        }
    }
    all
}

/// Writes to one memory and verifies in the other, at odd offsets and sizes. All other bytes must stay unchanged.
#[test]
fn each_byte_arrives_at_its_offset() {
    for driver in Driver::all() {
        for (own, far, options) in ends(&driver) {
            let memories = [own, far].map(|name| driver.memory(name, BYTES));
            if let [_, Err(Error::Unavailable { why, .. })] = &memories
                && far.ends_with(BY_HANDLES)
                && driver._double.is_none()
            {
                println!("skip: memory by virtual-memory handles: {why}");
                continue;
            }
            let [own, far] = memories.map(Result::unwrap);
            for verb in [Verb::Write, Verb::Read] {
                let line = Line::new(&driver, (&own, &far), verb, (options, 4));
                let mut line = line.unwrap();
                let (from, to) = match verb {
                    Verb::Read => (&far, &own),
                    _ => (&own, &far),
                };
                let key = Key::new(1, 2, 3, 4);
                from.fill(0, 0, BYTES, key).unwrap();
                to.fill(0, 0, BYTES, key.poison()).unwrap();
                // Seven operations with four in flight. Each writes to the same offset from which it reads.
                let ranges = [
                    (0, 1),
                    (1, 4095),
                    (5000, 1),
                    (8192, 65_536),
                    (80_003, 777),
                    (90_000, 8),
                    (100_001, 100_000),
                ];
                let ops: Vec<Op> = (0..)
                    .zip(ranges)
                    .map(|(tag, (at, len))| line.op(tag, at, at, len))
                    .collect();
                let mut tags = line.carry_out(&ops);
                tags.sort_unstable();
                assert!(tags.into_iter().eq(0..7));
                let mut beside = 0;
                for (at, len) in ranges.map(|(at, len)| (at, u64::from(len))) {
                    let mut found = Mismatches::default();
                    to.verify(0, at, len, key, &mut found).unwrap();
                    assert!(
                        found.is_clean() && found.checked_bytes == len,
                        "{options:?} {verb:?} {at} {len}"
                    );
                    let mut found = Mismatches::default();
                    to.verify(0, beside, at - beside, key.poison(), &mut found)
                        .unwrap();
                    assert!(found.is_clean(), "{options:?} {verb:?} before {at}");
                    beside = at + len;
                }
                let mut found = Mismatches::default();
                to.verify(0, beside, BYTES - beside, key.poison(), &mut found)
                    .unwrap();
                assert!(found.is_clean(), "{options:?} {verb:?} behind {beside}");
            }
        }
    }
}

/// Equal specifications must share one lane, and a released lane must not accept operations.
#[test]
fn equal_lanes_are_shared_and_ranges_outside_are_refused() {
    for driver in Driver::all() {
        let [own, far] = ["cuda-pinned", "cuda"].map(|name| driver.memory(name, BYTES).unwrap());
        let mut line = Line::new(&driver, (&own, &far), Verb::Write, (&[], 2)).unwrap();
        let far_away = driver.memory("host", BYTES).unwrap();
        let region = line.engine.register(&far_away).unwrap();
        let spec = LaneSpec::new(
            LaneKind::Initiate(Verb::Write),
            1,
            region.id,
            &region.descriptor,
        );
        // A lane between two host memories is refused.
        let refused = line.engine.lane(&spec).unwrap_err().to_string();
        assert!(
            refused.contains("neither end")
                && refused.contains(&format!("--target-memory {},", driver.maker.driver.name)),
            "{refused}"
        );
        // The size of host memory is rounded up to whole pages.
        let outside = line.op(0, own.bytes() - 7, 0, 8);
        assert!(line.engine.post(&[outside]).is_err());
        let good = line.op(1, 0, 0, 8);
        assert_eq!(line.engine.post(&[good, outside]).unwrap(), 1);
        while line.engine.poll(&mut [Completion::EMPTY; 1]).unwrap() == 0 {}
        let lane = line.lane;
        // Region 0 is the lane's own memory, which was registered first.
        let in_use = line.engine.deregister(RegionId(0)).unwrap_err();
        assert!(in_use.to_string().contains("lane"), "{in_use}");
        line.engine.release_lane(lane);
        line.engine.deregister(RegionId(0)).unwrap();
        assert!(line.engine.post(&[good]).is_err() && line.engine.flush(lane, 0).is_err());
        line.engine.deregister(region.id).unwrap();
        assert!(line.engine.deregister(region.id).is_err());
    }
}

/// If the driver blocks the caller until bytes are copied, a call must end after a bounded number of bytes. So the
/// caller can check the clock.
#[test]
fn a_call_copies_a_bounded_number_of_unpinned_bytes() {
    let Some(driver) = Driver::double("") else {
        return;
    };
    for (own, taken) in [("host", 16), ("cuda-pinned", 32)] {
        let [own, far] = [own, "cuda"].map(|name| driver.memory(name, BYTES).unwrap());
        let mut line = Line::new(&driver, (&own, &far), Verb::Write, (&[], 32)).unwrap();
        let ops: Vec<Op> = (0..32)
            .map(|tag| line.op(tag, 0, 0, BYTES as u32))
            .collect();
        // Without pinned memory, a call takes 4 MiB, which are 16 copies of 256 KiB.
        assert_eq!(line.engine.post(&ops).unwrap(), taken);
    }
}

/// A copy was posted, but its completion will never be known. No later call may post it again, or report it as done.
#[test]
fn a_failure_of_the_driver_is_returned_by_every_later_call() {
    let Some(driver) = Driver::double("fail cuEventRecord 1 3") else {
        return;
    };
    let [own, far] = ["cuda-pinned", "cuda"].map(|name| driver.memory(name, BYTES).unwrap());
    let mut line = Line::new(&driver, (&own, &far), Verb::Write, (&[], 8)).unwrap();
    let ops: Vec<Op> = (0..4).map(|tag| line.op(tag, 0, 0, 8)).collect();
    assert_eq!(line.engine.post(&ops).unwrap(), 2);
    let again = line.engine.post(&ops[2..]).unwrap_err().to_string();
    assert!(again.contains("cuEventRecord"), "{again}");
    let polled = line.engine.poll(&mut [Completion::EMPTY; 8]).unwrap_err();
    assert_eq!(polled.to_string(), again);
}

/// A kernel that differs from the host is not used, and no other method replaces it.
#[test]
fn an_untrusted_kernel_copies_nothing() {
    let Some(driver) = Driver::double("ptx 0") else {
        return;
    };
    let [own, far] = ["cuda-pinned", "cuda"].map(|name| driver.memory(name, BYTES).unwrap());
    let line = Line::new(&driver, (&own, &far), Verb::Write, (&[("by", "sm")], 2));
    let refused = line.err().unwrap().to_string();
    assert!(
        refused.contains("rejected the kernel") && refused.contains("by=ce"),
        "{refused}"
    );
}

/// The bound of copies within a GPU is the fastest of all methods, including the kernel. It does not depend on the
/// method that the engine uses.
#[test]
fn the_bound_of_copies_includes_the_kernel() {
    for driver in Driver::all() {
        let [own, far] = ["cuda", "cuda"].map(|name| driver.memory(name, BYTES).unwrap());
        let stretch = CopyRange {
            from: 0,
            to: BYTES / 2,
            piece_bytes: 4096,
            last_piece_bytes: 4096,
            stride_bytes: 4096,
            pieces: 1,
            slices: 1,
            slice_bytes: 4096,
        };
        own.write(0, &[7; 16]).unwrap();
        let rates = own.copy_rates(
            &stretch,
            &mut || (0, 0),
            &Clock::new(),
            CopyRepetitions::default(),
        );
        let (by_kernel, by_call): (Vec<_>, Vec<_>) = rates
            .unwrap()
            .into_iter()
            .partition(|rate| rate.method.starts_with("the GPU's kernel (by=sm) of "));
        // Both methods have rates for one stream and for several.
        assert!(!by_call.is_empty());
        assert_eq!(by_call.len(), by_kernel.len());
        assert!(
            by_kernel.iter().all(|rate| rate.bytes_per_s() > 0.0),
            "{by_kernel:?}"
        );
        let line = Line::new(&driver, (&own, &far), Verb::Write, (&[("by", "sm")], 2));
        let mut line = line.unwrap();
        // The copies have moved the bytes of the slices. The lane must work afterwards.
        let mut bytes = [0; 16];
        own.read(BYTES / 2, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 16]);
        let op = line.op(1, 0, 0, 16);
        line.carry_out(&[op]);
        far.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 16]);
    }
}

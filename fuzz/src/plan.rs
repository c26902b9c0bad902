//! Any text is a plan or is refused. A plan that is printed must read back the same, and expanding it must end.
use tonnage_engine::calls::FileEntry;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{Entry, Lifecycle, Lists, Verb};
use tonnage_plan::tune::TuneDimension;
use tonnage_plan::{Plan, Point};
use tonnage_units::Error;

static LISTS: Lists = Lists {
    engines: &ENGINES,
    file_engines: &FILE_ENGINES,
    memories: &MEMORIES,
    backends: &[tonnage_engine::backends::NATIVE],
};

const MEMORIES: [MemoryEntry; 1] = [MemoryEntry {
    name: "host",
    about: "",
    variant: None,
    host_addressable: true,
    options: &[],
    takes_gpu: false,
    allocate: |_| Err(Error::Failed("the fuzzer allocates nothing".to_owned())),
    available: |_| None,
    device: |_| None,
    libraries: &[],
}];

const ENGINES: [Entry; 1] = [Entry {
    name: "shm",
    about: "",
    variant: None,
    options: &[],
    has_devices: false,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    device_memory: None,
    one_process: false,
    verbs: &Verb::ALL,
    ordered_writes: true,
    moves_bytes: true,
    open: |_| Err(Error::Failed("the fuzzer opens no engine".to_owned())),
}];

const FILE_ENGINES: [FileEntry; 1] = [FileEntry {
    name: "posix",
    about: "",
    options: &[],
    queues: true,
    threads: true,
    collective: true,
    direct: true,
    libraries: &[],
    lifecycle: Lifecycle::NONE,
    open: |_| Err(Error::Failed("the fuzzer opens no engine".to_owned())),
}];

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let Ok(plan) = Plan::from_toml(text, "fuzz.toml") else {
        return;
    };
    let again =
        Plan::from_toml(&plan.to_toml().unwrap(), "printed").expect("a printed plan reads back");
    assert_eq!(again, plan);
    let ranks = plan.ranks.unwrap_or(2);
    for planned in plan.points(ranks, &LISTS).unwrap_or_default() {
        match planned.point {
            Point::Transfer(point) => {
                assert!(point.slots.footprint_bytes >= point.slots.stride_bytes);
                assert!(point.slots.stride_bytes >= u64::from(point.slots.size_bytes));
            }
            Point::File(point) => {
                assert!(point.transfers_of_rank() > 0);
                assert_eq!(point.block_bytes % point.transfer_bytes, 0);
            }
            Point::Connect(point) => assert!(point.connections() > 0),
            Point::Stress(point) => {
                assert!(point.engines().count() > 0);
                for engine in point.engines() {
                    // A draw is refused if the engine supports none of the operations to draw from.
                    for draw in point.draw_group(engine, 0, &LISTS).unwrap_or_default() {
                        assert!(draw.point.slots.footprint_bytes >= draw.point.slots.stride_bytes);
                        assert!(
                            draw.point.slots.stride_bytes >= u64::from(draw.point.slots.size_bytes)
                        );
                    }
                }
            }
            Point::Collective(point) => {
                assert!(point.root < point.ranks);
                assert!(point.shape().size_bytes() <= point.size_bytes);
            }
            Point::Tune(point) => {
                let of = |it: &TuneDimension| (it.start as usize, it.values.len());
                let dimensions: Vec<_> = point.dimensions.iter().map(of).collect();
                assert!(!dimensions.is_empty());
                assert!(dimensions.iter().all(|(start, values)| start < values));
                // The start values of different options may exclude each other. The search refuses such a candidate
                // when it tries it.
                let starts: Vec<usize> = dimensions.iter().map(|(start, _)| *start).collect();
                if let Ok(candidate) = point.candidate(&starts, &LISTS) {
                    assert_eq!(u64::from(candidate.slots.size_bytes), point.size_bytes);
                }
            }
        }
    }
    let mut scaled = plan;
    let _ = scaled.scale(0.001, 3);
    let again =
        Plan::from_toml(&scaled.to_toml().unwrap(), "scaled").expect("a scaled plan reads back");
    assert_eq!(again, scaled);
}

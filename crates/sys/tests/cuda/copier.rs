//! Copies between all kinds of memory, by copy engines and by the kernel.

use std::sync::Arc;

use tonnage_sys::cuda::{
    CopyKernel, CopyMark, CudaContext, CudaCopier, CudaFailure, CudaRegion, DeviceBuffer, Libcuda,
    PinnedArena,
};
use tonnage_sys::hip::AMD;

use super::{Double, arena, loaded};

const SIZE: u64 = 16 << 10;

/// Contexts of the two GPUs of a simulated driver.
struct Pair {
    contexts: [Arc<CudaContext>; 2],
    _double: Double,
}

impl Pair {
    fn with(lines: &str) -> Self {
        let double = Double::with(lines).unwrap();
        let library = loaded(&double).unwrap();
        Self::of(double, &library)
    }

    /// Like `with`, over AMD's simulated runtime.
    fn hip(lines: &str) -> Self {
        let double = Double::hip(lines).unwrap();
        let library = Libcuda::load_of(&AMD, double.path().to_str()).unwrap();
        Self::of(double, &library)
    }

    fn of(double: Double, library: &Arc<Libcuda>) -> Self {
        Self {
            contexts: [0, 1].map(|number| CudaContext::open(library, number).unwrap()),
            _double: double,
        }
    }

    /// Memory of each kind: two buffers of the first GPU, one buffer of the second GPU, pinned and pageable host
    /// memory.
    fn regions(&self) -> Vec<CudaRegion> {
        let [first, second] = &self.contexts;
        let device =
            |context| CudaRegion::Device(Arc::new(DeviceBuffer::allocate(context, SIZE).unwrap()));
        let pinned = PinnedArena::pin(first, arena(SIZE as usize)).unwrap();
        vec![
            device(first),
            device(first),
            device(second),
            CudaRegion::Pinned(Arc::new(pinned)),
            CudaRegion::Pageable(arena(SIZE as usize)),
        ]
    }
}

fn put(region: &CudaRegion, bytes: &[u8]) {
    match region {
        CudaRegion::Device(buffer) => buffer.write(0, bytes).unwrap(),
        CudaRegion::Pinned(pinned) => pinned.arena().write(0, bytes).unwrap(),
        CudaRegion::Pageable(arena) => arena.write(0, bytes).unwrap(),
    }
}

fn taken(region: &CudaRegion) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    match region {
        CudaRegion::Device(buffer) => buffer.read(0, &mut bytes).unwrap(),
        CudaRegion::Pinned(pinned) => pinned.arena().read(0, &mut bytes).unwrap(),
        CudaRegion::Pageable(arena) => arena.read(0, &mut bytes).unwrap(),
    }
    bytes
}

fn settled(copier: &mut CudaCopier) -> Vec<u32> {
    let mut tags = Vec::new();
    while copier.pending() > 0 {
        copier.poll(3, |mark| tags.push(mark.tag)).unwrap();
    }
    tags
}

/// Offset in the source, offset in the target, and length. The ranges are equally or differently aligned, have zero or
/// one byte, or fill whole iterations of all threads.
const RANGES: [(u64, u64, u32); 13] = [
    (5, 5, 0),
    (13, 5, 0),
    (SIZE - 3, SIZE - 3, 0),
    (SIZE, SIZE, 0),
    (0, 0, 1),
    (3, 3, 2),
    (3, 11, 5000),
    (0, 8, 8192),
    (5, 2, 777),
    (16, 1, 4096),
    (7, 7, 9000),
    (1, 9, 7),
    (0, 0, SIZE as u32),
];

fn checked(copier: &mut CudaCopier, from: &CudaRegion, to: &CudaRegion) {
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at * 7 + at / 256) as u8).collect();
    for (at, (source, target, len)) in (0u32..).zip(RANGES) {
        put(from, &bytes);
        put(to, &vec![0xaa; SIZE as usize]);
        let mark = CopyMark { tag: at, len };
        assert!(copier.post(source, target, mark).unwrap());
        assert_eq!(settled(copier), [at]);
        let mut expected = vec![0xaa; SIZE as usize];
        expected[target as usize..][..len as usize]
            .copy_from_slice(&bytes[source as usize..][..len as usize]);
        assert!(
            taken(to) == expected,
            "{source} {target} {len}: {from:?} {to:?}"
        );
    }
}

#[test]
fn bytes_arrive_only_at_their_offsets() {
    let pairs = [Pair::with("gpus 2"), Pair::hip("gpus 2")];
    pairs.iter().for_each(come_to_their_place);
}

fn come_to_their_place(pair: &Pair) {
    let regions = pair.regions();
    for from in &regions {
        for to in &regions {
            let Some(gpu) = from.gpu().or_else(|| to.gpu()) else {
                continue;
            };
            let same = |(one, other): (&CudaRegion, &CudaRegion)| std::ptr::eq(one, other);
            if same((from, to)) {
                continue;
            }
            for by_kernel in [false, true] {
                let pageable = [from, to]
                    .into_iter()
                    .any(|end| matches!(end, CudaRegion::Pageable(_)));
                let kernel = by_kernel.then(|| Arc::new(CopyKernel::load(gpu, None).unwrap()));
                let ends = (from.clone(), to.clone());
                let copier = CudaCopier::new(gpu, ends, kernel, (1, 4));
                if by_kernel && pageable {
                    assert_eq!(copier.unwrap_err(), CudaFailure::NotPinned);
                    continue;
                }
                checked(&mut copier.unwrap(), from, to);
            }
        }
    }
}

/// Two streams have two slots each, so a fifth copy is refused until earlier copies end. Copies of one stream end in
/// order.
#[test]
fn copies_in_flight_are_limited_by_the_slots() {
    let pair = Pair::with("");
    let regions = pair.regions();
    let ends = (regions[3].clone(), regions[0].clone());
    let mut copier = CudaCopier::new(&pair.contexts[0], ends, None, (2, 2)).unwrap();
    let post = |copier: &mut CudaCopier, tag| {
        let mark = CopyMark { tag, len: 64 };
        copier.post(64 * u64::from(tag), 64 * u64::from(tag), mark)
    };
    for tag in 0..4 {
        assert_eq!(post(&mut copier, tag), Ok(true));
    }
    assert_eq!(post(&mut copier, 4), Ok(false));
    assert_eq!(copier.pending(), 4);
    let tags = settled(&mut copier);
    let of = |stream: u32| tags.iter().copied().filter(move |tag| tag % 2 == stream);
    assert!(of(0).eq([0, 2]) && of(1).eq([1, 3]), "{tags:?}");
    assert_eq!(post(&mut copier, 4), Ok(true));
    for (from, to) in [(SIZE - 63, 0), (0, SIZE), (u64::MAX, 0)] {
        let outside = copier.post(from, to, CopyMark { tag: 0, len: 64 });
        assert!(
            matches!(outside, Err(CudaFailure::Outside(_))),
            "{outside:?}"
        );
    }
}

#[test]
fn ends_that_cannot_be_copied_between_are_named() {
    let pair = Pair::with("peers 0");
    let regions = pair.regions();
    let [first, second] = &pair.contexts;
    let refused = |from: usize, to: usize, context| {
        let ends = (regions[from].clone(), regions[to].clone());
        CudaCopier::new(context, ends, None, (1, 1)).unwrap_err()
    };
    let far = refused(0, 2, first);
    let expected = CudaFailure::NoPeer {
        call: "cuDeviceCanAccessPeer",
        name: "cuda",
        gpu: 0,
        peer: 1,
    };
    assert_eq!(far, expected);
    let said = "cuDeviceCanAccessPeer: cuda:0 cannot reach the memory of cuda:1";
    assert_eq!(far.to_string(), said);
    assert_eq!(refused(3, 4, first), CudaFailure::NoGpu);
    let stranger = CudaFailure::OtherGpu {
        name: "cuda",
        memory: 0,
        stream: 1,
    };
    assert_eq!(refused(0, 3, second), stranger);
}

/// Memory that is freed waits only for its own context. Without the copier's wait, the simulated driver would copy to
/// an address that no longer exists, and that failure would persist.
#[test]
fn a_copier_waits_before_it_releases_memory() {
    let pair = Pair::with("gpus 2");
    let [first, second] = &pair.contexts;
    let mut regions = pair.regions();
    let kernel = Arc::new(CopyKernel::load(first, None).unwrap());
    let (to, from) = (regions.remove(2), regions.remove(0));
    for kernel in [None, Some(kernel)] {
        let mut copier =
            CudaCopier::new(first, (from.clone(), to.clone()), kernel, (1, 2)).unwrap();
        assert!(copier.post(0, 0, CopyMark { tag: 1, len: 4096 }).unwrap());
        drop(copier);
    }
    drop((from, to));
    first.wait().unwrap();
    second.wait().unwrap();
}

#[test]
fn a_gpu_that_falls_off_is_named_with_its_code() {
    let pair = Pair::with("fail cuEventQuery 719 3");
    let regions = pair.regions();
    let ends = (regions[3].clone(), regions[0].clone());
    let mut copier = CudaCopier::new(&pair.contexts[0], ends, None, (1, 2)).unwrap();
    assert!(copier.post(0, 0, CopyMark { tag: 0, len: 8 }).unwrap());
    assert_eq!(settled(&mut copier), [0]);
    assert!(copier.post(0, 0, CopyMark { tag: 1, len: 8 }).unwrap());
    let lost = copier.poll(1, |_| ()).unwrap_err().to_string();
    assert_eq!(lost, "cuEventQuery: an error (719)");
    assert!(copier.post(0, 0, CopyMark { tag: 2, len: 8 }).is_err());
}

//! Tests of GPU memories over the simulated driver, which is shared with the tests of `tonnage-sys`. With `make
//! test-gpu`, the tests of `cuda-ipc` also run on a GPU.
#![cfg(test)]

mod copies;
mod devices;
#[path = "../../../sys/tests/cuda/double.rs"]
mod double;
mod ipc;
mod refusals;
mod registration;
mod staged;

use std::sync::Arc;

use double::Double;
use tonnage_engine::memory::{CopyRange, CopyRepetitions, Memory, MemoryEntry, Request};
use tonnage_engine::pattern::{Key, Mismatches};
use tonnage_engine::{EngineOptions, Libraries};
use tonnage_engines::memory::{CUDA, CUDA_PINNED, HIP, HOST};
use tonnage_sys::clock::Clock;
use tonnage_sys::counting_alloc::Counting;
use tonnage_units::{Error, Result};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BYTES: u64 = 1 << 20;

fn allocate(
    double: &Double,
    entry: &MemoryEntry,
    variant: &str,
    bytes: u64,
) -> Result<Arc<dyn Memory>> {
    allocate_with(double, entry, variant, (bytes, &EngineOptions::new()))
}

fn allocate_with(
    double: &Double,
    entry: &MemoryEntry,
    variant: &str,
    (bytes, options): (u64, &EngineOptions),
) -> Result<Arc<dyn Memory>> {
    let library = entry.libraries[0].name.to_owned();
    let libraries = Libraries::from([(library, double.path())]);
    (entry.allocate)(&Request {
        variant,
        bytes,
        options: Some(options),
        libraries: Some(&libraries),
        ..Request::default()
    })
}

/// Returns a simulated driver for a memory's vendor.
fn double_of(entry: &MemoryEntry, lines: &str) -> Option<Double> {
    if entry.libraries[0].name == HIP.libraries[0].name {
        return Double::hip(lines);
    }
    Double::with(lines)
}

fn refusal(double: &Double, entry: &MemoryEntry, variant: &str, bytes: u64) -> String {
    let refused = allocate(double, entry, variant, bytes).err().unwrap();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    refused.to_string()
}

fn found(memory: &dyn Memory, (origin, offset, len): (u64, u64, u64), key: Key) -> Mismatches {
    let mut found = Mismatches::default();
    memory.verify(origin, offset, len, key, &mut found).unwrap();
    found
}

/// Copies a whole memory to another one, through the host. Only tests do this.
fn copy(from: &dyn Memory, to: &dyn Memory) {
    let mut bytes = vec![0; BYTES as usize];
    from.read(0, &mut bytes).unwrap();
    to.write(0, &bytes).unwrap();
}

fn host() -> Arc<dyn Memory> {
    let request = Request {
        bytes: BYTES,
        ..Request::default()
    };
    (HOST.allocate)(&request).unwrap()
}

/// Origins, offsets, lengths and keys: odd ones, an empty range, and the whole memory.
fn cases() -> Vec<((u64, u64, u64), Key)> {
    let key = Key::new(1, 2, 3, 4);
    let back = 37u64.wrapping_sub(4099);
    vec![
        ((0, 0, BYTES), key),
        ((3, 3, 1), key),
        ((0, 11, 0), key),
        ((7, 4099, 5000), key.ahead(13)),
        ((64, 64 + 4099, 21), key.ahead(back)),
        ((1, 2, 70_001), key.poison()),
        ((0, BYTES - 9, 9), key.ahead(1)),
    ]
}

/// Tests filling and verifying by kernels and by copies, for both vendors.
#[test]
fn the_pattern_is_the_hosts_byte_for_byte() {
    let host = host();
    for (entry, lines, by_kernels) in [
        (&CUDA, "", true),
        (&CUDA, "ptx 0", false),
        (&HIP, "", true),
        (&HIP, "ptx 0", false),
    ] {
        let Some(double) = double_of(entry, lines) else {
            return;
        };
        let gpu = allocate(&double, entry, "", BYTES).unwrap();
        assert_eq!(gpu.report().why_filled_by_copies.is_none(), by_kernels);
        for (range, key) in cases() {
            let (origin, offset, len) = range;
            for (one, other) in [(&*host, &*gpu), (&*gpu, &*host)] {
                one.write(0, &vec![0; BYTES as usize]).unwrap();
                one.fill(origin, offset, len, key).unwrap();
                copy(one, other);
                let right = found(other, range, key);
                assert!(right.is_clean() && right.checked_bytes == len, "{range:?}");
                // Bytes outside the range must be unchanged.
                let mut beside = vec![0; BYTES as usize];
                one.read(0, &mut beside).unwrap();
                let end = (offset + len) as usize;
                let outside = beside[..offset as usize].iter().chain(&beside[end..]);
                assert!(outside.into_iter().all(|&byte| byte == 0), "{range:?}");
            }
        }
    }
}

/// Corrupts bytes of a memory.
type Spoil<'a> = &'a dyn Fn(&dyn Memory);

/// A flipped byte, swapped blocks, a stale block and missing bytes must be reported as they are for host memory.
#[test]
fn corruption_is_reported_as_on_the_host() {
    let Some(double) = Double::with("") else {
        return;
    };
    let (host, gpu) = (host(), allocate(&double, &CUDA, "1", BYTES).unwrap());
    let key = Key::new(9, 8, 7, 6).ahead(3);
    let (origin, offset, len) = (5, 100, 20_000);
    let flip = |at: u64| {
        move |memory: &dyn Memory| {
            let mut byte = [0];
            memory.read(at, &mut byte).unwrap();
            memory.write(at, &[byte[0] ^ 4]).unwrap();
        }
    };
    let swap = |memory: &dyn Memory| {
        let (mut one, mut other) = ([0; 64], [0; 64]);
        memory.read(4600, &mut one).unwrap();
        memory.read(9001, &mut other).unwrap();
        memory.write(4600, &other).unwrap();
        memory.write(9001, &one).unwrap();
    };
    let stale = |memory: &dyn Memory| {
        let before = Key::new(9, 7, 7, 6).ahead(3);
        memory.fill(origin, 12_000, 700, before).unwrap();
    };
    let unmoved = |memory: &dyn Memory| memory.fill(origin, 20_050, 50, key.poison()).unwrap();
    let spoils: [Spoil<'_>; 7] = [
        &flip(offset),
        &flip(offset + len - 1),
        &flip(4321),
        &swap,
        &stale,
        &unmoved,
        &|memory| memory.write(0, &vec![0; BYTES as usize]).unwrap(),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let [expected, found] = [&*host, &*gpu].map(|memory| {
            memory.fill(origin, offset, len, key).unwrap();
            spoil(memory);
            found(memory, (origin, offset, len), key)
        });
        assert!(!expected.is_clean());
        assert_eq!(found.describe(), expected.describe(), "{number}");
        assert_eq!(found.first, expected.first, "{number}");
    }
    let mut none = Mismatches::default();
    assert!(gpu.verify(0, BYTES, 1, key, &mut none).is_err());
    assert!(gpu.fill(8, 0, 1, key).is_err());
    assert!(gpu.read(BYTES, &mut [0]).is_err() && gpu.write(u64::MAX, &[0, 0]).is_err());
}

/// Kernels that compute wrong values are not used, and the record has the reason. Copies through the host still give
/// the right bytes.
#[test]
fn kernels_that_differ_from_the_host_are_not_used() {
    for (entry, lines, reason) in [
        (&CUDA, "wrong 1", "self-test of its fill kernel found "),
        (
            &CUDA,
            "ptx 0",
            "cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218)",
        ),
        (&HIP, "wrong 1", "self-test of its fill kernel found "),
        (
            &HIP,
            "ptx 0",
            "hiprtcCompileProgram: HIPRTC_ERROR_COMPILATION (6)",
        ),
    ] {
        let Some(double) = double_of(entry, lines) else {
            return;
        };
        let memory = allocate(&double, entry, "", BYTES).unwrap();
        let why = memory.report().why_filled_by_copies.unwrap();
        assert!(why.contains(reason), "{why}");
        let key = Key::new(5, 5, 5, 5);
        memory.fill(0, 0, BYTES, key).unwrap();
        memory.write(70, &[0]).unwrap();
        let host = host();
        copy(&*memory, &*host);
        for memory in [&*memory, &*host] {
            let found = found(memory, (0, 0, BYTES), key);
            assert_eq!((found.wrong_bytes, found.first[0].offset), (1, 70));
        }
    }
}

/// The simulated driver loses its GPU as soon as a module is loaded.
#[test]
fn pinned_memory_compiles_no_kernels() {
    let Some(double) = Double::with("fail cuModuleLoadDataEx 719 1") else {
        return;
    };
    let pinned = allocate(&double, &CUDA_PINNED, "", BYTES).unwrap();
    pinned.fill(0, 0, BYTES, Key::new(1, 1, 1, 1)).unwrap();
    assert_eq!(pinned.report().why_filled_by_copies, None);
    drop(pinned);
    let lost = refusal(&double, &CUDA, "", BYTES);
    assert!(lost.contains("(719)"), "{lost}");
}

/// After a GPU has failed while in use, every later call fails with its name and code.
#[test]
fn a_failing_gpu_is_an_error() {
    // The 40th call of cuMemcpyAsync fails. It comes after the self-tests.
    let Some(double) = Double::with("fail cuMemcpyAsync 719 40") else {
        return;
    };
    let memory = allocate(&double, &CUDA, "", BYTES).unwrap();
    memory.fill(0, 0, BYTES, Key::new(1, 1, 1, 1)).unwrap();
    let failed = rates(&*memory).unwrap_err().to_string();
    assert!(
        failed.starts_with("cuda:0 (Double of a GPU, 0000:1b:00.0): cuMemcpyAsync: "),
        "{failed}"
    );
    assert!(
        failed.contains("(719)") && failed.contains("Xid"),
        "{failed}"
    );
    let later = memory.fill(0, 0, 8, Key::new(1, 1, 1, 1)).unwrap_err();
    assert!(later.to_string().contains("(719)"), "{later}");
}

fn rates(memory: &dyn Memory) -> Result<Vec<tonnage_engine::memory::CopyRate>> {
    let stretch = CopyRange {
        from: 0,
        to: BYTES / 2,
        piece_bytes: 4096,
        last_piece_bytes: 4096,
        stride_bytes: 4096,
        pieces: BYTES / 2 / 4096,
        slices: 1,
        slice_bytes: 0,
    };
    let mut next = 0;
    let mut slots = || {
        next = (next + 1) % stretch.slots();
        (next, next)
    };
    memory.copy_rates(
        &stretch,
        &mut slots,
        &Clock::new(),
        CopyRepetitions::default(),
    )
}

/// Checks the report of each vendor, which contains the names of the vendor's calls.
#[test]
fn the_way_of_allocating_is_chosen_and_reported() {
    let options = |alloc: &str| EngineOptions::from([("alloc".to_owned(), alloc.to_owned())]);
    let key = Key::new(5, 6, 7, 8);
    for (entry, alloc, said) in [
        (&CUDA, "malloc", "malloc: cuMemAlloc, in one piece"),
        (&HIP, "malloc", "malloc: hipMalloc, in one piece"),
        (
            &CUDA,
            "vmm",
            "vmm: cuMemCreate and cuMemMap, in granules of 65536 bytes, for NICs too",
        ),
        (
            &HIP,
            "vmm",
            "vmm: hipMemCreate and hipMemMap, in granules of 65536 bytes, for NICs too",
        ),
    ] {
        let Some(double) = double_of(entry, "granularity 65536") else {
            return;
        };
        let options = entry.check_options(&options(alloc)).unwrap();
        let memory = allocate_with(&double, entry, "", (70_000, &options)).unwrap();
        assert_eq!(memory.report().allocated.as_deref(), Some(said));
        memory.fill(0, 3, 69_997, key).unwrap();
        assert!(found(&*memory, (0, 3, 69_997), key).is_clean());
    }
    let refused = CUDA.check_options(&options("pool")).unwrap_err();
    assert!(
        refused.to_string().contains("takes alloc=malloc|vmm"),
        "{refused}"
    );
    let advice = "Leave --memory-option alloc=vmm out";
    for (entry, lines, bytes, parts) in [
        // If the request is too large, the error reports the free memory, as for `malloc`.
        (
            &CUDA,
            "",
            1 << 30,
            ["are free: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY", ""],
        ),
        (
            &HIP,
            "",
            1 << 30,
            ["are free: hipMemCreate: hipErrorOutOfMemory", "rocm-smi"],
        ),
        (
            &CUDA,
            "vmm 0",
            4096,
            [
                "CUDA's driver does not support virtual-memory handles",
                advice,
            ],
        ),
        (
            &HIP,
            "vmm 0",
            4096,
            [
                "HIP's driver does not support virtual-memory handles",
                advice,
            ],
        ),
    ] {
        let Some(double) = double_of(entry, lines) else {
            return;
        };
        let refused = allocate_with(&double, entry, "", (bytes, &options("vmm")));
        let refused = refused.err().unwrap().to_string();
        for part in parts {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

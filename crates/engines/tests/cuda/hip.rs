//! Memories of AMD's GPUs: names, and refusals with the next thing to try.

use tonnage_engine::memory::Request;
use tonnage_engine::{EngineOptions, Libraries};
use tonnage_engines::memory::{HIP, HIP_PINNED};

use super::double::Double;
use super::{BYTES, allocate, allocate_with, rates, refusal};

#[test]
fn memories_of_amd_say_whose_they_are() {
    let Some(double) = Double::hip("") else {
        return;
    };
    let gpu = allocate(&double, &HIP, "1", BYTES).unwrap();
    let device = gpu.device().unwrap();
    assert_eq!((device.interface, device.device), ("hip", 1));
    let report = gpu.report();
    assert_eq!((report.kind.as_str(), report.bytes), ("hip", BYTES));
    let name = "hip:1 (Double of a GPU, 0000:1c:00.0)";
    assert_eq!(report.device.as_deref(), Some(name));
    assert_eq!(report.why_filled_by_copies, None);
    let method = &rates(&*gpu).unwrap()[0].method;
    assert_eq!(method, "the GPU's hipMemcpyAsync of 512 KiB");
    assert_eq!(
        report.allocated.as_deref(),
        Some("malloc: hipMalloc, in one piece")
    );
    let pinned = allocate(&double, &HIP_PINNED, "", BYTES).unwrap();
    assert!(pinned.host().is_some());
    assert_eq!(pinned.report().kind, "hip-pinned");
}

/// Memory by virtual-memory handles is told by HIP's names, and refused by them.
#[test]
fn memory_of_amd_is_mapped_where_it_is_asked_for() {
    let (Some(double), Some(without)) = (Double::hip("granularity 65536"), Double::hip("vmm 0"))
    else {
        return;
    };
    let vmm = EngineOptions::from([("alloc".to_owned(), "vmm".to_owned())]);
    let by = |double, bytes| allocate_with(double, &HIP, "", (bytes, &vmm));
    let memory = by(&double, 70_000).unwrap();
    let said = "vmm: hipMemCreate and hipMemMap, in granules of 65536 bytes, for network cards too";
    assert_eq!(memory.report().allocated.as_deref(), Some(said));
    for (double, bytes, parts) in [
        // Too much is refused with what is free, as for the other way.
        (
            &double,
            1 << 30,
            ["are free: hipMemCreate: hipErrorOutOfMemory", "rocm-smi"],
        ),
        (
            &without,
            4096,
            [
                "HIP's driver says that this GPU has no",
                "Leave --memory-option alloc=vmm out",
            ],
        ),
    ] {
        let refused = by(double, bytes).err().unwrap().to_string();
        for part in parts {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}

#[test]
fn each_refusal_of_amd_says_why_and_what_to_do() {
    let (Some(double), Some(empty), Some(locked)) = (
        Double::hip("memory 4194304"),
        Double::hip("gpus 0"),
        Double::hip("fail hipHostRegister 1 1"),
    ) else {
        return;
    };
    let large = refusal(&double, &HIP, "", 1 << 30);
    let said = "of 4194304 are free: hipMalloc: hipErrorOutOfMemory (2)";
    assert!(
        large.contains(said) && large.contains("rocm-smi"),
        "{large}"
    );
    let second = refusal(&double, &HIP, "2", 1);
    assert!(
        second.contains("Choose hip:0 to hip:1; HIP_VISIBLE_DEVICES"),
        "{second}"
    );
    let limit = refusal(&locked, &HIP_PINNED, "", BYTES);
    // Whatever the reason is, it has this code; what is locked does not count.
    for part in [
        "memory hip-pinned cannot",
        "hipHostRegister: hipErrorInvalidValue (1)",
        "/sys/module/amdgpu/parameters/no_system_mem_limit",
        "Choose smaller --sizes",
        "amdgpu with no_system_mem_limit=1",
    ] {
        assert!(limit.contains(part), "{part}: {limit}");
    }
    assert!(!limit.contains("RLIMIT_MEMLOCK"), "{limit}");
    for entry in [&HIP, &HIP_PINNED] {
        let none = refusal(&empty, entry, "", 1);
        assert!(
            none.contains("hipInit: hipErrorInvalidDevice (101)") && none.contains("/dev/kfd"),
            "{none}"
        );
        let file = "/nonexistent/libamdhip64.so.6";
        let libraries = Libraries::from([("libamdhip64".to_owned(), file.into())]);
        let missing = (entry.allocate)(&Request {
            bytes: 1,
            libraries: Some(&libraries),
            ..Request::default()
        });
        let missing = missing.err().unwrap().to_string();
        for part in [
            file,
            "libamdhip64-5 on Debian",
            "--library libamdhip64=PATH",
        ] {
            assert!(missing.contains(part), "{missing}");
        }
    }
}

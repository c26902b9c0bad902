//! The GPUs that memories report, before and after allocation.

use tonnage_engine::Libraries;
use tonnage_engine::memory::{Memory, MemoryEntry, Request};
use tonnage_engine::pattern::Key;
use tonnage_engines::memory::{CUDA, CUDA_PINNED, HIP, HIP_PINNED, HOST};

use super::double::Double;
use super::{BYTES, allocate, found, rates};

#[test]
fn memories_report_their_gpus() {
    let Some(double) = Double::with("starts 20") else {
        return;
    };
    let libraries = Libraries::from([("libcuda".to_owned(), double.path())]);
    let device = |entry: &MemoryEntry, gpu| {
        (entry.device)(&Request {
            gpu,
            libraries: Some(&libraries),
            ..Request::default()
        })
    };
    // Nothing is allocated yet. Allocation would start the driver.
    let told = device(&CUDA, Some(1)).unwrap();
    assert_eq!(told.title(), "cuda:1 (0000:1c:00.0)");
    // If it is unknown whether there are links other than PCIe, no link is reported as the bound.
    assert!(told.links_unknown.is_none() || told.link.is_none());
    assert_eq!(told.memory_bytes_per_s, Some(128_000_000_000));
    assert_eq!(device(&CUDA, Some(7)), None);
    assert_eq!(
        [device(&CUDA_PINNED, Some(1)), device(&HOST, None)],
        [None, None]
    );
    let gpu = allocate(&double, &CUDA, "1", BYTES).unwrap();
    let started = |memory: &dyn Memory| memory.driver_start_ns().unwrap_or(0) >= 20_000_000;
    assert!(started(&*gpu));
    let device = gpu.device().unwrap();
    assert_eq!((device.interface, device.device), ("cuda", 1));
    assert!(gpu.host().is_none());
    let report = gpu.report();
    assert_eq!((report.kind.as_str(), report.bytes), ("cuda", BYTES));
    assert_eq!(
        report.device.as_deref(),
        Some("cuda:1 (Double of a GPU, 0000:1c:00.0)")
    );
    assert_eq!(report.why_filled_by_copies, None);
    let refused = gpu.mapped("shm").unwrap_err().to_string();
    assert!(refused.contains("memory cuda with engine shm"), "{refused}");
    let pinned = allocate(&double, &CUDA_PINNED, "", BYTES).unwrap();
    let arena = pinned.mapped("shm").unwrap();
    assert_eq!(pinned.device().unwrap().address, arena.address());
    // This memory is on another GPU of the process. The process has already started the driver.
    assert!(started(&*pinned));
    let host = (HOST.allocate)(&Request {
        bytes: BYTES,
        ..Request::default()
    });
    assert_eq!(host.unwrap().driver_start_ns(), None);
    let report = pinned.report();
    assert_eq!(report.kind, "cuda-pinned");
    assert!(report.pages.is_some() && report.device.unwrap().starts_with("cuda:0 "));
    pinned.fill(0, 3, 100, Key::new(1, 1, 1, 1)).unwrap();
    assert!(found(&*pinned, (0, 3, 100), Key::new(1, 1, 1, 1)).is_clean());
    // The same for AMD, with the names of AMD's functions.
    let Some(double) = Double::hip("") else {
        return;
    };
    let gpu = allocate(&double, &HIP, "1", BYTES).unwrap();
    let device = gpu.device().unwrap();
    assert_eq!((device.interface, device.device), ("hip", 1));
    let report = gpu.report();
    let name = "hip:1 (Double of a GPU, 0000:1c:00.0)";
    assert_eq!(
        (report.kind.as_str(), report.device.as_deref()),
        ("hip", Some(name))
    );
    let method = &rates(&*gpu).unwrap()[0].method;
    assert_eq!(method, "the GPU's hipMemcpyAsync of 512 KiB");
    let pinned = allocate(&double, &HIP_PINNED, "", BYTES).unwrap();
    assert!(pinned.host().is_some());
    assert_eq!(pinned.report().kind, "hip-pinned");
}

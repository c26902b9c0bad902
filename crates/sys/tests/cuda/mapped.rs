//! Memory by virtual-memory handles, and GPU memory that NICs access.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tonnage_sys::cuda::{
    CopyMark, CudaContext, CudaCopier, CudaFailure, CudaRegion, DeviceBuffer, NicWriteFlush,
    PatternKernels, WritesOrdering,
};

use super::{loaded, opened, opened_both, opened_hip};

/// Mapped memory takes whole granules, is written and read like other memory, and all of it is freed.
#[test]
fn mapped_memory_has_whole_granules_and_is_given_back() {
    for (_double, context) in opened_both("memory 1048576\ngranularity 65536") {
        let buffer = DeviceBuffer::map(&context, 70_001).unwrap();
        assert_eq!(
            (buffer.bytes(), buffer.granularity()),
            (70_001, Some(65_536))
        );
        assert_eq!(context.memory_bytes().unwrap().0, (1 << 20) - (128 << 10));
        buffer.write(70_000, b"x").unwrap();
        let mut back = [0];
        buffer.read(70_000, &mut back).unwrap();
        assert_eq!(&back, b"x");
        assert!(buffer.part(70_000, 2).is_err());
        // The driver shares mapped memory in a different way.
        assert_eq!(buffer.export().unwrap_err().code(), Some(1));
        let full = DeviceBuffer::map(&context, 1 << 20).unwrap_err();
        assert_eq!(full.code(), Some(2));
        drop(buffer);
        assert_eq!(context.memory_bytes().unwrap().0, 1 << 20);
        let plain = DeviceBuffer::allocate(&context, 1).unwrap();
        assert_eq!(plain.granularity(), None);
    }
}

#[test]
fn kernels_fill_mapped_memory() {
    let (_double, context) = opened("granularity 65536");
    let buffer = DeviceBuffer::map(&context, 70_001).unwrap();
    let kernels = PatternKernels::load(&context).unwrap();
    let numbers = super::kernels::numbers(0);
    kernels.fill(&buffer, 3, 60_000, numbers).unwrap();
    assert_eq!(kernels.verify(&buffer, 3, 60_000, numbers).unwrap(), None);
}

/// After a failure of any call, everything that earlier calls made is released. The simulated driver detects a wrong
/// order of releases.
#[test]
fn a_step_that_fails_leaves_nothing() {
    for step in ["Create", "AddressReserve", "Map", "SetAccess"] {
        let by = |prefix: &str| format!("{prefix}Mem{step}");
        let fail = |prefix| format!("fail {} 304 1", by(prefix));
        for (_double, context) in [opened(&fail("cu")), opened_hip(&fail("hip"))] {
            let prefix = ["cu", "hip"][usize::from(context.driver().name == "hip")];
            let call = by(prefix);
            let all = context.memory_bytes().unwrap().0;
            let failed = DeviceBuffer::map(&context, 5000).unwrap_err();
            let named =
                matches!(&failed, CudaFailure::Call { call: of, code: 304, .. } if *of == call);
            assert!(named, "{call}: {failed}");
            assert_eq!(context.memory_bytes().unwrap().0, all, "{call}");
            drop(DeviceBuffer::map(&context, 5000).unwrap());
            assert_eq!(context.memory_bytes().unwrap().0, all, "{call}");
        }
    }
    let ((_cuda, cuda), (_hip, hip)) = (opened("vmm 0"), opened_hip("vmm 0"));
    let lacks = DeviceBuffer::map(&cuda, 5000).unwrap_err();
    assert_eq!(
        lacks.to_string(),
        "CUDA's driver does not support virtual-memory handles on this GPU"
    );
    // Support is checked first, because AMD's runtime itself would only report too little memory.
    assert_eq!(
        DeviceBuffer::map(&hip, 5000).unwrap_err().to_string(),
        "HIP's driver does not support virtual-memory handles on this GPU"
    );
}

/// Another GPU can copy mapped memory, because a copy first grants this GPU access to the memory.
#[test]
fn other_gpus_copy_mapped_memory_where_they_reach_it() {
    let (double, first) = opened("gpus 2");
    let second = CudaContext::open(&loaded(&double).unwrap(), 1).unwrap();
    let map = |context| Arc::new(DeviceBuffer::map(context, 4096).unwrap());
    let [one, other] = [map(&first), map(&second)];
    one.write(7, b"there and back").unwrap();
    let ends = |from: &Arc<DeviceBuffer>, to: &Arc<DeviceBuffer>| {
        let of = |buffer: &Arc<DeviceBuffer>| CudaRegion::Device(Arc::clone(buffer));
        (of(from), of(to))
    };
    // The second GPU pulls, then pushes back.
    for (ends, at) in [
        (ends(&one, &other), (7, 100)),
        (ends(&other, &one), (100, 900)),
    ] {
        let mut copier = CudaCopier::new(&second, ends, None, (1, 4)).unwrap();
        assert!(
            copier
                .post(at.0, at.1, CopyMark { tag: 1, len: 14 })
                .unwrap()
        );
        while copier.pending() > 0 {
            copier.poll(1, |_| ()).unwrap();
        }
    }
    let mut back = [0; 14];
    one.read(900, &mut back).unwrap();
    assert_eq!(&back, b"there and back");
}

/// A GPU's memory can be mapped even if another GPU has no access or no path to it. Access is requested only when a
/// copy needs it, and the failure names both GPUs.
#[test]
fn a_gpu_that_is_refused_access_is_named_when_it_needs_it() {
    for (lines, said) in [
        (
            "gpus 2\nfail cuMemSetAccess 304 3",
            "cuMemSetAccess: CUDA_ERROR_OPERATING_SYSTEM (304): OS call failed or operation not supported on this OS, while \
             giving cuda:1 access to memory of cuda:0",
        ),
        (
            "gpus 2\npeers 0",
            "cuDeviceCanAccessPeer: cuda:1 cannot reach the memory of cuda:0",
        ),
        (
            "gpus 2\nblind 1",
            "cuDeviceCanAccessPeer: cuda:1 cannot reach the memory of cuda:0",
        ),
    ] {
        let (double, first) = opened(lines);
        let second = CudaContext::open(&loaded(&double).unwrap(), 1).unwrap();
        let map = |context| Arc::new(DeviceBuffer::map(context, 4096).unwrap());
        let [one, other] = [map(&first), map(&second)];
        let ends = || [&one, &other].map(|buffer| CudaRegion::Device(Arc::clone(buffer)));
        let [from, to] = ends();
        let refused = CudaCopier::new(&second, (from, to), None, (1, 4)).unwrap_err();
        assert_eq!(refused.to_string(), said);
        // The memory itself is usable.
        one.write(0, b"own").unwrap();
        let mut back = [0; 3];
        one.read(0, &mut back).unwrap();
        assert_eq!(&back, b"own");
    }
}

/// Memory is mapped even if it cannot be exported, or if NICs cannot access it. Both are reported.
#[test]
fn what_the_driver_grants_of_mapped_memory_is_reported() {
    for (lines, for_cards) in [
        ("", Some(true)),
        ("direct 0", Some(false)),
        ("handles 0", Some(true)),
        ("direct 2", None),
    ] {
        let (_double, context) = opened(lines);
        let buffer = DeviceBuffer::map(&context, 4096).unwrap();
        assert_eq!(buffer.is_for_cards(), for_cards, "{lines}");
        let plain = DeviceBuffer::allocate(&context, 4096).unwrap();
        assert_eq!(plain.is_for_cards(), None);
        assert_eq!(
            (buffer.is_exportable(), plain.is_exportable()),
            (Some(true), None)
        );
    }
    // If a release of ROCm refuses handles for this memory, the memory itself is still mapped.
    for (lines, exportable) in [("", true), ("handles 0", false)] {
        let (_double, context) = opened_hip(lines);
        let buffer = DeviceBuffer::map(&context, 4096).unwrap();
        assert_eq!(buffer.is_exportable(), Some(exportable), "{lines}");
    }
}

/// The NVIDIA and the AMD GPU both have number 0. If only numbers were compared, a driver would get the other driver's
/// address, and the CPU would read it.
#[test]
fn no_copy_reaches_memory_of_another_driver() {
    let ((_cuda, cuda), (_hip, hip)) = (opened(""), opened_hip(""));
    let mapped = Arc::new(DeviceBuffer::map(&cuda, 4096).unwrap());
    let plain = |context| Arc::new(DeviceBuffer::allocate(context, 4096).unwrap());
    let (own, other) = (plain(&cuda), plain(&hip));
    let refused = |context: &Arc<CudaContext>, from: &Arc<DeviceBuffer>, to: &Arc<DeviceBuffer>| {
        let [from, to] = [from, to].map(|buffer| CudaRegion::Device(Arc::clone(buffer)));
        CudaCopier::new(context, (from, to), None, (1, 1)).unwrap_err()
    };
    for memory in [&mapped, &own] {
        for (from, to) in [(memory, &other), (&other, memory)] {
            let said = refused(&hip, from, to).to_string();
            let expected =
                "a hip GPU cannot reach cuda memory: they use different driver libraries";
            assert_eq!(said, expected);
            let expected = CudaFailure::OtherDriver {
                own: "cuda",
                other: "hip",
            };
            assert_eq!(refused(&cuda, from, to), expected);
        }
    }
    // Two libraries of the same maker do not know each other's memory either.
    let (_second, second) = opened("");
    assert!(matches!(
        refused(&second, &mapped, &plain(&second)),
        CudaFailure::OtherDriver { .. }
    ));
    // A library that was loaded twice is the same library.
    let again = CudaContext::open(&loaded(&_second).unwrap(), 0).unwrap();
    second.reach(&again).unwrap();
}

/// The file of either kind of memory gives access to its bytes. With AMD's runtime, an allocation begins inside its
/// file.
#[test]
fn memory_is_exported_for_other_devices() {
    for (_double, context) in opened_both("dmabuf 1") {
        assert_eq!(context.device().dmabuf, Some(true));
        for buffer in [
            DeviceBuffer::allocate(&context, 5000).unwrap(),
            DeviceBuffer::map(&context, 5000).unwrap(),
        ] {
            buffer.write(4990, b"at the end").unwrap();
            let exported = buffer.export_dmabuf().unwrap();
            let (file, mut found) = (File::from(exported.file), [0; 10]);
            file.read_exact_at(&mut found, exported.offset + 4990)
                .unwrap();
            assert_eq!(&found, b"at the end");
        }
    }
    let of_cuda =
        "cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801): operation not supported";
    let of_hip = [
        "hsa_amd_portable_export_dmabuf: HSA_STATUS_ERROR (4096): A generic error has occurred.",
        "hipMemExportToShareableHandle: hipErrorInvalidValue (1): invalid argument",
    ];
    for (_double, context) in opened_both("dmabuf 0") {
        let refused = [
            DeviceBuffer::allocate(&context, 5000).unwrap(),
            DeviceBuffer::map(&context, 5000).unwrap(),
        ]
        .map(|buffer| buffer.export_dmabuf().unwrap_err().to_string());
        match context.driver().name {
            "hip" => assert_eq!(refused, of_hip),
            _ => assert_eq!(refused, [of_cuda; 2]),
        }
    }
    // Success without an opened file is an error.
    for (_double, context) in opened_both("dmabuf 3") {
        for buffer in [
            DeviceBuffer::allocate(&context, 5000).unwrap(),
            DeviceBuffer::map(&context, 5000).unwrap(),
        ] {
            let said = buffer.export_dmabuf().unwrap_err().to_string();
            assert!(
                said.contains("success without a file descriptor (0): "),
                "{said}"
            );
        }
    }
}

#[test]
fn writes_of_network_cards_are_flushed_as_the_driver_says() {
    for (lines, expected, flushed) in [
        ("", WritesOrdering::Unknown, false),
        ("ordering 0\nflushes 1", WritesOrdering::Flushed, true),
        ("ordering 0\nflushes 2", WritesOrdering::Unordered, false),
        ("ordering 0", WritesOrdering::Unordered, false),
        ("ordering 100\nflushes 1", WritesOrdering::Ordered, true),
        ("ordering 200\nflushes 3", WritesOrdering::Ordered, true),
    ] {
        let (_double, context) = opened(lines);
        assert_eq!(context.writes_ordering(), expected);
        let writes = NicWriteFlush::for_memory_of(&context).unwrap();
        assert_eq!(writes.flush().is_ok(), flushed, "{lines}");
    }
}

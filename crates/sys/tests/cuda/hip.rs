//! Differences of AMD's runtime from NVIDIA's driver: names of calls and of results, versions, the compiler.

use std::sync::Arc;

use tonnage_sys::cuda::{
    CopyKernel, CudaContext, CudaFailure, DeviceBuffer, FlagWords, Libcuda, PatternKernels,
    PinnedArena,
};
use tonnage_sys::hip::AMD;

use super::double::Double;
use super::{arena, opened_hip};

#[test]
fn gpus_are_described_by_the_runtime() {
    let (double, context) = opened_hip("gpus 3\nparts 2");
    assert_eq!(
        (context.driver().name, context.driver().interface),
        ("hip", "HIP")
    );
    let device = context.device();
    assert_eq!(device.compute, "gfx90a:sramecc+:xnack-");
    // The runtime's number of copy engines is not used.
    assert_eq!((device.multiprocessors, device.copy_engines), (3, None));
    // Parts of a GPU use the PCI function number.
    let devices = Libcuda::load_of(&AMD, double.path().to_str())
        .unwrap()
        .devices()
        .unwrap();
    let addresses: Vec<&str> = devices.iter().map(|it| it.pci_address.as_str()).collect();
    assert_eq!(addresses, ["0000:1b:00.0", "0000:1b:00.1", "0000:1c:00.0"]);
    assert_eq!(device.uuid, "aaaaaaaaaaaaaaaa");
    let (_double, nameless) = opened_hip("uuids 0");
    assert_eq!(nameless.device().uuid, "at 0000:1b:00.0");
    // The simulated runtime reports neither value here.
    assert_eq!((device.memory_bytes_per_s, device.dmabuf), (None, None));
}

#[test]
fn failures_have_the_names_that_the_runtime_gives_them() {
    let (_double, context) = opened_hip("memory 1048576\nversion 50221153");
    let full = DeviceBuffer::allocate(&context, 1 << 21).unwrap_err();
    assert_eq!(
        full.to_string(),
        "hipMalloc: hipErrorOutOfMemory (2): out of memory"
    );
    assert_eq!(full.code(), Some(2));
    let load = |double: &Double| Libcuda::load_of(&AMD, double.path().to_str());
    let empty = Double::hip("gpus 0").unwrap();
    let empty = load(&empty).unwrap_err().to_string();
    assert_eq!(empty, "hipInit: hipErrorInvalidDevice (101)");
    let lost = Double::hip("fail hipSetDevice 719 1").unwrap();
    let lost = CudaContext::open(&load(&lost).unwrap(), 1).unwrap_err();
    assert!(lost.to_string().starts_with("hipSetDevice: "), "{lost}");
    let missing = Libcuda::load_of(&AMD, Some("/nonexistent/libamdhip64.so.6")).unwrap_err();
    assert!(matches!(missing, CudaFailure::NoDriver(_)), "{missing}");
    let other = Libcuda::load_of(&AMD, Some("libc.so.6"))
        .unwrap_err()
        .to_string();
    let said = "the library does not report its HIP version, and hipInit needs HIP 4.2 or newer";
    assert_eq!(other, said);
}

/// Without AMD's runtime on this machine, the message names each file that was tried.
#[test]
fn a_missing_library_is_named_with_all_tried_files() {
    let Err(CudaFailure::NoDriver(why)) = Libcuda::load_of(&AMD, None) else {
        println!("skip: AMD's runtime is installed here");
        return;
    };
    for file in [
        "libamdhip64.so.7",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so",
    ] {
        assert!(why.contains(file), "{why}");
    }
}

#[test]
fn a_text_that_hiprtc_refuses_is_refused_with_its_reason() {
    let (_double, context) = opened_hip("ptx 0");
    let said = "hiprtcCompileProgram: HIPRTC_ERROR_COMPILATION (6): the kernels were not compiled: tonnage.hip:1:1: error: \
                told to refuse";
    for refused in [
        PatternKernels::load(&context).unwrap_err(),
        CopyKernel::load(&context, None).unwrap_err(),
    ] {
        assert_eq!(refused.to_string(), said);
    }
}

#[test]
fn memory_is_pinned_twice_and_words_are_not_written() {
    let (_double, context) = opened_hip("");
    // Unlike CUDA's driver, AMD's runtime allows the same bytes to be pinned twice.
    let bytes = arena(4096);
    let pinned = PinnedArena::pin(&context, Arc::clone(&bytes)).unwrap();
    drop(PinnedArena::pin(&context, bytes).unwrap());
    for why in [
        FlagWords::offered(&context).unwrap_err(),
        FlagWords::new(pinned).unwrap_err(),
    ] {
        let said = "HIP's hipStreamWriteValue64 is not used: it is marked beta";
        assert!(why.to_string().starts_with(said), "{why}");
    }
}

//! Tests of the GPU drivers over simulated driver libraries, which follow the drivers' documentation. `make test-gpu`
//! also runs the tests of kernels on a real GPU.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `double`, `double.c`, `ptx.h` | the simulated CUDA driver: how it is compiled; its calls; running kernels from their PTX text |
//! | `double_ipc.h`, `double_vmm.h` | the simulated driver's calls to share memory; virtual-memory handles, and memory that NICs access |
//! | `double_hip.h`, `double_hip_names.h`, `double_hip_kernels.h` | the simulated AMD runtime: calls that differ in form from CUDA's; names; running kernels from their HIP text |
//! | `kernels` | tests that the kernels agree with an independent implementation of the pattern |
//! | `copier` | tests of copies between memories of all kinds |
//! | `management`, `double_nvml.c` | tests of pairs of GPUs, and of the management library over a simulated one |
//! | `mapped` | tests of memory with virtual-memory handles, and of memory that NICs access |
//! | `sharing` | tests of memory shared with other processes, and of flag words that streams write |
//! | `hip` | tests of the differences of AMD's runtime |
//! | `hip_text` | tests that Clang compiles the kernels' HIP source for several generations of GPUs |
//! | `assembled` | tests that the assembler accepts the kernels' PTX text for each architecture |
#![cfg(test)]

mod assembled;
mod copier;
mod double;
mod hip;
mod hip_text;
mod kernels;
mod management;
mod mapped;
mod sharing;

use std::sync::Arc;

use double::Double;
use tonnage_sys::cuda::{
    CudaContext, CudaEvent, CudaFailure, CudaStream, DeviceBuffer, Libcuda, PatternKernels,
    PinnedArena,
};
use tonnage_sys::hip::AMD;
use tonnage_sys::mapping::{Arena, Pages, Sharing};

fn loaded(double: &Double) -> Result<Arc<Libcuda>, CudaFailure> {
    Libcuda::load(double.path().to_str())
}

/// Opens the first GPU of a simulated driver. Building this crate needs a C compiler, so the driver can be compiled.
fn opened(lines: &str) -> (Double, Arc<CudaContext>) {
    let double = Double::with(lines).unwrap();
    let context = CudaContext::open(&loaded(&double).unwrap(), 0).unwrap();
    (double, context)
}

/// Opens the first GPU of a simulated AMD runtime.
fn opened_hip(lines: &str) -> (Double, Arc<CudaContext>) {
    let double = Double::hip(lines).unwrap();
    let library = Libcuda::load_of(&AMD, double.path().to_str()).unwrap();
    let context = CudaContext::open(&library, 0).unwrap();
    (double, context)
}

/// Opens the first GPUs of both makers' simulated drivers.
fn opened_both(lines: &str) -> [(Double, Arc<CudaContext>); 2] {
    [opened(lines), opened_hip(lines)]
}

/// Opens the first GPUs of both simulated drivers, and of the real drivers under `make test-gpu`.
fn opened_everywhere() -> Vec<(Option<Double>, Arc<CudaContext>)> {
    let doubles = opened_both("").into_iter();
    let mut all: Vec<_> = doubles
        .map(|(double, context)| (Some(double), context))
        .collect();
    if std::env::var_os("TONNAGE_GPU_FIGURES").is_none() {
        println!("skip: kernels on a GPU, which `make test-gpu` runs");
        return all;
    }
    for driver in [&tonnage_sys::cuda::NVIDIA, &AMD] {
        match Libcuda::load_of(driver, None).and_then(|library| CudaContext::open(&library, 0)) {
            Ok(context) => all.push((None, context)),
            Err(why) => println!("skip: no GPU of {}: {why}", driver.interface),
        }
    }
    all
}

fn arena(bytes: usize) -> Arc<Arena> {
    Arc::new(Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap())
}

#[test]
fn devices_are_described() {
    let double = Double::with("gpus 2").unwrap();
    let library = loaded(&double).unwrap();
    assert_eq!(library.version().unwrap().to_string(), "12.4");
    assert!(
        library.path().ends_with("libcuda.so.1"),
        "{}",
        library.path()
    );
    let devices = library.devices().unwrap();
    assert_eq!(devices.len(), 2);
    let second = &devices[1];
    assert_eq!(second.name, "Double of a GPU");
    assert_eq!(second.uuid, "d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1");
    assert_eq!(second.pci_address, "0000:1c:00.0");
    assert_eq!(
        (second.memory_bytes, second.compute.as_str()),
        (64 << 20, "9.0")
    );
    // 1 GHz, two transfers per clock, 512 bits.
    assert_eq!(second.memory_bytes_per_s, Some(128_000_000_000));
    // An attribute that the driver does not know is not a failure.
    assert_eq!(second.dmabuf, None);
    let error = CudaContext::open(&library, 2).unwrap_err();
    assert_eq!(error.name(), "CUDA_ERROR_INVALID_DEVICE");
}

#[test]
fn drivers_that_are_missing_too_old_or_without_a_gpu_are_reported() {
    let missing = Libcuda::load(Some("/nonexistent/libcuda.so.1")).unwrap_err();
    assert!(matches!(missing, CudaFailure::NoDriver(_)), "{missing}");
    assert!(missing.to_string().contains("/nonexistent/libcuda.so.1"));
    let other = Libcuda::load(Some("libc.so.6")).unwrap_err();
    assert!(
        other
            .to_string()
            .contains("does not report its CUDA version"),
        "{other}"
    );
    let old = Double::old("version 10020").unwrap();
    let old = loaded(&old).unwrap_err().to_string();
    let said =
        "the driver supports CUDA 10.2, and cuDevicePrimaryCtxRelease_v2 needs CUDA 11.0 or newer";
    assert_eq!(old, said);
    let empty = loaded(&Double::with("gpus 0").unwrap()).unwrap_err();
    let said = "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected";
    assert_eq!(
        (empty.name(), empty.to_string().as_str()),
        ("CUDA_ERROR_NO_DEVICE", said)
    );
}

#[test]
fn memory_is_copied_bounded_and_given_back() {
    let (_double, context) = opened("memory 1048576");
    assert_eq!(context.memory_bytes().unwrap(), (1 << 20, 1 << 20));
    let buffer = DeviceBuffer::allocate(&context, 4096).unwrap();
    assert_eq!(context.memory_bytes().unwrap().0, (1 << 20) - 4096);
    buffer.write(4090, b"abcdef").unwrap();
    let mut back = [0; 8];
    buffer.read(4088, &mut back).unwrap();
    assert_eq!(&back[2..], b"abcdef");
    for (offset, len) in [(4091, 6), (u64::MAX, 2), (4097, 0)] {
        let outside = buffer.part(offset, len).unwrap_err();
        assert!(matches!(outside, CudaFailure::Outside(_)), "{outside}");
    }
    assert!(buffer.write(4095, b"ab").is_err() && buffer.read(4095, &mut [0; 2]).is_err());
    let full = DeviceBuffer::allocate(&context, 1 << 20).unwrap_err();
    assert_eq!(full.name(), "CUDA_ERROR_OUT_OF_MEMORY");
    drop(buffer);
    assert_eq!(context.memory_bytes().unwrap().0, 1 << 20);
}

/// If the CPU could access this memory, the simulated driver would not detect a stray access.
#[test]
fn the_cpu_cannot_reach_memory_of_the_double() {
    let (_double, context) = opened("");
    let buffer = DeviceBuffer::allocate(&context, 4096).unwrap();
    let file = tempfile::tempfile().unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the kernel reads the byte, and returns EFAULT if this process may not.
    let count = unsafe { libc::write(descriptor, buffer.address() as *const _, 1) };
    let error = std::io::Error::last_os_error();
    assert_eq!((count, error.raw_os_error()), (-1, Some(libc::EFAULT)));
}

#[test]
fn streams_copy_in_order_and_events_mark_the_end() {
    let (_double, context) = opened("");
    let stream = CudaStream::new(&context).unwrap();
    let pinned = PinnedArena::pin(&context, arena(8192)).unwrap();
    let [one, two] = [(); 2].map(|()| DeviceBuffer::allocate(&context, 8192).unwrap());
    let [before, after] = [(); 2].map(|()| CudaEvent::new(&context).unwrap());
    pinned.arena().write(100, b"by way of two").unwrap();
    before.record(&stream).unwrap();
    stream
        .copy(pinned.part(100, 13).unwrap(), one.part(7, 13).unwrap())
        .unwrap();
    stream
        .copy(one.part(7, 13).unwrap(), two.part(9, 13).unwrap())
        .unwrap();
    stream
        .copy(two.part(9, 13).unwrap(), pinned.part(5000, 13).unwrap())
        .unwrap();
    after.record(&stream).unwrap();
    let mut back = [0; 13];
    pinned.arena().read(5000, &mut back).unwrap();
    // No call has waited for the copies yet.
    assert_eq!(back, [0; 13]);
    assert!(!after.is_passed().unwrap());
    after.wait().unwrap();
    assert!(after.is_passed().unwrap());
    pinned.arena().read(5000, &mut back).unwrap();
    assert_eq!(&back, b"by way of two");
    assert!(after.ns_since(&before).unwrap() > 0.0);
    let uneven = stream.copy(one.part(0, 8).unwrap(), two.part(0, 9).unwrap());
    assert!(matches!(uneven, Err(CudaFailure::Outside(_))));
}

/// Memory waits only for its own context before it is freed, and so does pinned memory. So a stream of another context
/// is refused at either end.
#[test]
fn a_stream_of_another_gpu_is_refused() {
    let (double, first) = opened("gpus 2");
    let second = CudaContext::open(&loaded(&double).unwrap(), 1).unwrap();
    let stream = CudaStream::new(&second).unwrap();
    let pinned = PinnedArena::pin(&first, arena(4096)).unwrap();
    let buffer = DeviceBuffer::allocate(&second, 4096).unwrap();
    let parts = || (pinned.part(0, 64).unwrap(), buffer.part(0, 64).unwrap());
    let (host, gpu) = parts();
    let expected = CudaFailure::OtherGpu {
        name: "cuda",
        memory: 0,
        stream: 1,
    };
    assert_eq!(stream.copy(host, gpu), Err(expected.clone()));
    let (host, gpu) = parts();
    assert_eq!(stream.copy(gpu, host), Err(expected.clone()));
    let said = "a stream of cuda:1 cannot copy memory in the context of cuda:0";
    assert_eq!(expected.to_string(), said);
    let own = DeviceBuffer::allocate(&second, 4096).unwrap();
    stream
        .copy(own.part(0, 64).unwrap(), buffer.part(0, 64).unwrap())
        .unwrap();
    stream.wait().unwrap();
}

/// Before memory is freed, it waits for its copies. Otherwise, the simulated driver would copy to an address that no
/// longer exists, and that failure would persist.
#[test]
fn memory_waits_for_copies_before_it_is_freed() {
    let (_double, context) = opened("");
    let stream = CudaStream::new(&context).unwrap();
    let pinned = PinnedArena::pin(&context, arena(4096)).unwrap();
    let again = PinnedArena::pin(&context, Arc::clone(pinned.arena())).unwrap_err();
    assert_eq!(again.name(), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
    let buffer = DeviceBuffer::allocate(&context, 4096).unwrap();
    stream
        .copy(pinned.part(0, 64).unwrap(), buffer.part(0, 64).unwrap())
        .unwrap();
    drop(buffer);
    let buffer = DeviceBuffer::allocate(&context, 4096).unwrap();
    stream
        .copy(buffer.part(0, 64).unwrap(), pinned.part(0, 64).unwrap())
        .unwrap();
    drop(pinned);
    stream.wait().unwrap();
}

#[test]
fn failures_are_named_and_those_of_the_gpu_stay() {
    let (_double, context) = opened("fail cuLaunchKernel 700 2");
    let numbers = kernels::numbers(0);
    let kernels = PatternKernels::load(&context).unwrap();
    let buffer = DeviceBuffer::allocate(&context, 4096).unwrap();
    kernels.fill(&buffer, 0, 4096, numbers).unwrap();
    let said = "cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered";
    let failed = kernels.fill(&buffer, 0, 4096, numbers).unwrap_err();
    assert_eq!(failed.to_string(), said);
    let later = buffer.read(0, &mut [0]).unwrap_err();
    assert_eq!(later.name(), "CUDA_ERROR_ILLEGAL_ADDRESS");
}

#[test]
fn a_text_that_does_not_compile_is_refused_with_the_reason() {
    let (_double, context) = opened("ptx 0");
    let refused = PatternKernels::load(&context).unwrap_err().to_string();
    assert!(
        refused.starts_with("cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218)"),
        "{refused}"
    );
    assert!(
        refused.ends_with("line 1; fatal : told to refuse"),
        "{refused}"
    );
}

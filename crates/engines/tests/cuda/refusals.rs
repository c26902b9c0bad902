//! Errors of GPU memories of both vendors. Each error must have its reason and advice.

use tonnage_engine::Libraries;
use tonnage_engine::memory::{MemoryEntry, Request};
use tonnage_engines::memory::{CUDA, CUDA_PINNED, HIP, HIP_PINNED};

use super::double::Double;
use super::{BYTES, allocate, double_of, refusal};

/// A simulated driver's script, a memory and its size, the texts that the error must contain, and the texts that it
/// must not contain.
type Case = (
    &'static str,
    (&'static MemoryEntry, &'static str, u64),
    &'static [&'static str],
    &'static [&'static str],
);

const CASES: [Case; 12] = [
    (
        "memory 4194304",
        (&CUDA, "", 1 << 30),
        &[
            "1073741824 bytes were requested, and ",
            "of 4194304 are free: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY",
        ],
        &[],
    ),
    (
        "memory 4194304",
        (&HIP, "", 1 << 30),
        &[
            "of 4194304 are free: hipMalloc: hipErrorOutOfMemory (2)",
            "rocm-smi",
        ],
        &[],
    ),
    (
        "",
        (&CUDA, "2", 1),
        &["memory cuda:2", "sees 2 GPUs", "cuda:0 to cuda:1"],
        &[],
    ),
    (
        "",
        (&HIP, "2", 1),
        &["Choose hip:0 to hip:1; HIP_VISIBLE_DEVICES"],
        &[],
    ),
    (
        "gpus 0",
        (&CUDA, "", 1),
        &["CUDA_ERROR_NO_DEVICE", "--gpus all"],
        &[],
    ),
    (
        "gpus 0",
        (&CUDA_PINNED, "", 1),
        &["CUDA_ERROR_NO_DEVICE", "--gpus all"],
        &[],
    ),
    (
        "gpus 0",
        (&HIP, "", 1),
        &["hipInit: hipErrorInvalidDevice (101)", "/dev/kfd"],
        &[],
    ),
    (
        "gpus 0",
        (&HIP_PINNED, "", 1),
        &["hipInit: hipErrorInvalidDevice (101)", "/dev/kfd"],
        &[],
    ),
    // An error code with an unknown name, as from a newer driver.
    (
        "fail cuDevicePrimaryCtxRetain 802 1",
        (&CUDA, "", 1),
        &["cuDevicePrimaryCtxRetain: an error (802)", "Xid"],
        &[],
    ),
    // These limits belong to the host, so the advice differs from that for failures of the GPU.
    (
        "fail cuMemHostRegister_v2 2 1",
        (&CUDA_PINNED, "", BYTES),
        &[
            "memory cuda-pinned cannot",
            "RLIMIT_MEMLOCK",
            "(2)",
            "fewer ranks on this host",
            "memory.max",
        ],
        &["on this GPU", "Xid"],
    ),
    (
        "fail cuMemHostRegister_v2 719 1",
        (&CUDA_PINNED, "", BYTES),
        &[
            "memory cuda-pinned cannot",
            "RLIMIT_MEMLOCK",
            "(719)",
            "Xid",
        ],
        &["on this GPU", "fewer ranks on this host"],
    ),
    // The driver returns this code for many reasons. The limit of locked memory must not be mentioned.
    (
        "fail hipHostRegister 1 1",
        (&HIP_PINNED, "", BYTES),
        &[
            "memory hip-pinned cannot",
            "hipHostRegister: hipErrorInvalidValue (1)",
            "/sys/module/amdgpu/parameters/no_system_mem_limit",
            "Choose smaller --sizes",
            "amdgpu with no_system_mem_limit=1",
        ],
        &["RLIMIT_MEMLOCK"],
    ),
];

#[test]
fn each_refusal_has_a_reason_and_advice() {
    for (lines, (entry, variant, bytes), has, lacks) in CASES {
        let Some(double) = double_of(entry, lines) else {
            return;
        };
        let said = refusal(&double, entry, variant, bytes);
        for part in has {
            assert!(said.contains(part), "{part}: {said}");
        }
        for part in lacks {
            assert!(!said.contains(part), "{part}: {said}");
        }
        // The number of bytes to be pinned is rounded up to whole pages.
        if let Some((before, _)) = said.split_once(" bytes of host memory") {
            let asked = before.rsplit(' ').next().unwrap();
            assert!(asked.parse::<u64>().unwrap() >= BYTES, "{said}");
        }
    }
    let (Some(double), Some(old)) = (Double::with(""), Double::old("version 10020")) else {
        return;
    };
    let name = allocate(&double, &CUDA, "H100", 1).err().unwrap();
    assert!(name.to_string().contains("such as cuda:0"), "{name}");
    let too_old = refusal(&old, &CUDA, "", 1);
    for part in ["the driver supports CUDA 10.2", "450 or newer"] {
        assert!(too_old.contains(part), "{too_old}");
    }
}

#[test]
fn a_missing_library_is_named_with_its_source() {
    for (entry, file, parts) in [
        (
            &CUDA,
            "/nonexistent/libcuda.so.1",
            ["Install NVIDIA's driver", ""],
        ),
        (
            &HIP_PINNED,
            "/nonexistent/libamdhip64.so.6",
            ["libamdhip64-5 on Debian", "--library libamdhip64=PATH"],
        ),
    ] {
        let libraries = Libraries::from([(entry.libraries[0].name.to_owned(), file.into())]);
        let missing = (entry.allocate)(&Request {
            bytes: 1,
            libraries: Some(&libraries),
            ..Request::default()
        });
        let missing = missing.err().unwrap().to_string();
        for part in [file, parts[0], parts[1]] {
            assert!(missing.contains(part), "{missing}");
        }
    }
}

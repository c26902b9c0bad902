//! HIP's call names and attribute numbers, mapped from those of CUDA's driver.

use std::ffi::{CStr, c_int};

use crate::cuda::CudaVersion;
use crate::cuda::abi::Attribute;
use crate::cuda::driver::Alias;

/// Decodes HIP's version number, such as 60342134 for 6.3.
pub(super) fn version(number: c_int) -> CudaVersion {
    CudaVersion {
        major: number / 10_000_000,
        minor: number / 100_000 % 100,
    }
}

/// Returns the identifier of a GPU: its UUID, if that is 16 hexadecimal digits. GPUs without a UUID all report the same
/// bytes, so their PCI address identifies them.
pub(super) fn identity(uuid: &[u8; 16], pci_address: &str) -> String {
    let digits = std::str::from_utf8(uuid).ok();
    let digits = digits.filter(|text| text.bytes().all(|digit| digit.is_ascii_hexdigit()));
    match digits {
        Some(digits) => digits.to_owned(),
        None => format!("at {pci_address}"),
    }
}

/// An alias for a call that has the library's oldest symbol version, 4.2. The call itself may be older.
const fn old(of: &'static CStr, symbol: &'static CStr) -> Alias {
    since(4, 2, of, symbol)
}

const fn since(major: i32, minor: i32, of: &'static CStr, symbol: &'static CStr) -> Alias {
    Alias {
        of,
        symbol,
        since: CudaVersion { major, minor },
    }
}

/// HIP's name of each CUDA call. Calls whose parameters differ are listed too, because messages use the names.
pub(super) const ALIASES: &[Alias] = &[
    old(c"cuInit", c"hipInit"),
    old(c"cuDeviceGetCount", c"hipGetDeviceCount"),
    old(c"cuDeviceGet", c"hipDeviceGet"),
    old(c"cuDeviceGetName", c"hipDeviceGetName"),
    since(5, 1, c"cuDeviceGetUuid", c"hipDeviceGetUuid"),
    old(c"cuDeviceTotalMem_v2", c"hipDeviceTotalMem"),
    old(c"cuDeviceGetPCIBusId", c"hipDeviceGetPCIBusId"),
    old(c"cuDeviceGetAttribute", c"hipDeviceGetAttribute"),
    old(c"cuDevicePrimaryCtxRetain", c"hipSetDevice"),
    old(c"cuCtxSetCurrent", c"hipSetDevice"),
    old(c"cuCtxSynchronize", c"hipDeviceSynchronize"),
    old(c"cuDeviceCanAccessPeer", c"hipDeviceCanAccessPeer"),
    old(c"cuDeviceGetP2PAttribute", c"hipDeviceGetP2PAttribute"),
    old(c"cuCtxEnablePeerAccess", c"hipDeviceEnablePeerAccess"),
    old(c"cuMemGetInfo_v2", c"hipMemGetInfo"),
    old(c"cuMemAlloc_v2", c"hipMalloc"),
    old(c"cuMemFree_v2", c"hipFree"),
    old(c"cuMemHostRegister_v2", c"hipHostRegister"),
    old(c"cuMemHostUnregister", c"hipHostUnregister"),
    old(c"cuMemHostGetDevicePointer_v2", c"hipHostGetDevicePointer"),
    old(c"cuMemcpyHtoD_v2", c"hipMemcpyHtoD"),
    old(c"cuMemcpyDtoH_v2", c"hipMemcpyDtoH"),
    old(c"cuMemcpyAsync", c"hipMemcpyAsync"),
    old(c"cuStreamCreate", c"hipStreamCreateWithFlags"),
    old(c"cuStreamSynchronize", c"hipStreamSynchronize"),
    old(c"cuStreamDestroy_v2", c"hipStreamDestroy"),
    old(c"cuEventCreate", c"hipEventCreateWithFlags"),
    old(c"cuEventRecord", c"hipEventRecord"),
    old(c"cuEventQuery", c"hipEventQuery"),
    old(c"cuEventSynchronize", c"hipEventSynchronize"),
    old(c"cuEventElapsedTime", c"hipEventElapsedTime"),
    old(c"cuEventDestroy_v2", c"hipEventDestroy"),
    old(c"cuModuleGetFunction", c"hipModuleGetFunction"),
    old(c"cuModuleUnload", c"hipModuleUnload"),
    old(c"cuLaunchKernel", c"hipModuleLaunchKernel"),
    old(c"cuIpcGetMemHandle", c"hipIpcGetMemHandle"),
    old(c"cuIpcOpenMemHandle_v2", c"hipIpcOpenMemHandle"),
    old(c"cuIpcCloseMemHandle", c"hipIpcCloseMemHandle"),
    old(c"cuMemGetAddressRange_v2", c"hipMemGetAddressRange"),
    since(
        5,
        1,
        c"cuMemGetAllocationGranularity",
        c"hipMemGetAllocationGranularity",
    ),
    since(5, 1, c"cuMemCreate", c"hipMemCreate"),
    since(5, 1, c"cuMemRelease", c"hipMemRelease"),
    since(5, 1, c"cuMemAddressReserve", c"hipMemAddressReserve"),
    since(5, 1, c"cuMemAddressFree", c"hipMemAddressFree"),
    since(5, 1, c"cuMemMap", c"hipMemMap"),
    since(5, 1, c"cuMemUnmap", c"hipMemUnmap"),
    since(5, 1, c"cuMemSetAccess", c"hipMemSetAccess"),
];

/// Calls that are not used, and the reason.
pub(super) const LACKS: &[(&CStr, &str)] = &[(
    c"cuStreamWriteValue64_v2",
    "hipStreamWriteValue64 is not used: it is marked beta, and its documentation does not state when a CPU sees the \
     word and the data",
)];

/// HIP's attribute numbers. The memory clock is left out: HIP does not report the transfers per cycle, 2 or 4 depending
/// on the generation. The number of copy engines is left out too: it is a constant of the runtime, and counts queues
/// instead of engines. The last two attributes came with releases of HIP 7; older ones reject their numbers.
pub(super) const ATTRIBUTES: &[(Attribute, c_int)] = &[
    // hipDeviceAttributeComputeCapabilityMajor
    (Attribute::ComputeMajor, 23),
    // hipDeviceAttributeComputeCapabilityMinor
    (Attribute::ComputeMinor, 61),
    // hipDeviceAttributeMultiprocessorCount
    (Attribute::Multiprocessors, 63),
    // hipDeviceAttributeVirtualMemoryManagementSupported
    (Attribute::MappedMemory, 89),
    // hipDeviceAttributeDmaBufSupported
    (Attribute::Dmabuf, 93),
    // hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported
    (Attribute::GpuDirectVmm, 94),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_library_writes_them() {
        let said = [50_221_153, 60_342_134, 71_025_424].map(|number| version(number).to_string());
        assert_eq!(said, ["5.2", "6.3", "7.10"]);
    }

    #[test]
    fn a_gpu_without_a_uuid_is_known_by_its_address() {
        let of = |uuid| identity(uuid, "0000:1b:00.0");
        assert_eq!(of(b"0123456789abcdef"), "0123456789abcdef");
        let none: &[u8; 16] = b"XX\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        for without in [none, &[0; 16], &[0xd0; 16]] {
            assert_eq!(of(without), "at 0000:1b:00.0");
        }
    }

    /// Messages take the names of calls that differ in form from this list. `calls.rs` must call the functions with
    /// these names.
    #[test]
    fn calls_of_another_form_have_one_name_here_and_there() {
        for own in [
            c"cuDevicePrimaryCtxRetain",
            c"cuCtxSetCurrent",
            c"cuCtxSynchronize",
            c"cuCtxEnablePeerAccess",
            c"cuMemcpyAsync",
        ] {
            let alias = ALIASES.iter().find(|alias| alias.of == own).unwrap();
            let called = format!("= (c{:?},", alias.symbol.to_str().unwrap());
            assert!(include_str!("calls.rs").contains(&called), "{called}");
        }
    }

    /// With two entries for a name, the second would have no effect.
    #[test]
    fn every_call_has_one_name() {
        for (at, alias) in ALIASES.iter().enumerate() {
            let same = |other: &Alias| other.of == alias.of;
            assert!(!ALIASES[at + 1..].iter().any(same), "{alias:?}");
            assert!(LACKS.iter().all(|(call, _)| *call != alias.of), "{alias:?}");
        }
    }
}

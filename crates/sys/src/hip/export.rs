//! Exports GPU memory as a file for other devices: through ROCr, the runtime below HIP, or through the memory's handle.
//!
//! HIP's own call (`hipMemGetHandleForAddressRange`, since HIP 7.0) is not used. Its file covers a whole buffer of the
//! kernel driver, in which an allocation of less than 2 MiB can begin anywhere. The call does not return this offset,
//! so a NIC would access a neighbour's bytes. ROCr's call, on which HIP's call is built, returns the offset and exists
//! in older releases. Memory that was mapped by a handle fills its whole buffer, so its offset is 0.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::cuda::abi::{Code, POSIX_FILE, PhysicalHandle, SUCCESS};
use crate::cuda::dmabuf::{DmabufFile, ExportedMemory, owned_file};
use crate::cuda::driver::{DriverLibrary, GpuDriver, Introduced, OwnCalls};
use crate::cuda::{CudaFailure, CudaVersion};
use crate::library::{SharedLibrary, functions, text};

/// Name under which HIP's runtime has loaded ROCr's library.
const ROCR: &str = "libhsa-runtime64.so.1";

/// Name of ROCr's exporting call.
const EXPORT: &CStr = c"hsa_amd_portable_export_dmabuf";

/// Release of ROCm that introduced the call.
const EXPORT_SINCE: CudaVersion = CudaVersion { major: 5, minor: 4 };

functions! { pub(super) HandleCalls by Introduced:
    export = (c"hipMemExportToShareableHandle", 5, 1) => (*mut c_void, PhysicalHandle, c_int, u64) -> Code;
}

functions! { RocrCalls by &'static CStr:
    // Address, bytes, the file, and the memory's offset in the file.
    export = EXPORT => (*const c_void, usize, *mut c_int, *mut u64) -> Code;
}

functions! { StatusCalls by &'static CStr:
    words = c"hsa_status_string" => (Code, *mut *const c_char) -> Code;
}

/// ROCr's call that exports an allocation.
#[derive(Debug)]
pub(super) struct RocrExport {
    calls: RocrCalls,
    /// The call that describes the results of `calls`.
    status: Option<StatusCalls>,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    _library: SharedLibrary,
}

impl RocrExport {
    /// Looks up the call in the runtime loaded from `runtime` and its dependencies, and then in the ROCr that the
    /// runtime has loaded. A second copy of ROCr would not know the memory, so none is loaded.
    ///
    /// # Errors
    /// `TooOld`.
    pub(super) fn load(
        driver: &'static GpuDriver,
        runtime: &str,
        has: Option<CudaVersion>,
    ) -> Result<Self, CudaFailure> {
        let found = [SharedLibrary::loaded(runtime), SharedLibrary::loaded(ROCR)];
        let exporter = found.into_iter().flatten().find_map(Self::from_library);
        exporter.ok_or_else(|| CudaFailure::TooOld {
            interface: driver.interface,
            has,
            needs: EXPORT_SINCE,
            symbol: EXPORT.to_string_lossy().into_owned(),
        })
    }

    fn from_library(library: SharedLibrary) -> Option<Self> {
        let find = |symbol| library.symbol_without_version(symbol);
        Some(Self {
            calls: RocrCalls::look_up(find).ok()?,
            status: StatusCalls::look_up(find).ok(),
            _library: library,
        })
    }

    /// Makes a file for an allocation.
    ///
    /// # Errors
    /// `Call`.
    ///
    /// # Safety
    /// The memory is an allocation of the runtime.
    pub(super) unsafe fn export(&self, memory: ExportedMemory) -> Result<DmabufFile, CudaFailure> {
        let address = std::ptr::without_provenance::<c_void>(
            usize::try_from(memory.address).unwrap_or(usize::MAX),
        );
        let len = usize::try_from(memory.bytes).unwrap_or(usize::MAX);
        let (mut file, mut offset) = (-1, 0);
        // SAFETY: `file` and `offset` are valid for the writes; the address is looked up, and never dereferenced.
        let code = unsafe { (self.calls.export)(address, len, &raw mut file, &raw mut offset) };
        self.check(code)?;
        // SAFETY: ROCr opened the file for the caller, and the file has no other owner.
        let file = unsafe { owned_file("hsa_amd_portable_export_dmabuf", file) }?;
        Ok(DmabufFile { file, offset })
    }

    fn check(&self, code: Code) -> Result<(), CudaFailure> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut words = std::ptr::null();
        if let Some(status) = self.status {
            // SAFETY: the pointer is valid for the write; an unknown status leaves it unchanged.
            unsafe { (status.words)(code, &raw mut words) };
        }
        // SAFETY: null, or a constant NUL-terminated string of the library.
        let words = unsafe { text(words) }.unwrap_or_default();
        // The format is "NAME: description".
        let (name, text) = words.split_once(": ").unwrap_or(("", &words));
        Err(CudaFailure::Call {
            call: "hsa_amd_portable_export_dmabuf",
            code,
            name: name.to_owned(),
            text: text.to_owned(),
        })
    }
}

/// Makes a file for physical memory with an exportable handle.
///
/// # Errors
/// `TooOld`, `Call`.
///
/// # Safety
/// The handle belongs to this library, and `words` describes the results of its calls.
pub(super) unsafe fn export_mapped(
    library: &DriverLibrary,
    words: &dyn OwnCalls,
    physical: PhysicalHandle,
) -> Result<DmabufFile, CudaFailure> {
    let calls = HandleCalls::look_up(|call| library.symbol(call))?;
    let mut file: c_int = -1;
    // SAFETY: `file` is valid for the write of an int, the type of this kind of handle; the caller promises the rest.
    let code = unsafe { (calls.export)((&raw mut file).cast(), physical, POSIX_FILE, 0) };
    words.check("hipMemExportToShareableHandle", code)?;
    // SAFETY: the runtime opened the file for the caller, and the file has no other owner.
    let file = unsafe { owned_file("hipMemExportToShareableHandle", file) }?;
    Ok(DmabufFile { file, offset: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::AMD;
    use super::*;

    #[test]
    fn a_release_without_the_call_is_told_with_the_one_that_has_it() {
        let has = CudaVersion { major: 5, minor: 2 };
        let lacks = RocrExport::load(&AMD, "libc.so.6", Some(has)).unwrap_err();
        assert_eq!(
            lacks.to_string(),
            "the driver supports HIP 5.2, and hsa_amd_portable_export_dmabuf needs HIP 5.4 or newer"
        );
    }
}

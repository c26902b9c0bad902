//! The description of NVIDIA's driver, and the calls that have their own form in it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::abi::{
    Code, ContextHandle, CudaAddress, JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES, ModuleHandle, Ordinal,
    StreamHandle,
};
use super::dmabuf::{DmabufFile, ExportedMemory, owned_file};
use super::driver::{DriverLibrary, GpuDriver, Granularity, Introduced, LoadedText, OwnCalls};
use super::failure::{CudaFailure, CudaVersion};
use crate::library::{functions, text};

/// Source text of the copy kernel.
pub const COPY_PTX: &str = include_str!("copy.ptx");

/// Source text of the kernels that fill and compare.
pub const PATTERN_PTX: &str = include_str!("pattern.ptx");

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMABUF: c_int = 1;

/// Buffer size for the compiler's log.
const LOG_BYTES: usize = 2048;

/// NVIDIA's driver.
pub static NVIDIA: GpuDriver = GpuDriver {
    name: "cuda",
    interface: "CUDA",
    files: &["libcuda.so.1"],
    prefix: "cu",
    aliases: &[],
    lacks: &[],
    attributes: None,
    // `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`.
    peer_attributes_from: 1,
    granularity: Granularity::Minimum,
    exported_by_handle: false,
    version_call: c"cuDriverGetVersion",
    version: |number| CudaVersion {
        major: number / 1000,
        minor: number % 1000 / 10,
    },
    identity: |uuid, _pci_address| grouped(uuid),
    pattern_text: PATTERN_PTX,
    copy_text: COPY_PTX,
    own: |library| Ok(Box::new(NvidiaCalls::look_up(|call| library.symbol(call))?)),
};

/// Formats a UUID in its usual groups.
fn grouped(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..8, 8..12, 12..16, 16..20, 20..32]
        .map(|range| hex[range].to_owned())
        .join("-")
}

functions! { pub(super) NvidiaCalls by Introduced:
    error_name = (c"cuGetErrorName", 6, 0) => (Code, *mut *const c_char) -> Code;
    error_string = (c"cuGetErrorString", 6, 0) => (Code, *mut *const c_char) -> Code;
    primary_retain = (c"cuDevicePrimaryCtxRetain", 7, 0) => (*mut ContextHandle, Ordinal) -> Code;
    primary_release = (c"cuDevicePrimaryCtxRelease_v2", 11, 0) => (Ordinal) -> Code;
    set_current = (c"cuCtxSetCurrent", 4, 0) => (ContextHandle) -> Code;
    synchronize = (c"cuCtxSynchronize", 2, 0) => () -> Code;
    enable_peer = (c"cuCtxEnablePeerAccess", 4, 0) => (ContextHandle, c_uint) -> Code;
    copy = (c"cuMemcpyAsync", 4, 0) => (CudaAddress, CudaAddress, usize, StreamHandle) -> Code;
    module_load = (c"cuModuleLoadDataEx", 2, 1) => (*mut ModuleHandle, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Code;
}

functions! { pub(super) DmabufCalls by Introduced:
    export = (c"cuMemGetHandleForAddressRange", 11, 7) => (*mut c_void, CudaAddress, usize, c_int, u64) -> Code;
}

impl OwnCalls for NvidiaCalls {
    unsafe fn retain(&self, ordinal: Ordinal) -> Result<ContextHandle, Code> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is valid for the write; the caller promises the ordinal.
        match unsafe { (self.primary_retain)(&raw mut handle, ordinal) } {
            0 => Ok(handle),
            code => Err(code),
        }
    }

    unsafe fn release(&self, ordinal: Ordinal) {
        // SAFETY: as the caller promises.
        unsafe { (self.primary_release)(ordinal) };
    }

    unsafe fn set_current(&self, context: ContextHandle) -> Code {
        // SAFETY: as the caller promises.
        unsafe { (self.set_current)(context) }
    }

    unsafe fn synchronize(&self) -> Code {
        // SAFETY: takes no arguments; the caller promises a context.
        unsafe { (self.synchronize)() }
    }

    unsafe fn enable_peer(&self, peer: ContextHandle) -> Code {
        // SAFETY: the peer's context is retained; the flags have to be 0.
        unsafe { (self.enable_peer)(peer, 0) }
    }

    unsafe fn copy(
        &self,
        to: CudaAddress,
        from: CudaAddress,
        bytes: usize,
        stream: StreamHandle,
    ) -> Code {
        // SAFETY: as the caller promises.
        unsafe { (self.copy)(to, from, bytes, stream) }
    }

    unsafe fn compile(&self, ptx: &str, _ordinal: Ordinal) -> Result<LoadedText, CudaFailure> {
        // The driver reads the text up to a NUL.
        let image = [ptx.as_bytes(), &[0]].concat();
        let mut module = std::ptr::null_mut();
        let mut log: [c_char; LOG_BYTES] = [0; LOG_BYTES];
        let mut options: [c_int; 2] = [JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES];
        let mut values: [*mut c_void; 2] = [
            log.as_mut_ptr().cast(),
            // The size itself, passed in place of a pointer; one byte stays NUL.
            std::ptr::without_provenance_mut(LOG_BYTES - 1),
        ];
        // SAFETY: the handle is valid for the write, the text ends with a NUL, and there are as many options as values.
        // The first value is a buffer of at least as many bytes as the second gives.
        let code = unsafe {
            (self.module_load)(
                &raw mut module,
                image.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        // SAFETY: the array is NUL-terminated, and nothing else refers to it.
        let complaints = unsafe { text(log.as_ptr()) }.unwrap_or_default();
        let loaded = self.check("cuModuleLoadDataEx", code);
        loaded
            .map(|()| LoadedText {
                module,
                // The driver compiled the text during the call and needs no code afterwards.
                code: Vec::new(),
            })
            .map_err(|failure| failure.with_complaint(&complaints))
    }

    /// The file covers whole pages of the host; the first page may begin before the memory.
    unsafe fn export(
        &self,
        library: &DriverLibrary,
        memory: ExportedMemory,
    ) -> Result<DmabufFile, CudaFailure> {
        let calls = DmabufCalls::look_up(|call| library.symbol(call))?;
        let page = rustix::param::page_size() as u64;
        let start = memory.address / page * page;
        let offset = memory.address - start;
        let bytes = (offset + memory.bytes).next_multiple_of(page);
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut file: c_int = -1;
        // SAFETY: `file` is valid for the write of an int, the type of this kind of handle. The range consists of whole
        // pages; a range that the driver cannot export is an error of the call.
        let code = unsafe { (calls.export)((&raw mut file).cast(), start, len, DMABUF, 0) };
        self.check("cuMemGetHandleForAddressRange", code)?;
        // SAFETY: the driver opened it for the caller, and it has no other owner.
        let file = unsafe { owned_file("cuMemGetHandleForAddressRange", file) }?;
        Ok(DmabufFile { file, offset })
    }

    fn words(&self, code: Code) -> [String; 2] {
        [self.error_name, self.error_string].map(|of| {
            let mut words = std::ptr::null();
            // SAFETY: the pointer is valid for the write; an unknown code makes it null.
            unsafe { of(code, &raw mut words) };
            // SAFETY: null, or a constant NUL-terminated string of the library.
            unsafe { text(words) }.unwrap_or_default()
        })
    }

    fn generation(&self, _ordinal: Ordinal) -> Option<String> {
        None
    }
}

//! HIP calls that differ in form from CUDA's. They take GPU numbers instead of contexts, copies have a direction, and
//! names of results are returned. A struct holds a GPU's properties, and the runtime below HIP exports memory as files.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::compiler::HipCompiler;
use super::export::{RocrExport, export_mapped};
use crate::cuda::abi::{Code, ContextHandle, CudaAddress, ModuleHandle, Ordinal, StreamHandle};
use crate::cuda::dmabuf::{DmabufFile, ExportedMemory};
use crate::cuda::driver::{DriverLibrary, GpuDriver, Introduced, LoadedText, OwnCalls};
use crate::cuda::{CudaFailure, CudaVersion};
use crate::library::{file_or_name, functions, text};

/// `hipMemcpyDefault`: the runtime derives the direction from the addresses.
const COPY_DEFAULT: c_int = 4;

/// Buffer for `hipDeviceProp_t`, with room to spare. The struct had 792 bytes when the library's unversioned symbol was
/// frozen, and has 1472 in newer headers. The buffer consists of words for alignment, because the struct contains sizes
/// and pointers.
type Properties = [u64; 512];

/// Offset of `gcnArchName` in the frozen struct.
const GENERATION_OFFSET: usize = 396;

/// Size of `gcnArchName`.
const GENERATION_BYTES: usize = 256;

functions! { pub(super) HipCalls by Introduced:
    set_device = (c"hipSetDevice", 4, 2) => (c_int) -> Code;
    synchronize = (c"hipDeviceSynchronize", 4, 2) => () -> Code;
    enable_peer = (c"hipDeviceEnablePeerAccess", 4, 2) => (c_int, c_uint) -> Code;
    copy = (c"hipMemcpyAsync", 4, 2) => (CudaAddress, CudaAddress, usize, c_int, StreamHandle) -> Code;
    properties = (c"hipGetDeviceProperties", 4, 2) => (*mut c_void, c_int) -> Code;
    module_load = (c"hipModuleLoadData", 4, 2) => (*mut ModuleHandle, *const c_void) -> Code;
    error_name = (c"hipGetErrorName", 4, 2) => (Code) -> *const c_char;
    error_string = (c"hipGetErrorString", 4, 2) => (Code) -> *const c_char;
}

#[derive(Debug)]
struct HipOwn {
    calls: HipCalls,
    driver: &'static GpuDriver,
    has: Option<CudaVersion>,
    /// Path of the library; its compiler is in the same folder.
    path: String,
    /// The compiler, or the reason why it is missing; set at first use.
    compiler: OnceLock<Result<HipCompiler, CudaFailure>>,
    /// The call that exports allocations, or the reason why it is missing; set at first use.
    exporter: OnceLock<Result<RocrExport, CudaFailure>>,
}

/// Looks up the calls.
///
/// # Errors
/// `TooOld`.
pub(super) fn own(library: &DriverLibrary) -> Result<Box<dyn OwnCalls>, CudaFailure> {
    let calls = HipCalls::look_up(|call| library.symbol(call))?;
    Ok(Box::new(HipOwn {
        calls,
        driver: library.driver,
        has: library.version,
        path: file_or_name(calls.set_device as *const c_void, ""),
        compiler: OnceLock::new(),
        exporter: OnceLock::new(),
    }))
}

/// Returns the GPU number that takes the place of a context handle. No call uses it as an address.
fn number(context: ContextHandle) -> c_int {
    c_int::try_from(context.addr()).unwrap_or(c_int::MAX)
}

impl OwnCalls for HipOwn {
    unsafe fn retain(&self, ordinal: Ordinal) -> Result<ContextHandle, Code> {
        // SAFETY: the call refuses numbers that no GPU has. It creates the equivalent of a context.
        match unsafe { (self.calls.set_device)(ordinal) } {
            0 => Ok(std::ptr::without_provenance_mut(
                usize::try_from(ordinal).unwrap_or(usize::MAX),
            )),
            code => Err(code),
        }
    }

    unsafe fn release(&self, _ordinal: Ordinal) {
        // Nothing to do: the runtime keeps a GPU's state until the process ends. hipDeviceReset would also destroy the
        // state of other users in this process.
    }

    unsafe fn set_current(&self, context: ContextHandle) -> Code {
        // SAFETY: takes a number, and refuses one that no GPU has.
        unsafe { (self.calls.set_device)(number(context)) }
    }

    unsafe fn synchronize(&self) -> Code {
        // SAFETY: takes no arguments.
        unsafe { (self.calls.synchronize)() }
    }

    unsafe fn enable_peer(&self, peer: ContextHandle) -> Code {
        // SAFETY: takes a number; the flags have to be 0.
        unsafe { (self.calls.enable_peer)(number(peer), 0) }
    }

    unsafe fn copy(
        &self,
        to: CudaAddress,
        from: CudaAddress,
        bytes: usize,
        stream: StreamHandle,
    ) -> Code {
        // SAFETY: as the caller promises.
        unsafe { (self.calls.copy)(to, from, bytes, COPY_DEFAULT, stream) }
    }

    unsafe fn compile(&self, text: &str, ordinal: Ordinal) -> Result<LoadedText, CudaFailure> {
        let compiler = self
            .compiler
            .get_or_init(|| HipCompiler::load(self.driver, &self.path, self.has));
        let compiler = compiler.as_ref().map_err(CudaFailure::clone)?;
        let code = compiler.compile(text, self.generation(ordinal).as_deref())?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the handle is valid for the write; the code is complete, as the compiler made it for this GPU. The
        // runtime makes no copy: the owner of the module keeps the code until it has unloaded it.
        let loaded = unsafe { (self.calls.module_load)(&raw mut module, code.as_ptr().cast()) };
        self.check("hipModuleLoadData", loaded)?;
        Ok(LoadedText { module, code })
    }

    unsafe fn export(
        &self,
        library: &DriverLibrary,
        memory: ExportedMemory,
    ) -> Result<DmabufFile, CudaFailure> {
        if let Some(physical) = memory.physical {
            // SAFETY: the caller promises a handle of this library, and that all of its memory is mapped.
            return unsafe { export_mapped(library, self, physical) };
        }
        let exporter = self
            .exporter
            .get_or_init(|| RocrExport::load(self.driver, &self.path, self.has));
        let exporter = exporter.as_ref().map_err(CudaFailure::clone)?;
        // SAFETY: the caller promises an allocation of the runtime.
        unsafe { exporter.export(memory) }
    }

    fn words(&self, code: Code) -> [String; 2] {
        // SAFETY: null, or a constant NUL-terminated string of the library, for any number.
        let [name, words] = [self.calls.error_name, self.calls.error_string]
            .map(|of| unsafe { text(of(code)) }.unwrap_or_default());
        // Older releases return the name as description too.
        let words = if words == name { String::new() } else { words };
        [name, words]
    }

    fn generation(&self, ordinal: Ordinal) -> Option<String> {
        let mut room: Properties = [0; _];
        // SAFETY: the array is larger than the struct in any version, and is aligned for each of its fields.
        let code = unsafe { (self.calls.properties)(room.as_mut_ptr().cast(), ordinal) };
        let bytes: Vec<u8> = room.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = &bytes[GENERATION_OFFSET..][..GENERATION_BYTES];
        let name = name.split(|&byte| byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?;
        // Rejects the bytes of a struct with another layout.
        (code == 0 && name.starts_with("gfx")).then(|| name.to_owned())
    }
}

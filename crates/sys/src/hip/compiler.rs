//! hiprtc, HIP's compiler: compiles kernels of this crate for one GPU.
//!
//! hiprtc is a separate library next to the runtime in newer ROCm releases, and part of the runtime in older releases.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use crate::cuda::abi::Code;
use crate::cuda::driver::{DriverLibrary, GpuDriver, Introduced};
use crate::cuda::{CudaFailure, CudaVersion};
use crate::library::{SharedLibrary, functions, text};

/// Name of the runtime's file, without the interface version.
const RUNTIME: &str = "libamdhip64";

/// Name of the compiler's file, without the interface version.
const COMPILER: &str = "libhiprtc";

/// `hiprtcProgram`.
type Program = *mut c_void;

functions! { pub(super) HiprtcCalls by Introduced:
    create = (c"hiprtcCreateProgram", 4, 2) => (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Code;
    compile = (c"hiprtcCompileProgram", 4, 2) => (Program, c_int, *const *const c_char) -> Code;
    log_size = (c"hiprtcGetProgramLogSize", 4, 2) => (Program, *mut usize) -> Code;
    log = (c"hiprtcGetProgramLog", 4, 2) => (Program, *mut c_char) -> Code;
    code_size = (c"hiprtcGetCodeSize", 4, 2) => (Program, *mut usize) -> Code;
    code = (c"hiprtcGetCode", 4, 2) => (Program, *mut c_char) -> Code;
    destroy = (c"hiprtcDestroyProgram", 4, 2) => (*mut Program) -> Code;
    words = (c"hiprtcGetErrorString", 4, 2) => (c_int) -> *const c_char;
}

/// The call that returns the size of a log or of code.
type SizeCall = unsafe extern "C" fn(Program, *mut usize) -> c_int;

/// The call that writes a log or code.
type BytesCall = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The compiler.
#[derive(Debug)]
pub(super) struct HipCompiler {
    calls: HiprtcCalls,
    // The library that the calls belong to. It stays loaded even after this handle is dropped.
    _library: DriverLibrary,
}

/// A text during compilation.
struct HipProgram<'a> {
    compiler: &'a HipCompiler,
    handle: Program,
}

impl HipCompiler {
    /// Loads the compiler for the runtime at path `runtime`: from the library in the same folder, from the runtime
    /// itself, or from a library that the loader finds.
    ///
    /// # Errors
    /// `NoCompiler`, `TooOld`.
    pub(super) fn load(
        driver: &'static GpuDriver,
        runtime: &str,
        has: Option<CudaVersion>,
    ) -> Result<Self, CudaFailure> {
        let mut first = None;
        for name in candidates(runtime) {
            let found =
                SharedLibrary::open(&name).map_err(|error| CudaFailure::NoCompiler(error.into()));
            let found = found.and_then(|file| {
                let library = DriverLibrary {
                    driver,
                    file,
                    version: has,
                };
                Ok(Self {
                    calls: HiprtcCalls::look_up(|call| library.symbol(call))?,
                    _library: library,
                })
            });
            match found {
                Ok(compiler) => return Ok(compiler),
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        Err(first.unwrap_or_else(|| CudaFailure::NoCompiler(COMPILER.to_owned())))
    }

    /// Compiles a text for an architecture; if that is unknown, for the GPU that is current on this thread.
    ///
    /// # Errors
    /// `Call`, with the compiler's first message.
    pub(super) fn compile(
        &self,
        source: &str,
        generation: Option<&str>,
    ) -> Result<Vec<u8>, CudaFailure> {
        let program = self.create(source)?;
        // Names of architectures contain no NUL.
        let wanted =
            generation.and_then(|name| CString::new(format!("--offload-arch={name}")).ok());
        let options: Vec<*const c_char> = wanted.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives, and the count matches the strings. Each string ends with a NUL and outlives the
        // call.
        let code = unsafe {
            (self.calls.compile)(program.handle, options.len() as c_int, options.as_ptr())
        };
        self.check("hiprtcCompileProgram", code)
            .map_err(|failure| {
                let sizes = (self.calls.log_size, self.calls.log);
                let log = program.bytes(sizes, ["hiprtcGetProgramLogSize", "hiprtcGetProgramLog"]);
                let log = log.unwrap_or_default();
                failure.with_complaint(String::from_utf8_lossy(&log).trim_end_matches('\0'))
            })?;
        let sizes = (self.calls.code_size, self.calls.code);
        program.bytes(sizes, ["hiprtcGetCodeSize", "hiprtcGetCode"])
    }

    fn create(&self, source: &str) -> Result<HipProgram<'_>, CudaFailure> {
        // This crate's texts contain no NUL; a text with one would be compiled up to it.
        let bytes: Vec<u8> = source.bytes().take_while(|&byte| byte != 0).collect();
        let source = CString::new(bytes).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        let no_headers = std::ptr::null();
        // SAFETY: the handle is valid for the write, both strings end with a NUL and outlive the call, and there are no
        // headers.
        let code = unsafe {
            (self.calls.create)(
                &raw mut handle,
                source.as_ptr(),
                c"tonnage.hip".as_ptr(),
                0,
                no_headers,
                no_headers,
            )
        };
        self.check("hiprtcCreateProgram", code)?;
        Ok(HipProgram {
            compiler: self,
            handle,
        })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaFailure> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: null, or a constant NUL-terminated string of the library, for any number.
        let name = unsafe { text((self.calls.words)(code)) }.unwrap_or_default();
        Err(CudaFailure::Call {
            call,
            code,
            name,
            text: "the kernels were not compiled".to_owned(),
        })
    }
}

impl HipProgram<'_> {
    /// Returns the bytes of a log or of code: one call returns their number, another one writes them.
    fn bytes(
        &self,
        (size, bytes): (SizeCall, BytesCall),
        [size_name, bytes_name]: [&'static str; 2],
    ) -> Result<Vec<u8>, CudaFailure> {
        let mut len = 0;
        // SAFETY: the number is valid for the write of a size; the program lives.
        let code = unsafe { size(self.handle, &raw mut len) };
        self.compiler.check(size_name, code)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        // Older compilers end a log with a NUL that they do not count.
        let mut room = vec![0u8; len + 1];
        // SAFETY: the buffer is larger than the library has reported.
        let code = unsafe { bytes(self.handle, room.as_mut_ptr().cast()) };
        self.compiler.check(bytes_name, code)?;
        room.truncate(len);
        Ok(room)
    }
}

impl Drop for HipProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once. `drop` cannot report a failure.
        unsafe { (self.compiler.calls.destroy)(&raw mut self.handle) };
    }
}

/// Returns the files that may contain a runtime's compiler, in order of preference.
fn candidates(runtime: &str) -> Vec<String> {
    let file = Path::new(runtime)
        .file_name()
        .and_then(|name| name.to_str());
    // Runtime and compiler share the interface version.
    let version = file.and_then(|name| name.strip_prefix(RUNTIME));
    let beside = version.map(|version| {
        let beside = Path::new(runtime).with_file_name(format!("{COMPILER}{version}"));
        beside.to_string_lossy().into_owned()
    });
    let by_loader = version.map(|version| format!("{COMPILER}{version}"));
    let others = [7, 6, 5].map(|major| format!("{COMPILER}.so.{major}"));
    let named = beside
        .into_iter()
        .chain([runtime.to_owned()])
        .chain(by_loader);
    named.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_beside_the_runtime_comes_first() {
        let tried = candidates("/opt/rocm/lib/libamdhip64.so.6");
        assert_eq!(tried[0], "/opt/rocm/lib/libhiprtc.so.6");
        assert_eq!(tried[1], "/opt/rocm/lib/libamdhip64.so.6");
        assert_eq!(tried[2], "libhiprtc.so.6");
        // If the runtime has another name, the name of the compiler next to it is unknown.
        assert_eq!(candidates("/a/b.so")[..2], ["/a/b.so", "libhiprtc.so.7"]);
    }
}

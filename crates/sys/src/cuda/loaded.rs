//! libcuda as it was loaded: the calls that it exports, looked up once, and the names of its results.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{
    Code, ContextHandle, CudaAddress, EventHandle, FunctionHandle, ModuleHandle, Ordinal, SUCCESS,
    StreamHandle,
};
use super::failure::{CudaFailure, CudaVersion};
use crate::library::{SharedLibrary, file_of, text};

/// The file that the loader searches for.
const NAME: &str = "libcuda.so.1";

macro_rules! functions {
    ($calls:ident: $($name:ident = $symbol:literal since $major:literal, $minor:literal ($($argument:ty),*);)*) => {
        /// Exported calls.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $calls {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $crate::cuda::abi::Code,)*
        }

        impl $calls {
            /// Looks them up.
            ///
            /// # Errors
            /// `TooOld`, with the first that the library lacks.
            pub(super) fn of(
                library: &$crate::library::SharedLibrary,
                has: Option<$crate::cuda::CudaVersion>,
            ) -> Result<Self, $crate::cuda::CudaFailure> {
                Ok(Self {
                    $($name: {
                        let address = library.symbol_without_version($symbol).map_err(|_| {
                            $crate::cuda::CudaFailure::TooOld {
                                has,
                                needs: $crate::cuda::CudaVersion { major: $major, minor: $minor },
                                symbol: $symbol.to_string_lossy().into_owned(),
                            }
                        })?;
                        // SAFETY: the symbol has the signature that the header declares for the name with its version,
                        // which is the one that stands here.
                        unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<std::ffi::c_void>,
                                unsafe extern "C" fn($($argument),*) -> $crate::cuda::abi::Code,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

pub(super) use functions;

// The newest is of CUDA 11.0, which drivers serve from 450 on.
functions! { Calls:
    init = c"cuInit" since 2, 0 (c_uint);
    error_name = c"cuGetErrorName" since 6, 0 (Code, *mut *const c_char);
    error_string = c"cuGetErrorString" since 6, 0 (Code, *mut *const c_char);
    device_count = c"cuDeviceGetCount" since 2, 0 (*mut c_int);
    device = c"cuDeviceGet" since 2, 0 (*mut Ordinal, c_int);
    device_name = c"cuDeviceGetName" since 2, 0 (*mut c_char, c_int, Ordinal);
    device_uuid = c"cuDeviceGetUuid" since 9, 2 (*mut [u8; 16], Ordinal);
    device_memory = c"cuDeviceTotalMem_v2" since 3, 2 (*mut usize, Ordinal);
    device_pci = c"cuDeviceGetPCIBusId" since 4, 1 (*mut c_char, c_int, Ordinal);
    device_attribute = c"cuDeviceGetAttribute" since 2, 0 (*mut c_int, c_int, Ordinal);
    primary_retain = c"cuDevicePrimaryCtxRetain" since 7, 0 (*mut ContextHandle, Ordinal);
    primary_release = c"cuDevicePrimaryCtxRelease_v2" since 11, 0 (Ordinal);
    set_current = c"cuCtxSetCurrent" since 4, 0 (ContextHandle);
    synchronize = c"cuCtxSynchronize" since 2, 0 ();
    can_access_peer = c"cuDeviceCanAccessPeer" since 4, 0 (*mut c_int, Ordinal, Ordinal);
    enable_peer = c"cuCtxEnablePeerAccess" since 4, 0 (ContextHandle, c_uint);
    memory_info = c"cuMemGetInfo_v2" since 3, 2 (*mut usize, *mut usize);
    allocate = c"cuMemAlloc_v2" since 3, 2 (*mut CudaAddress, usize);
    free = c"cuMemFree_v2" since 3, 2 (CudaAddress);
    host_register = c"cuMemHostRegister_v2" since 6, 5 (*mut c_void, usize, c_uint);
    host_unregister = c"cuMemHostUnregister" since 4, 0 (*mut c_void);
    host_address = c"cuMemHostGetDevicePointer_v2" since 3, 2 (*mut CudaAddress, *mut c_void, c_uint);
    copy_in = c"cuMemcpyHtoD_v2" since 3, 2 (CudaAddress, *const c_void, usize);
    copy_out = c"cuMemcpyDtoH_v2" since 3, 2 (*mut c_void, CudaAddress, usize);
    copy = c"cuMemcpyAsync" since 4, 0 (CudaAddress, CudaAddress, usize, StreamHandle);
    stream_create = c"cuStreamCreate" since 2, 0 (*mut StreamHandle, c_uint);
    stream_synchronize = c"cuStreamSynchronize" since 2, 0 (StreamHandle);
    stream_destroy = c"cuStreamDestroy_v2" since 4, 0 (StreamHandle);
    event_create = c"cuEventCreate" since 2, 0 (*mut EventHandle, c_uint);
    event_record = c"cuEventRecord" since 2, 0 (EventHandle, StreamHandle);
    event_query = c"cuEventQuery" since 2, 0 (EventHandle);
    event_synchronize = c"cuEventSynchronize" since 2, 0 (EventHandle);
    event_elapsed = c"cuEventElapsedTime" since 2, 0 (*mut f32, EventHandle, EventHandle);
    event_destroy = c"cuEventDestroy_v2" since 4, 0 (EventHandle);
    module_load = c"cuModuleLoadDataEx" since 2, 1 (*mut ModuleHandle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_function = c"cuModuleGetFunction" since 2, 0 (*mut FunctionHandle, ModuleHandle, *const c_char);
    module_unload = c"cuModuleUnload" since 2, 0 (ModuleHandle);
    launch = c"cuLaunchKernel" since 4, 0 (FunctionHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamHandle, *mut *mut c_void, *mut *mut c_void);
}

/// The library, initialised.
#[derive(Debug)]
pub struct Libcuda {
    pub(super) calls: Calls,
    pub(super) version: Option<CudaVersion>,
    path: String,
    // Dropping the handle does not unload the library; it is here because the calls are its.
    pub(super) library: SharedLibrary,
}

impl Libcuda {
    /// Loads a file, or the library that the loader finds, and initialises it.
    ///
    /// # Errors
    /// `NoDriver`; `TooOld`; the driver's reason, which is `CUDA_ERROR_NO_DEVICE` where there is no GPU.
    pub fn load(file: Option<&str>) -> Result<Arc<Self>, CudaFailure> {
        let name = file.unwrap_or(NAME);
        let library = SharedLibrary::open(name).map_err(CudaFailure::NoDriver)?;
        let version = driver_version(&library);
        let calls = Calls::of(&library, version)?;
        let path = NonNull::new(calls.init as *mut c_void).and_then(file_of);
        let loaded = Self {
            calls,
            version,
            path: path.unwrap_or_else(|| name.to_owned()),
            library,
        };
        // SAFETY: may be called at any time and more than once; the flags have to be 0.
        let code = unsafe { (loaded.calls.init)(0) };
        loaded.check("cuInit", code)?;
        Ok(Arc::new(loaded))
    }

    /// The file that it was loaded from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The newest CUDA that the driver serves; `None` where it does not say.
    pub fn version(&self) -> Option<CudaVersion> {
        self.version
    }

    /// The failure of a call, where its result is one.
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), CudaFailure> {
        if code == SUCCESS {
            return Ok(());
        }
        let words = |of: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut words = std::ptr::null();
            // SAFETY: the pointer is valid for the write; an unknown code makes it null.
            unsafe { of(code, &raw mut words) };
            // SAFETY: null, or a constant NUL-terminated string of the library.
            unsafe { text(words) }.unwrap_or_default()
        };
        Err(CudaFailure::Call {
            call,
            code,
            name: words(self.calls.error_name),
            text: words(self.calls.error_string),
        })
    }
}

/// The version that a driver serves, before anything else is asked of it.
fn driver_version(library: &SharedLibrary) -> Option<CudaVersion> {
    let address = library.symbol_without_version(c"cuDriverGetVersion").ok()?;
    // SAFETY: the symbol has this signature since CUDA 2.2.
    let call = unsafe {
        std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_int) -> Code>(address)
    };
    let mut number = 0;
    // SAFETY: the number is valid for the write of an int; the call needs no initialised library.
    let code = unsafe { call(&raw mut number) };
    (code == SUCCESS && number > 0).then(|| CudaVersion::of(number))
}

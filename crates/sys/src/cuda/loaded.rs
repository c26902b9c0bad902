//! A driver as it was loaded: the calls that it exports, looked up once, and the names of its results.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::abi::{
    Code, CudaAddress, EventHandle, FunctionHandle, ModuleHandle, Ordinal, SUCCESS, StreamHandle,
};
use super::driver::{DriverLibrary, GpuDriver, OwnCalls};
use super::failure::{CudaFailure, CudaVersion};
use super::nvidia::NVIDIA;
use crate::library::file_of;

pub(super) use super::functions::functions;

// The newest is of CUDA 11.0, which drivers serve from 450 on.
functions! { Calls:
    init = c"cuInit" since 2, 0 (c_uint);
    device_count = c"cuDeviceGetCount" since 2, 0 (*mut c_int);
    device = c"cuDeviceGet" since 2, 0 (*mut Ordinal, c_int);
    device_name = c"cuDeviceGetName" since 2, 0 (*mut c_char, c_int, Ordinal);
    device_uuid = c"cuDeviceGetUuid" since 9, 2 (*mut [u8; 16], Ordinal);
    device_memory = c"cuDeviceTotalMem_v2" since 3, 2 (*mut usize, Ordinal);
    device_pci = c"cuDeviceGetPCIBusId" since 4, 1 (*mut c_char, c_int, Ordinal);
    device_attribute = c"cuDeviceGetAttribute" since 2, 0 (*mut c_int, c_int, Ordinal);
    can_access_peer = c"cuDeviceCanAccessPeer" since 4, 0 (*mut c_int, Ordinal, Ordinal);
    memory_info = c"cuMemGetInfo_v2" since 3, 2 (*mut usize, *mut usize);
    allocate = c"cuMemAlloc_v2" since 3, 2 (*mut CudaAddress, usize);
    free = c"cuMemFree_v2" since 3, 2 (CudaAddress);
    host_register = c"cuMemHostRegister_v2" since 6, 5 (*mut c_void, usize, c_uint);
    host_unregister = c"cuMemHostUnregister" since 4, 0 (*mut c_void);
    host_address = c"cuMemHostGetDevicePointer_v2" since 3, 2 (*mut CudaAddress, *mut c_void, c_uint);
    copy_in = c"cuMemcpyHtoD_v2" since 3, 2 (CudaAddress, *const c_void, usize);
    copy_out = c"cuMemcpyDtoH_v2" since 3, 2 (*mut c_void, CudaAddress, usize);
    stream_create = c"cuStreamCreate" since 2, 0 (*mut StreamHandle, c_uint);
    stream_synchronize = c"cuStreamSynchronize" since 2, 0 (StreamHandle);
    stream_destroy = c"cuStreamDestroy_v2" since 4, 0 (StreamHandle);
    event_create = c"cuEventCreate" since 2, 0 (*mut EventHandle, c_uint);
    event_record = c"cuEventRecord" since 2, 0 (EventHandle, StreamHandle);
    event_query = c"cuEventQuery" since 2, 0 (EventHandle);
    event_synchronize = c"cuEventSynchronize" since 2, 0 (EventHandle);
    event_elapsed = c"cuEventElapsedTime" since 2, 0 (*mut f32, EventHandle, EventHandle);
    event_destroy = c"cuEventDestroy_v2" since 4, 0 (EventHandle);
    module_function = c"cuModuleGetFunction" since 2, 0 (*mut FunctionHandle, ModuleHandle, *const c_char);
    module_unload = c"cuModuleUnload" since 2, 0 (ModuleHandle);
    launch = c"cuLaunchKernel" since 4, 0 (FunctionHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamHandle, *mut *mut c_void, *mut *mut c_void);
}

/// A driver's library, initialised.
#[derive(Debug)]
pub struct Libcuda {
    pub(super) calls: Calls,
    /// Calls that drivers have in forms of their own.
    pub(super) own: Box<dyn OwnCalls>,
    pub(super) version: Option<CudaVersion>,
    path: String,
    pub(super) library: DriverLibrary,
}

impl Libcuda {
    /// Loads NVIDIA's driver, as [`Self::load_of`] does.
    ///
    /// # Errors
    /// As there.
    pub fn load(file: Option<&str>) -> Result<Arc<Self>, CudaFailure> {
        Self::load_of(&NVIDIA, file)
    }

    /// Loads a file, or the library that the loader finds, and initialises it.
    ///
    /// # Errors
    /// `NoDriver`; `TooOld`; the driver's reason, which is `CUDA_ERROR_NO_DEVICE` or its like where there is no GPU.
    pub fn load_of(
        driver: &'static GpuDriver,
        file: Option<&str>,
    ) -> Result<Arc<Self>, CudaFailure> {
        let library = driver.open(file)?;
        let version = driver_version(&library);
        let calls = Calls::of(&library, version)?;
        let path = NonNull::new(calls.init as *mut c_void).and_then(file_of);
        let loaded = Self {
            calls,
            own: (driver.own)(&library, version)?,
            version,
            path: path.unwrap_or_else(|| file.unwrap_or(driver.files[0]).to_owned()),
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

    /// The driver whose library it is.
    pub fn driver(&self) -> &'static GpuDriver {
        self.library.driver
    }

    /// Returns whether both are one library in this process, however often it was loaded.
    pub(super) fn is_one_with(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.calls.init, other.calls.init)
    }

    /// The newest version of its interface that the driver serves; `None` where it does not say.
    pub fn version(&self) -> Option<CudaVersion> {
        self.version
    }

    /// The failure of a call, where its result is one.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), CudaFailure> {
        match code {
            SUCCESS => Ok(()),
            _ => self.own.check(self.library.driver.called(call), code),
        }
    }
}

/// The version that a driver serves, before anything else is asked of it.
fn driver_version(library: &DriverLibrary) -> Option<CudaVersion> {
    let driver = library.driver;
    let address = library.file.symbol_without_version(driver.version_call);
    // SAFETY: the symbol has this signature in all versions.
    let call = unsafe {
        std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_int) -> Code>(
            address.ok()?,
        )
    };
    let mut number = 0;
    // SAFETY: the number is valid for the write of an int; the call needs no initialised library.
    let code = unsafe { call(&raw mut number) };
    (code == SUCCESS && number > 0).then(|| (driver.version)(number))
}

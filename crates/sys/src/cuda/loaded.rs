//! A loaded driver: its exported calls, looked up once, and the names of its result codes.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::abi::{
    Code, CudaAddress, EventHandle, FunctionHandle, ModuleHandle, Ordinal, SUCCESS, StreamHandle,
};
use super::driver::{DriverLibrary, GpuDriver, Introduced, OwnCalls};
use super::failure::{CudaFailure, CudaVersion};
use super::nvidia::NVIDIA;
use crate::library::{file_or_name, functions};

// The newest call came with CUDA 11.0, which drivers from 450 on support.
functions! { pub(super) Calls by Introduced:
    init = (c"cuInit", 2, 0) => (c_uint) -> Code;
    device_count = (c"cuDeviceGetCount", 2, 0) => (*mut c_int) -> Code;
    device = (c"cuDeviceGet", 2, 0) => (*mut Ordinal, c_int) -> Code;
    device_name = (c"cuDeviceGetName", 2, 0) => (*mut c_char, c_int, Ordinal) -> Code;
    device_uuid = (c"cuDeviceGetUuid", 9, 2) => (*mut [u8; 16], Ordinal) -> Code;
    device_memory = (c"cuDeviceTotalMem_v2", 3, 2) => (*mut usize, Ordinal) -> Code;
    device_pci = (c"cuDeviceGetPCIBusId", 4, 1) => (*mut c_char, c_int, Ordinal) -> Code;
    device_attribute = (c"cuDeviceGetAttribute", 2, 0) => (*mut c_int, c_int, Ordinal) -> Code;
    can_access_peer = (c"cuDeviceCanAccessPeer", 4, 0) => (*mut c_int, Ordinal, Ordinal) -> Code;
    memory_info = (c"cuMemGetInfo_v2", 3, 2) => (*mut usize, *mut usize) -> Code;
    allocate = (c"cuMemAlloc_v2", 3, 2) => (*mut CudaAddress, usize) -> Code;
    free = (c"cuMemFree_v2", 3, 2) => (CudaAddress) -> Code;
    host_register = (c"cuMemHostRegister_v2", 6, 5) => (*mut c_void, usize, c_uint) -> Code;
    host_unregister = (c"cuMemHostUnregister", 4, 0) => (*mut c_void) -> Code;
    host_address = (c"cuMemHostGetDevicePointer_v2", 3, 2) => (*mut CudaAddress, *mut c_void, c_uint) -> Code;
    copy_in = (c"cuMemcpyHtoD_v2", 3, 2) => (CudaAddress, *const c_void, usize) -> Code;
    copy_out = (c"cuMemcpyDtoH_v2", 3, 2) => (*mut c_void, CudaAddress, usize) -> Code;
    stream_create = (c"cuStreamCreate", 2, 0) => (*mut StreamHandle, c_uint) -> Code;
    stream_synchronize = (c"cuStreamSynchronize", 2, 0) => (StreamHandle) -> Code;
    stream_destroy = (c"cuStreamDestroy_v2", 4, 0) => (StreamHandle) -> Code;
    event_create = (c"cuEventCreate", 2, 0) => (*mut EventHandle, c_uint) -> Code;
    event_record = (c"cuEventRecord", 2, 0) => (EventHandle, StreamHandle) -> Code;
    event_query = (c"cuEventQuery", 2, 0) => (EventHandle) -> Code;
    event_synchronize = (c"cuEventSynchronize", 2, 0) => (EventHandle) -> Code;
    event_elapsed = (c"cuEventElapsedTime", 2, 0) => (*mut f32, EventHandle, EventHandle) -> Code;
    event_destroy = (c"cuEventDestroy_v2", 4, 0) => (EventHandle) -> Code;
    module_function = (c"cuModuleGetFunction", 2, 0) => (*mut FunctionHandle, ModuleHandle, *const c_char) -> Code;
    module_unload = (c"cuModuleUnload", 2, 0) => (ModuleHandle) -> Code;
    launch = (c"cuLaunchKernel", 4, 0) => (FunctionHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, StreamHandle, *mut *mut c_void, *mut *mut c_void) -> Code;
}

/// An initialised driver library.
#[derive(Debug)]
pub struct Libcuda {
    pub(super) calls: Calls,
    /// Calls with a different form in each driver.
    pub(super) own: Box<dyn OwnCalls>,
    path: String,
    pub(super) library: DriverLibrary,
}

impl Libcuda {
    /// Loads NVIDIA's driver, as [`Self::load_of`] does.
    ///
    /// # Errors
    /// As for [`Self::load_of`].
    pub fn load(file: Option<&str>) -> Result<Arc<Self>, CudaFailure> {
        Self::load_of(&NVIDIA, file)
    }

    /// Loads `file` if given, otherwise the library that the loader finds, and initialises it.
    ///
    /// # Errors
    /// `NoDriver`; `TooOld`; or the driver's reason, such as `CUDA_ERROR_NO_DEVICE` if there is no GPU.
    pub fn load_of(
        driver: &'static GpuDriver,
        file: Option<&str>,
    ) -> Result<Arc<Self>, CudaFailure> {
        let library = driver.open(file)?;
        let calls = Calls::look_up(|call| library.symbol(call))?;
        let name = file.unwrap_or(driver.files[0]);
        let loaded = Self {
            calls,
            own: (driver.own)(&library)?,
            path: file_or_name(calls.init as *const c_void, name),
            library,
        };
        // SAFETY: may be called at any time and more than once; the flags have to be 0.
        let code = unsafe { (loaded.calls.init)(0) };
        loaded.check("cuInit", code)?;
        Ok(Arc::new(loaded))
    }

    /// Path of the loaded file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The driver that this library belongs to.
    pub fn driver(&self) -> &'static GpuDriver {
        self.library.driver
    }

    /// Whether both are the same library in this process, even if it was loaded twice.
    pub(super) fn is_one_with(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.calls.init, other.calls.init)
    }

    /// Returns the newest version of the interface that the driver supports; `None` if it does not report one.
    pub fn version(&self) -> Option<CudaVersion> {
        self.library.version
    }

    /// Turns a call's result code into an error unless it is success.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), CudaFailure> {
        match code {
            SUCCESS => Ok(()),
            _ => self.own.check(self.library.driver.called(call), code),
        }
    }
}

//! Declarations from the driver's header, cuda.h: types, attribute and flag numbers, and the result codes that this
//! crate distinguishes.

use std::ffi::{c_int, c_void};

/// `CUresult`.
pub(crate) type Code = c_int;
/// `CUdevice`: an ordinal.
pub(crate) type Ordinal = c_int;
/// `CUdeviceptr`.
pub(crate) type CudaAddress = u64;
/// `CUmemGenericAllocationHandle`.
pub(crate) type PhysicalHandle = u64;
/// `CUcontext`.
pub(crate) type ContextHandle = *mut c_void;
/// `CUstream`.
pub(crate) type StreamHandle = *mut c_void;
/// `CUevent`.
pub(crate) type EventHandle = *mut c_void;
/// `CUmodule`.
pub(crate) type ModuleHandle = *mut c_void;
/// `CUfunction`.
pub(crate) type FunctionHandle = *mut c_void;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: Code = 0;
/// `CUDA_ERROR_NOT_READY`: the result of a query, not a failure.
pub(crate) const NOT_READY: Code = 600;

/// `CU_STREAM_NON_BLOCKING`: not ordered with the default stream.
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DEFAULT`: the event records a time.
pub(crate) const EVENT_DEFAULT: u32 = 0;
/// `CU_EVENT_DISABLE_TIMING`: an event without a time costs less.
pub(crate) const EVENT_UNTIMED: u32 = 2;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`: this process enabled the access earlier.
pub(crate) const PEER_ENABLED: Code = 704;
/// `CU_MEMHOSTREGISTER_PORTABLE` (known to the contexts of all devices) and `CU_MEMHOSTREGISTER_DEVICEMAP` (addressable
/// by devices).
pub(crate) const HOST_REGISTER_FLAGS: u32 = 1 | 2;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: opening another GPU's memory also enables access to it.
pub(crate) const IPC_LAZY_PEER_ACCESS: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FILE: c_int = 1;

/// `CU_JIT_ERROR_LOG_BUFFER`.
pub(crate) const JIT_ERROR_LOG: c_int = 5;
/// `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
pub(crate) const JIT_ERROR_LOG_BYTES: c_int = 6;

/// Attributes of a device, by their numbers in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Attribute {
    /// `MULTIPROCESSOR_COUNT`.
    Multiprocessors = 16,
    /// `MEMORY_CLOCK_RATE`, in kHz.
    MemoryClockKhz = 36,
    /// `GLOBAL_MEMORY_BUS_WIDTH`, in bits.
    MemoryBusBits = 37,
    /// `L2_CACHE_SIZE`, in bytes.
    CacheBytes = 38,
    /// `ASYNC_ENGINE_COUNT`.
    CopyEngines = 40,
    /// `COMPUTE_CAPABILITY_MAJOR`.
    ComputeMajor = 75,
    /// `COMPUTE_CAPABILITY_MINOR`.
    ComputeMinor = 76,
    /// `VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
    MappedMemory = 102,
    /// `HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
    FileHandles = 103,
    /// `GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
    GpuDirectVmm = 110,
    /// `GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS`.
    FlushOptions = 117,
    /// `GPU_DIRECT_RDMA_WRITES_ORDERING`.
    WritesOrdering = 118,
    /// `CAN_USE_64_BIT_STREAM_MEM_OPS`.
    StreamWords = 122,
    /// `DMA_BUF_SUPPORTED`.
    Dmabuf = 124,
}

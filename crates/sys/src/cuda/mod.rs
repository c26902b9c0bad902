//! GPU drivers, loaded at run time: devices, memory, copies, streams, events and tonnage's own kernels.
//!
//! The code is written for NVIDIA's libcuda and uses its names. Other drivers have the same calls under other names;
//! [`crate::hip`] lists the names in AMD's driver.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `abi` | declarations from the driver's header |
//! | `driver` | differences between drivers, and the calls that have another form in each driver |
//! | `nvidia` | the description of NVIDIA's driver |
//! | `loaded` | the library and its exported calls, each with the version of CUDA that introduced it |
//! | `failure` | reasons for failures, with the driver's name of the code |
//! | `device` | properties of a GPU and of its access to another one's memory |
//! | `context` | an opened GPU: allocations, free memory, waiting |
//! | `ipc` | GPU memory allocated by another process |
//! | `flags` | words that a stream writes after the data, for the CPU |
//! | `vmm` | allocations by virtual-memory handles |
//! | `dmabuf` | GPU memory as a file, and for NICs |
//! | `buffer` | GPU memory, and host memory known to the driver |
//! | `stream` | ordered copies, and the times between them |
//! | `raw_loop` | a loop of plain driver calls, as a baseline for speed tests |
//! | `copier` | copies between two memories over several streams, with completions |
//! | `module` | compiling kernels from their text, and launching them |
//! | `copy_kernel`, `copy.ptx` | copies by the GPU's processors |
//! | `pattern`, `pattern.ptx` | the keyed pattern, written and compared by a GPU |
//!
//! Symbols are looked up by the name that includes their version (`cuMemAlloc_v2`). The header's macros expand to these
//! names, and the library keeps them for older programs. No toolkit is needed.
//!
//! Kernels can access all memory that the driver knows. So only kernels of this crate are launched, by functions that
//! check every range: see [`PatternKernels`]. `tonnage_engines::memory` chooses GPUs, advises on failures and verifies
//! the kernels.

pub(crate) mod abi;
mod buffer;
mod context;
mod copier;
mod copy_kernel;
mod device;
pub(crate) mod dmabuf;
pub(crate) mod driver;
mod failure;
mod flags;
mod ipc;
mod loaded;
mod module;
mod nvidia;
mod pattern;
mod raw_loop;
mod stream;
mod vmm;

pub use buffer::{CudaPart, DeviceBuffer, PinnedArena, PinnedView};
pub use context::CudaContext;
pub use copier::{CopyMark, CudaCopier, CudaRegion};
pub use copy_kernel::CopyKernel;
pub use device::{CudaDevice, CudaPeer};
pub use dmabuf::{DmabufFile, NicWriteFlush, WritesOrdering};
pub use driver::GpuDriver;
pub use failure::{CudaFailure, CudaVersion};
pub use flags::{FlagWords, WordsBehind};
pub use ipc::{ImportedBuffer, IpcHandle};
pub use loaded::Libcuda;
pub use nvidia::{COPY_PTX, NVIDIA, PATTERN_PTX};
pub use pattern::{PatternKernels, PatternNumbers};
pub use raw_loop::RawLoop;
pub use stream::{CudaEvent, CudaStream};

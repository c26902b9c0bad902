//! Drivers of GPUs, loaded at run time: devices, memory, copies, streams, events, and the kernels of tonnage.
//!
//! Everything here is written for libcuda, NVIDIA's, and named after it; other drivers have the same calls by names of
//! their own, which [`crate::hip`] lists for AMD's.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `abi` | declarations of the driver's header |
//! | `driver` | in what drivers differ, and the calls that each has in a form of its own |
//! | `nvidia` | NVIDIA's driver, in these terms |
//! | `loaded` | the library and the calls that it exports, each with the version of CUDA that it came with |
//! | `failure` | why something could not be done, with the driver's name of the code |
//! | `device` | a GPU, and its access to another one's memory, as the driver describes them |
//! | `context` | a GPU in use: allocations, free memory, waiting |
//! | `ipc` | memory of a GPU that another process has allocated |
//! | `flags` | words that a stream writes for the CPU, behind the data |
//! | `vmm` | allocations by virtual-memory handles |
//! | `dmabuf` | memory of a GPU as a file, and for network cards |
//! | `buffer` | memory of a GPU, and memory of the host that the driver knows |
//! | `stream` | copies one after the other, and the times between them |
//! | `raw_loop` | the driver's calls alone, for tests of speed |
//! | `copier` | copies between two memories over several streams, with what tells their ends |
//! | `module` | kernels compiled from their text, and their launches |
//! | `copy_kernel`, `copy.ptx` | copies by the processors of a GPU |
//! | `pattern`, `pattern.ptx` | the keyed pattern, written and compared by a GPU |
//!
//! Symbols are looked up by the name that carries their version (`cuMemAlloc_v2`), which is what the header's macros
//! name and what the library keeps for programs that are older than itself. No toolkit is needed.
//!
//! Kernels can reach all memory that the driver knows, and so those of this crate alone are launched, by functions that
//! check every range: see [`PatternKernels`]. Choosing a GPU, advice about failures and proving the kernels are
//! `tonnage_engines::memory`'s.

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
pub use dmabuf::{CardWrites, DmabufFile, WritesOrdering};
pub use driver::GpuDriver;
pub use failure::{CudaFailure, CudaVersion};
pub use flags::{FlagWords, WordsBehind};
pub use ipc::{ImportedBuffer, IpcHandle};
pub use loaded::Libcuda;
pub use nvidia::{COPY_PTX, NVIDIA, PATTERN_PTX};
pub use pattern::{PatternKernels, PatternNumbers};
pub use raw_loop::RawLoop;
pub use stream::{CudaEvent, CudaStream};

//! libamdhip64, the runtime library of AMD GPUs, loaded at run time. This module contains its differences from NVIDIA's
//! driver; all other code is shared, in [`crate::cuda`].
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the description of the driver |
//! | `names` | its call names and attribute numbers |
//! | `calls` | calls that differ in form from CUDA's |
//! | `export` | memory as a file for other devices |
//! | `compiler` | kernels compiled from their text, by hiprtc |
//! | `pattern.hip` | the keyed pattern, written and compared by a GPU |
//! | `copy.hip` | copies by the GPU's processors |
//!
//! No code here has run on an AMD GPU. Names, prototypes, numbers and the version of each call come from ROCm's public
//! headers and the library's list of exported symbols. The flags and results in `cuda::abi` were compared with those
//! headers, and have the same numbers there. Contexts are deprecated in HIP. A thread has a current GPU instead, and
//! this code uses the GPU's number in place of a context.

mod calls;
mod compiler;
mod export;
mod names;

use crate::cuda::GpuDriver;
use crate::cuda::driver::Granularity;

/// Source text of the copy kernel.
pub const COPY_HIP: &str = include_str!("copy.hip");

/// Source text of the kernels that fill and compare.
pub const PATTERN_HIP: &str = include_str!("pattern.hip");

/// AMD's runtime.
pub static AMD: GpuDriver = GpuDriver {
    name: "hip",
    interface: "HIP",
    files: &[
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so",
    ],
    prefix: "hip",
    aliases: names::ALIASES,
    lacks: names::LACKS,
    attributes: Some(names::ATTRIBUTES),
    // `hipDevP2PAttrPerformanceRank`.
    peer_attributes_from: 0,
    // In newer releases the minimum is one host page. With pages of this size, a GPU needs many address translations.
    granularity: Granularity::Recommended,
    exported_by_handle: true,
    version_call: c"hipDriverGetVersion",
    version: names::version,
    identity: names::identity,
    pattern_text: PATTERN_HIP,
    copy_text: COPY_HIP,
    own: calls::own,
};

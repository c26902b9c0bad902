//! libamdhip64, the runtime library of AMD GPUs, loaded at run time: the differences between it and NVIDIA's driver,
//! after which everything else is as in [`crate::cuda`].
//!
//! | file | what lives there |
//! | --- | --- |
//! | `mod` | the driver, as data |
//! | `names` | its names of calls, and its numbers of attributes |
//! | `calls` | calls that it has in forms of its own |
//! | `export` | memory as a file for other devices |
//! | `compiler` | kernels compiled from their text, by hiprtc |
//! | `pattern.hip` | the keyed pattern, written and compared by a GPU |
//! | `copy.hip` | copies by the processors of a GPU |
//!
//! Nothing here has run on a GPU of AMD. Names, prototypes, numbers and the version that each call came with are those
//! of ROCm's public headers and of the list of symbols that the library exports. Flags and results in `cuda::abi` were
//! compared with those headers, and are the same numbers there. Contexts are deprecated in HIP: a
//! thread has a current GPU, whose number stands in their place.

mod calls;
mod compiler;
mod export;
mod names;

use crate::cuda::GpuDriver;
use crate::cuda::driver::Granularity;

/// Text of the kernel that copies.
pub const COPY_HIP: &str = include_str!("copy.hip");

/// Text of the kernels that fill and compare.
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
    // The least is a page of the host in newer releases, which costs a GPU many translations.
    granularity: Granularity::Recommended,
    exported_by_handle: true,
    version_call: c"hipDriverGetVersion",
    version: names::version,
    identity: names::identity,
    pattern_text: PATTERN_HIP,
    copy_text: COPY_HIP,
    own: calls::own,
};

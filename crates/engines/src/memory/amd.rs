//! AMD as a GPU vendor.

use tonnage_engine::Library;
use tonnage_machine::devices::{LIBHIP_VARIABLE, has_amd_peer_memory};
use tonnage_sys::cuda::CudaFailure;
use tonnage_sys::hip;

use super::vendor::{GpuVendor, NicRules, PinBound, RefusalCodes};

/// AMD GPUs.
pub(crate) const AMD: &GpuVendor = &GpuVendor {
    maker: "AMD",
    driver: &hip::AMD,
    driver_words: "HIP's runtime",
    library: Library {
        name: "libamdhip64",
        variable: LIBHIP_VARIABLE,
        about: "libamdhip64.so.7, .6 or .5 of ROCm 5.1 or newer, with its libhiprtc",
    },
    memory: "hip",
    pinned: "hip-pinned",
    copies: "hip",
    copies_by: "hipMemcpyAsync, whose runtime chooses between copy engines (SDMA) and a kernel of its own",
    ipc: "hip-ipc",
    visible: "HIP_VISIBLE_DEVICES",
    codes: RefusalCodes {
        // hipErrorInvalidValue, which has many causes, and hipErrorOutOfMemory.
        not_pinned: &[1, 2],
        // hipErrorInvalidDevicePointer for memory that cannot be attached, and hipErrorMapFailed.
        no_way: &[17, 205],
        not_seen: &[],
    },
    pins_within: PinBound::SystemMemory,
    // The runtime does not report the size of the Infinity Cache, which is 256 MiB on an MI300X.
    uncached_bytes_min: 1 << 30,
    cards: NicRules {
        exports: "hipDeviceAttributeDmaBufSupported",
        reaches_mapped: "hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported",
        // Older releases export mapped memory although they do not know the attribute.
        mapped_needs_attribute: false,
        dmabuf: "ROCm 5.4 or newer (hsa_amd_portable_export_dmabuf of its libhsa-runtime64), and a kernel whose amdgpu \
                 exports memory (Linux 6.4 or amdgpu-dkms; with CONFIG_PCI_P2PDMA, and CONFIG_DMABUF_MOVE_NOTIFY where \
                 it has that option: `tonnage devices` reads them; AMD also requires CONFIG_HSA_AMD_P2P; with a NIC \
                 other than mlx5, memory stays on the GPU only from Linux 6.15 or amdgpu-dkms 6.14.14 on)",

        peermem: "amdgpu of AMD's packages (amdgpu-dkms), which registers as \"amdkfd\" with the NIC drivers of \
                  MLNX_OFED or DOCA, or with a kernel that has their patch (ib_register_peer_memory_client): `dmesg | \
                  grep PeerDirect` shows whether it did; Linux's own amdgpu has no such part, so use dmabuf there",
        may_move: true,
        has_peer_memory: has_amd_peer_memory,
        no_peer_memory: "the kernel lists no amdkfd under memory_peers in /sys/kernel/mm, /sys/kernel or /sys",
        built_with: "ROCm",
        providers: "cxi or verbs;ofi_rxm",
        flush_unknown: "HIP does not report whether it is needed",
    },
    advice,
    no_gpu: NO_GPU,
    no_way: "Choose one GPU for both ranks, or two that reach each other: `rocm-smi --showtopo` (`amd-smi topology`) \
             lists the links; if they do, start both ranks in one container (--pid=host --ipc=host for several) and as \
             one user",
};

/// Advice if the runtime sees no GPU.
const NO_GPU: &str = "Run `tonnage devices`, which lists the machine's GPUs; check that HIP_VISIBLE_DEVICES and \
                      ROCR_VISIBLE_DEVICES leave one, that a container has /dev/kfd and /dev/dri (--device), and that \
                      this user may open them (groups render and video)";

/// Returns advice for the user.
fn advice(failure: &CudaFailure) -> &'static str {
    match failure {
        CudaFailure::NoDriver(_) => {
            "Install ROCm's runtime (libamdhip64-5 on Debian, hip-runtime-amd of AMD's packages), or name a file with \
             --library libamdhip64=PATH, such as that in $ROCM_PATH/lib or /opt/rocm-X.Y/lib"
        }
        CudaFailure::NoCompiler(_) => {
            "Install hiprtc, which compiles the kernels (libhiprtc.so: libamdhip64-5 on Debian, hip-runtime-amd of AMD's \
             packages)"
        }
        CudaFailure::TooOld { .. } => "Install ROCm 5.1 or newer",
        CudaFailure::NotOffered { .. } | CudaFailure::NoWords => {
            "tonnage does not use this ROCm call on this GPU: leave out the option that needs it"
        }
        CudaFailure::Outside(_) => "This is a defect of tonnage: please report it",
        CudaFailure::NoPeer { .. } => {
            "Look at `rocm-smi --showtopo`: virtual machines, chipsets and small BARs may forbid it; copy through the \
             host in two steps, e.g. `--memory hip:N --target-memory hip-pinned`"
        }
        CudaFailure::NotPinned => {
            "Choose --memory hip-pinned, or --engine-option by=ce for copies by hipMemcpyAsync"
        }
        CudaFailure::NoGpu => {
            "Choose --memory hip-pinned --target-memory hip, or --memory hip for both"
        }
        CudaFailure::OtherDriver { .. } => {
            "Choose memory of one vendor's GPUs for both ends, and one --library libamdhip64"
        }
        CudaFailure::OtherGpu { .. } => {
            "Choose one GPU for both ends, hip:N with the same number; memory hip-pinned belongs to the rank's GPU"
        }
        // Without a GPU, this call returns different codes in different releases.
        CudaFailure::Call {
            call: "hipInit", ..
        } => NO_GPU,
        CudaFailure::Call { name, .. } => match name.as_str() {
            "hipErrorNoDevice" => NO_GPU,
            "hipErrorOutOfMemory" => {
                "Choose smaller --sizes or --footprint, or fewer ranks on this GPU; `rocm-smi --showpids` shows which other \
                 processes use its memory"
            }
            "hipErrorNotSupported" => {
                "This GPU, or the virtual machine that it is passed to, does not allow that: use another --memory"
            }
            "hipErrorInsufficientDriver" => {
                "The runtime and the kernel module are from different releases: install the amdgpu-dkms of this ROCm, \
                 or a newer kernel"
            }
            _ => {
                "Check `dmesg` for lines of amdgpu, and the GPU with `rocm-smi -a`; tonnage never resets a GPU"
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_does_not_mention_other_vendors() {
        let call = |name: &str| CudaFailure::Call {
            call: "hipMalloc",
            code: 2,
            name: name.to_owned(),
            text: String::new(),
        };
        for failure in [
            CudaFailure::NoDriver(String::new()),
            CudaFailure::NotPinned,
            CudaFailure::NoGpu,
            CudaFailure::NoPeer {
                call: "hipDeviceCanAccessPeer",
                name: "hip",
                gpu: 0,
                peer: 1,
            },
            call("hipErrorOutOfMemory"),
            call("hipErrorLaunchFailure"),
        ] {
            let said = advice(&failure).to_lowercase();
            assert!(!said.contains("cuda") && !said.contains("nvidia"), "{said}");
        }
    }
}

//! NVIDIA as a GPU vendor.

use tonnage_engine::Library;
use tonnage_machine::devices::{LIBCUDA_VARIABLE, peer_memory_module};
use tonnage_sys::cuda::{self, CudaFailure};

use super::vendor::{GpuVendor, INVALID_DEVICE, NicRules, OUT_OF_MEMORY, PinBound, RefusalCodes};

/// NVIDIA GPUs.
pub(crate) const NVIDIA: &GpuVendor = &GpuVendor {
    maker: "NVIDIA",
    driver: &cuda::NVIDIA,
    driver_words: "CUDA's driver",
    library: Library {
        name: "libcuda",
        variable: LIBCUDA_VARIABLE,
        about: "the driver's libcuda.so.1, of CUDA 11.0 (driver 450) or newer",
    },
    memory: "cuda",
    pinned: "cuda-pinned",
    copies: "cuda",
    copies_by: "copy engines",
    ipc: "cuda-ipc",
    visible: "CUDA_VISIBLE_DEVICES",
    codes: RefusalCodes {
        // CUDA_ERROR_OUT_OF_MEMORY and CUDA_ERROR_OPERATING_SYSTEM. Neither is about GPU memory here.
        not_pinned: &[OUT_OF_MEMORY, 304],
        // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_TOO_MANY_PEERS.
        no_way: &[217, 711],
        not_seen: &[INVALID_DEVICE],
    },
    pins_within: PinBound::Locked,
    uncached_bytes_min: 128 << 20,
    cards: NicRules {
        exports: "DMA_BUF_SUPPORTED",
        reaches_mapped: "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
        mapped_needs_attribute: true,
        dmabuf: "a GPU driver that exports memory (NVIDIA's open kernel modules, 515 or newer; some export only memory \
                 of --memory-option alloc=vmm)",
        peermem: "the kernel module nvidia-peermem (modprobe nvidia-peermem), which comes with NVIDIA's driver and \
                  loads only with the NIC drivers of MLNX_OFED or DOCA, or a kernel that has their patch \
                  (ib_register_peer_memory_client): on other kernels it fails with \"Invalid argument\", so use dmabuf \
                  there",
        may_move: false,
        has_peer_memory: |tree| peer_memory_module(tree).is_some(),
        no_peer_memory: "the kernel module nvidia_peermem is not loaded",
        built_with: "CUDA",
        providers: "efa or verbs;ofi_rxm",
        flush_unknown: "the driver does not report whether it is needed (that of CUDA 11.3 does)",
    },
    advice,
    no_gpu: NO_GPU,
    no_way: "Choose one GPU for both ranks, or two that reach each other: `nvidia-smi topo -p2p r` lists them",
};

/// Advice for failures that no user can have caused.
const DEFECT: &str = "This is a defect of tonnage: please report it";

/// Advice if the driver sees no GPU.
const NO_GPU: &str = "Run `tonnage devices`, which lists the machine's GPUs; check that CUDA_VISIBLE_DEVICES leaves \
                      one, and that a container has /dev/nvidia* (--gpus all)";

/// Returns advice for the user.
fn advice(failure: &CudaFailure) -> &'static str {
    match failure {
        CudaFailure::NoDriver(_) => {
            "Install NVIDIA's driver (libcuda1 on Debian, libnvidia-compute on Ubuntu; in a container, start it with --gpus \
             all), or name a file with --library libcuda=PATH"
        }
        CudaFailure::TooOld { .. } => {
            "Install a driver that supports CUDA 11.0 or newer: 450 or newer"
        }
        CudaFailure::NotOffered { .. } | CudaFailure::NoCompiler(_) | CudaFailure::NoWords => {
            DEFECT
        }
        CudaFailure::Outside(_) => DEFECT,
        CudaFailure::NoPeer { .. } => {
            "Look at `nvidia-smi topo -p2p rw`: virtual machines and chipsets may forbid it; copy through the host in \
             two steps, e.g. `--memory cuda:N --target-memory cuda-pinned`"
        }
        CudaFailure::NotPinned => {
            "Choose --memory cuda-pinned, or --engine-option by=ce for copies by copy engines"
        }
        CudaFailure::NoGpu => {
            "Choose --memory cuda-pinned --target-memory cuda, or --memory cuda for both"
        }
        CudaFailure::OtherDriver { .. } => {
            "Choose memory of one vendor's GPUs for both ends, and one --library libcuda"
        }
        CudaFailure::OtherGpu { .. } => {
            "Choose one GPU for both ends, cuda:N with the same number; memory cuda-pinned is in the context of the rank's GPU"
        }
        CudaFailure::Call { name, .. } => match name.as_str() {
            "CUDA_ERROR_NO_DEVICE" => NO_GPU,
            "CUDA_ERROR_OUT_OF_MEMORY" => {
                "Choose smaller --sizes or --footprint, or fewer ranks on this GPU; `nvidia-smi` shows which other \
                 processes use its memory"
            }
            "CUDA_ERROR_SYSTEM_NOT_READY" => {
                "Start the fabric manager (systemctl start nvidia-fabricmanager), because GPUs behind NVSwitch need it"
            }
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" | "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" => {
                "The library and the kernel module are from different drivers: load the module of the installed driver \
                 (modprobe -r nvidia, then modprobe nvidia; or reboot), or remove a compat library from \
                 LD_LIBRARY_PATH"
            }
            "CUDA_ERROR_DEVICE_UNAVAILABLE" => {
                "Another process uses the GPU exclusively (`nvidia-smi -q -d COMPUTE`): wait until it has ended"
            }
            "CUDA_ERROR_NOT_SUPPORTED" | "CUDA_ERROR_NOT_PERMITTED" => {
                "This GPU, or the virtual machine that it is passed to, does not allow that: use another --memory"
            }
            _ => {
                "Check `dmesg` for lines of NVRM and Xid, and the GPU with `nvidia-smi -q`; tonnage never resets a GPU"
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_gpu_is_not_called_a_defect() {
        let other = CudaFailure::OtherGpu {
            name: "cuda",
            memory: 0,
            stream: 1,
        };
        assert!(advice(&other).contains("cuda:N with the same number"));
    }
}

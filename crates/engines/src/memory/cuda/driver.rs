//! CUDA's driver in this process: the library that was chosen, the GPUs in use, and advice for each failure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use tonnage_engine::Library;
use tonnage_engine::memory::Request;
use tonnage_machine::devices::LIBCUDA_VARIABLE;
use tonnage_sys::cuda::{CudaContext, CudaFailure, Libcuda, PatternKernels};
use tonnage_units::{Error, Result};

use super::proof;

/// The library, as `--library` chooses it.
pub(in crate::memory) const LIBRARY: Library = Library {
    name: "libcuda",
    variable: LIBCUDA_VARIABLE,
    about: "the driver's libcuda.so.1, of CUDA 11.0 (driver 450) or newer",
};

/// A GPU that is in use.
pub(in crate::memory) struct GpuInUse {
    context: Arc<CudaContext>,
    /// The kernels, or why they are not trusted.
    kernels: std::result::Result<PatternKernels, String>,
}

/// GPUs in use by the library's file and their number. They stay so until the process ends: to take one into use again
/// for each point of a plan would take longer than most points.
static IN_USE: Mutex<BTreeMap<GpuKey, Arc<GpuInUse>>> = Mutex::new(BTreeMap::new());

/// The file that was named, and the number.
type GpuKey = (Option<OsString>, u32);

/// The number of the GPU that a memory's name asks for; the first where it names none.
///
/// # Errors
/// `Usage` for anything but a number.
pub(super) fn number(variant: &str) -> Result<u32> {
    match variant {
        "" => Ok(0),
        number => number.parse().map_err(|_| {
            Error::Usage(format!(
                "memory cuda:{number} names no GPU: write its number, such as cuda:0, as `tonnage devices` lists them"
            ))
        }),
    }
}

/// Takes a GPU into use, for a memory of some name.
///
/// # Errors
/// `Unavailable`, with what to do.
pub(in crate::memory) fn open(
    request: &Request<'_>,
    memory: &str,
    number: u32,
) -> Result<Arc<GpuInUse>> {
    let named = request
        .libraries
        .and_then(|libraries| libraries.get(LIBRARY.name))
        .map(|path| path.as_os_str().to_owned())
        .or_else(|| std::env::var_os(LIBRARY.variable).filter(|path| !path.is_empty()));
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (named, number);
    if let Some(gpu) = in_use.get(&key) {
        return Ok(Arc::clone(gpu));
    }
    let file = key.0.as_ref().map(|path| path.to_str());
    if file == Some(None) {
        return Err(Error::Usage(format!(
            "{}: the path of the library is not UTF-8",
            LIBRARY.name
        )));
    }
    let unavailable = |failure: CudaFailure| unavailable(memory, &failure);
    let library = Libcuda::load(file.flatten()).map_err(unavailable)?;
    let context = match CudaContext::open(&library, number) {
        Ok(context) => context,
        Err(failure) if failure.name() == "CUDA_ERROR_INVALID_DEVICE" => {
            return Err(no_such_gpu(memory, number, &library));
        }
        Err(failure) => return Err(unavailable(failure)),
    };
    let kernels = PatternKernels::load(&context)
        .map_err(|failure| format!("its driver did not take the kernels: {failure}"));
    let kernels = kernels.and_then(|kernels| proof::prove(&context, &kernels).map(|()| kernels));
    let gpu = Arc::new(GpuInUse { context, kernels });
    in_use.insert(key, Arc::clone(&gpu));
    Ok(gpu)
}

impl GpuInUse {
    pub(in crate::memory) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The kernels.
    ///
    /// # Errors
    /// Why they are not trusted.
    pub(super) fn kernels(&self) -> std::result::Result<&PatternKernels, String> {
        self.kernels.as_ref().map_err(Clone::clone)
    }

    /// Number, model and address.
    pub(in crate::memory) fn name(&self) -> String {
        let device = self.context.device();
        format!(
            "cuda:{} ({}, {})",
            device.number, device.name, device.pci_address
        )
    }

    /// A failure while it was in use.
    pub(super) fn failed(&self, failure: &CudaFailure) -> Error {
        match failure {
            CudaFailure::Outside(range) => Error::Failed(range.to_string()),
            _ => Error::Failed(format!("{}: {failure}. {}", self.name(), advice(failure))),
        }
    }

    /// A failed allocation.
    pub(super) fn too_small(&self, bytes: u64, failure: &CudaFailure) -> Error {
        let why = match self.context.memory_bytes() {
            Ok((free, all)) => {
                format!("{bytes} bytes were asked for, and {free} of {all} are free: {failure}")
            }
            Err(_) => format!("{bytes} bytes were asked for: {failure}"),
        };
        Error::Unavailable {
            what: format!("memory of {}", self.name()),
            why,
            how: advice(failure).to_owned(),
        }
    }
}

fn no_such_gpu(memory: &str, number: u32, library: &Libcuda) -> Error {
    let count = library.devices().map_or(0, |devices| devices.len());
    let how = match count {
        0 | 1 => "Choose memory cuda, or cuda:0".to_owned(),
        several => format!("Choose cuda:0 to cuda:{}", several - 1),
    };
    Error::Unavailable {
        what: format!("memory {memory}:{number}"),
        why: format!("this process sees {count} GPUs, which are numbered from 0"),
        how: format!("{how}; CUDA_VISIBLE_DEVICES says which of the machine's it may see"),
    }
}

/// An error of something that is not here.
pub(in crate::memory) fn unavailable(memory: &str, failure: &CudaFailure) -> Error {
    Error::Unavailable {
        what: format!("memory {memory}"),
        why: failure.to_string(),
        how: advice(failure).to_owned(),
    }
}

/// The next thing to try.
fn advice(failure: &CudaFailure) -> &'static str {
    match failure {
        CudaFailure::NoDriver(_) => {
            "Install NVIDIA's driver (libcuda1 on Debian, libnvidia-compute on Ubuntu; in a container, start it with --gpus \
             all), or name a file with --library libcuda=PATH"
        }
        CudaFailure::TooOld { .. } => {
            "Install a driver that serves CUDA 11.0 or newer: 450 or newer"
        }
        CudaFailure::Outside(_) => "This is a defect of tonnage: please report it",
        CudaFailure::Call { name, .. } => match name.as_str() {
            "CUDA_ERROR_NO_DEVICE" => {
                "Run `tonnage devices`: it says which GPUs the machine has; see that CUDA_VISIBLE_DEVICES leaves one, and that \
                 a container has /dev/nvidia* (--gpus all)"
            }
            "CUDA_ERROR_OUT_OF_MEMORY" => {
                "Choose smaller --sizes or --footprint, or fewer ranks on this GPU; `nvidia-smi` shows who else has its memory"
            }
            "CUDA_ERROR_SYSTEM_NOT_READY" => {
                "Start the fabric manager (systemctl start nvidia-fabricmanager), which GPUs behind NVSwitch wait for"
            }
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" | "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" => {
                "The library and the kernel's module are of different drivers: load the module of the installed one (modprobe \
                 -r nvidia, then modprobe nvidia; or restart), or take a compat library out of LD_LIBRARY_PATH"
            }
            "CUDA_ERROR_DEVICE_UNAVAILABLE" => {
                "Another process has the GPU for itself (`nvidia-smi -q -d COMPUTE`): wait until it has ended"
            }
            "CUDA_ERROR_NOT_SUPPORTED" | "CUDA_ERROR_NOT_PERMITTED" => {
                "This GPU, or the machine that it is passed through, does not allow that: use another memory"
            }
            _ => {
                "Look for lines of NVRM and Xid in `dmesg`, and at the GPU with `nvidia-smi -q`; tonnage never resets one"
            }
        },
    }
}

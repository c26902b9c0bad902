//! CUDA's driver in this process: the library that was chosen, the GPUs in use, and advice for each failure.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tonnage_engine::{Libraries, Library};
use tonnage_machine::devices::LIBCUDA_VARIABLE;
use tonnage_sys::cuda::{CopyKernel, CudaContext, CudaFailure, Libcuda, PatternKernels};
use tonnage_units::{Error, Result};

use super::super::host::group_bytes;
use super::proof;

/// The library, as `--library` chooses it.
pub(crate) const LIBRARY: Library = Library {
    name: "libcuda",
    variable: LIBCUDA_VARIABLE,
    about: "the driver's libcuda.so.1, of CUDA 11.0 (driver 450) or newer",
};

/// A GPU that is in use.
pub(crate) struct GpuInUse {
    context: Arc<CudaContext>,
    /// The kernels, or why they are not trusted; empty until somebody has a use for them.
    kernels: OnceLock<std::result::Result<PatternKernels, String>>,
    /// The kernel that copies, in the same way.
    copies: OnceLock<std::result::Result<Arc<CopyKernel>, String>>,
}

/// GPUs in use by the library's file and their number. They stay so until the process ends: to take one into use again
/// for each point of a plan would take longer than most points.
static IN_USE: Mutex<BTreeMap<GpuKey, Arc<GpuInUse>>> = Mutex::new(BTreeMap::new());

/// The file that was named, and the number.
type GpuKey = (Option<OsString>, u32);

/// The number of the GPU that a memory's name asks for; where it names none that of the rank, else the first.
///
/// # Errors
/// `Usage` for anything but a number.
pub(in crate::memory) fn number(variant: &str, of_rank: Option<u32>) -> Result<u32> {
    match variant {
        "" => Ok(of_rank.unwrap_or(0)),
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
    libraries: Option<&Libraries>,
    memory: &str,
    number: u32,
) -> Result<Arc<GpuInUse>> {
    let named = named(libraries);
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (named, number);
    if let Some(gpu) = in_use.get(&key) {
        return Ok(Arc::clone(gpu));
    }
    let what = format!("memory {memory}");
    let unavailable = |failure: CudaFailure| unavailable(&what, &failure);
    let library = load(key.0.as_deref(), &what)?;
    let context = match CudaContext::open(&library, number) {
        Ok(context) => context,
        Err(failure) if failure.name() == "CUDA_ERROR_INVALID_DEVICE" => {
            let devices = library.devices().map_err(unavailable)?;
            return Err(no_such_gpu(memory, number, devices.len()));
        }
        Err(failure) => return Err(unavailable(failure)),
    };
    let (kernels, copies) = (OnceLock::new(), OnceLock::new());
    let gpu = Arc::new(GpuInUse {
        context,
        kernels,
        copies,
    });
    in_use.insert(key, Arc::clone(&gpu));
    Ok(gpu)
}

/// The file that was named, by an option or by the variable.
fn named(libraries: Option<&Libraries>) -> Option<OsString> {
    let asked = libraries.and_then(|libraries| libraries.get(LIBRARY.name));
    let asked = asked.map(|path| path.as_os_str().to_owned());
    asked.or_else(|| std::env::var_os(LIBRARY.variable).filter(|path| !path.is_empty()))
}

/// Loads the driver's library for `what`.
fn load(named: Option<&OsStr>, what: &str) -> Result<Arc<Libcuda>> {
    let file = named.map(OsStr::to_str);
    if file == Some(None) {
        return Err(Error::Usage(format!(
            "{}: the path of the library is not UTF-8",
            LIBRARY.name
        )));
    }
    Libcuda::load(file.flatten()).map_err(|failure| unavailable(what, &failure))
}

/// The driver's library, for an engine.
///
/// # Errors
/// `Unavailable`, with what to do.
pub(crate) fn library(libraries: &Libraries, what: &str) -> Result<Arc<Libcuda>> {
    load(named(Some(libraries)).as_deref(), what)
}

impl GpuInUse {
    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The kernels, which are compiled and proven when they are first asked for: whoever allocates memory that they
    /// fill asks then, so that no measurement waits for it.
    ///
    /// # Errors
    /// Why they are not trusted.
    pub(super) fn kernels(&self) -> std::result::Result<&PatternKernels, &str> {
        let kernels = self.kernels.get_or_init(|| {
            let kernels = PatternKernels::load(&self.context)
                .map_err(|failure| format!("its driver did not take the kernels: {failure}"))?;
            proof::prove(&self.context, &kernels)?;
            Ok(kernels)
        });
        kernels.as_ref().map_err(String::as_str)
    }

    /// The kernel that copies, which is compiled and proven when it is first asked for.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub(crate) fn copy_kernel(&self) -> std::result::Result<Arc<CopyKernel>, String> {
        let kernel = self.copies.get_or_init(|| {
            let kernel = CopyKernel::load(&self.context)
                .map_err(|failure| format!("its driver did not take the kernel: {failure}"))?;
            let kernel = Arc::new(kernel);
            proof::prove_copies(&self.context, &kernel)?;
            Ok(kernel)
        });
        kernel.clone()
    }

    /// Number, model and address.
    pub(crate) fn name(&self) -> String {
        gpu_name(&self.context)
    }

    /// A failure while it was in use.
    pub(crate) fn failed(&self, failure: &CudaFailure) -> Error {
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

/// Number, model and address of a context's GPU.
pub(crate) fn gpu_name(context: &CudaContext) -> String {
    let device = context.device();
    format!(
        "cuda:{} ({}, {})",
        device.number, device.name, device.pci_address
    )
}

/// An error of a number that none of so many GPUs has.
fn no_such_gpu(memory: &str, number: u32, count: usize) -> Error {
    let visible = "CUDA_VISIBLE_DEVICES says which of the machine's it may see";
    let (what, why, how) = match count {
        // No number would do.
        0 => (
            format!("memory {memory}"),
            "this process sees no GPU".to_owned(),
            NO_GPU.to_owned(),
        ),
        1 => (
            format!("memory {memory}:{number}"),
            "this process sees one GPU, which has number 0".to_owned(),
            format!("Choose memory cuda, or cuda:0; {visible}"),
        ),
        several => (
            format!("memory {memory}:{number}"),
            format!("this process sees {several} GPUs, which are numbered from 0"),
            format!("Choose cuda:0 to cuda:{}; {visible}", several - 1),
        ),
    };
    Error::Unavailable { what, why, how }
}

/// An error of so many bytes of the host that the driver did not pin.
pub(in crate::memory) fn not_pinned(memory: &str, bytes: usize, failure: &CudaFailure) -> Error {
    let how = match failure.name() {
        // Neither is about memory of the GPU.
        "CUDA_ERROR_OUT_OF_MEMORY" | "CUDA_ERROR_OPERATING_SYSTEM" => NOT_PINNED,
        _ => advice(failure),
    };
    let limit = match tonnage_sys::process::locked_memory_limit() {
        Some(limit) => format!("{limit} bytes"),
        None => "any number".to_owned(),
    };
    let group = match group_bytes() {
        Some(left) => format!(", its control group grants {left} more (memory.max)"),
        None => String::new(),
    };
    Error::Unavailable {
        what: format!("memory {memory}"),
        why: format!(
            "{bytes} bytes of the host were to be pinned; this process may lock {limit} (RLIMIT_MEMLOCK){group}: {failure}"
        ),
        how: how.to_owned(),
    }
}

/// An error of something that is not here.
pub(crate) fn unavailable(what: &str, failure: &CudaFailure) -> Error {
    Error::Unavailable {
        what: what.to_owned(),
        why: failure.to_string(),
        how: advice(failure).to_owned(),
    }
}

/// The next thing to try where memory of the host was not pinned.
const NOT_PINNED: &str = "Choose smaller --sizes or --footprint, or fewer ranks on this host; raise the limit with \
                          `ulimit -l unlimited`, or LimitMEMLOCK of the service that starts it, and memory.max of the \
                          container's or the job's cgroup, which bounds pinned memory as well";

/// The next thing to try where the driver sees no GPU.
const NO_GPU: &str = "Run `tonnage devices`: it says which GPUs the machine has; see that CUDA_VISIBLE_DEVICES leaves \
                      one, and that a container has /dev/nvidia* (--gpus all)";

/// The next thing to try.
pub(in crate::memory) fn advice(failure: &CudaFailure) -> &'static str {
    match failure {
        CudaFailure::NoDriver(_) => {
            "Install NVIDIA's driver (libcuda1 on Debian, libnvidia-compute on Ubuntu; in a container, start it with --gpus \
             all), or name a file with --library libcuda=PATH"
        }
        CudaFailure::TooOld { .. } => {
            "Install a driver that serves CUDA 11.0 or newer: 450 or newer"
        }
        CudaFailure::Outside(_) => "This is a defect of tonnage: please report it",
        CudaFailure::NoPeer { .. } => {
            "Look at `nvidia-smi topo -p2p rw`: virtual machines and chipsets may forbid it; copy by way of the host in two \
             steps, as --memory cuda:N --target-memory cuda-pinned"
        }
        CudaFailure::NotPinned => {
            "Choose --memory cuda-pinned, or --engine-option by=ce for copies by copy engines"
        }
        CudaFailure::NoGpu => {
            "Choose --memory cuda-pinned --target-memory cuda, or --memory cuda for both"
        }
        CudaFailure::OtherGpu { .. } => {
            "Choose one GPU for both ends, cuda:N with the same number; memory cuda-pinned is in the context of cuda:0"
        }
        CudaFailure::Call { name, .. } => match name.as_str() {
            "CUDA_ERROR_NO_DEVICE" => NO_GPU,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_offered_is_one_that_there_is() {
        let said = |number, count| no_such_gpu("cuda", number, count).to_string();
        let none = said(0, 0);
        assert!(
            none.contains("sees no GPU") && none.contains("--gpus all"),
            "{none}"
        );
        assert!(!none.contains("cuda:"), "{none}");
        let one = said(1, 1);
        assert!(
            one.contains("memory cuda:1") && one.contains("or cuda:0;"),
            "{one}"
        );
        let several = said(4, 4);
        assert!(several.contains("Choose cuda:0 to cuda:3;"), "{several}");
    }

    #[test]
    fn memory_of_another_gpu_is_no_defect() {
        let other = CudaFailure::OtherGpu {
            memory: 0,
            stream: 1,
        };
        assert!(advice(&other).contains("cuda:N with the same number"));
    }
}

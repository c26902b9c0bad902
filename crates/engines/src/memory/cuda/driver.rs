//! GPU drivers in this process: the chosen libraries, and the GPUs in use. Advice for failures is in the file of each
//! vendor.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tonnage_engine::Libraries;
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::cuda::{CopyKernel, CudaContext, CudaFailure, Libcuda, PatternKernels};
use tonnage_units::{Error, Result};

use super::super::host::group_bytes;
use super::super::vendor::vendor_of;
use super::super::vendor::{GpuVendor, INVALID_DEVICE, PinBound};
use super::proof;
use crate::libraries;

/// A GPU in use.
pub(crate) struct GpuInUse {
    pub(crate) vendor: &'static GpuVendor,
    pub(crate) context: Arc<CudaContext>,
    /// The pattern kernels, or the reason why they are not trusted; empty before their first use.
    kernels: OnceLock<std::result::Result<PatternKernels, String>>,
    /// The copy kernel, or the reason why it is not trusted; empty before its first use.
    copies: OnceLock<std::result::Result<Arc<CopyKernel>, String>>,
    /// The library's path, if the user chose one.
    named: Option<OsString>,
    /// How long it took to open the GPU.
    open_ns: u64,
}

/// How long drivers took to start in this process, by vendor and library path. The longest duration is kept, because
/// loading a driver again takes almost no time. An engine may have loaded the driver before any memory is allocated.
static STARTS_NS: Mutex<BTreeMap<(&'static str, Option<OsString>), u64>> =
    Mutex::new(BTreeMap::new());

/// GPUs in use by vendor, library path and number. They stay open until the process ends: opening them again for each
/// point of a plan would take longer than most points.
static IN_USE: Mutex<BTreeMap<GpuKey, Arc<GpuInUse>>> = Mutex::new(BTreeMap::new());

/// Name of the memory, chosen library path, and number.
type GpuKey = (&'static str, Option<OsString>, u32);

/// Returns the GPU number in a memory's name. Without one, returns the number of the rank's GPU, or else 0.
///
/// # Errors
/// `Usage` for anything but a number.
pub(in crate::memory) fn number(
    vendor: &GpuVendor,
    variant: &str,
    of_rank: Option<u32>,
) -> Result<u32> {
    match variant {
        "" => Ok(of_rank.unwrap_or(0)),
        number => number.parse().map_err(|_| {
            let memory = vendor.memory;
            Error::Usage(format!(
                "memory {memory}:{number}: expected the number of a GPU, such as {memory}:0, as `tonnage devices` lists \
                 them"
            ))
        }),
    }
}

/// Opens a GPU for the memory with this name.
///
/// # Errors
/// `Unavailable`, with advice.
pub(in crate::memory) fn open(
    vendor: &'static GpuVendor,
    libraries: Option<&Libraries>,
    memory: &str,
    number: u32,
) -> Result<Arc<GpuInUse>> {
    let named = library_file(vendor, libraries);
    let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (vendor.memory, named, number);
    if let Some(gpu) = in_use.get(&key) {
        return Ok(Arc::clone(gpu));
    }
    let what = format!("memory {memory}");
    let unavailable = |failure: CudaFailure| unavailable(vendor, &what, &failure);
    let library = load(vendor, key.1.as_deref(), &what)?;
    let began = Instant::now();
    let context = match CudaContext::open(&library, number) {
        Ok(context) => context,
        Err(failure) if failure.code() == Some(INVALID_DEVICE) => {
            let devices = library.devices().map_err(unavailable)?;
            return Err(no_such_gpu(vendor, (memory, number), devices.len()));
        }
        Err(failure) => return Err(unavailable(failure)),
    };
    let (kernels, copies) = (OnceLock::new(), OnceLock::new());
    let gpu = Arc::new(GpuInUse {
        vendor,
        context,
        kernels,
        copies,
        named: key.1.clone(),
        open_ns: ns_since(began),
    });
    in_use.insert(key, Arc::clone(&gpu));
    Ok(gpu)
}

/// Returns the library path from the option, or else from the environment variable.
fn library_file(vendor: &GpuVendor, libraries: Option<&Libraries>) -> Option<OsString> {
    libraries::requested_file(libraries, vendor.library.name, vendor.library.variable)
}

/// Loads the driver's library. `what` names the user of the library in errors.
fn load(vendor: &GpuVendor, named: Option<&OsStr>, what: &str) -> Result<Arc<Libcuda>> {
    let file = named.map(OsStr::to_str);
    if file == Some(None) {
        return Err(Error::Usage(format!(
            "{}: the path of the library is not UTF-8",
            vendor.library.name
        )));
    }
    let began = Instant::now();
    let library = Libcuda::load_of(vendor.driver, file.flatten())
        .map_err(|failure| unavailable(vendor, what, &failure))?;
    let mut starts_ns = STARTS_NS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (vendor.memory, named.map(OsStr::to_owned));
    let longest_ns = starts_ns.entry(key).or_default();
    *longest_ns = ns_since(began).max(*longest_ns);
    Ok(library)
}

fn ns_since(began: Instant) -> u64 {
    began.elapsed().as_nanos() as u64
}

/// Loads the driver's library on behalf of an engine or a memory.
///
/// # Errors
/// `Unavailable`, with advice.
pub(crate) fn library(
    vendor: &GpuVendor,
    libraries: Option<&Libraries>,
    what: &str,
) -> Result<Arc<Libcuda>> {
    load(vendor, library_file(vendor, libraries).as_deref(), what)
}

impl GpuInUse {
    /// Returns the pattern kernels. The first call compiles and tests them. Allocating memory makes this call, so that
    /// no measurement waits for it.
    ///
    /// # Errors
    /// Why the kernels are not trusted.
    pub(super) fn kernels(&self) -> std::result::Result<&PatternKernels, &str> {
        let kernels = self.kernels.get_or_init(|| {
            let kernels = PatternKernels::load(&self.context)
                .map_err(|failure| self.kernel_failure("kernels", &failure))?;
            proof::prove(&self.context, &kernels)?;
            Ok(kernels)
        });
        kernels.as_ref().map_err(String::as_str)
    }

    /// Returns the copy kernel. The first call compiles and tests it.
    ///
    /// # Errors
    /// Why the kernel is not trusted.
    pub(crate) fn copy_kernel(&self) -> std::result::Result<Arc<CopyKernel>, String> {
        let kernel = self.copies.get_or_init(|| {
            let kernel = CopyKernel::load(&self.context, None)
                .map_err(|failure| self.kernel_failure("kernel", &failure))?;
            let kernel = Arc::new(kernel);
            proof::prove_copies(&self.context, &kernel)?;
            Ok(kernel)
        });
        kernel.clone()
    }

    /// Returns the reason why a kernel is not used, with advice if the user can install a missing part.
    fn kernel_failure(&self, what: &str, failure: &CudaFailure) -> String {
        let advice = match failure {
            CudaFailure::NoCompiler(_) => format!(". {}", (self.vendor.advice)(failure)),
            _ => String::new(),
        };
        format!("its driver rejected the {what}: {failure}{advice}")
    }

    /// Returns how long this process took to start the driver and to open the GPU.
    pub(in crate::memory) fn start_ns(&self) -> u64 {
        let starts_ns = STARTS_NS.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded_ns = starts_ns.get(&(self.vendor.memory, self.named.clone()));
        loaded_ns.copied().unwrap_or(0) + self.open_ns
    }

    /// Returns the GPU's number, model and PCI address.
    pub(crate) fn name(&self) -> String {
        gpu_name(&self.context)
    }

    /// Returns the error for a failure during use.
    pub(crate) fn failed(&self, failure: &CudaFailure) -> Error {
        match failure {
            CudaFailure::Outside(range) => Error::Failed(range.to_string()),
            _ => Error::Failed(format!(
                "{}: {failure}. {}",
                self.name(),
                (self.vendor.advice)(failure)
            )),
        }
    }

    /// Returns the error for a failed allocation.
    pub(super) fn allocation_failure(&self, bytes: u64, failure: &CudaFailure) -> Error {
        let why = match self.context.memory_bytes() {
            Ok((free, all)) => {
                format!("{bytes} bytes were requested, and {free} of {all} are free: {failure}")
            }
            Err(_) => format!("{bytes} bytes were requested: {failure}"),
        };
        Error::Unavailable {
            what: format!("memory of {}", self.name()),
            why,
            how: (self.vendor.advice)(failure).to_owned(),
        }
    }
}

/// Returns the number, model and PCI address of a context's GPU.
pub(crate) fn gpu_name(context: &CudaContext) -> String {
    let device = context.device();
    format!(
        "{}:{} ({}, {})",
        context.driver().name,
        device.number,
        device.name,
        device.pci_address
    )
}

/// Returns the error for a GPU number that does not exist, because there are only `count` GPUs.
fn no_such_gpu(vendor: &GpuVendor, (memory, number): (&str, u32), count: usize) -> Error {
    let GpuVendor {
        memory: name,
        visible,
        ..
    } = vendor;
    let visible = format!("{visible} selects the visible GPUs");
    let (what, why, how) = match count {
        // If the process sees no GPU, no other number would help.
        0 => (
            format!("memory {memory}"),
            "this process sees no GPU".to_owned(),
            vendor.no_gpu.to_owned(),
        ),
        1 => (
            format!("memory {memory}:{number}"),
            "this process sees one GPU, which has number 0".to_owned(),
            format!("Choose memory {name}, or {name}:0; {visible}"),
        ),
        several => (
            format!("memory {memory}:{number}"),
            format!("this process sees {several} GPUs, which are numbered from 0"),
            format!("Choose {name}:0 to {name}:{}; {visible}", several - 1),
        ),
    };
    Error::Unavailable { what, why, how }
}

/// Returns the error for host memory that the driver could not pin.
pub(in crate::memory) fn pin_failure(
    vendor: &GpuVendor,
    bytes: usize,
    failure: &CudaFailure,
) -> Error {
    let refused = vendor.codes.not_pinned;
    let is_too_much = failure.code().is_some_and(|code| refused.contains(&code));
    let how = match (is_too_much, vendor.pins_within) {
        (true, PinBound::Locked) => NOT_PINNED,
        (true, PinBound::SystemMemory) => NOT_PINNED_BY_KFD,
        (false, _) => (vendor.advice)(failure),
    };
    let limit = match vendor.pins_within {
        PinBound::Locked => match tonnage_sys::process::locked_memory_limit() {
            Some(limit) => format!("this process may lock {limit} bytes (RLIMIT_MEMLOCK)"),
            None => "this process may lock any number of bytes (RLIMIT_MEMLOCK)".to_owned(),
        },
        PinBound::SystemMemory => system_memory(&Tree::host()),
    };
    let group = match group_bytes() {
        Some(left) => format!(", its control group grants {left} more (memory.max)"),
        None => String::new(),
    };
    Error::Unavailable {
        what: format!("memory {}", vendor.pinned),
        why: format!("cannot pin {bytes} bytes of host memory; {limit}{group}: {failure}"),
        how: how.to_owned(),
    }
}

/// Returns the error for something that is not available on this machine.
pub(crate) fn unavailable(vendor: &GpuVendor, what: &str, failure: &CudaFailure) -> Error {
    Error::Unavailable {
        what: what.to_owned(),
        why: failure.to_string(),
        how: (vendor.advice)(failure).to_owned(),
    }
}

/// Returns advice after a failure in a context.
pub(in crate::memory) fn advice(context: &CudaContext, failure: &CudaFailure) -> &'static str {
    (vendor_of(context.driver()).advice)(failure)
}

/// Parameter of the kernel module that removes the limit of KFD, the kernel driver of AMD GPUs.
const NO_SYSTEM_LIMIT: &str = "/sys/module/amdgpu/parameters/no_system_mem_limit";

/// Describes KFD's limit, which the kernel does not report.
fn system_memory(tree: &Tree) -> String {
    const GRANTED: &str = "KFD grants the GPUs of all processes together 15/16 of this host's memory, in newer kernels 63/64 \
                           less 1.5 GiB";
    match tree
        .text(NO_SYSTEM_LIMIT.trim_start_matches('/'))
        .as_deref()
    {
        Some("Y" | "1") => {
            format!("KFD sets no limit here ({NO_SYSTEM_LIMIT} is set)")
        }
        Some(_) => format!("{GRANTED} ({NO_SYSTEM_LIMIT} is not set)"),
        None => format!("{GRANTED}, unless {NO_SYSTEM_LIMIT} is set, which cannot be read here"),
    }
}

/// Advice if KFD's limit was exceeded, and not the limit of locked memory.
const NOT_PINNED_BY_KFD: &str = "Choose smaller --sizes or --footprint, or fewer ranks on this host; load the kernel \
                                 module amdgpu with no_system_mem_limit=1, and raise memory.max of the container's or \
                                 the job's cgroup";

/// Advice if host memory could not be pinned.
const NOT_PINNED: &str = "Choose smaller --sizes or --footprint, or fewer ranks on this host; raise the limit with \
                          `ulimit -l unlimited`, or LimitMEMLOCK of the service that starts it, and memory.max of the \
                          container's or the job's cgroup, which bounds pinned memory as well";

#[cfg(test)]
mod tests {
    use super::super::super::amd::AMD;
    use super::super::super::nvidia::NVIDIA;
    use super::*;

    #[test]
    fn the_limit_of_kfd_is_reported_with_its_switch() {
        let root = tempfile::tempdir().unwrap();
        let report = || system_memory(&Tree::at(root.path()));
        assert!(report().contains("15/16") && report().ends_with("which cannot be read here"));
        let file = root.path().join(NO_SYSTEM_LIMIT.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "N\n").unwrap();
        assert!(
            report().contains("15/16") && report().ends_with("no_system_mem_limit is not set)")
        );
        std::fs::write(&file, "Y\n").unwrap();
        assert!(report().starts_with("KFD sets no limit here"));
    }

    #[test]
    fn an_offered_number_is_a_valid_one() {
        let report = |number, count| no_such_gpu(NVIDIA, ("cuda", number), count).to_string();
        let none = report(0, 0);
        assert!(
            none.contains("sees no GPU") && none.contains("--gpus all"),
            "{none}"
        );
        assert!(!none.contains("cuda:"), "{none}");
        let one = report(1, 1);
        assert!(
            one.contains("memory cuda:1") && one.contains("or cuda:0;"),
            "{one}"
        );
        let several = report(4, 4);
        assert!(several.contains("Choose cuda:0 to cuda:3;"), "{several}");
        let other = no_such_gpu(AMD, ("hip", 2), 2).to_string();
        assert!(
            other.contains("Choose hip:0 to hip:1; HIP_VISIBLE_DEVICES"),
            "{other}"
        );
    }
}

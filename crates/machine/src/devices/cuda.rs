//! GPUs as numbered and described by their drivers: the numbers N of `--memory cuda:N` and `hip:N`.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use tonnage_sys::cuda::{CudaDevice, CudaFailure, GpuDriver, Libcuda, NVIDIA};
use tonnage_sys::hip::AMD;

use super::Absent;
use super::gpu_pairs::{GpuPair, PeerAccess};
use super::timeout::{TIMEOUT, with_timeout};

/// The environment variable that names the CUDA driver library to use instead of the installed one.
pub const LIBCUDA_VARIABLE: &str = "TONNAGE_LIBCUDA";

/// The environment variable that names the HIP runtime library to use instead of the installed one.
pub const LIBHIP_VARIABLE: &str = "TONNAGE_LIBAMDHIP64";

/// A GPU driver to query.
pub(super) struct DriverQuery {
    /// GPU vendor, as in the kernel's device list.
    pub(super) vendor: &'static str,
    /// The variable that names the driver's library.
    pub(super) variable: &'static str,
    driver: &'static GpuDriver,
    /// Name of the missing information, if the driver does not answer.
    what: &'static str,
    /// The next thing to try, if the driver does not answer.
    how: &'static str,
}

/// The CUDA driver.
pub(super) const BY_CUDA: DriverQuery = DriverQuery {
    vendor: "NVIDIA",
    variable: LIBCUDA_VARIABLE,
    driver: &NVIDIA,
    what: "GPUs by CUDA",
    how: "See that `nvidia-smi` lists the GPU. Where it is not there, install the driver of the GPU, with its \
          libcuda.so.1 of CUDA 11.0 (driver 450) or newer; in a container, start it with `--gpus all`.",
};

/// The HIP runtime.
pub(super) const BY_HIP: DriverQuery = DriverQuery {
    vendor: "AMD",
    variable: LIBHIP_VARIABLE,
    driver: &AMD,
    what: "GPUs by HIP",
    how: "See that `rocminfo` lists the GPU. Where it is not there, install ROCm's runtime of 5.1 or newer \
          (libamdhip64-5 on Debian, hip-runtime-amd of AMD's packages); in a container, start it with `--device=/dev/kfd \
          --device=/dev/dri`.",
};

/// A GPU as described by its driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaGpu {
    /// The driver's number, among the GPUs that are visible to this process.
    pub number: u32,
    /// Model.
    pub name: String,
    /// Identifier that does not change on restarts.
    pub uuid: String,
    /// Size of its memory.
    pub memory_bytes: u64,
    /// PCI address, shared by all partitions of one GPU.
    pub pci_address: String,
    /// Compute capability or architecture, such as "9.0" or "gfx90a".
    pub compute: String,
    /// Number of copy engines, which copy independently of the processors; absent if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_engines: Option<u32>,
    /// Nominal memory bandwidth; absent if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<u64>,
    /// True if the GPU's memory can be exported as a dmabuf; absent if the driver is too old for the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmabuf: Option<bool>,
    /// The newest CUDA version that the driver supports; for AMD GPUs the HIP release.
    pub cuda_version: String,
}

/// A driver's answers.
#[derive(Debug, Default)]
pub(super) struct DriverAnswer {
    pub(super) gpus: Vec<CudaGpu>,
    /// For each ordered pair: the indices of both GPUs in `gpus`, and the first one's access to memory of the second.
    access: Vec<([usize; 2], PeerAccess)>,
}

impl DriverAnswer {
    /// Adds the known access to the matching pairs.
    pub(super) fn add_to(&self, pairs: &mut [GpuPair]) {
        for ([from, to], access) in &self.access {
            let address = |place: &usize| self.gpus.get(*place).map(|gpu| &gpu.pci_address);
            let told = |pair: &&mut GpuPair| {
                address(from) == Some(&pair.from) && address(to) == Some(&pair.to)
            };
            if let Some(pair) = pairs.iter_mut().find(told) {
                // Slices of one GPU share one address, so the first answer is kept for all of them.
                pair.access.get_or_insert_with(|| access.clone());
            }
        }
    }
}

/// Queries the driver library that the variable names, or the installed one.
pub(super) fn ask(asked: &DriverQuery, absent: &mut Vec<Absent>) -> DriverAnswer {
    let driver = asked.driver;
    let named = match named(asked, std::env::var_os(asked.variable)) {
        Ok(named) => named,
        Err(unusable) => {
            absent.push(unusable);
            return DriverAnswer::default();
        }
    };
    let answer = with_timeout(TIMEOUT, move || {
        let library = Libcuda::load_of(driver, named.as_deref())?;
        let version = library.version().map(|version| version.to_string());
        let devices = library.devices()?;
        let version = version.unwrap_or_default();
        Ok::<_, CudaFailure>(DriverAnswer {
            access: access(&library, &devices),
            gpus: (devices.into_iter())
                .map(|device| CudaGpu {
                    number: device.number,
                    name: device.name,
                    uuid: device.uuid,
                    memory_bytes: device.memory_bytes,
                    pci_address: device.pci_address,
                    compute: device.compute,
                    copy_engines: device.copy_engines,
                    memory_bytes_per_s: device.memory_bytes_per_s,
                    dmabuf: device.dmabuf,
                    cuda_version: version.clone(),
                })
                .collect(),
        })
    });
    let why = match answer {
        Some(Ok(found)) => return found,
        Some(Err(failure)) => failure.to_string(),
        None => format!("the driver did not answer within {} s", TIMEOUT.as_secs()),
    };
    absent.push(Absent::new(asked.what, why, asked.how));
    DriverAnswer::default()
}

/// Returns the access of each GPU to each other GPU, as far as the driver reports it.
fn access(library: &Libcuda, devices: &[CudaDevice]) -> Vec<([usize; 2], PeerAccess)> {
    let mut told = Vec::new();
    for (from, gpu) in devices.iter().enumerate() {
        for (to, peer) in devices.iter().enumerate() {
            // The driver reports nothing for a GPU and itself, or for slices of one GPU. An old driver lacks the call.
            if let Ok(way) = library.peer(gpu.number, peer.number) {
                let access = PeerAccess {
                    granted: way.access,
                    native_atomics: way.native_atomics,
                    performance_rank: way.performance_rank,
                    why_not: None,
                };
                told.push(([from, to], access));
            }
        }
    }
    told
}

/// Returns the file that the variable's value names; `None` for the installed library.
fn named(asked: &DriverQuery, value: Option<OsString>) -> Result<Option<String>, Absent> {
    let Some(path) = value.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    path.into_string().map(Some).map_err(|path| {
        let (path, variable) = (path.display(), asked.variable);
        Absent::new(
            asked.what,
            format!("{variable} names a file whose path is not UTF-8: {path}"),
            format!("Name it by a path that is, or unset {variable} for the installed one."),
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    /// A typical GPU.
    pub(in super::super) fn gpu() -> CudaGpu {
        CudaGpu {
            number: 0,
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            uuid: String::new(),
            memory_bytes: 80 << 30,
            pci_address: "0000:03:00.0".to_owned(),
            compute: "9.0".to_owned(),
            copy_engines: Some(3),
            memory_bytes_per_s: None,
            dmabuf: Some(true),
            cuda_version: "12.4".to_owned(),
        }
    }

    #[test]
    fn a_path_that_cannot_be_used_is_not_taken_for_none() {
        assert_eq!(named(&BY_CUDA, None), Ok(None));
        assert_eq!(named(&BY_CUDA, Some(OsString::new())), Ok(None));
        let plain = named(&BY_CUDA, Some("/a/b".into()));
        assert_eq!(plain, Ok(Some("/a/b".to_owned())));
        let odd = OsString::from_vec(b"/a/\xff/libcuda.so.1".to_vec());
        let absent = named(&BY_CUDA, Some(odd)).unwrap_err();
        assert_eq!(absent.what, "GPUs by CUDA");
        assert!(absent.why.contains("not UTF-8: /a/"), "{absent:?}");
        assert!(absent.how.contains("unset TONNAGE_LIBCUDA"), "{absent:?}");
    }
}

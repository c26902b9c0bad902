//! GPUs as their drivers number and describe them: the numbers behind `--memory cuda:N` and `hip:N`.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_sys::cuda::{CudaDevice, CudaFailure, GpuDriver, Libcuda, NVIDIA};
use tonnage_sys::hip::AMD;

use super::absent::Absent;
use super::timeout::within;

/// The environment variable that names the driver's library to use instead of the installed one.
pub const LIBCUDA_VARIABLE: &str = "TONNAGE_LIBCUDA";

/// The environment variable that names AMD's runtime library in the same way.
pub const LIBHIP_VARIABLE: &str = "TONNAGE_LIBAMDHIP64";

/// A driver that takes longer to start is not waited for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A driver that is asked.
pub(super) struct AskedDriver {
    /// Maker of the GPUs, as the kernel's list of devices has it.
    pub(super) vendor: &'static str,
    /// The variable that names its library.
    pub(super) variable: &'static str,
    driver: &'static GpuDriver,
    /// Name of all that it says.
    what: &'static str,
    /// The next thing to try where it does not answer.
    how: &'static str,
}

/// CUDA's driver.
pub(super) const BY_CUDA: AskedDriver = AskedDriver {
    vendor: "NVIDIA",
    variable: LIBCUDA_VARIABLE,
    driver: &NVIDIA,
    what: "GPUs by CUDA",
    how: "See that `nvidia-smi` lists the GPU. Where it is not there, install the driver of the GPU, with its \
          libcuda.so.1 of CUDA 11.0 (driver 450) or newer; in a container, start it with `--gpus all`.",
};

/// HIP's runtime.
pub(super) const BY_HIP: AskedDriver = AskedDriver {
    vendor: "AMD",
    variable: LIBHIP_VARIABLE,
    driver: &AMD,
    what: "GPUs by HIP",
    how: "See that `rocminfo` lists the GPU. Where it is not there, install ROCm's runtime of 5.1 or newer \
          (libamdhip64-5 on Debian, hip-runtime-amd of AMD's packages); in a container, start it with `--device=/dev/kfd \
          --device=/dev/dri`.",
};

/// A GPU as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaGpu {
    /// The driver's number, among the GPUs that this process may see.
    pub number: u32,
    /// Model.
    pub name: String,
    /// Identifier that stays the same over restarts.
    pub uuid: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Address on the PCI bus.
    pub pci_address: String,
    /// Generation of its instructions, such as "9.0", or "gfx90a".
    pub compute: String,
    /// Engines that copy beside its processors.
    pub copy_engines: u32,
    /// Nominal bytes per second of its memory; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<u64>,
    /// True when its memory can be exported as a dmabuf; absent where the driver does not know the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmabuf: Option<bool>,
    /// The newest CUDA that the driver serves; of AMD's GPUs the release of HIP.
    pub cuda_version: String,
}

/// Asks the driver that the variable names, or the installed one.
pub(super) fn ask(asked: &AskedDriver, absent: &mut Vec<Absent>) -> Vec<CudaGpu> {
    let driver = asked.driver;
    let named = match named(asked, std::env::var_os(asked.variable)) {
        Ok(named) => named,
        Err(unusable) => {
            absent.push(unusable);
            return Vec::new();
        }
    };
    let answer = within(TIMEOUT, move || {
        let library = Libcuda::load_of(driver, named.as_deref())?;
        let version = library.version().map(|version| version.to_string());
        let devices = library.devices()?;
        let version = version.unwrap_or_default();
        Ok::<_, CudaFailure>(devices.into_iter().map(|one| of(one, &version)).collect())
    });
    let why = match answer {
        Some(Ok(found)) => return found,
        Some(Err(failure)) => failure.to_string(),
        None => format!("the driver did not answer within {} s", TIMEOUT.as_secs()),
    };
    absent.push(Absent::new(asked.what, why, asked.how));
    Vec::new()
}

/// The file that the variable's value names; `None` for the installed library.
fn named(asked: &AskedDriver, value: Option<OsString>) -> Result<Option<String>, Absent> {
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

fn of(device: CudaDevice, cuda_version: &str) -> CudaGpu {
    CudaGpu {
        number: device.number,
        name: device.name,
        uuid: device.uuid,
        memory_bytes: device.memory_bytes,
        pci_address: device.pci_address,
        compute: device.compute,
        copy_engines: device.copy_engines,
        memory_bytes_per_s: device.memory_bytes_per_s,
        dmabuf: device.dmabuf,
        cuda_version: cuda_version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_path_that_cannot_be_used_is_not_taken_for_none() {
        assert_eq!(named(&BY_CUDA, None), Ok(None));
        assert_eq!(named(&BY_CUDA, Some(OsString::new())), Ok(None));
        assert_eq!(
            named(&BY_CUDA, Some("/a/b".into())),
            Ok(Some("/a/b".to_owned()))
        );
        let odd = OsString::from_vec(b"/a/\xff/libcuda.so.1".to_vec());
        let absent = named(&BY_CUDA, Some(odd)).unwrap_err();
        assert_eq!(absent.what, "GPUs by CUDA");
        assert!(absent.why.contains("not UTF-8: /a/"), "{absent:?}");
        assert!(absent.how.contains("unset TONNAGE_LIBCUDA"), "{absent:?}");
    }
}

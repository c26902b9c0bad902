//! GPUs as CUDA's driver numbers and describes them: the numbers behind `--memory cuda:N`.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonnage_sys::cuda::{CudaDevice, CudaFailure, Libcuda};

use super::absent::Absent;
use super::timeout::within;

/// The environment variable that names the driver's library to use instead of the installed one.
pub const LIBCUDA_VARIABLE: &str = "TONNAGE_LIBCUDA";

/// A driver that takes longer to start is not waited for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Name of all that is asked here.
const WHAT: &str = "GPUs by CUDA";

/// A GPU as CUDA's driver describes it.
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
    /// Generation of its instructions, such as "9.0".
    pub compute: String,
    /// Engines that copy beside its processors.
    pub copy_engines: u32,
    /// Nominal bytes per second of its memory; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<u64>,
    /// True when its memory can be exported as a dmabuf; absent where the driver does not know the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmabuf: Option<bool>,
    /// The newest CUDA that the driver serves.
    pub cuda_version: String,
}

/// Asks the driver that the variable names, or the installed one.
pub(super) fn ask(absent: &mut Vec<Absent>) -> Vec<CudaGpu> {
    let named = match named(std::env::var_os(LIBCUDA_VARIABLE)) {
        Ok(named) => named,
        Err(unusable) => {
            absent.push(unusable);
            return Vec::new();
        }
    };
    let asked = within(TIMEOUT, move || {
        let library = Libcuda::load(named.as_deref())?;
        let version = library.version().map(|version| version.to_string());
        let devices = library.devices()?;
        let version = version.unwrap_or_default();
        Ok::<_, CudaFailure>(devices.into_iter().map(|one| of(one, &version)).collect())
    });
    let why = match asked {
        Some(Ok(found)) => return found,
        Some(Err(failure)) => failure.to_string(),
        None => format!("the driver did not answer within {} s", TIMEOUT.as_secs()),
    };
    let how = "See that `nvidia-smi` lists the GPU. Where it is not there, install the driver of the GPU, with its \
               libcuda.so.1 of CUDA 11.0 (driver 450) or newer; in a container, start it with `--gpus all`.";
    absent.push(Absent::new(WHAT, why, how));
    Vec::new()
}

/// The file that the variable's value names; `None` for the installed library.
fn named(value: Option<OsString>) -> Result<Option<String>, Absent> {
    let Some(path) = value.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    path.into_string().map(Some).map_err(|path| {
        let path = path.display();
        Absent::new(
            WHAT,
            format!("{LIBCUDA_VARIABLE} names a file whose path is not UTF-8: {path}"),
            format!(
                "Name it by a path that is, or unset {LIBCUDA_VARIABLE} for the installed one."
            ),
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
        assert_eq!(named(None), Ok(None));
        assert_eq!(named(Some(OsString::new())), Ok(None));
        assert_eq!(named(Some("/a/b".into())), Ok(Some("/a/b".to_owned())));
        let odd = OsString::from_vec(b"/a/\xff/libcuda.so.1".to_vec());
        let absent = named(Some(odd)).unwrap_err();
        assert_eq!(absent.what, WHAT);
        assert!(absent.why.contains("not UTF-8: /a/"), "{absent:?}");
        assert!(absent.how.contains("unset TONNAGE_LIBCUDA"), "{absent:?}");
    }
}

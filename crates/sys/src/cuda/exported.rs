//! Memory of a GPU as a file, by which other devices reach it: what is exported, and what comes of it. How a driver
//! exports it is in its own file or folder.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};

use super::abi::{CudaAddress, PhysicalHandle, SUCCESS};
use super::failure::CudaFailure;

/// A file that names memory of a device for other devices.
#[derive(Debug)]
pub struct DmabufFile {
    /// The buffer.
    pub file: OwnedFd,
    /// Offset in it of the memory's beginning.
    pub offset: u64,
}

/// Memory that is to be exported: an allocation, or mapped physical memory from its first byte on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExportedMemory {
    /// Its first address.
    pub(crate) address: CudaAddress,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// The physical memory that is mapped there, where it is such memory.
    pub(crate) physical: Option<PhysicalHandle>,
}

/// The file that a call has opened, by its number.
///
/// # Errors
/// `Call`, where the call has returned success and no file, as some do for a process that has too many open.
///
/// # Safety
/// The file is open and nobody else's, unless its number is negative.
pub(crate) unsafe fn opened(call: &'static str, file: c_int) -> Result<OwnedFd, CudaFailure> {
    if file < 0 {
        return Err(CudaFailure::Call {
            call,
            code: SUCCESS,
            name: "success without a file".to_owned(),
            text: "this process may have too many open (ulimit -n)".to_owned(),
        });
    }
    // SAFETY: the number is none that no file has, and the caller promises the rest.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

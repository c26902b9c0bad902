//! GPU drivers: their differences as data, and the calls that have another form in each driver.
//!
//! The rest of this folder uses the call names of CUDA's driver. The constants of each driver are in a file or folder
//! of its own: `nvidia` in this folder, and [`crate::hip`].

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;

use super::abi::{
    Attribute, Code, ContextHandle, CudaAddress, ModuleHandle, Ordinal, SUCCESS, StreamHandle,
};
use super::dmabuf::{DmabufFile, ExportedMemory};
use super::failure::{CudaFailure, CudaVersion};
use crate::library::SharedLibrary;

/// The description of a driver.
#[derive(Debug)]
pub struct GpuDriver {
    /// Prefix of its GPU names, such as "cuda" in "cuda:0".
    pub name: &'static str,
    /// Name of the interface, for messages.
    pub interface: &'static str,
    /// Files to ask the loader for, in this order.
    pub(crate) files: &'static [&'static str],
    /// Prefix of its call names.
    pub(crate) prefix: &'static str,
    /// Calls with names other than CUDA's.
    pub(crate) aliases: &'static [Alias],
    /// Calls that the driver lacks, or that lack a guarantee needed here, each with the reason.
    pub(crate) lacks: &'static [(&'static CStr, &'static str)],
    /// Attribute numbers, if they differ from CUDA's; the driver does not report an attribute that is missing from the
    /// list.
    pub(crate) attributes: Option<&'static [(Attribute, c_int)]>,
    /// Number of the first attribute of a GPU pair: performance rank, followed by access and native atomics.
    pub(crate) peer_attributes_from: c_int,
    /// Granularity to use for physical memory by virtual-memory handles.
    pub(crate) granularity: Granularity,
    /// True if physical memory is exported by its handle, which must then have an exportable type. False if address
    /// ranges are exported.
    pub(crate) exported_by_handle: bool,
    /// The call that returns the driver's version.
    pub(crate) version_call: &'static CStr,
    /// Converts the number that `version_call` returns to a version.
    pub(crate) version: fn(c_int) -> CudaVersion,
    /// Makes the readable identifier of a GPU from its UUID and its PCI address.
    pub(crate) identity: fn(&[u8; 16], &str) -> String,
    /// Source text of the kernels that fill and compare, in a language that the driver compiles.
    pub(crate) pattern_text: &'static str,
    /// Source text of the copy kernel.
    pub(crate) copy_text: &'static str,
    /// Looks up the calls of [`OwnCalls`]; fails with the reason if one is missing.
    pub(crate) own: fn(&DriverLibrary) -> Result<Box<dyn OwnCalls>, CudaFailure>,
}

/// Kinds of granularity, by their numbers in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Granularity {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    Minimum = 0,
    /// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
    Recommended = 1,
}

/// A kernel text after compiling and loading.
#[derive(Debug)]
pub(crate) struct LoadedText {
    pub(crate) module: ModuleHandle,
    /// The compiled code, if the driver reads it until the module is unloaded; empty if the driver made a copy.
    pub(crate) code: Vec<u8>,
}

/// Another driver's name for a call.
#[derive(Debug)]
pub(crate) struct Alias {
    /// CUDA's name.
    pub(crate) of: &'static CStr,
    /// This driver's name.
    pub(crate) symbol: &'static CStr,
    /// The version that introduced it.
    pub(crate) since: CudaVersion,
}

/// Calls with a different form in each driver. They depend only on their arguments and the thread's current GPU.
pub(crate) trait OwnCalls: fmt::Debug + Send + Sync {
    /// Opens a GPU, and returns the argument for [`Self::set_current`].
    ///
    /// # Safety
    /// The ordinal came from the library.
    unsafe fn retain(&self, ordinal: Ordinal) -> Result<ContextHandle, Code>;

    /// Releases a GPU.
    ///
    /// # Safety
    /// The GPU was retained, this is the only release for it, and everything that was created in it is gone.
    unsafe fn release(&self, ordinal: Ordinal);

    /// Makes a GPU current on this thread.
    ///
    /// # Safety
    /// The GPU is retained.
    unsafe fn set_current(&self, context: ContextHandle) -> Code;

    /// Waits for everything that was started on this thread's current GPU.
    ///
    /// # Safety
    /// The thread has a current GPU.
    unsafe fn synchronize(&self) -> Code;

    /// Lets this thread's GPU access memory of another one.
    ///
    /// # Safety
    /// The contexts of both GPUs are retained.
    unsafe fn enable_peer(&self, peer: ContextHandle) -> Code;

    /// Hands a copy to a stream.
    ///
    /// # Safety
    /// The stream is of this thread's GPU; both ranges lie in memory that lives until the copy has ended.
    unsafe fn copy(
        &self,
        to: CudaAddress,
        from: CudaAddress,
        bytes: usize,
        stream: StreamHandle,
    ) -> Code;

    /// Compiles and loads a text for this thread's GPU, which has this ordinal.
    ///
    /// # Safety
    /// That GPU is current on the thread.
    unsafe fn compile(&self, text: &str, ordinal: Ordinal) -> Result<LoadedText, CudaFailure>;

    /// Makes a file that gives other devices access to memory of this thread's GPU, through optional calls of
    /// `library`.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    ///
    /// # Safety
    /// These calls belong to `library`. The memory is an allocation of that library, or physical memory that is mapped
    /// and has its handle in `memory`.
    unsafe fn export(
        &self,
        library: &DriverLibrary,
        memory: ExportedMemory,
    ) -> Result<DmabufFile, CudaFailure>;

    /// Returns the driver's name and description of a result code; empty if it has none.
    fn words(&self, code: Code) -> [String; 2];

    /// Returns the GPU's architecture, if the driver has a better name for it than two numbers.
    fn generation(&self, ordinal: Ordinal) -> Option<String>;

    /// Turns a call's result code into an error unless it is success.
    ///
    /// # Errors
    /// `Call`.
    fn check(&self, call: &'static str, code: Code) -> Result<(), CudaFailure> {
        if code == SUCCESS {
            return Ok(());
        }
        let [name, text] = self.words(code);
        Err(CudaFailure::Call {
            call,
            code,
            name,
            text,
        })
    }
}

impl GpuDriver {
    /// Returns this driver's name for a call of CUDA's driver.
    pub fn called(&self, call: &'static str) -> &'static str {
        let alias = self
            .aliases
            .iter()
            .find(|alias| alias.of.to_str() == Ok(call));
        alias
            .and_then(|alias| alias.symbol.to_str().ok())
            .unwrap_or(call)
    }

    /// Returns this driver's number of an attribute; `None` if the driver does not report it.
    pub(super) fn attribute(&self, which: Attribute) -> Option<c_int> {
        match self.attributes {
            None => Some(which as c_int),
            Some(own) => own
                .iter()
                .find(|(known, _)| *known == which)
                .map(|(_, number)| *number),
        }
    }

    /// Loads `file` if given, otherwise the first of the driver's files that the loader finds.
    ///
    /// # Errors
    /// `NoDriver`.
    pub(super) fn open(&'static self, file: Option<&str>) -> Result<DriverLibrary, CudaFailure> {
        let names = file.map_or(self.files, |_| &[]);
        let mut why: Vec<(String, String)> = Vec::new();
        for name in file.iter().chain(names) {
            match SharedLibrary::open(name) {
                Ok(file) => return Ok(DriverLibrary::new(self, file)),
                Err(error) => why.push(((*name).to_owned(), error.to_string())),
            }
        }
        Err(CudaFailure::NoDriver(reason(&why)))
    }
}

/// Picks the reason why none of these files could be loaded. A file that exists but lacks a dependency is more
/// informative than one that does not exist.
fn reason(why: &[(String, String)]) -> String {
    let lacking = why
        .iter()
        .find(|(name, reason)| !reason.starts_with(name.as_str()));
    let told = lacking.or(why.first());
    let others = why
        .iter()
        .filter(|other| Some(*other) != told)
        .map(|(name, _)| name.as_str());
    let others: Vec<&str> = others.collect();
    let told = told.map_or("", |(_, reason)| reason.as_str());
    if others.is_empty() {
        return told.to_owned();
    }
    format!("{told}; also tried {}", others.join(", "))
}

/// A driver's library, loaded.
#[derive(Debug)]
pub(crate) struct DriverLibrary {
    pub(crate) driver: &'static GpuDriver,
    // Kept for later look-ups. The library stays loaded even after this handle is dropped.
    pub(crate) file: SharedLibrary,
    /// The interface version that the library serves; `None` if it does not report one.
    pub(crate) version: Option<CudaVersion>,
}

/// A call by its name in CUDA's driver, and the version (major, minor) that introduced it. Other drivers' names are in
/// their own folders.
pub(crate) type Introduced = (&'static CStr, i32, i32);

impl DriverLibrary {
    /// Asks for the version first, because messages about missing calls contain the version.
    fn new(driver: &'static GpuDriver, file: SharedLibrary) -> Self {
        let version =
            file.symbol_without_version(driver.version_call)
                .ok()
                .and_then(|address| {
                    // SAFETY: the symbol has this signature in all versions.
                    let call = unsafe {
                        std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn(*mut c_int) -> Code,
                        >(address)
                    };
                    let mut number = 0;
                    // SAFETY: the number is valid for the write of an int; the call needs no initialised library.
                    let code = unsafe { call(&raw mut number) };
                    (code == SUCCESS && number > 0).then(|| (driver.version)(number))
                });
        Self {
            driver,
            file,
            version,
        }
    }

    /// Returns the address of a call by its name in CUDA's driver. Calls that only this driver has use the driver's own
    /// name.
    ///
    /// # Errors
    /// `TooOld`, `NotOffered`.
    pub(crate) fn symbol(
        &self,
        (call, major, minor): Introduced,
    ) -> Result<NonNull<c_void>, CudaFailure> {
        let driver = self.driver;
        let own = call.to_bytes().starts_with(driver.prefix.as_bytes());
        let (symbol, needs) = match driver.aliases.iter().find(|alias| alias.of == call) {
            Some(alias) => (alias.symbol, alias.since),
            None if own => (call, CudaVersion { major, minor }),
            None => {
                let why = driver.lacks.iter().find(|(lacking, _)| *lacking == call);
                return Err(CudaFailure::NotOffered {
                    interface: driver.interface,
                    call: call.to_string_lossy().into_owned(),
                    why: why.map_or("", |(_, why)| why),
                });
            }
        };
        self.file
            .symbol_without_version(symbol)
            .map_err(|_| CudaFailure::TooOld {
                interface: driver.interface,
                has: self.version,
                needs,
                symbol: symbol.to_string_lossy().into_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_existing_file_is_preferred() {
        let file = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let first = file("lib.so.2", "lib.so.2: cannot open shared object file");
        assert_eq!(reason(std::slice::from_ref(&first)), first.1);
        let second = file("lib.so.1", "other.so.3: cannot open shared object file");
        let said = reason(&[first, second]);
        assert_eq!(
            said,
            "other.so.3: cannot open shared object file; also tried lib.so.2"
        );
    }
}

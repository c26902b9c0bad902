//! Drivers of GPUs: the data in which they differ, and the calls that have forms of their own in each.
//!
//! The rest of this folder knows calls by the names that CUDA's driver gives them. Constants of a driver are in a file
//! or folder of its own: `nvidia` beside this one, and [`crate::hip`].

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;

use super::abi::{
    Attribute, Code, ContextHandle, CudaAddress, ModuleHandle, Ordinal, SUCCESS, StreamHandle,
};
use super::dmabuf::{DmabufFile, ExportedMemory};
use super::failure::{CudaFailure, CudaVersion};
use crate::library::SharedLibrary;

/// A driver, as data.
#[derive(Debug)]
pub struct GpuDriver {
    /// Prefix of the names of its GPUs, such as "cuda" in "cuda:0".
    pub name: &'static str,
    /// Name of the interface, as people write it.
    pub interface: &'static str,
    /// Files that the loader is asked for, in this order.
    pub(crate) files: &'static [&'static str],
    /// Start of the names of its calls.
    pub(crate) prefix: &'static str,
    /// Calls by other names than CUDA's.
    pub(crate) aliases: &'static [Alias],
    /// Calls that it does not have, or not with the promises that they are used for, and why.
    pub(crate) lacks: &'static [(&'static CStr, &'static str)],
    /// Its own numbers of attributes, where they are not those of CUDA; one that is left out it does not tell.
    pub(crate) attributes: Option<&'static [(Attribute, c_int)]>,
    /// Number of the first of a pair's attributes: its rank, before access and native atomics.
    pub(crate) peer_attributes_from: c_int,
    /// Sort of granule that physical memory is made of, for memory by virtual-memory handles.
    pub(crate) granularity: Granularity,
    /// True where such memory is exported by its handle, which has to be of a type that can be.
    pub(crate) exported_by_handle: bool,
    /// The call that says its version.
    pub(crate) version_call: &'static CStr,
    /// The version that a number of that call means.
    pub(crate) version: fn(c_int) -> CudaVersion,
    /// The identifier of a GPU, as people read it, by its UUID and its address on the PCI bus.
    pub(crate) identity: fn(&[u8; 16], &str) -> String,
    /// Text of the kernels that fill and compare, in a language that the driver compiles.
    pub(crate) pattern_text: &'static str,
    /// Text of the kernel that copies.
    pub(crate) copy_text: &'static str,
    /// Looks up the calls that have forms of their own; the failure is the reason why one of them is not there.
    pub(crate) own: fn(&DriverLibrary) -> Result<Box<dyn OwnCalls>, CudaFailure>,
}

/// Sorts of granules, by their numbers in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Granularity {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    Minimum = 0,
    /// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
    Recommended = 1,
}

/// A text that was compiled and loaded.
#[derive(Debug)]
pub(crate) struct LoadedText {
    pub(crate) module: ModuleHandle,
    /// The compiled code, where the driver goes on reading it until the module is unloaded; empty where it made a copy.
    pub(crate) code: Vec<u8>,
}

/// Another driver's name of a call.
#[derive(Debug)]
pub(crate) struct Alias {
    /// CUDA's name.
    pub(crate) of: &'static CStr,
    /// The name here.
    pub(crate) symbol: &'static CStr,
    /// The version that it came with.
    pub(crate) since: CudaVersion,
}

/// Calls that drivers have in forms of their own. None of them looks at anything but its arguments and the thread's
/// current GPU.
pub(crate) trait OwnCalls: fmt::Debug + Send + Sync {
    /// Takes a GPU into use, and returns what [`Self::set_current`] takes.
    ///
    /// # Safety
    /// The ordinal came from the library.
    unsafe fn retain(&self, ordinal: Ordinal) -> Result<ContextHandle, Code>;

    /// Gives a GPU back.
    ///
    /// # Safety
    /// It was retained, is released once for that, and everything that was made in it is gone.
    unsafe fn release(&self, ordinal: Ordinal);

    /// Makes a GPU this thread's.
    ///
    /// # Safety
    /// It is retained.
    unsafe fn set_current(&self, context: ContextHandle) -> Code;

    /// Waits for everything that was started on this thread's GPU.
    ///
    /// # Safety
    /// The thread has one.
    unsafe fn synchronize(&self) -> Code;

    /// Lets this thread's GPU reach memory of another one.
    ///
    /// # Safety
    /// Both are retained.
    unsafe fn enable_peer(&self, peer: ContextHandle) -> Code;

    /// Hands a copy to a stream.
    ///
    /// # Safety
    /// The stream is of this thread's GPU; both ranges lie in memory that lives until it has come to the copy's end.
    unsafe fn copy(
        &self,
        to: CudaAddress,
        from: CudaAddress,
        bytes: usize,
        stream: StreamHandle,
    ) -> Code;

    /// Compiles a text for this thread's GPU, which has the number, and loads it.
    ///
    /// # Safety
    /// The thread has that GPU.
    unsafe fn compile(&self, text: &str, ordinal: Ordinal) -> Result<LoadedText, CudaFailure>;

    /// Makes a file by which other devices reach memory of this thread's GPU, with optional calls of this library.
    ///
    /// # Errors
    /// `TooOld`, or the driver's reason.
    ///
    /// # Safety
    /// The library is the one whose calls these are. The memory is an allocation of it, or mapped physical memory of
    /// which the handle is told.
    unsafe fn export(
        &self,
        library: &DriverLibrary,
        memory: ExportedMemory,
    ) -> Result<DmabufFile, CudaFailure>;

    /// The driver's name of a code, and its words for it; empty where it has none.
    fn words(&self, code: Code) -> [String; 2];

    /// Generation of a GPU's instructions, where the driver has a better name for it than two numbers.
    fn generation(&self, ordinal: Ordinal) -> Option<String>;

    /// The failure of a call, where its result is one.
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
    /// Its own name of a call that CUDA's driver has by this one.
    pub fn called(&self, call: &'static str) -> &'static str {
        let alias = self
            .aliases
            .iter()
            .find(|alias| alias.of.to_str() == Ok(call));
        alias
            .and_then(|alias| alias.symbol.to_str().ok())
            .unwrap_or(call)
    }

    /// Its number of an attribute; `None` for one that it does not tell.
    pub(super) fn attribute(&self, which: Attribute) -> Option<c_int> {
        match self.attributes {
            None => Some(which as c_int),
            Some(own) => own
                .iter()
                .find(|(known, _)| *known == which)
                .map(|(_, number)| *number),
        }
    }

    /// Loads a file, or the first of its files that the loader finds.
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

/// The reason why none of these files could be loaded. One that is there, and lacks something else, says more than
/// those that are not.
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
    format!("{told}; nor {}", others.join(", "))
}

/// A driver's library, loaded.
#[derive(Debug)]
pub(crate) struct DriverLibrary {
    pub(crate) driver: &'static GpuDriver,
    // Dropping the handle does not unload the library; it is here because the calls are its.
    pub(crate) file: SharedLibrary,
    /// The version of its interface that it serves; `None` where it does not say.
    pub(crate) version: Option<CudaVersion>,
}

/// A call by the name that CUDA's driver gives it, and the version (major, minor) that it came with. Names of other
/// drivers stand in their own folders.
pub(crate) type Introduced = (&'static CStr, i32, i32);

impl DriverLibrary {
    /// Asks for the version before anything else.
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

    /// Address of a call that CUDA's driver has by this name, or that this one has in its own form.
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
    fn a_file_that_is_there_says_more_than_one_that_is_not() {
        let file = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let first = file("lib.so.2", "lib.so.2: cannot open shared object file");
        assert_eq!(reason(std::slice::from_ref(&first)), first.1);
        let second = file("lib.so.1", "other.so.3: cannot open shared object file");
        let said = reason(&[first, second]);
        assert_eq!(
            said,
            "other.so.3: cannot open shared object file; nor lib.so.2"
        );
    }
}

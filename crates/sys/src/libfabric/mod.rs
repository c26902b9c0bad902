//! libfabric, loaded at run time or embedded in the program: lists providers and domains, and moves bytes with them.
//!
//! Finds the library and its version, and copies the list of `fi_getinfo` (`offers`). `info` describes one way to use a
//! domain, and `endpoint` moves bytes with it. `open` opens the endpoint's parts, and `post` posts operations, using
//! `calls`, `slots` and `handles`. Engines decide which ranks communicate, and when. The symbols are pinned to the
//! oldest version that all releases since 1.9 still provide. Structs that the library allocates are declared only with
//! their leading part, because later releases extend them at the end.

mod abi;
mod calls;
mod endpoint;
mod handles;
mod info;
#[cfg(test)]
mod layout;
mod offers;
mod open;
mod peer_to_peer;
mod post;
mod slots;

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

pub use calls::{Action, Route};
pub use endpoint::{Endpoint, HmemInterface, Wait};
pub use handles::{PeerAddress, RegionHandle, RemoteRegion};
pub use info::{Hints, Info};
pub use offers::{ListedProvider, Offer};
pub use open::QueueSizes;
pub use peer_to_peer::PeerToPeer;
pub use post::{Event, EventKind, FabricError, Posted};

use crate::error::{LibraryError, LibraryErrorKind};
use crate::library::{SharedLibrary, Versioned, file_or_name, functions, text};

/// Paths at which an EFA installation has its libfabric. It is preferred to the distribution's libfabric.
const EFA_PATHS: [&str; 2] = [
    "/opt/amazon/efa/lib64/libfabric.so.1",
    "/opt/amazon/efa/lib/libfabric.so.1",
];
/// Name for the loader's own search.
const LOADER_NAME: &str = "libfabric.so.1";

/// The newest interface version that this code supports; an older library is asked for its own version.
const INTERFACE_MAX: u32 = 1 << 16 | 20;

/// Name that selects the embedded library.
const EMBEDDED_NAME: &str = "embedded";

/// Text that takes the place of the embedded library's path.
const EMBEDDED_PATH: &str = "embedded in tonnage";

/// The release that is compiled into the program, such as "1.22.0".
pub const EMBEDDED_VERSION: &str = tonnage_libfabric_embedded::VERSION;

functions! { FabricCalls by Versioned:
    // Interface version, node, service, flags, hints and the resulting list. FABRIC_1.3 fixes the structs; `abi`
    // declares their leading part.
    getinfo = (c"fi_getinfo", c"FABRIC_1.3") => (u32, *const c_char, *const c_char, u64, *const abi::fi_info, *mut *mut abi::fi_info) -> c_int;
    freeinfo = (c"fi_freeinfo", c"FABRIC_1.3") => (*mut abi::fi_info) -> ();
    dupinfo = (c"fi_dupinfo", c"FABRIC_1.3") => (*const abi::fi_info) -> *mut abi::fi_info;
    fabric = (c"fi_fabric", c"FABRIC_1.1") => (*mut abi::fi_fabric_attr, *mut *mut abi::fid_fabric, *mut c_void) -> c_int;
    version = (c"fi_version", c"FABRIC_1.0") => () -> u32;
    strerror = (c"fi_strerror", c"FABRIC_1.0") => (c_int) -> *const c_char;
}

/// The functions of the libfabric that is compiled into the program (`crates/libfabric-embedded`).
mod embedded {
    use std::ffi::{c_char, c_int, c_void};

    use super::abi::{fi_fabric_attr, fi_info, fid_fabric};

    unsafe extern "C" {
        pub fn fi_getinfo(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const fi_info,
            list: *mut *mut fi_info,
        ) -> c_int;
        pub fn fi_freeinfo(list: *mut fi_info);
        pub fn fi_dupinfo(info: *const fi_info) -> *mut fi_info;
        pub fn fi_fabric(
            attr: *mut fi_fabric_attr,
            fabric: *mut *mut fid_fabric,
            context: *mut c_void,
        ) -> c_int;
        /// Takes nothing, returns a constant, and needs no set-up.
        pub safe fn fi_version() -> u32;
        /// Takes any code and returns a constant string.
        pub safe fn fi_strerror(code: c_int) -> *const c_char;
    }
}

/// A release number, as libfabric packs it into 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(u32);

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// A libfabric, loaded or embedded. A loaded one stays loaded until the process ends (see [`crate::library`] for the
/// reason).
#[derive(Debug)]
pub struct Libfabric {
    // Keeps the code of the functions below loaded, regardless of the loader's policy. `None` for the embedded library,
    // which is part of the program.
    library: Option<SharedLibrary>,
    calls: FabricCalls,
    release: Release,
    path: String,
}

impl Libfabric {
    /// Loads libfabric from `path`, if given; otherwise from the paths of an EFA installation, or by the loader's own
    /// search. The first load can take some tenths of a second because of the library's dependencies. Further loads are
    /// cheap and return the same library.
    ///
    /// # Errors
    /// One line with the file or name that was tried and the loader's reason. A library that exists but is broken is an
    /// error, not a reason to try the next one.
    pub fn load(path: Option<&str>) -> Result<Self, LibraryError> {
        let installed = EFA_PATHS.into_iter().find(|path| Path::new(path).exists());
        let name = path.or(installed).unwrap_or(LOADER_NAME);
        Self::with_symbols_of(SharedLibrary::open(name)?, name)
    }

    /// Chooses a libfabric: `asked`, if given (a path, or "embedded"); otherwise the library that [`Self::load`] finds.
    /// If none exists, returns the embedded library, with the reason as the second value.
    ///
    /// # Errors
    /// Why the requested one cannot be used.
    pub fn choose(asked: Option<&str>) -> Result<(Self, Option<String>), LibraryError> {
        match asked {
            Some(EMBEDDED_NAME) => Ok((Self::embedded(), None)),
            Some(path) => Ok((Self::load(Some(path))?, None)),
            None => match Self::load(None) {
                Ok(library) => Ok((library, None)),
                // Use the embedded library only if none exists. A broken or too old library is an error.
                Err(error) if matches!(*error, LibraryErrorKind::NotFound { .. }) => {
                    Ok((Self::embedded(), Some(error.to_string())))
                }
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the libfabric that this process has already loaded, if any; never loads one.
    pub fn loaded() -> Option<Self> {
        Self::with_symbols_of(SharedLibrary::loaded(LOADER_NAME)?, LOADER_NAME).ok()
    }

    fn with_symbols_of(library: SharedLibrary, name: &str) -> Result<Self, LibraryError> {
        let calls = FabricCalls::look_up(|symbol| library.symbol(symbol))
            .map_err(|error: LibraryError| error.needs("libfabric 1.9 or newer"))?;
        Ok(Self {
            calls,
            // SAFETY: takes nothing, returns a number, and needs no set-up.
            release: Release(unsafe { (calls.version)() }),
            path: file_or_name(calls.getinfo as *const c_void, name),
            library: Some(library),
        })
    }

    /// Returns the libfabric that is compiled into the program, with the providers tcp, rxm and shm.
    pub fn embedded() -> Self {
        // Refers to the crate; without this, the linker would not find the functions below.
        tonnage_libfabric_embedded::link();
        Self {
            library: None,
            calls: FabricCalls {
                getinfo: embedded::fi_getinfo,
                freeinfo: embedded::fi_freeinfo,
                dupinfo: embedded::fi_dupinfo,
                fabric: embedded::fi_fabric,
                version: embedded::fi_version,
                strerror: embedded::fi_strerror,
            },
            release: Release(embedded::fi_version()),
            path: EMBEDDED_PATH.to_owned(),
        }
    }

    /// Whether this is the embedded library.
    pub fn is_embedded(&self) -> bool {
        self.library.is_none()
    }

    /// The library's release.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Path of the loaded file; a description for the embedded library.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn reason(&self, code: c_int) -> String {
        // SAFETY: takes any code and returns a constant NUL-terminated string, which is copied.
        let reason = unsafe { text((self.calls.strerror)(code.saturating_neg())) };
        reason.unwrap_or_else(|| format!("error {code}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_printed_as_libfabric_numbers_them() {
        assert_eq!(Release(1 << 16 | 17).to_string(), "1.17");
        assert_eq!(Release(117 << 16).to_string(), "117.0");
    }

    #[test]
    fn an_installed_library_reports_its_release_and_file() {
        let library = match Libfabric::load(None) {
            Ok(library) => library,
            Err(why) => return eprintln!("skip: no libfabric here: {why}"),
        };
        assert!(
            library.release() >= Release(1 << 16 | 9),
            "{}",
            library.release()
        );
        assert!(!library.is_embedded());
        assert!(library.path().contains("libfabric"), "{}", library.path());
        assert_eq!(Libfabric::loaded().unwrap().path(), library.path());
    }

    #[test]
    fn the_embedded_library_is_the_one_that_was_compiled() {
        let library = Libfabric::embedded();
        assert!(library.is_embedded());
        let release = library.release().to_string();
        assert!(tonnage_libfabric_embedded::VERSION.starts_with(&format!("{release}.")));
        assert!(library.path().contains("embedded"), "{}", library.path());
    }
}

//! Loads C libraries at run time, and reports the version of the C library itself.
//!
//! Owns the handle of `dlopen`, and looks up versioned symbols. Each library has a module of its own, such as
//! [`crate::libfabric`], which knows its symbols. The handle never leaves this crate.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr::NonNull;

use crate::error::{LibraryError, LibraryErrorKind};
use crate::signal_actions::keeping;

/// Declares a table of calls that are looked up together. Each call has a key that identifies its symbol, and the
/// signature from the library's header or standard.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $visibility:vis $table:ident by $key:ty:
        $($name:ident = $symbol:expr => ($($argument:ty),* $(,)?) -> $result:ty;)*
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy)]
        $visibility struct $table {
            $($visibility $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Looks up all calls. `find` returns the address of the symbol for a key.
            $visibility fn look_up<E>(
                find: impl Fn($key) -> Result<std::ptr::NonNull<std::ffi::c_void>, E>,
            ) -> Result<Self, E> {
                Ok(Self {
                    $($name: {
                        let address = find($symbol)?;
                        // SAFETY: the symbol has the signature that its library declares, which is given here. If a
                        // library uses another symbol for the call, that symbol has the same signature. Only integers
                        // may replace pointers, and these are passed the same way.
                        unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<std::ffi::c_void>,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

/// A symbol and its version.
pub(crate) type Versioned = (&'static CStr, &'static CStr);

/// A loaded library. It stays loaded until the process ends, on purpose: such libraries start threads and register
/// thread-local and exit handlers. Unmapping their code would crash the process at its end.
#[derive(Debug)]
pub(crate) struct SharedLibrary {
    handle: NonNull<c_void>,
    name: String,
}

// SAFETY: the handle is only given to dlsym, dlvsym and dladdr, which may be called from any thread, and is never
// closed.
unsafe impl Send for SharedLibrary {}
// SAFETY: as above: these calls change nothing through the handle that another thread could see half done.
unsafe impl Sync for SharedLibrary {}

impl SharedLibrary {
    /// Loads `name`: a path if it contains a slash, otherwise a name that the loader searches for.
    ///
    /// # Errors
    /// The loader's own message, which names the file.
    pub(crate) fn open(name: &str) -> Result<Self, LibraryError> {
        Self::open_with(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Loads `name` so that its symbols are visible to all libraries loaded later. Some libraries need that to load
    /// their own parts.
    ///
    /// # Errors
    /// The loader's own message, which names the file.
    pub(crate) fn open_global(name: &str) -> Result<Self, LibraryError> {
        Self::open_with(name, libc::RTLD_NOW | libc::RTLD_GLOBAL)
    }

    /// Returns the library with this name, if this process has already loaded it.
    pub(crate) fn loaded(name: &str) -> Option<Self> {
        Self::open_with(name, libc::RTLD_NOW | libc::RTLD_NOLOAD).ok()
    }

    fn open_with(name: &str, flags: c_int) -> Result<Self, LibraryError> {
        if name.is_empty() {
            return Err(LibraryError::argument(
                "the name of a library cannot be empty",
            ));
        }
        let c_name = c_string(name)?;
        // SAFETY: c_name is a NUL-terminated string that outlives the call. Loading runs the constructors of the file;
        // the user who chooses the file vouches for them, as for any program that the user starts.
        let handle = keeping(|| unsafe { libc::dlopen(c_name.as_ptr(), flags) });
        match NonNull::new(handle) {
            Some(handle) => Ok(Self {
                handle,
                name: name.to_owned(),
            }),
            None => Err(not_loaded(name, last_error())),
        }
    }

    /// Returns the address of `symbol` in exactly this version.
    ///
    /// # Errors
    /// If the library has no such symbol, or the C library does not support symbol versions; the message names library,
    /// symbol and version.
    pub(crate) fn symbol(
        &self,
        (symbol, version): Versioned,
    ) -> Result<NonNull<c_void>, LibraryError> {
        // SAFETY: the handle came from dlopen and was never closed; both strings are NUL-terminated and outlive the
        // call.
        let address =
            unsafe { libc::dlvsym(self.handle.as_ptr(), symbol.as_ptr(), version.as_ptr()) };
        NonNull::new(address).ok_or_else(|| self.lacks(symbol, version))
    }

    /// Returns the address of `symbol` in a library without symbol versions.
    ///
    /// # Errors
    /// If the library has no such symbol; the message names both.
    pub(crate) fn symbol_without_version(
        &self,
        symbol: &CStr,
    ) -> Result<NonNull<c_void>, LibraryError> {
        // SAFETY: the handle came from dlopen and was never closed; the string is NUL-terminated and outlives the call.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) };
        NonNull::new(address).ok_or_else(|| self.lacks(symbol, c""))
    }

    fn lacks(&self, symbol: &CStr, version: &CStr) -> LibraryError {
        LibraryErrorKind::NoSymbol {
            library: self.name.clone(),
            symbol: symbol.to_string_lossy().into_owned(),
            version: version.to_string_lossy().into_owned(),
            needs: "",
        }
        .into()
    }
}

/// Result of a system call or C library function that returns 0 or sets errno.
pub(crate) fn outcome(code: impl Into<i64>) -> io::Result<()> {
    if code.into() == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the file of the library that contains the call at `address`; `name` if the loader does not know it.
pub(crate) fn file_or_name(address: *const c_void, name: &str) -> String {
    let file = NonNull::new(address.cast_mut()).and_then(file_of);
    file.unwrap_or_else(|| name.to_owned())
}

/// Returns the file that contains the code at `address`, if the loader knows it.
fn file_of(address: NonNull<c_void>) -> Option<String> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address. It fills the struct, which is valid for writes, only if it returns non-zero.
    let found = unsafe { libc::dladdr(address.as_ptr(), &raw mut info) };
    if found == 0 {
        return None;
    }
    // SAFETY: after success dli_fname is null or a NUL-terminated string of the loader's that lives as long as the
    // library is loaded; it is copied at once.
    unsafe { text(info.dli_fname) }
}

/// Returns name and version of the C library, such as "glibc 2.36"; `None` if it does not report them.
pub fn libc_version() -> Option<String> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes no argument and returns a constant NUL-terminated string.
        let version = unsafe { text(libc::gnu_get_libc_version()) };
        version.map(|version| format!("glibc {version}"))
    }
    #[cfg(not(target_env = "gnu"))]
    {
        None
    }
}

/// Copies a C string; `None` for a null pointer.
///
/// # Safety
/// `pointer` is null or points to a NUL-terminated string that does not change during the call.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    Some(text.to_string_lossy().into_owned())
}

fn c_string(name: &str) -> Result<CString, LibraryError> {
    CString::new(name).map_err(|_| LibraryError::argument(format!("{name:?} contains a NUL byte")))
}

/// Makes the error for a library that the loader refused with this message.
fn not_loaded(name: &str, message: Option<String>) -> LibraryError {
    let (library, reason) = (
        name.to_owned(),
        message.unwrap_or_else(|| format!("{name}: cannot be loaded")),
    );
    // For a missing dependency, the message begins with the dependency's name.
    let rest = reason.strip_prefix(name);
    if rest.is_some_and(|rest| rest.starts_with(": ") && rest.contains("No such file")) {
        LibraryErrorKind::NotFound { library, reason }.into()
    } else {
        LibraryErrorKind::NotLoaded { library, reason }.into()
    }
}

fn last_error() -> Option<String> {
    // SAFETY: dlerror returns null or a NUL-terminated string that belongs to this thread until its next dl call; it
    // is copied before that.
    unsafe { text(libc::dlerror()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libfabric::Libfabric;
    use crate::pmix::{Client, NoClient};
    use crate::verbs::{Libibverbs, Libmlx5, Librdmacm};

    #[test]
    fn a_missing_library_is_named_in_the_message() {
        let error = SharedLibrary::open("/nonexistent/libnothing.so.1").unwrap_err();
        assert!(error.to_string().contains("/nonexistent/libnothing.so.1"));
        assert!(SharedLibrary::loaded("/nonexistent/libnothing.so.1").is_none());
        for wrong in ["", "a\0b"] {
            let error = SharedLibrary::open(wrong).unwrap_err();
            assert!(matches!(*error, LibraryErrorKind::Argument(_)), "{error}");
        }
    }

    #[test]
    fn only_a_library_without_its_own_file_is_not_found() {
        let is_not_found = |message: &str| {
            let error = not_loaded("libx.so.1", Some(message.to_owned()));
            assert_eq!(error.to_string(), message);
            matches!(&*error, LibraryErrorKind::NotFound { library, .. } if library == "libx.so.1")
        };
        let why = "cannot open shared object file: No such file or directory";
        assert!(is_not_found(&format!("libx.so.1: {why}")));
        assert!(!is_not_found(&format!("libdependency.so.2: {why}")));
        assert!(!is_not_found(&format!("libx.so.1.40: {why}")));
        assert!(!is_not_found("libx.so.1: file too short"));
    }

    /// If a path is given, no other path is tried. A file of another library is refused at the first missing call.
    #[test]
    fn every_library_names_the_file_or_the_call_that_is_missing() {
        type Load = fn(&str) -> Option<LibraryError>;
        let loads: [(Load, &str); 4] = [
            (
                |file| Libibverbs::load(Some(file)).err(),
                "ibv_get_device_list",
            ),
            (
                |file| Librdmacm::load(Some(file)).err(),
                "rdma_create_event_channel",
            ),
            (|file| Libfabric::load(Some(file)).err(), "fi_getinfo"),
            (
                |file| match Client::load(file).err()? {
                    NoClient::Library(why) => Some(why),
                    NoClient::Launcher(why) => panic!("{why}"),
                },
                "PMIx_Init",
            ),
        ];
        for (load, first_call) in loads {
            let missing = load("/nonexistent/lib.so.1").unwrap();
            assert!(
                matches!(&*missing, LibraryErrorKind::NotFound { library, .. } if library == "/nonexistent/lib.so.1"),
                "{missing}"
            );
            if cfg!(target_env = "gnu") {
                let other = load("libc.so.6").unwrap();
                assert!(
                    matches!(&*other, LibraryErrorKind::NoSymbol { symbol, .. } if symbol == first_call),
                    "{other}"
                );
            }
        }
    }

    /// A test may skip only libraries that are not installed.
    #[test]
    fn installed_libraries_have_every_call() {
        let libibverbs = Libibverbs::load(None);
        if let Ok(library) = &libibverbs
            && let Err(error) = library.devices()
        {
            assert!(
                matches!(
                    *error,
                    LibraryErrorKind::Call {
                        call: "ibv_get_device_list",
                        ..
                    }
                ),
                "{error}"
            );
        }
        let libmlx5 = libibverbs.as_ref().map_err(LibraryError::clone);
        let libmlx5 = libmlx5.and_then(Libmlx5::load);
        for (name, found) in [
            ("libmlx5", libmlx5.map(|library| library.path().to_owned())),
            (
                "libibverbs",
                libibverbs.map(|library| library.path().to_owned()),
            ),
            (
                "librdmacm",
                Librdmacm::load(None).map(|library| library.path().to_owned()),
            ),
        ] {
            match found {
                Ok(path) => assert!(path.contains(name), "{path}"),
                Err(error) => {
                    // An installed library that is unusable is a failure, not a skip.
                    assert!(
                        matches!(*error, LibraryErrorKind::NotFound { .. }),
                        "{error}"
                    );
                    println!("skip: {name} is not here: {error}");
                }
            }
        }
    }

    #[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
    #[test]
    fn symbols_are_found_by_version() {
        let library = SharedLibrary::loaded("libc.so.6").unwrap();
        let address = library.symbol((c"getpid", c"GLIBC_2.2.5")).unwrap();
        assert!(file_of(address).unwrap().contains("libc"));
        let error = library.symbol((c"getpid", c"GLIBC_99")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "libc.so.6: has no getpid of version GLIBC_99"
        );
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn the_c_library_reports_its_version() {
        assert!(libc_version().unwrap().starts_with("glibc 2."));
    }
}

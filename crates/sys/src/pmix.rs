//! PMIx, loaded at run time: exchange of data among the processes that Open MPI's mpirun or `srun --mpi=pmix` has
//! started.
//!
//! Implements the client side of put, fence and get for strings; `tonnage_ranks` decides what to exchange. The layouts
//! are those of PMIx 2 to 5 on 64-bit Linux, compared with the headers of 4.2. Of a value that the library allocates,
//! only the union member that matches the value's type is read.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::mpsc;
use std::time::Duration;

use crate::error::LibraryError;
use crate::library::{SharedLibrary, functions, text};

/// Name that the loader searches for; PMIx has used it since version 2.
const LOADER_NAME: &str = "libpmix.so.2";
/// Folders in which a launcher's installation may have its own PMIx.
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/openmpi"];
/// Maximum time for the server to confirm a finalize. A hanging server must not keep a finished run alive.
const FAREWELL: Duration = Duration::from_secs(3);
/// Successful status.
const SUCCESS: c_int = 0;
/// In place of a rank, this number means the whole job.
const RANK_WILDCARD: u32 = u32::MAX - 1;
/// The value is visible to all processes of the job.
const SCOPE_GLOBAL: u8 = 3;
/// The value types that are used here.
const TYPE_BOOL: u16 = 1;
const TYPE_STRING: u16 = 3;
const TYPE_UINT32: u16 = 14;
/// Limits of the interface, which include the final zero byte.
const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_value_t`: a type and a union of three words at most.
#[repr(C)]
struct Value {
    kind: u16,
    data: u64,
    rest: [u64; 2],
}

/// `pmix_info_t`. Never used in arrays here.
#[repr(C)]
struct Info {
    key: [c_char; KEY_BYTES],
    flags: u32,
    value: Value,
}

// The layout is that of 64-bit Linux; another pointer width would move the fields.
const _: () = assert!(
    size_of::<usize>() == 8
        && size_of::<Proc>() == 260
        && std::mem::offset_of!(Proc, rank) == 256
        && size_of::<Value>() == 32
        && std::mem::offset_of!(Value, data) == 8
        && size_of::<Info>() == 552
        && std::mem::offset_of!(Info, flags) == 512
        && std::mem::offset_of!(Info, value) == 520
);

functions! { PmixCalls by &'static CStr:
    // Receives this process's name.
    init = c"PMIx_Init" => (*mut Proc, *const Info, usize) -> c_int;
    finalize = c"PMIx_Finalize" => (*const Info, usize) -> c_int;
    // Scope, key, value.
    put = c"PMIx_Put" => (u8, *const c_char, *mut Value) -> c_int;
    commit = c"PMIx_Commit" => () -> c_int;
    fence = c"PMIx_Fence" => (*const Proc, usize, *const Info, usize) -> c_int;
    get = c"PMIx_Get" => (*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
    error_string = c"PMIx_Error_string" => (c_int) -> *const c_char;
}

/// The reason why no client could be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoClient {
    /// The library cannot be loaded, or is not PMIx: the loader's own message.
    Library(LibraryError),
    /// The library exists, but the launcher does not answer.
    Launcher(LibraryError),
}

/// A process that is registered with the launcher's PMIx server. Dropping it deregisters the process; a launcher treats
/// a process that ends without this as failed.
#[derive(Debug)]
pub struct Client {
    // Keeps the code of the functions below loaded, regardless of the loader's policy.
    library: Option<SharedLibrary>,
    calls: PmixCalls,
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

impl Client {
    /// Loads the library and registers with the launcher's server. The library of the launcher's own installation is
    /// preferred: an MPI of that installation that is loaded later uses the PMIx that is already loaded, and may not
    /// work with another PMIx.
    ///
    /// # Errors
    /// The missing part: the library, or the launcher's answer.
    pub fn start() -> Result<Self, NoClient> {
        let said = std::env::var_os("PMIX_PREFIX").filter(|prefix| !prefix.is_empty());
        let prefix = said.map(PathBuf::from).or_else(crate::launcher::prefix);
        let own = prefix.and_then(|prefix| library_in(&prefix));
        Self::load(own.as_deref().unwrap_or(LOADER_NAME))
    }

    pub(crate) fn load(name: &str) -> Result<Self, NoClient> {
        let library = SharedLibrary::open(name).map_err(NoClient::Library)?;
        let calls = PmixCalls::look_up(|symbol| library.symbol_without_version(symbol))
            .map_err(NoClient::Library)?;
        let mut me = Proc {
            namespace: [0; NAMESPACE_BYTES],
            rank: 0,
        };
        // SAFETY: `me` is a valid place for the result, and no information is passed.
        let status = unsafe { (calls.init)(&raw mut me, ptr::null(), 0) };
        if status != SUCCESS {
            return Err(NoClient::Launcher(failed(&calls, "PMIx_Init", status)));
        }
        Ok(Self {
            library: Some(library),
            calls,
            namespace: me.namespace,
            rank: me.rank,
        })
    }

    /// This process's rank in the job.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes of the job.
    ///
    /// # Errors
    /// If the server does not report it.
    pub fn job_size(&self) -> Result<u32, LibraryError> {
        let value = self.value(RANK_WILDCARD, c"pmix.job.size")?;
        // SAFETY: a successful get returns a valid value, which nothing frees.
        let kind = unsafe { (*value.as_ptr()).kind };
        if kind != TYPE_UINT32 {
            let reason = format!("PMIx returned the job size with the unexpected type {kind}");
            return Err(LibraryError::unsupported(reason));
        }
        // SAFETY: a value of this type has a 32-bit number at the union's beginning; the rest of the union may be
        // unwritten. The union has a larger alignment than that.
        Ok(unsafe { (&raw const (*value.as_ptr()).data).cast::<u32>().read() })
    }

    /// Stores a text under a key, for all processes that complete the next [`Client::fence`].
    ///
    /// # Errors
    /// If the text or the key cannot be represented, or the library rejects them.
    pub fn put(&self, key: &str, value: &str) -> Result<(), LibraryError> {
        let key = c_key(key)?;
        let value = CString::new(value)
            .map_err(|_| LibraryError::argument("the text contains a NUL byte"))?;
        let mut passed = Value {
            kind: TYPE_STRING,
            data: value.as_ptr() as u64,
            rest: [0; 2],
        };
        // SAFETY: key and value are NUL-terminated strings that outlive the call, which copies what it keeps.
        let status = unsafe { (self.calls.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut passed) };
        self.check("PMIx_Put", status)
    }

    /// Waits until all processes of the job have called this method. Afterwards all processes see the values that were
    /// put before.
    ///
    /// # Errors
    /// If the library reports an error, for example after the loss of a process.
    pub fn fence(&self) -> Result<(), LibraryError> {
        // SAFETY: takes no arguments and only reads the library's own state.
        let status = unsafe { (self.calls.commit)() };
        self.check("PMIx_Commit", status)?;
        let mut collect = Info {
            key: [0; KEY_BYTES],
            flags: 0,
            value: Value {
                kind: TYPE_BOOL,
                data: 1,
                rest: [0; 2],
            },
        };
        for (to, from) in collect.key.iter_mut().zip(b"pmix.collect") {
            *to = c_char::from_ne_bytes([*from]);
        }
        // SAFETY: no list of processes means the whole job; the one info outlives the call.
        let status = unsafe { (self.calls.fence)(ptr::null(), 0, &raw const collect, 1) };
        self.check("PMIx_Fence", status)
    }

    /// Returns the text that a process has put under a key before the last fence.
    ///
    /// # Errors
    /// If the process has put no text.
    pub fn get(&self, rank: u32, key: &str) -> Result<String, LibraryError> {
        let value = self.value(rank, &c_key(key)?)?;
        // SAFETY: a successful get returns a valid value, which nothing frees.
        let kind = unsafe { (*value.as_ptr()).kind };
        if kind != TYPE_STRING {
            let reason =
                format!("PMIx returned {key} of rank {rank} with the unexpected type {kind}");
            return Err(LibraryError::unsupported(reason));
        }
        // SAFETY: a value of this type has null or a NUL-terminated string that lives as long as the value.
        unsafe { text((*value.as_ptr()).data as *const c_char) }.ok_or_else(|| {
            LibraryError::unsupported(format!("PMIx returned no text for {key} of rank {rank}"))
        })
    }

    /// Returns the library's value, which is never freed: the freeing function is a macro in some releases, and a
    /// process reads only a few short texts, once.
    fn value(&self, rank: u32, key: &CStr) -> Result<NonNull<Value>, LibraryError> {
        let of = Proc {
            namespace: self.namespace,
            rank,
        };
        let mut value = ptr::null_mut();
        // SAFETY: process and key outlive the call, and `value` is a valid place for the result.
        let status = unsafe {
            (self.calls.get)(&raw const of, key.as_ptr(), ptr::null(), 0, &raw mut value)
        };
        self.check("PMIx_Get", status)?;
        NonNull::new(value)
            .ok_or_else(|| LibraryError::unsupported("PMIx_Get succeeded but returned no value"))
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), LibraryError> {
        if status == SUCCESS {
            return Ok(());
        }
        Err(failed(&self.calls, call, status))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let (library, finalize) = (self.library.take(), self.calls.finalize);
        // If the server fails or does not answer, nothing can be done here.
        within(FAREWELL, move || {
            // SAFETY: called once, after the successful PMIx_Init of this value, and nothing else of the library is
            // called after it.
            let _ = unsafe { finalize(ptr::null(), 0) };
            drop(library);
        });
    }
}

/// Returns the PMIx library of an installation, if it includes its own.
fn library_in(prefix: &Path) -> Option<String> {
    let files = FOLDERS
        .iter()
        .map(|folder| prefix.join(folder).join(LOADER_NAME));
    let mut files = files.filter(|file| file.is_file());
    files.find_map(|file| file.into_os_string().into_string().ok())
}

/// Runs work that may never end on a separate thread, and waits for it up to `timeout`. Returns whether it ended.
fn within(timeout: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("farewell".into())
        .spawn(move || {
            work();
            // After the timeout, nothing receives this.
            let _ = sender.send(());
        });
    thread.is_ok() && receiver.recv_timeout(timeout).is_ok()
}

fn failed(calls: &PmixCalls, call: &'static str, status: c_int) -> LibraryError {
    // SAFETY: the function takes any number and returns null or a constant NUL-terminated string.
    let meaning = unsafe { text((calls.error_string)(status)) };
    let meaning = meaning.unwrap_or_default();
    let message = format!("{call} failed with {meaning} ({status})");
    LibraryError::call_with_message(call, status, message)
}

fn c_key(key: &str) -> Result<CString, LibraryError> {
    if key.len() >= KEY_BYTES {
        let reason = format!("a key of {} bytes is too long for PMIx", key.len());
        return Err(LibraryError::argument(reason));
    }
    CString::new(key).map_err(|_| LibraryError::argument("the key contains a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_may_have_its_own_pmix() {
        let folder = std::env::temp_dir().join(format!("tonnage-pmix-{}", std::process::id()));
        assert_eq!(library_in(&folder), None);
        std::fs::create_dir_all(folder.join("lib/openmpi")).unwrap();
        let own = folder.join("lib/openmpi/libpmix.so.2");
        std::fs::write(&own, "").unwrap();
        let found = library_in(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.as_deref(), own.to_str());
    }

    #[test]
    fn finalizing_with_a_hanging_server_ends() {
        let (_sender, never) = mpsc::channel::<()>();
        let hang = move || {
            let _ = never.recv_timeout(Duration::from_secs(60));
        };
        let begun = std::time::Instant::now();
        assert!(!within(Duration::from_millis(50), hang));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(within(Duration::from_secs(60), || {}));
    }

    #[test]
    fn keys_are_bounded() {
        assert!(c_key(&"k".repeat(KEY_BYTES)).is_err());
        assert!(c_key("a\0b").is_err());
        assert!(c_key("tonnage.meeting").is_ok());
    }
}

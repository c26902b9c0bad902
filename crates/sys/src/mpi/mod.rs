//! MPI, loaded at run time: one program for every library, built without MPI.
//!
//! Starts and ends MPI ([`start`], [`finish`], [`World`]), and provides its files ([`File`]) and collectives
//! ([`Communicator`]). The caller decides on transfers, and compares MPI's ranks with those of the run.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `choose` | choice of the library, by the launcher of this process |
//! | `dialect` | the library's numbers for handles and constants |
//! | `calls` | the library's functions |
//! | `datatype` | types composed of other types |
//! | `file`, `hints` | files, and hints about them |
//! | `collective` | groups of ranks and their collectives |
//!
//! MPI can be started once per process, and not again after its end. Therefore MPI's state belongs to the process, from
//! the first [`start`] to [`finish`], and not to an engine. MPI is started with MPI_THREAD_FUNNELED, so calls from any
//! thread but the starting one are refused.

mod calls;
mod choose;
mod collective;
mod datatype;
mod dialect;
mod file;
mod hints;

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::LibraryError;
use crate::library::{SharedLibrary, file_or_name};
use crate::process::Env;
use calls::{Functions, Handle};
use dialect::Constants;

pub use choose::{Family, NoLibrary};
pub use collective::{ArenaPlace, Communicator, MpiReduction, MpiType};
pub use dialect::Dialect;
pub use file::{AccessMode, CALL_BYTES_MAX, Direction, File, Scope, Together};
pub use hints::MpiHints;

/// Larger than any text that MPI returns: MPICH's version may have 8192 bytes.
const TEXT_BYTES: usize = 8193;

thread_local! {
    /// True in the thread that started MPI.
    static STARTED_HERE: Cell<bool> = const { Cell::new(false) };
}

/// State of MPI in this process. It is global, because MPI's state in the library is global too.
static STATE: Mutex<State> = Mutex::new(State::Idle);

enum State {
    Idle,
    Running(Arc<World>),
    /// Starting MPI has failed.
    Failed(LibraryError),
    Ended,
}

fn state() -> MutexGuard<'static, State> {
    // Each state is complete, even after a panic.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason why MPI is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoMpi {
    /// No usable library was found.
    Library(NoLibrary),
    /// The library exists but does not work: the failed call, and MPI's description.
    Failed(LibraryError),
}

/// Returns this process's MPI, after starting it if necessary. `path`, if given, is the only library to try (a file, or
/// a name for the loader). Otherwise the launcher of this process determines the library.
///
/// # Errors
/// The reason why MPI cannot be started. Some libraries instead print a message of their own and end the process.
pub fn start(path: Option<&Path>, env: Env<'_>) -> Result<Arc<World>, NoMpi> {
    let mut state = state();
    match &*state {
        State::Running(world) => return Ok(Arc::clone(world)),
        State::Ended => {
            return Err(NoMpi::Failed(LibraryError::argument(
                "MPI has ended in this process, and cannot be started twice",
            )));
        }
        State::Failed(why) => return Err(NoMpi::Failed(why.clone())),
        State::Idle => {}
    }
    match World::start(Loaded::load(path, env)?) {
        Ok(world) => {
            let world = Arc::new(world);
            *state = State::Running(Arc::clone(&world));
            Ok(world)
        }
        // Remember the failure, because MPI cannot be started twice.
        Err(why) => {
            *state = State::Failed(why.clone());
            Err(NoMpi::Failed(why))
        }
    }
}

/// Ends MPI if it is running, together with all other ranks. Do not call it after a failed run: MPI would wait for dead
/// ranks.
///
/// # Errors
/// MPI's description, or a file that is still open.
pub fn finish() -> Result<(), LibraryError> {
    let mut state = state();
    let State::Running(world) = &*state else {
        return Ok(());
    };
    let world = Arc::clone(world);
    *state = State::Ended;
    drop(state);
    world.finalize()
}

/// Whether MPI has been started in this process, even if the start failed or MPI has ended. Once started, MPI itself
/// disconnects from the launcher, with some libraries only when the process ends. Code that shares the connection
/// must not disconnect earlier.
pub fn has_started() -> bool {
    !matches!(&*state(), State::Idle)
}

/// A library that has been loaded and recognised.
struct Loaded {
    // Keeps the code of the functions below loaded, regardless of the loader's policy.
    library: SharedLibrary,
    functions: Functions,
    constants: Constants,
    dialect: Dialect,
    path: String,
    version: String,
}

impl Loaded {
    fn load(path: Option<&Path>, env: Env<'_>) -> Result<Self, NoMpi> {
        let tried = match path {
            Some(path) => {
                let unusable = || {
                    let reason = format!("{} is not UTF-8", path.display());
                    NoMpi::Library(NoLibrary::Unusable(LibraryError::argument(reason)))
                };
                vec![path.to_str().ok_or_else(unusable)?.to_owned()]
            }
            None => {
                let family = Family::detect(env);
                let launcher = crate::launcher::prefix();
                choose::candidates(family, env, launcher, &|file| file.is_file())
            }
        };
        let (library, name) = choose::load(tried).map_err(NoMpi::Library)?;
        Self::recognise(library, &name).map_err(|why| NoMpi::Library(NoLibrary::Unusable(why)))
    }

    fn recognise(library: SharedLibrary, name: &str) -> Result<Self, LibraryError> {
        let functions = Functions::look_up(|symbol| library.symbol_without_version(symbol))?;
        let path = file_or_name(functions.library_version as *const std::ffi::c_void, name);
        let version = text_of(|text, bytes| {
            // SAFETY: the text has room for the longest version of any library, and the function may be called before
            // MPI is started.
            unsafe { (functions.library_version)(text, bytes) }
        })
        .ok_or_else(|| LibraryError::unsupported(format!("{path} does not report its version")))?;
        let version = version.lines().next().unwrap_or_default().trim().to_owned();
        let dialect = Dialect::detect(&library, &path, &version)?;
        Ok(Self {
            functions,
            constants: dialect.constants(&library)?,
            library,
            dialect,
            path,
            version,
        })
    }
}

/// MPI after its start, with all processes of the job.
pub struct World {
    loaded: Loaded,
    rank: u32,
    size: u32,
    /// False after MPI_Finalize.
    running: AtomicBool,
    /// True if a file of all ranks was dropped without being closed, so that MPI cannot end in order.
    left_open: AtomicBool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} of {}", self.rank, self.size, self.path())
    }
}

impl World {
    fn start(loaded: Loaded) -> Result<Self, LibraryError> {
        let (functions, constants) = (&loaded.functions, &loaded.constants);
        let mut done: c_int = 0;
        // SAFETY: may be called at any time; `done` is a valid place for the result.
        let code = unsafe { (functions.initialized)(&raw mut done) };
        if code != 0 || done != 0 {
            return Err(LibraryError::argument(
                "another part of this process has already started MPI",
            ));
        }
        let mut level: c_int = 0;
        let (no_count, no_words) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: MPI has not been started, arguments may be absent, and `level` is a valid place for the result.
        let code = unsafe {
            (functions.init_thread)(
                no_count,
                no_words,
                constants.numbers.thread_funneled,
                &raw mut level,
            )
        };
        if code != 0 {
            return Err(start_or_end_failed(&loaded.path, "MPI_Init_thread", code));
        }
        STARTED_HERE.set(true);
        let mut world = Self {
            loaded,
            rank: 0,
            size: 0,
            running: AtomicBool::new(true),
            left_open: AtomicBool::new(false),
        };
        if level < world.loaded.constants.numbers.thread_funneled {
            return Err(LibraryError::unsupported(format!(
                "{} does not allow other threads in the process (MPI_Init_thread returned level {level})",
                world.path()
            )));
        }
        world.introduce()?;
        Ok(world)
    }

    /// Lets MPI return errors instead of ending the process, and reads this process's rank.
    fn introduce(&mut self) -> Result<(), LibraryError> {
        let (functions, constants) = (self.loaded.functions, self.loaded.constants);
        for comm in [constants.comm_world, constants.comm_self] {
            // SAFETY: both handles are the library's own.
            let code = unsafe { (functions.comm_set_errhandler)(comm, constants.errors_return) };
            self.check("MPI_Comm_set_errhandler", code)?;
        }
        (self.rank, self.size) = self.rank_in(constants.comm_world)?;
        Ok(())
    }

    /// Returns this process's rank in a communicator of this library, and the communicator's size.
    fn rank_in(&self, comm: Handle) -> Result<(u32, u32), LibraryError> {
        let functions = self.loaded.functions;
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: MPI runs and this is its thread, the handle is this library's, and the result has a valid place.
        let code = unsafe { (functions.comm_rank)(comm, &raw mut rank) };
        self.check("MPI_Comm_rank", code)?;
        // SAFETY: as above.
        let code = unsafe { (functions.comm_size)(comm, &raw mut size) };
        self.check("MPI_Comm_size", code)?;
        let number = |value: c_int| {
            u32::try_from(value).map_err(|_| {
                LibraryError::unsupported(format!("{} reports rank {rank} of {size}", self.path()))
            })
        };
        Ok((number(rank)?, number(size)?))
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Path of the loaded library.
    pub fn path(&self) -> &str {
        &self.loaded.path
    }

    /// Returns the first line of the library's own version text.
    pub fn version(&self) -> &str {
        &self.loaded.version
    }

    /// Returns the library's numbering of handles and constants.
    pub fn dialect(&self) -> Dialect {
        self.loaded.dialect
    }

    /// Waits until all processes have called this method.
    ///
    /// # Errors
    /// MPI's description.
    pub fn barrier(&self) -> Result<(), LibraryError> {
        self.here()?;
        // SAFETY: MPI runs, this is its thread, and the handle is the library's own.
        let code = unsafe { (self.loaded.functions.barrier)(self.loaded.constants.comm_world) };
        self.check("MPI_Barrier", code)
    }

    /// Rejects calls that MPI does not allow: from another thread, or after MPI has ended.
    #[inline]
    fn here(&self) -> Result<(), LibraryError> {
        if STARTED_HERE.get() && self.running.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(LibraryError::argument(
            if self.running.load(Ordering::Relaxed) {
                "MPI was started by another thread, and accepts calls only from it"
            } else {
                "MPI has ended"
            },
        ))
    }

    #[inline]
    fn check(&self, call: &'static str, code: c_int) -> Result<(), LibraryError> {
        if code == 0 {
            return Ok(());
        }
        Err(self.described(call, code))
    }

    /// Makes an error from a code. Its one-line description begins with the description of the code's class.
    #[cold]
    fn described(&self, call: &'static str, code: c_int) -> LibraryError {
        let meaning = self.meaning(code).unwrap_or_else(|| format!("code {code}"));
        let mut class: c_int = 0;
        // SAFETY: any code may be asked for, and the result has a valid place.
        let asked = unsafe { (self.loaded.functions.error_class)(code, &raw mut class) };
        let text = match self.meaning(class).filter(|_| asked == 0) {
            Some(class) if !meaning.starts_with(&class) => format!("{class}: {meaning}"),
            _ => meaning,
        };
        LibraryError::call(call, code, text)
    }

    /// Returns MPI's description of a code or a class of codes, in one line.
    fn meaning(&self, code: c_int) -> Option<String> {
        let meaning = text_of(|text, bytes| {
            // SAFETY: any number may be asked for, and the text has room for the longest meaning of any library.
            unsafe { (self.loaded.functions.error_string)(code, text, bytes) }
        })?;
        let lines: Vec<_> = meaning.lines().map(str::trim).collect();
        Some(lines.join(" "))
    }

    fn finalize(&self) -> Result<(), LibraryError> {
        self.here()?;
        if self.left_open.load(Ordering::Relaxed) {
            return Err(LibraryError::argument(
                "cannot call MPI_Finalize: a file that all ranks opened was not closed",
            ));
        }
        self.running.store(false, Ordering::Relaxed);
        // SAFETY: MPI runs, this is the thread that started it, and no call follows, because each checks `running`.
        let code = unsafe { (self.loaded.functions.finalize)() };
        if code == 0 {
            return Ok(());
        }
        Err(start_or_end_failed(self.path(), "MPI_Finalize", code))
    }
}

/// Makes the error of a failed start or end of MPI, when MPI cannot describe its errors.
fn start_or_end_failed(path: &str, call: &'static str, code: c_int) -> LibraryError {
    LibraryError::call_with_message(call, code, format!("{path}: {call} failed ({code})"))
}

/// Returns the text that a function of MPI fills in; `None` if it reports a failure.
fn text_of(fill: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut text = vec![0u8; TEXT_BYTES];
    let mut bytes: c_int = 0;
    let code = fill(text.as_mut_ptr().cast(), &raw mut bytes);
    let bytes = usize::try_from(bytes).ok()?;
    let text = text.get(..bytes)?;
    // Open MPI counts the final zero byte in some releases.
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    (code == 0).then(|| String::from_utf8_lossy(text).into_owned())
}

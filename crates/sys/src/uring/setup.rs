//! Opens rings: chooses the flags that this kernel grants, registers memory and files, and gives advice if io_uring is
//! not available.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode};

use crate::mapping::Arena;

/// Maximum size of a registered buffer; a larger arena is registered as several.
pub(super) const BUFFER_BYTES: u64 = 1 << 30;

/// Maximum number of registered files. Further files are used by their descriptor, so the kernel must look them up each
/// time.
pub(super) const FILES: u32 = 256;

/// Maximum wait until the kernel has freed the memory of rings that were closed before.
const GIVEN_BACK: Duration = Duration::from_millis(500);

/// Set-up flags of a ring, best first. A kernel that does not know a flag refuses the whole set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The one thread that uses the ring processes completions only when it asks for them (Linux 6.1).
    Deferred,
    /// One thread uses the ring, and is not interrupted to process completions (6.0).
    SingleIssuer,
    /// The thread is not interrupted to process completions (5.19).
    Cooperative,
    /// No flags (5.6).
    Plain,
}

impl Level {
    /// All levels, best first.
    pub const ALL: [Self; 4] = [
        Self::Deferred,
        Self::SingleIssuer,
        Self::Cooperative,
        Self::Plain,
    ];

    /// Returns the kernel's names of the flags, without IORING_SETUP_.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Deferred => &[
                "DEFER_TASKRUN",
                "SINGLE_ISSUER",
                "COOP_TASKRUN",
                "TASKRUN_FLAG",
            ],
            Self::SingleIssuer => &["SINGLE_ISSUER", "COOP_TASKRUN", "TASKRUN_FLAG"],
            Self::Cooperative => &["COOP_TASKRUN", "TASKRUN_FLAG"],
            Self::Plain => &[],
        }
    }

    fn build(self, depth: u32) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        if self <= Self::Cooperative {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if self <= Self::SingleIssuer {
            // The thread that enables the ring becomes its only user. Another thread may open the ring.
            builder.setup_single_issuer().setup_r_disabled();
        }
        if self == Self::Deferred {
            builder.setup_defer_taskrun();
        }
        // A ring that was just closed releases its memory some time later, and until then it counts as locked.
        let until = Instant::now() + GIVEN_BACK;
        loop {
            match builder.build(depth) {
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOMEM) && Instant::now() < until =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }
}

/// Whether memory or files are registered. Registration makes operations cheaper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The memory or the files are registered.
    Yes,
    /// Registration was not requested.
    NotAsked,
    /// The kernel refused it, with this message.
    Refused(String),
}

/// The reason why no ring is available, and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The kernel's error, and its meaning here.
    pub why: String,
    /// How to get a ring.
    pub how: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}. {}", self.why, self.how)
    }
}

impl std::error::Error for Refused {}

/// Opens a ring; returns it with its level and the reasons why better levels were refused.
pub(super) fn open(depth: u32, best: Level) -> Result<(IoUring, Level, Vec<String>), Refused> {
    let mut missing = Vec::new();
    for level in Level::ALL.into_iter().filter(|&level| level >= best) {
        match level.build(depth) {
            Ok(ring) => {
                check_operations(&ring)?;
                return Ok((ring, level, missing));
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && level != Level::Plain => {
                missing.push(format!("{}: {error}", level.flags().join(" + ")));
            }
            Err(error) => return Err(explain(&error, &disabled())),
        }
    }
    // Unreachable: the last level returns in either case.
    Err(explain(
        &io::Error::from_raw_os_error(libc::EINVAL),
        &disabled(),
    ))
}

/// Checks that the ring supports reads and writes. They came with Linux 5.6, but rings came with 5.1.
fn check_operations(ring: &IoUring) -> Result<(), Refused> {
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe);
    let codes = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
    ];
    if known.is_ok() && codes.iter().all(|&code| probe.is_supported(code)) {
        return Ok(());
    }
    Err(Refused {
        why: "this kernel's io_uring lacks reads and writes at an offset".into(),
        how: "Use Linux 5.6 or newer, or --engine posix".into(),
    })
}

/// Returns the value of `kernel.io_uring_disabled`; empty if the kernel does not have it.
fn disabled() -> String {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Translates an error of io_uring_setup into advice.
pub(super) fn explain(error: &io::Error, disabled: &str) -> Refused {
    let how = match (error.raw_os_error(), disabled) {
        (Some(libc::EPERM), "2") => {
            "io_uring is disabled: as root, run `sysctl kernel.io_uring_disabled=0`"
        }
        (Some(libc::EPERM), "1") => {
            "Only root and one group may use io_uring: join the group that sysctl kernel.io_uring_group names, or as \
             root run `sysctl kernel.io_uring_disabled=0`"
        }
        (Some(libc::EPERM | libc::EACCES), _) => {
            "A seccomp profile, as in most containers, forbids io_uring: start the container with a profile that \
             allows io_uring_setup, io_uring_enter and io_uring_register (docker: --security-opt seccomp=unconfined)"
        }
        (Some(libc::ENOSYS), _) => {
            "The kernel is older than 5.6, was built without CONFIG_IO_URING, or a sandbox hides the call: use another \
             kernel or sandbox"
        }
        (Some(libc::ENOMEM), _) => {
            "A ring counts as locked memory: raise the limit (ulimit -l unlimited), or use a smaller --depth"
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => "Raise the limit of open files (ulimit -n)",
        (Some(libc::EINVAL), _) => "Use a smaller --depth: a ring holds at most 32768 operations",
        _ => "Use --engine posix, which does not need io_uring",
    };
    Refused {
        why: format!("the kernel refuses io_uring_setup: {error}"),
        how: how.into(),
    }
}

/// Registers the whole arena, so that the kernel need not look up its pages for each operation.
pub(super) fn register_buffers(ring: &IoUring, arena: &Arena) -> Registered {
    let len = arena.len() as u64;
    let mut pieces = Vec::new();
    for from in (0..len).step_by(BUFFER_BYTES as usize) {
        let bytes = BUFFER_BYTES.min(len - from);
        match arena.pointer(from, bytes) {
            Ok(base) => pieces.push(libc::iovec {
                iov_base: base.cast(),
                iov_len: bytes as usize,
            }),
            Err(error) => return Registered::Refused(error.to_string()),
        }
    }
    // SAFETY: the pieces lie in the arena, which the ring's owner holds until the ring has nothing in flight and is
    // closed.
    match unsafe { ring.submitter().register_buffers(&pieces) } {
        Ok(()) => Registered::Yes,
        Err(error) => Registered::Refused(match error.raw_os_error() {
            Some(libc::ENOMEM | libc::EPERM) => {
                format!(
                    "{error}: the limit of locked memory is too small for {len} bytes (ulimit -l)"
                )
            }
            _ => error.to_string(),
        }),
    }
}

/// Registers an empty table, which is filled as files are opened.
pub(super) fn register_files(ring: &IoUring) -> Registered {
    let submitter = ring.submitter();
    let empty = [-1 as RawFd; FILES as usize];
    // Kernels before 5.19 lack sparse tables, but accept a table of empty entries.
    let table = submitter
        .register_files_sparse(FILES)
        .or_else(|_| submitter.register_files(&empty));
    match table {
        Ok(()) => Registered::Yes,
        Err(error) => Registered::Refused(error.to_string()),
    }
}

//! Permissions and limits of this process, permissions for others, and access to the environment.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Maximum number of ancestors to follow.
const GENERATIONS_MAX: usize = 256;

/// Reads one environment variable; a function, so that tests need no process environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Lets a process and its descendants read and write this process's memory by process_vm_readv and process_vm_writev.
/// With `None`, lets all processes of this user do so. By default, the Yama security module allows only ancestors.
/// Without Yama, the call does nothing and is not needed.
pub fn allow_to_attach(ancestor: Option<u32>) {
    let tracer = ancestor.map_or(libc::PR_SET_PTRACER_ANY, libc::c_ulong::from);
    // SAFETY: takes two numbers, and only changes which processes may attach to this one. A kernel without Yama returns
    // EINVAL.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer) };
}

/// Returns the nearest common ancestor of these processes; `None` if the system does not show one.
pub fn common_ancestor(pids: &[u32]) -> Option<u32> {
    let ancestors = |pid: u32| -> Vec<u32> {
        let parent = |pid: &u32| {
            stat(*pid)
                .map(|stat| stat.parent)
                .filter(|&parent| parent != 0)
        };
        // Limit the length, because parents may change during the walk.
        std::iter::successors(parent(&pid), parent)
            .take(GENERATIONS_MAX)
            .collect()
    };
    let (&first, others) = pids.split_first()?;
    let others: Vec<Vec<u32>> = others.iter().map(|&pid| ancestors(pid)).collect();
    let is_common = |ancestor: &u32| others.iter().all(|all| all.contains(ancestor));
    ancestors(first).into_iter().find(is_common)
}

/// Whether the system lets this process copy between address spaces at all: system-call filters of containers may
/// forbid it.
pub fn may_copy_between_processes() -> bool {
    let byte = 1_u8;
    read_byte_of(std::process::id(), &raw const byte as u64).is_ok()
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error, like a write to a full disk. By default, the
/// system ends the process by a signal, without a message.
pub fn refuse_oversized_writes() {
    // SAFETY: ignoring a signal installs no handler, so no code of this process ever runs in one.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process at once, without the exit handlers of libraries. Used if a thread is still inside a library,
/// because an orderly exit would destroy the library's state.
pub fn end_at_once(code: u8) -> ! {
    // SAFETY: takes a number, and runs no more code in this process.
    unsafe { libc::_exit(code.into()) }
}

/// Ties a program to be started to this process: the system sends it SIGTERM when the thread that starts it ends, for
/// any reason. This persists across exec, except for programs that run as another user.
pub fn end_with_this_process(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: takes two numbers; the affected process is the child itself.
        let asked = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        if asked != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: takes no arguments and cannot fail.
        let now = unsafe { libc::getppid() };
        // The parent may have ended before the request; then no signal would come.
        if u32::try_from(now) == Ok(parent) {
            return Ok(());
        }
        Err(std::io::Error::from_raw_os_error(libc::ESRCH))
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing: errors are numbers.
    unsafe { command.pre_exec(ask) };
}

/// State, parent and start time of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Letter of its state, such as `T` (stopped) or `Z` (ended, but not yet waited for by its parent).
    pub state: char,
    /// The process's parent; 0 for a parent outside this container.
    pub parent: u32,
    /// Start in ticks since boot. Process numbers are reused, but number and start together are unique.
    pub start_ticks: u64,
}

/// Reads state, parent and start of a process of this container; `None` if it does not exist.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name before the last bracket may contain blanks and brackets. The 22nd field of the file is the
    // 20th field after the name.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    Some(ProcessStat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        start_ticks: fields.nth(17)?.parse().ok()?,
    })
}

/// Returns the ticks since boot, in the unit of process start times.
pub fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let hertz = rustix::param::clock_ticks_per_second();
    let part = now.tv_nsec.unsigned_abs() * hertz / 1_000_000_000;
    now.tv_sec.unsigned_abs() * hertz + part
}

/// Bytes of memory that this process may lock; `None` without a limit.
pub fn locked_memory_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// Address space that a process may map, if limited (`ulimit -v`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSpace {
    /// Maximum bytes, including those already mapped.
    pub limit_bytes: u64,
    /// Bytes that the process may still map.
    pub left_bytes: u64,
}

/// Returns the address space that this process may still map; `None` without a limit, or if the system does not report
/// it.
pub fn address_space() -> Option<AddressSpace> {
    let limit_bytes = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').next()?.parse().ok()?;
    let used = pages.saturating_mul(rustix::param::page_size() as u64);
    Some(AddressSpace {
        limit_bytes,
        left_bytes: limit_bytes.saturating_sub(used),
    })
}

/// Reads one byte of another process's memory, to check whether this is allowed.
///
/// # Errors
/// The system's reason: not permitted, no such process, no such memory.
pub fn read_byte_of(pid: u32, address: u64) -> std::io::Result<u8> {
    let mut byte = 0u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: address as *mut _,
        iov_len: 1,
    };
    let pid = libc::pid_t::try_from(pid).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    // SAFETY: the local vector is one byte of this function; the kernel checks the remote one.
    let count =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match count {
        1 => Ok(byte),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_read_itself_but_not_unmapped_memory() {
        let byte = 42u8;
        let address = &raw const byte as u64;
        assert_eq!(read_byte_of(std::process::id(), address).unwrap(), 42);
        assert!(read_byte_of(std::process::id(), 8).is_err());
        assert!(read_byte_of(u32::MAX, address).is_err());
    }

    #[test]
    fn remaining_address_space_follows_the_limit() {
        // Tests run without a limit; end-to-end runs under a limit check the rest.
        let unlimited = rustix::process::getrlimit(rustix::process::Resource::As)
            .current
            .is_none();
        assert_eq!(address_space().is_none(), unlimited);
    }

    /// Ranks of a run descend from the process that started them.
    #[test]
    fn siblings_descend_from_the_process_that_started_them() {
        let start = || Command::new("sleep").arg("60").spawn().unwrap();
        let mut children = [start(), start()];
        let pids = children.each_ref().map(std::process::Child::id);
        let own = std::process::id();
        let parent = stat(own).unwrap().parent;
        let of_both = common_ancestor(&pids);
        let of_one = common_ancestor(&pids[..1]);
        let with_own = common_ancestor(&[pids[0], own]);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!((of_both, of_one), (Some(own), Some(own)));
        assert_eq!(with_own, Some(parent).filter(|&parent| parent != 0));
        assert_eq!(common_ancestor(&[]), None);
        // A process that has ended has no ancestor.
        assert_eq!(common_ancestor(&[own, pids[0]]), None);
    }
}

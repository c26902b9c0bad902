//! Permissions and limits of this process, what it permits others, and the way to its environment.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Generations of processes that are looked at.
const GENERATIONS_MAX: usize = 256;

/// Reads one environment variable; a function, so that tests need no process environment.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Lets a process and its descendants read and write this one's memory by process_vm_readv and process_vm_writev, where
/// the Yama security module would let only ancestors; all processes of this user where none is named. Does nothing on a
/// kernel without Yama, which does not ask.
pub fn allow_to_attach(ancestor: Option<u32>) {
    let tracer = ancestor.map_or(libc::PR_SET_PTRACER_ANY, libc::c_ulong::from);
    // SAFETY: takes two numbers, and only changes who may attach to this process. A kernel without Yama answers EINVAL.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer) };
}

/// The nearest process that all of these descend from; `None` where the system does not show one.
pub fn common_ancestor(pids: &[u32]) -> Option<u32> {
    let ancestors = |pid: u32| -> Vec<u32> {
        let parent = |pid: &u32| {
            stat(*pid)
                .map(|stat| stat.parent)
                .filter(|&parent| parent != 0)
        };
        // Parents may change meanwhile, but no chain is longer.
        std::iter::successors(parent(&pid), parent)
            .take(GENERATIONS_MAX)
            .collect()
    };
    let (&first, others) = pids.split_first()?;
    let others: Vec<Vec<u32>> = others.iter().map(|&pid| ancestors(pid)).collect();
    let is_common = |ancestor: &u32| others.iter().all(|all| all.contains(ancestor));
    ancestors(first).into_iter().find(is_common)
}

/// Returns whether the system lets this process copy between address spaces at all: filters of system calls in containers
/// may not.
pub fn may_copy_between_processes() -> bool {
    let byte = 1_u8;
    read_byte_of(std::process::id(), &raw const byte as u64).is_ok()
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, as one on a full disk is. The system
/// would end the process by a signal, without a word.
pub fn refuse_oversized_writes() {
    // SAFETY: ignoring a signal installs no handler, so that nothing of this process ever runs in one.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Ends this process at once, without what libraries do at an orderly end: for one of whose threads is still inside a
/// library, which such an end would take away under it.
pub fn end_at_once(code: u8) -> ! {
    // SAFETY: takes a number, and runs nothing in this process any more.
    unsafe { libc::_exit(code.into()) }
}

/// Lets a program that is to be started end with this process, however that ends: the system sends it SIGTERM when the
/// thread that starts it is gone. It stays so across exec, but for programs that run as another user.
pub fn end_with_this_process(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: takes two numbers; the process that is changed is the child itself.
        let asked = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        if asked != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: takes nothing and cannot fail.
        let now = unsafe { libc::getppid() };
        // It may have ended before the request; then nobody would say so.
        if u32::try_from(now) == Ok(parent) {
            return Ok(());
        }
        Err(std::io::Error::from_raw_os_error(libc::ESRCH))
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing: errors are numbers.
    unsafe { command.pre_exec(ask) };
}

/// State and start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Letter of its state, such as `T` where it is stopped and `Z` where it has ended and its parent has not asked.
    pub state: char,
    /// The process that it is a child of; 0 for one outside of this container.
    pub parent: u32,
    /// Start in ticks since boot. Numbers of processes are given again, and with it they are not.
    pub start_ticks: u64,
}

/// Reads state and start of a process of this container; `None` where there is none.
pub fn stat(pid: u32) -> Option<ProcessStat> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before them may hold blanks and brackets. The 22nd field of all is the 20th behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    Some(ProcessStat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        start_ticks: fields.nth(17)?.parse().ok()?,
    })
}

/// Ticks since boot, as starts of processes are counted.
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

/// Room for what a process maps, where that is limited (`ulimit -v`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSpace {
    /// Bytes that it may map, mapped ones included.
    pub limit_bytes: u64,
    /// Bytes that it may still map.
    pub left_bytes: u64,
}

/// Room that this process has left to map memory; `None` without a limit, or where the system does not say.
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

/// Reads one byte of another process's memory, to find out whether this one may.
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
    // SAFETY: the local vector is one byte that is ours; the kernel checks the remote one.
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
    fn a_process_may_read_itself_but_not_what_is_not_there() {
        let byte = 42u8;
        let address = &raw const byte as u64;
        assert_eq!(read_byte_of(std::process::id(), address).unwrap(), 42);
        assert!(read_byte_of(std::process::id(), 8).is_err());
        assert!(read_byte_of(u32::MAX, address).is_err());
    }

    #[test]
    fn room_to_map_memory_is_what_a_limit_leaves() {
        // Tests run without a limit; what one leaves is seen by running the program under it.
        let unlimited = rustix::process::getrlimit(rustix::process::Resource::As)
            .current
            .is_none();
        assert_eq!(address_space().is_none(), unlimited);
    }

    /// Ranks of a run descend from what started them, and so from the process that it is.
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
        // One that has ended has no ancestor.
        assert_eq!(common_ancestor(&[own, pids[0]]), None);
    }
}

//! What the system allows this process, and what this process allows others.

/// Lets other processes of this user read and write this one's memory by process_vm_readv and process_vm_writev, where
/// the Yama security module would let only ancestors. Does nothing on a kernel without Yama, which does not ask.
pub fn allow_peers_to_attach() {
    // SAFETY: takes two numbers, and only changes who may attach to this process. A kernel without Yama answers EINVAL.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
}

/// Bytes of memory that this process may lock; `None` without a limit.
pub fn locked_memory_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

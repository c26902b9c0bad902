//! Finds the launcher process, if its death would otherwise leave this rank running.
//!
//! Open MPI's mpirun itself starts the ranks of its host, and leaves them behind when it is killed. MPICH needs no such
//! watch: its proxies outlive mpirun and end their ranks. A rank started by hand may outlive its shell.
//!
//! The kernel's parent-death signal does not help. It is sent when the *thread* that started the rank ends, which may
//! be before the thread's process ends.

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, getppid, pidfd_open};

use super::variables::Env;

/// A launcher process. When it ends, this rank must end too.
#[derive(Debug)]
pub struct LauncherProcess {
    /// Process ID.
    pub(crate) pid: i32,
    /// Pidfd of the process, readable once the process has ended.
    pub(crate) ended: OwnedFd,
}

impl LauncherProcess {
    /// Finds the process to watch: Open MPI's mpirun. `None` if there is nothing to watch, or if the kernel is too old
    /// for pidfds.
    pub fn find(env: Env<'_>) -> Option<Self> {
        env("OMPI_COMM_WORLD_SIZE")?;
        let parent = getppid()?;
        match pidfd_open(parent, PidfdFlags::empty()) {
            Ok(ended) => Some(Self {
                pid: parent.as_raw_nonzero().get(),
                ended,
            }),
            Err(error) => {
                log::debug!("cannot watch the launcher, process {parent:?}: {error}");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Interest, wait_for};
    use std::time::Duration;

    #[test]
    fn only_mpirun_of_open_mpi_is_watched() {
        assert!(LauncherProcess::find(&|_| None).is_none());
        let mpirun = |name: &str| (name == "OMPI_COMM_WORLD_SIZE").then(|| "2".to_owned());
        // `find` fails on a kernel without pidfds.
        let Some(launcher) = LauncherProcess::find(&mpirun) else {
            println!("skip: this kernel has no descriptors of processes");
            return;
        };
        let ready = wait_for(&[Interest::read(&launcher.ended)], Duration::from_millis(1));
        assert_eq!(ready.unwrap(), [false]);
    }
}

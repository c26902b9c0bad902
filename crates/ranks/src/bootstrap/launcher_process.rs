//! The process that started this rank, where nobody else ends the rank when that one is killed.
//!
//! mpirun of Open MPI starts the ranks of its own host itself, and leaves them behind when it is killed: nothing in
//! them hears of its end. The proxies of MPICH outlive the command and end theirs. A rank that was started by hand may
//! well outlive its shell. The signal that the kernel sends at a parent's death is no way: it comes when the *thread*
//! that started the rank ends, which need not stay as long as its process.

use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, getppid, pidfd_open};

use super::variables::Env;

/// A launcher that must not end before this rank.
#[derive(Debug)]
pub struct LauncherProcess {
    /// Its number.
    pub(crate) pid: i32,
    /// Readable when it has ended.
    pub(crate) ended: OwnedFd,
}

impl LauncherProcess {
    /// The process to watch: mpirun of Open MPI; `None` where it need not or, on an old kernel, cannot be watched.
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
        // A kernel without such descriptors has nothing to look at.
        let Some(launcher) = LauncherProcess::find(&mpirun) else {
            println!("skip: this kernel has no descriptors of processes");
            return;
        };
        let ready = wait_for(&[Interest::read(&launcher.ended)], Duration::from_millis(1));
        assert_eq!(ready.unwrap(), [false]);
    }
}

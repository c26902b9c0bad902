//! What belongs to one set of hosts on this machine, and its removal, whatever happens.
//!
//! A set has a folder /run/tonnage-hosts/PID-NUMBER, and network namespaces whose names begin with tonnage-PID-NUMBER-.
//! Everything of the set lives in these two, so that whoever knows the name can remove it. That is done by the guardian, a
//! shell with `clean.sh` in a process group of its own. It waits for the end of a pipe that only the owner holds: it is
//! closed when [`Slot`] is dropped, and by the kernel when the owner ends in any other way, even by SIGKILL.
//!
//! Owner and guardian share a lock on a file of the folder. A folder whose lock is free has lost both, and the next
//! [`Slot::claim`] removes it. A lock is not fooled by process numbers that are used again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::tool::{output, tool};
use crate::{Error, Result};

const ROOT: &str = "/run/tonnage-hosts";
const CLEAN: &str = include_str!("clean.sh");

/// The folder and the names of one set of hosts, under a guardian.
#[derive(Debug)]
pub(crate) struct Slot {
    name: String,
    folder: PathBuf,
    /// `None` once everything is removed.
    guardian: Option<Child>,
}

impl Slot {
    /// A new one, after leftovers of others have been removed.
    ///
    /// # Errors
    /// [`Error::Failed`] when the folder cannot be made, or leftovers resist.
    pub(crate) fn claim() -> Result<Self> {
        fs::create_dir_all(ROOT).map_err(|error| cannot("make", Path::new(ROOT), error))?;
        let all = lock_file(&Path::new(ROOT).join("lock"))?;
        flock(&all, FlockOperation::LockExclusive)
            .map_err(|error| Error::Failed(format!("cannot lock {ROOT}/lock: {error}")))?;
        sweep()?;
        let (name, folder) = new_folder()?;
        let lock = lock_file(&folder.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            Error::Failed(format!("cannot lock {}/lock: {error}", folder.display()))
        })?;
        let guardian = clean(&folder, &name, "wait")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(lock)
            .spawn()
            .map_err(|error| Error::Failed(format!("cannot start the guardian (sh): {error}")))?;
        Ok(Self {
            name,
            folder,
            guardian: Some(guardian),
        })
    }

    /// What the names of all its network namespaces begin with.
    pub(crate) fn prefix(&self) -> String {
        prefix(&self.name)
    }

    /// Its folder, which goes with it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes everything, and waits for it.
    pub(crate) fn remove(&mut self) -> Result<()> {
        let Some(mut guardian) = self.guardian.take() else {
            return Ok(());
        };
        drop(guardian.stdin.take());
        let ended = guardian.wait();
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        // Somebody killed it, or something resisted.
        output(&mut clean(&self.folder, &self.name, "now")).map(drop)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("tonnage-hosts: something is left behind: {error}");
        }
    }
}

fn prefix(name: &str) -> String {
    format!("tonnage-{name}-")
}

fn clean(folder: &Path, name: &str, when: &str) -> Command {
    let mut command = tool("sh");
    command
        .args(["-c", CLEAN, "tonnage-hosts"])
        .arg(folder)
        .arg(prefix(name))
        .arg(when);
    command
}

/// Removes what owners have left that are gone together with their guardians. The caller has the lock on all folders.
fn sweep() -> Result<()> {
    let entries = fs::read_dir(ROOT).map_err(|error| cannot("read", Path::new(ROOT), error))?;
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        let folder = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Without a lock file it was being removed, or never begun.
        let lock = File::open(folder.join("lock")).ok();
        let is_held = lock.as_ref().is_some_and(|lock| {
            flock(lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        });
        if !is_held {
            output(&mut clean(&folder, &name, "now"))?;
        }
    }
    Ok(())
}

fn new_folder() -> Result<(String, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let folder = Path::new(ROOT).join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((name, folder)),
            // An earlier process with this number has left it, and its guardian is at work.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot("make", &folder, error)),
        }
    }
}

fn lock_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| cannot("open", path, error))
}

fn cannot(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::Failed(format!("cannot {what} {}: {error}", path.display()))
}

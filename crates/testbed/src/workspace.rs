//! The folder and namespaces of one set of hosts on this machine, and their guaranteed removal.
//!
//! A set has a folder /run/tonnage-testbed/PID-NUMBER, and network namespaces with the prefix tonnage-PID-NUMBER-.
//! Nothing of the set lives outside these two, so any process that knows the set's name can remove it.
//!
//! The guardian removes the set when its owner ends. It is a shell that runs `clean.sh` in a process group of its own,
//! and waits until a pipe is closed that only the owner holds. Dropping [`Workspace`] closes the pipe; if the owner
//! ends in any other way, even by SIGKILL, the kernel closes it.
//!
//! Owner and guardian share a lock on a file in the folder. If the lock is free, both have ended, and the next
//! [`Workspace::claim`] removes the folder. A process ID would not do, because the kernel reuses it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::tool::{output, tool};
use crate::{Error, Result};

const ROOT: &str = "/run/tonnage-testbed";
/// Longest wait for other processes to remove leftovers. Removing one set takes at most six seconds, and more than a
/// few sets are rare.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
const CLEAN: &str = include_str!("clean.sh");

/// The folder and the namespaces of one set of hosts, and the guardian that removes them.
#[derive(Debug)]
pub(crate) struct Workspace {
    name: String,
    folder: PathBuf,
    /// `None` once everything is removed.
    guardian: Option<Child>,
    /// The lock is held as long as this value lives, even if the guardian is killed.
    _lock: File,
}

impl Workspace {
    /// Creates a workspace, after removing leftovers of other processes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nothing can be created under /run. [`Error::Failed`] if another process does not
    /// release the lock in time.
    pub(crate) fn claim() -> Result<Self> {
        fs::create_dir_all(ROOT)
            .map_err(|error| Error::Unavailable(format!("cannot make {ROOT}: {error}")))?;
        let all = lock_file(&Path::new(ROOT).join("lock"))?;
        lock_within(&all, LOCK_TIMEOUT)?;
        for error in sweep()? {
            eprintln!("tonnage-testbed: cannot remove another set's leftovers: {error}");
        }
        let (name, folder) = new_folder()?;
        let lock = lock_file(&folder.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            Error::Failed(format!("cannot lock {}/lock: {error}", folder.display()))
        })?;
        let failed = |error| Error::Failed(format!("cannot start the guardian (sh): {error}"));
        let guardian = clean(&folder, &name, "wait")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(lock.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            name,
            folder,
            guardian: Some(guardian),
            _lock: lock,
        })
    }

    /// Returns the name of a host's network namespace.
    pub(crate) fn host_space(&self, host: usize) -> String {
        format!("{}h{host}", prefix(&self.name))
    }

    /// Returns the name of the switch's network namespace.
    pub(crate) fn switch_space(&self) -> String {
        format!("{}switch", prefix(&self.name))
    }

    /// Returns the workspace's folder, which is removed with the workspace.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the namespaces and the folder, and waits for completion.
    pub(crate) fn remove(&mut self) -> Result<()> {
        let Some(mut guardian) = self.guardian.take() else {
            return Ok(());
        };
        drop(guardian.stdin.take());
        let ended = guardian.wait();
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        // If the guardian was killed or could not remove something, this process removes the rest.
        output(&mut clean(&self.folder, &self.name, "now")).map(drop)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("tonnage-testbed: cannot remove everything: {error}");
        }
    }
}

/// Returns the prefix of all network namespaces of a set.
fn prefix(name: &str) -> String {
    format!("tonnage-{name}-")
}

fn clean(folder: &Path, name: &str, when: &str) -> Command {
    let mut command = tool("sh");
    command
        .args(["-c", CLEAN, "tonnage-testbed"])
        .arg(folder)
        .arg(prefix(name))
        .arg(when);
    command
}

/// Takes the lock on all folders. A process holds it while it removes leftovers.
fn lock_within(all: &File, timeout: Duration) -> Result<()> {
    let until = Instant::now() + timeout;
    loop {
        match flock(all, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Failed(format!(
                    "another process has held {ROOT}/lock for {timeout:.0?}: `fuser {ROOT}/lock` shows which one"
                )));
            }
            Err(error) => return Err(Error::Failed(format!("cannot lock {ROOT}/lock: {error}"))),
        }
    }
}

/// Removes sets if both their owner and their guardian have ended. A set that cannot be removed does not prevent the
/// removal of others; its error is returned. The caller holds the lock on all folders.
fn sweep() -> Result<Vec<Error>> {
    let mut resisted = Vec::new();
    for name in names()? {
        let folder = Path::new(ROOT).join(&name);
        // A set without a lock file was interrupted during its creation or removal.
        let lock = File::open(folder.join("lock")).ok();
        let is_held = lock.as_ref().is_some_and(|lock| {
            flock(lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        });
        if !is_held {
            resisted.extend(output(&mut clean(&folder, &name, "now")).err());
        }
    }
    Ok(resisted)
}

/// Returns the names of all sets on this machine, from their folders and their namespaces. If an owner was killed
/// during creation, its namespace may exist without a folder.
fn names() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let folders = fs::read_dir(ROOT).map_err(|error| cannot("read", Path::new(ROOT), error))?;
    for entry in folders.flatten() {
        names.extend(entry.file_name().to_str().and_then(name_of));
    }
    // The first namespace creates /run/netns, so the folder may be missing.
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let space = file_name
            .to_str()
            .and_then(|name| name.strip_prefix("tonnage-"));
        let name = space.and_then(|space| space.rsplit_once('-'));
        names.extend(name.and_then(|(name, _)| name_of(name)));
    }
    Ok(names)
}

/// Accepts only names that [`new_folder`] can create.
fn name_of(text: &str) -> Option<String> {
    let (pid, number) = text.split_once('-')?;
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    (is_number(pid) && is_number(number)).then(|| text.to_owned())
}

fn new_folder() -> Result<(String, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let folder = Path::new(ROOT).join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((name, folder)),
            // The guardian of an earlier process with the same ID is still removing this folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_held_lock_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let kept = lock_file(&path).unwrap();
        lock_within(&kept, Duration::ZERO).unwrap();
        let mine = lock_file(&path).unwrap();
        let refused = lock_within(&mine, Duration::from_millis(60));
        assert!(matches!(refused, Err(Error::Failed(why)) if why.contains("has held")));
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(kept);
        });
        lock_within(&mine, Duration::from_secs(20)).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn only_names_of_sets_are_accepted() {
        assert_eq!(name_of("12-0").as_deref(), Some("12-0"));
        for other in ["lock", "12", "12-", "12-x", "a-0", "12-0-1", "../12-0"] {
            assert_eq!(name_of(other), None, "{other}");
        }
    }
}

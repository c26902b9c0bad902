//! Removes the files of the provider shm in /dev/shm, and checks that there is room for them. The provider itself
//! deletes its files only on an orderly close.
//!
//! The endpoint "fi_shm://PID:UID:NUMBER" has the file PID:UID:NUMBER, which each peer maps at first contact. After
//! that, the file needs no name. So the worker removes the file, and a rank that is killed later leaves nothing. A rank
//! may still be killed before that, or during a message that has its own file (PID:UID:NUMBER_MESSAGE). The surviving
//! processes remove those files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tonnage_engine::OpenRequest;
use tonnage_sys::libfabric::{Endpoint, QueueSizes};
use tonnage_sys::process::may_copy_between_processes;
use tonnage_units::quantity::human::size;
use tonnage_units::{Error, Result};

use super::choose::{Chosen, choose};
use super::options::core_provider;

/// Directory of POSIX shared memory.
const FOLDER: &str = "/dev/shm";

/// Length of one endpoint's file with the provider's default queues. The provider does not open with less free room
/// than this length times the number of online CPUs.
const ROOM_BYTES_PER_CPU: u64 = 16 << 20;

/// Upper bound for the length of an endpoint's file, for all queue lengths that a user may choose.
const ENDPOINT_BYTES_MAX: u64 = 256 << 20;

/// Size of those pages of an endpoint's file that are touched only by messages.
const TOUCHED_LATER_BYTES: u64 = 12 << 10;

/// Variable that makes the provider copy through its file instead of directly between processes.
const NO_COPIES: &str = "FI_SHM_DISABLE_CMA";

/// Scheme of shm addresses.
const SCHEME: &str = "fi_shm://";

/// Removes the file of an endpoint that all peers have mapped. Does nothing for other providers.
pub(super) fn remove_own(name: &[u8]) {
    if let Some(file) = own_file(name) {
        remove(&file);
    }
}

/// The file of an endpoint of this process; `None` for other providers.
fn own_file(name: &[u8]) -> Option<PathBuf> {
    let name = String::from_utf8_lossy(name);
    let file = name.trim_end_matches('\0').strip_prefix(SCHEME)?;
    (owner(file) == Some(std::process::id())).then(|| Path::new(FOLDER).join(file))
}

/// Refuses endpoints if their files do not fit into the directory. The provider sets the length of its files without
/// reserving room. If a process then touches a page for which there is no room, SIGBUS ends the process.
///
/// # Errors
/// [`Error::Unavailable`] with the required and the free room.
pub(super) fn check_room(request: &OpenRequest<'_>, endpoints: u64) -> Result<()> {
    if core_provider(request.variant) != "shm" {
        return Ok(());
    }
    let Some(free_bytes) = free_bytes(Path::new(FOLDER)) else {
        return Ok(());
    };
    if free_bytes / ENDPOINT_BYTES_MAX >= endpoints {
        return Ok(());
    }
    // A missing provider or device is reported when the engine is opened.
    let Ok(chosen) = choose(request) else {
        return Ok(());
    };
    let each_bytes = match endpoint_bytes(chosen) {
        Ok(bytes) => bytes,
        Err(why) => {
            log::warn!(
                "cannot determine whether {endpoints} endpoints fit into {FOLDER}: {why}. If a SIGBUS ends a rank, \
                 make {FOLDER} larger"
            );
            return Ok(());
        }
    };
    fits(each_bytes.saturating_mul(endpoints), endpoints, free_bytes)
}

fn fits(bytes: u64, endpoints: u64, free_bytes: u64) -> Result<()> {
    if bytes <= free_bytes {
        return Ok(());
    }
    let gib = bytes.div_ceil(1 << 30);
    Err(Error::Unavailable {
        what: "fabric:shm".to_owned(),
        why: format!(
            "the {endpoints} endpoints of this host's ranks take {} in {FOLDER}, which has {} free",
            size(bytes),
            size(free_bytes)
        ),
        how: format!(
            "Make it larger (docker run --shm-size={gib}g, mount -o remount,size={gib}g {FOLDER}), use fewer \
             --threads, --queue-pairs or ranks, or use engine shm, which does not need it"
        ),
    })
}

/// Room that one endpoint needs. It depends on the release, so a trial endpoint is opened.
///
/// # Errors
/// Why the room is unknown.
fn endpoint_bytes(chosen: Chosen) -> Result<u64, String> {
    let info = chosen.infos.into_iter().next();
    let info = info.ok_or("libfabric offers no device")?;
    // Long messages go through the file unless processes can copy directly, which is never possible for GPU memory.
    let copies = !info.has_device_memory()
        && std::env::var_os(NO_COPIES).is_none()
        && may_copy_between_processes();
    let sizes = QueueSizes {
        operations: 1,
        receives: 1,
        peers: 1,
    };
    let endpoint = Endpoint::open(info, sizes, false)?;
    let path = own_file(endpoint.name()).ok_or("its endpoint names no file")?;
    let file = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(match copies {
        true => 512 * file.blocks() + TOUCHED_LATER_BYTES,
        false => file.len(),
    })
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Returns why the provider cannot create its files, or `None` if the system shows no reason.
pub(super) fn problem() -> Option<String> {
    let cpus = tonnage_machine::Topology::read().cpus.len() as u64;
    problem_in(Path::new(FOLDER), cpus * ROOM_BYTES_PER_CPU)
}

fn problem_in(folder: &Path, room_bytes: u64) -> Option<String> {
    let shown = folder.display();
    let trial = folder.join(format!("tonnage-trial-{}", std::process::id()));
    let made = fs::File::create_new(&trial);
    if made.is_ok() {
        remove(&trial);
    }
    if let Err(error) = made {
        return Some(format!("no file can be created in {shown} ({error})"));
    }
    let free_bytes = free_bytes(folder)?;
    let words = || {
        let (free, needed) = (size(free_bytes), size(room_bytes));
        format!("{shown} has only {free} free, but {needed} are needed on this host")
    };
    (free_bytes < room_bytes).then(words)
}

/// Removes the files left by a killed process of this user.
pub(super) fn clean_up_after(pid: u32) {
    clean_up_in(Path::new(FOLDER), pid);
}

fn clean_up_in(folder: &Path, pid: u32) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(owner) == Some(pid) {
            remove(&entry.path());
        }
    }
}

/// The process that owns this file; `None` if it is not the file of an shm endpoint of this user.
fn owner(file: &str) -> Option<u32> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (endpoint, message) = match file.split_once('_') {
        Some((endpoint, message)) => (endpoint, Some(message)),
        None => (file, None),
    };
    let parts: Vec<&str> = endpoint.split(':').collect();
    let [pid, uid, number] = parts.as_slice() else {
        return None;
    };
    let own = rustix::process::getuid().as_raw().to_string();
    let good = *uid == own && is_number(number) && message.is_none_or(is_number);
    (good && is_number(pid)).then(|| pid.parse().ok()).flatten()
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        // The owning process has removed the file in an orderly exit.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("cannot remove {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_or_full_directory_is_a_problem() {
        let missing = problem_in(Path::new("/proc/self/none"), 0).unwrap();
        assert!(missing.starts_with("no file can be created in /proc/self/none ("));
        assert_eq!(problem_in(&std::env::temp_dir(), 0), None);
        let problem = problem_in(&std::env::temp_dir(), u64::MAX).unwrap();
        assert!(problem.contains(" has only "), "{problem}");
    }

    #[test]
    fn endpoints_beyond_the_room_are_refused_with_both_figures() {
        assert!(fits(64 << 20, 16, 64 << 20).is_ok());
        let refused = fits((64 << 20) + 1, 16, 64 << 20).unwrap_err().to_string();
        for part in [
            "the 16 endpoints",
            "take 64.0 MiB",
            "has 64 MiB free",
            "--shm-size=1g",
        ] {
            assert!(refused.contains(part), "no {part:?} in {refused}");
        }
        let refused = fits(5 << 30, 512, 64 << 20).unwrap_err().to_string();
        assert!(refused.contains("--shm-size=5g"), "{refused}");
    }

    #[test]
    fn only_files_of_that_process_are_removed() {
        let folder = std::env::temp_dir().join(format!("tonnage-files-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let uid = rustix::process::getuid().as_raw();
        let other = uid + 1;
        let own = [format!("77:{uid}:0"), format!("77:{uid}:12_345")];
        let kept = [
            format!("78:{uid}:0"),
            format!("77:{other}:0"),
            format!("77:{uid}:x"),
            format!("77:{uid}:0_"),
            format!("77:{uid}"),
            "psm_77".to_owned(),
        ];
        for name in own.iter().chain(&kept) {
            fs::write(folder.join(name), "").unwrap();
        }
        clean_up_in(&folder, 77);
        let left: Vec<bool> = own.iter().map(|name| folder.join(name).exists()).collect();
        let all_kept = kept.iter().all(|name| folder.join(name).exists());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, [false, false]);
        assert!(all_kept);
    }
}

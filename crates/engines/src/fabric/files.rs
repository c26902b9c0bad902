//! The files of the provider shm in /dev/shm, which it removes only when it is closed.
//!
//! An endpoint of the address "fi_shm://PID:UID:NUMBER" is the file PID:UID:NUMBER, which each peer maps at first
//! contact. After that nobody needs its name any more, so the worker itself removes it and a rank that is killed leaves
//! nothing. What a rank leaves that is killed before that, or in the middle of a message that needs a file of its own
//! (PID:UID:NUMBER_MESSAGE), is removed by whoever is left.

use std::fs;
use std::path::Path;

use tonnage_units::quantity::human::size;

/// Folder of POSIX shared memory.
const FOLDER: &str = "/dev/shm";

/// With less room than this the provider may refuse to open: it takes some MiB for each endpoint.
const ROOM_BYTES: u64 = 64 << 20;

/// Scheme of an address of shm.
const SCHEME: &str = "fi_shm://";

/// Removes the file of an endpoint that all its peers have mapped; nothing for other providers.
pub(super) fn remove_own(name: &[u8]) {
    let name = String::from_utf8_lossy(name);
    let Some(file) = name.trim_end_matches('\0').strip_prefix(SCHEME) else {
        return;
    };
    if owner(file) == Some(std::process::id()) {
        remove(&Path::new(FOLDER).join(file));
    }
}

/// Says what keeps the provider from making its files, as far as the system tells; `None` when nothing does.
pub(super) fn trouble() -> Option<String> {
    trouble_in(Path::new(FOLDER))
}

fn trouble_in(folder: &Path) -> Option<String> {
    let shown = folder.display();
    let trial = folder.join(format!("tonnage-trial-{}", std::process::id()));
    let made = fs::File::create_new(&trial);
    if made.is_ok() {
        remove(&trial);
    }
    if let Err(error) = made {
        return Some(format!("no file can be made in {shown} ({error})"));
    }
    let room = rustix::fs::statvfs(folder).ok()?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    (free_bytes < ROOM_BYTES).then(|| format!("{shown} has only {} free", size(free_bytes)))
}

/// Removes what a process of this user that was killed has left.
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

/// The process whose file this is; `None` for files of others than this user's shm endpoints.
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
        // Its process was just ending in order.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => log::warn!("cannot remove {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_takes_no_file_is_trouble() {
        let missing = trouble_in(Path::new("/proc/self/none")).unwrap();
        assert!(missing.starts_with("no file can be made in /proc/self/none ("));
        let trouble = trouble_in(&std::env::temp_dir());
        assert!(trouble.is_none_or(|text| text.contains(" has only ")));
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

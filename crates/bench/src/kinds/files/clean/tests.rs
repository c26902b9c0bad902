use super::*;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::kinds::files::testing::point;
use tonnage_loops::files::stamp::{FileKey, SECTOR_BYTES};

/// Content of a file with `sectors` sectors, as this program would write it.
pub fn stamped(number: u32, sectors: u64) -> Vec<u8> {
    let sector = |index: u64| {
        let mut bytes = FileKey::new(5, number).stamp(index * SECTOR_BYTES).to_vec();
        bytes.resize(SECTOR_BYTES as usize, 7);
        bytes
    };
    (0..sectors).flat_map(sector).collect()
}

/// Returns a point of one rank with a file of 4 KiB, the list of created files, and the file's path.
fn made(directory: &Path, keep: bool) -> (FilePoint, CreatedFiles, PathBuf) {
    let mut point = point(1);
    (point.block_bytes, point.segments, point.keep) = (4096, 1, keep);
    point.paths = vec![directory.join("7/a").display().to_string()];
    let mut made = CreatedFiles::default();
    made.create_directory(&directory.join("7")).unwrap();
    made.record_planned(&point, 0, 0);
    let path = path_of(&point, 0, 0);
    (point, made, path)
}

#[test]
fn only_files_of_this_run_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (_, mut all, own) = made(directory.path(), false);
    let other = directory.path().join("b");
    fs::write(&own, stamped(0, 8)).unwrap();
    fs::write(&other, stamped(0, 8)).unwrap();
    let left = all.remove([own.clone(), other.clone()]).unwrap();
    assert!(left.is_empty() && other.exists());
    assert!(!own.exists() && !directory.path().join("7").exists());
    let (_, mut all, own) = made(directory.path(), true);
    fs::write(&own, stamped(0, 8)).unwrap();
    all.record_written(&own);
    all.remove_all();
    assert!(own.exists());
    all.remove([own.clone()]).unwrap();
    assert!(!own.exists());
}

/// What is known about a file before it is removed, and who removes it.
#[derive(Debug, Clone, Copy)]
enum Known {
    Nothing,
    Opened,
    Written,
    ByNeighbour,
    BySupervisor,
}

/// Creates a file and records only `known` about it. Then `change` modifies it, and this run's files are removed.
/// Returns the message about a file that was left.
fn left(directory: &Path, change: &dyn Fn(&Path), known: Known) -> String {
    let ledgers = tempfile::tempfile().unwrap();
    let ledger = |rank| Ledger::new(ledgers.try_clone().unwrap(), rank, 0);
    let (point, mut all, own) = made(directory, false);
    all.keep_ledger(Some(&ledger(0)));
    all.record_planned(&point, 0, 0);
    fs::write(&own, stamped(0, 8)).unwrap();
    match known {
        Known::Nothing => {}
        Known::Written => all.record_written(&own),
        Known::Opened | Known::ByNeighbour | Known::BySupervisor => {
            all.pending_id(&own).unwrap().set(None);
        }
    }
    match known {
        Known::ByNeighbour => {
            all = made(directory, false).1;
            all.keep_ledger(Some(&ledger(1)));
            all.record_planned(&point, 1, 0);
            all.ask_neighbours();
        }
        Known::BySupervisor => all = CreatedFiles::of_dead_rank(&ledgers, 0),
        _ => {}
    }
    change(&own);
    let left = all.remove([own.clone()]).unwrap();
    assert_eq!(left.len(), usize::from(own.exists()), "{left:?}");
    let _ = fs::remove_file(&own);
    left.concat()
}

#[test]
fn files_changed_by_others_are_left() {
    let directory = tempfile::tempdir().unwrap();
    let left = |change: &dyn Fn(&Path), known| left(directory.path(), change, known);
    for noted in [
        Known::Nothing,
        Known::Opened,
        Known::Written,
        Known::ByNeighbour,
        Known::BySupervisor,
    ] {
        let letters = |path: &Path| {
            let other = path.with_file_name("letters");
            fs::write(&other, "somebody's letters").unwrap();
            fs::rename(other, path).unwrap();
        };
        assert!(left(&letters, noted).contains("was left"));
        let append = |path: &Path| {
            let file = OpenOptions::new().append(true).open(path);
            file.unwrap().write_all(b"notes").unwrap();
        };
        assert!(left(&append, noted).contains("4101 bytes"));
        let overwrite = |path: &Path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"notes", 512).unwrap();
        };
        assert!(left(&overwrite, noted).contains("offset 512"));
        assert_eq!(left(&|_| (), noted), "");
        // A file of zeros may be the result of an order that was cut short, so it is removed.
        let cut = |path: &Path| fs::write(path, vec![0; 4096]).unwrap();
        assert_eq!(left(&cut, noted), "");
    }
    // If another process replaces the file with a copy, the copy belongs to that process.
    let copy = |path: &Path| {
        let other = path.with_file_name("copy");
        fs::copy(path, &other).unwrap();
        fs::rename(other, path).unwrap();
    };
    for known in [
        Known::Opened,
        Known::Written,
        Known::ByNeighbour,
        Known::BySupervisor,
    ] {
        assert!(
            left(&copy, known).contains("not the file that this run made"),
            "{known:?}"
        );
    }
}

/// Before files are removed after a failed run, they are checked as completely as after a successful one. Data of other
/// programs is found anywhere in a file. A file that replaced this run's file is found too.
#[test]
fn data_of_others_is_left_after_a_failure_too() {
    let directory = tempfile::tempdir().unwrap();
    let begun = |change: &dyn Fn(&Path), ends: bool| {
        let (_, mut all, own) = made(directory.path(), false);
        all.files.get_mut(&own).unwrap().bytes_max = 1 << 20;
        fs::write(&own, stamped(0, 2048)).unwrap();
        all.pending_id(&own).unwrap().set(None);
        change(&own);
        if ends {
            all.record_written(&own);
        }
        all.clone().remove_all();
        let is_left = own.exists();
        let _ = fs::remove_file(&own);
        is_left
    };
    let overwrite = |path: &Path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"somebody's letters", 768 << 10).unwrap();
    };
    assert!(begun(&overwrite, false));
    assert!(!begun(&|_| (), false));
    let replace = |path: &Path| {
        fs::write(path.with_file_name("copy"), stamped(0, 8)).unwrap();
        fs::rename(path.with_file_name("copy"), path).unwrap();
    };
    assert!(begun(&replace, false) && begun(&replace, true));
    assert!(!begun(&|_| (), true));
}

/// When time is up, removing files after a short check is better than leaving them.
#[test]
fn only_beginnings_are_checked_once_time_is_up() {
    let directory = tempfile::tempdir().unwrap();
    let is_left = |at: u64, hurry: Instant| {
        let (_, mut all, own) = made(directory.path(), false);
        all.files.get_mut(&own).unwrap().bytes_max = 1 << 20;
        fs::write(&own, stamped(0, 2048)).unwrap();
        let file = OpenOptions::new().write(true).open(&own).unwrap();
        file.write_all_at(b"somebody's letters", at).unwrap();
        let left = all.remove_after([own.clone()], Some(hurry)).unwrap();
        let _ = fs::remove_file(&own);
        !left.is_empty()
    };
    let (over, late) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    assert!(is_left(512, over));
    assert!(!is_left(768 << 10, over));
    assert!(is_left(768 << 10, late));
}

/// From the ledger, the supervisor removes the files that a dead rank left, but no replacement with the same name.
#[test]
fn files_of_a_dead_rank_are_removed_by_its_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let ledgers = tempfile::tempfile().unwrap();
    let ledger = Ledger::new(ledgers.try_clone().unwrap(), 0, 0);
    let begin = |keep: bool| {
        let (point, mut all, own) = made(directory.path(), keep);
        all.directories.clear();
        fs::remove_dir(own.parent().unwrap()).unwrap();
        all.keep_ledger(Some(&ledger));
        all.create_directory(own.parent().unwrap()).unwrap();
        all.record_planned(&point, 0, 0);
        fs::write(&own, stamped(0, 8)).unwrap();
        all.pending_id(&own).unwrap().set(None);
        (all, own)
    };
    let (_, own) = begin(false);
    CreatedFiles::of_dead_rank(&ledgers, 0).remove_all();
    assert!(!own.parent().unwrap().exists());
    // Files to keep are not removed, and neither is another user's directory.
    ledger.clear();
    let (_, own) = begin(true);
    CreatedFiles::of_dead_rank(&ledgers, 0).remove_all();
    assert!(own.exists());
    fs::remove_file(&own).unwrap();
    let (_, own) = begin(false);
    fs::rename(own.parent().unwrap(), directory.path().join("moved")).unwrap();
    fs::create_dir(own.parent().unwrap()).unwrap();
    CreatedFiles::of_dead_rank(&ledgers, 0).remove_all();
    assert!(own.parent().unwrap().exists());
    // When a rank has removed its own files, it clears its ledger.
    ledger.clear();
    let (mut all, own) = begin(false);
    all.remove([own.clone()]).unwrap();
    assert_eq!(ledger.entries_of(0), []);
}

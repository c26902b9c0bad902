//! The engine on real files, on the disk of the build directory and in memory.

use serde_json::json;
use std::fs::File;
use std::path::Path;

use tempfile::TempDir;
use tonnage_sys::files::direct::{DirectIo, direct_io};
use tonnage_sys::files::residency::resident_bytes;
use tonnage_sys::files::{advice, file_system};
use tonnage_sys::mapping::{Pages, Sharing};

use super::*;

fn on_disk() -> TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn in_memory() -> Option<TempDir> {
    let place = Path::new("/dev/shm");
    let memory = file_system::of_path(place).is_ok_and(|found| found.memory);
    memory.then(|| tempfile::tempdir_in(place).unwrap())
}

const SIZE: u64 = 1 << 20;

fn engine(direct: bool) -> (Arc<Arena>, Box<dyn FileCalls>) {
    let memory = Arena::allocate(SIZE as usize, Pages::Normal, Sharing::Private, None).unwrap();
    let memory = Arc::new(memory);
    let domain = PosixDomain {
        how: OpenMode {
            direct,
            access_time: false,
        },
    };
    assert_eq!(json!(domain.report())["direct"], direct);
    let calls = domain.thread(0, Arc::clone(&memory)).unwrap();
    (memory, calls)
}

fn open(file: u32, path: &Path, write: bool) -> FileCall<'_> {
    FileCall::Open(OpenFile {
        file,
        path,
        read: true,
        write,
        create: write && !path.exists(),
        shared: false,
        view: None,
    })
}

fn transfer(local: u64, offset: u64, len: u64) -> FileTransfer {
    FileTransfer {
        file: 0,
        local,
        offset,
        len,
    }
}

fn refused(calls: &mut dyn FileCalls, call: &FileCall<'_>) -> String {
    calls.call(call).unwrap_err().to_string()
}

fn goes_round(folder: &TempDir) {
    let (memory, mut calls) = engine(false);
    let path = folder.path().join("t.dat");
    calls.call(&open(3, &path, true)).unwrap();
    memory.write(100, b"tonnage").unwrap();
    let to = |local, offset, len| FileTransfer {
        file: 3,
        ..transfer(local, offset, len)
    };
    assert_eq!(calls.call(&FileCall::Write(to(100, 70_000, 7))).unwrap(), 7);
    assert_eq!(calls.call(&FileCall::Write(to(0, 0, 0))).unwrap(), 0);
    assert_eq!(calls.call(&FileCall::Sync { file: 3 }).unwrap(), 0);
    assert_eq!(calls.call(&FileCall::Close { file: 3 }).unwrap(), 0);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(&content[70_000..], b"tonnage");
    assert!(content[..70_000].iter().all(|&byte| byte == 0));
    // Opening an existing file does not change or truncate it.
    calls.call(&open(3, &path, true)).unwrap();
    assert_eq!(calls.call(&FileCall::Read(to(500, 69_999, 8))).unwrap(), 8);
    let mut bytes = [0xee; 10];
    memory.read(499, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0tonnage\0");
    assert!(json!(calls.chosen())["direct"].is_null());
    // The test owns its files, so the access time is not updated.
    assert_eq!(json!(calls.chosen())["atime"], "off");
}

#[test]
fn bytes_make_a_round_trip_on_a_disk_and_in_memory() {
    goes_round(&on_disk());
    match in_memory() {
        Some(folder) => goes_round(&folder),
        None => println!("skip: /dev/shm is not in memory"),
    }
}

#[test]
fn a_file_that_is_too_short_is_named_with_its_end() {
    let folder = on_disk();
    let path = folder.path().join("short");
    std::fs::write(&path, [1; 100]).unwrap();
    let (_memory, mut calls) = engine(false);
    calls.call(&open(0, &path, false)).unwrap();
    for (offset, said) in [
        (60, "short ends at 100: cannot read 64 bytes at offset 60"),
        (4096, "ends at 4096"),
    ] {
        let text = refused(calls.as_mut(), &FileCall::Read(transfer(0, offset, 64)));
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(
        calls.call(&FileCall::Read(transfer(0, 36, 64))).unwrap(),
        64
    );
}

#[test]
fn a_failed_open_reports_the_reason_and_advice() {
    let folder = on_disk();
    let (_memory, mut calls) = engine(false);
    let missing = folder.path().join("missing");
    let nowhere = folder.path().join("no/t.dat");
    for (path, write, words) in [
        (
            missing.as_path(),
            false,
            "missing for reading: No such file",
        ),
        (missing.as_path(), false, "Write it first"),
        (nowhere.as_path(), true, "Create its directory first"),
        (folder.path(), true, "is a directory"),
        (folder.path(), false, "Name a regular file"),
        (Path::new("/dev/null"), false, "it is a device"),
    ] {
        let text = refused(calls.as_mut(), &open(0, path, write));
        assert!(text.contains(words), "{text}");
    }
    // After a failed open, the file number is unused.
    calls.call(&open(0, &missing, true)).unwrap();
    let made = FileCall::Open(OpenFile {
        file: 1,
        path: &missing,
        read: false,
        write: true,
        create: true,
        shared: false,
        view: None,
    });
    let made = refused(calls.as_mut(), &made);
    assert!(made.contains("Another process created it"), "{made}");
}

#[test]
fn unopened_file_numbers_are_refused() {
    let folder = on_disk();
    let path = folder.path().join("t.dat");
    let (_memory, mut calls) = engine(false);
    for call in [
        FileCall::Read(transfer(0, 0, 1)),
        FileCall::Write(transfer(0, 0, 1)),
        FileCall::Sync { file: 0 },
        FileCall::Close { file: 0 },
    ] {
        assert_eq!(refused(calls.as_mut(), &call), "file 0 is not open");
    }
    calls.call(&open(0, &path, true)).unwrap();
    assert!(refused(calls.as_mut(), &open(0, &path, true)).contains("open already"));
    assert!(refused(calls.as_mut(), &open(u32::MAX, &path, true)).contains("file number"));
    calls.call(&FileCall::Close { file: 0 }).unwrap();
    assert_eq!(
        refused(calls.as_mut(), &FileCall::Close { file: 0 }),
        "file 0 is not open"
    );
}

#[test]
fn ranges_outside_the_memory_are_refused_and_nothing_is_written() {
    let folder = on_disk();
    let path = folder.path().join("t.dat");
    let (_memory, mut calls) = engine(false);
    calls.call(&open(0, &path, true)).unwrap();
    for (local, len) in [(SIZE, 1), (0, SIZE + 1), (u64::MAX, 2)] {
        let text = refused(calls.as_mut(), &FileCall::Write(transfer(local, 0, len)));
        assert!(text.contains("lie outside a memory"), "{text}");
        assert!(
            calls
                .call(&FileCall::Read(transfer(local, 0, len)))
                .is_err()
        );
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn direct_transfers_leave_nothing_in_the_page_cache() {
    let folder = on_disk();
    let path = folder.path().join("t.dat");
    std::fs::write(&path, vec![9; SIZE as usize]).unwrap();
    let plain = File::options().read(true).write(true).open(&path).unwrap();
    let said = direct_io(&plain).unwrap();
    let DirectIo::Supported(alignment) = said else {
        return println!("skip: direct I/O in the build folder is {said:?}");
    };
    advice::drop_cached(&plain).unwrap();
    let (memory, mut calls) = engine(true);
    calls.call(&open(0, &path, true)).unwrap();
    let unit = u64::from(alignment.offset_bytes);
    assert_eq!(json!(calls.chosen())["direct"]["offset_bytes"], unit);
    assert_eq!(json!(calls.chosen())["direct"]["said_by"], "statx");
    memory.write(4096, &[5; 4096]).unwrap();
    calls
        .call(&FileCall::Write(transfer(4096, unit, 4096)))
        .unwrap();
    calls
        .call(&FileCall::Read(transfer(0, 0, SIZE - 4096)))
        .unwrap();
    assert_eq!(memory.load_byte(unit), Ok(5));
    assert_eq!(memory.load_byte(unit - 1), Ok(9));
    assert_eq!(resident_bytes(&plain, 0, SIZE).unwrap().bytes, 0);
    for bad in [
        transfer(1, 0, unit),
        transfer(0, 1, unit),
        transfer(0, 0, unit - 1),
    ] {
        let refused = calls.call(&FileCall::Read(bad)).unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        assert!(refused.to_string().contains("--direct"), "{refused}");
    }
    plain.set_len(SIZE - 100).unwrap();
    let text = refused(
        calls.as_mut(),
        &FileCall::Read(transfer(0, SIZE - unit, unit)),
    );
    assert!(text.contains(&format!("ends at {}", SIZE - 100)), "{text}");
}

#[test]
fn direct_io_is_refused_if_it_would_be_ignored() {
    let Some(folder) = in_memory() else {
        return println!("skip: /dev/shm is not in memory");
    };
    let path = folder.path().join("t.dat");
    let (_memory, mut calls) = engine(true);
    let refused = calls.call(&open(0, &path, true)).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains("tmpfs"), "{refused}");
    assert!(!path.exists());
    std::fs::write(&path, b"kept").unwrap();
    assert!(calls.call(&open(0, &path, true)).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
}

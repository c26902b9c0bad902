//! The engine on real files, on the disk that holds the build folder and in memory.

use serde_json::json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tonnage_sys::files::direct::{DirectIo, direct_io};
use tonnage_sys::files::residency::resident_bytes;
use tonnage_sys::files::{advice, file_system};
use tonnage_sys::mapping::{Pages, Sharing};

use super::*;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A folder for one test, which is removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn on_disk() -> Self {
        let program = std::env::current_exe().unwrap();
        Self::within(program.parent().unwrap())
    }

    fn in_memory() -> Option<Self> {
        let place = Path::new("/dev/shm");
        let memory = file_system::of_path(place).is_ok_and(|found| found.memory);
        memory.then(|| Self::within(place))
    }

    fn within(place: &Path) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tonnage-posix-{}-{number}", std::process::id());
        let folder = Self(place.join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SIZE: u64 = 1 << 20;

fn engine(direct: bool) -> (Arc<Arena>, Box<dyn Calls>) {
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

fn open(file: u32, path: &Path, write: bool) -> Call<'_> {
    Call::Open(OpenFile {
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

fn refused(calls: &mut dyn Calls, call: &Call<'_>) -> String {
    calls.call(call).unwrap_err().to_string()
}

fn goes_round(folder: &Folder) {
    let (memory, mut calls) = engine(false);
    let path = folder.path("t.dat");
    calls.call(&open(3, &path, true)).unwrap();
    memory.write(100, b"tonnage").unwrap();
    let to = |local, offset, len| FileTransfer {
        file: 3,
        ..transfer(local, offset, len)
    };
    assert_eq!(calls.call(&Call::Write(to(100, 70_000, 7))).unwrap(), 7);
    assert_eq!(calls.call(&Call::Write(to(0, 0, 0))).unwrap(), 0);
    assert_eq!(calls.call(&Call::Sync { file: 3 }).unwrap(), 0);
    assert_eq!(calls.call(&Call::Close { file: 3 }).unwrap(), 0);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(&content[70_000..], b"tonnage");
    assert!(content[..70_000].iter().all(|&byte| byte == 0));
    // What is there is opened as it is, never emptied.
    calls.call(&open(3, &path, true)).unwrap();
    assert_eq!(calls.call(&Call::Read(to(500, 69_999, 8))).unwrap(), 8);
    let mut bytes = [0xee; 10];
    memory.read(499, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0tonnage\0");
    assert!(json!(calls.chosen())["direct"].is_null());
    // The test owns its files.
    assert_eq!(json!(calls.chosen())["atime"], "off");
}

#[test]
fn bytes_go_round_on_a_disk() {
    goes_round(&Folder::on_disk());
}

#[test]
fn bytes_go_round_in_memory() {
    match Folder::in_memory() {
        Some(folder) => goes_round(&folder),
        None => println!("skip: /dev/shm is no memory"),
    }
}

#[test]
fn a_file_that_is_too_short_is_named_with_its_end() {
    let folder = Folder::on_disk();
    let path = folder.path("short");
    std::fs::write(&path, [1; 100]).unwrap();
    let (_memory, mut calls) = engine(false);
    calls.call(&open(0, &path, false)).unwrap();
    let text = refused(calls.as_mut(), &Call::Read(transfer(0, 60, 64)));
    assert!(
        text.contains("short ends at 100: cannot read 64 bytes at offset 60"),
        "{text}"
    );
    let text = refused(calls.as_mut(), &Call::Read(transfer(0, 4096, 64)));
    assert!(text.contains("ends at 4096"), "{text}");
    assert_eq!(calls.call(&Call::Read(transfer(0, 36, 64))).unwrap(), 64);
}

#[test]
fn what_cannot_be_opened_says_why_and_what_to_do() {
    let folder = Folder::on_disk();
    let (_memory, mut calls) = engine(false);
    let missing = folder.path("missing");
    let nowhere = folder.path("no/t.dat");
    for (path, write, words) in [
        (
            missing.as_path(),
            false,
            "missing for reading: No such file",
        ),
        (missing.as_path(), false, "Write it first"),
        (nowhere.as_path(), true, "Make its directory first"),
        (folder.0.as_path(), true, "is a directory"),
        (folder.0.as_path(), false, "Name a regular file"),
        (Path::new("/dev/null"), false, "it is a device"),
    ] {
        let text = refused(calls.as_mut(), &open(0, path, write));
        assert!(text.contains(words), "{text}");
    }
    // A refusal leaves the number free.
    calls.call(&open(0, &missing, true)).unwrap();
}

/// What another user puts at the name is refused by its kind, and nothing happens to what it leads to.
#[test]
fn only_regular_files_are_opened_and_only_new_ones_made() {
    let folder = Folder::on_disk();
    let (_memory, mut calls) = engine(false);
    let (victim, path) = (folder.path("victim"), folder.path("t"));
    std::fs::write(&victim, "precious").unwrap();
    let put: [(&dyn Fn(), &str); 4] = [
        (
            &|| std::os::unix::fs::symlink(&victim, &path).unwrap(),
            "a symbolic link",
        ),
        (
            &|| std::os::unix::fs::symlink("nowhere", &path).unwrap(),
            "a symbolic link",
        ),
        (
            &|| {
                use rustix::fs::{CWD, FileType, Mode, mknodat};
                mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
            },
            "a FIFO",
        ),
        (&|| std::fs::hard_link(&victim, &path).unwrap(), ""),
    ];
    for (put, kind) in put {
        put();
        let as_asked = |read, write, create| {
            Call::Open(OpenFile {
                file: 0,
                path: &path,
                read,
                write,
                create,
                shared: false,
                view: None,
            })
        };
        let made = refused(calls.as_mut(), &as_asked(false, true, true));
        assert!(made.contains("Another process made it"), "{made}");
        for (read, write) in [(true, false), (false, true), (true, true)] {
            if kind.is_empty() {
                continue;
            }
            let text = refused(calls.as_mut(), &as_asked(read, write, false));
            assert!(text.contains("/t for ") && text.contains(kind), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!folder.path("nowhere").exists());
}

#[test]
fn numbers_of_files_that_are_not_open_are_refused() {
    let folder = Folder::on_disk();
    let path = folder.path("t.dat");
    let (_memory, mut calls) = engine(false);
    for call in [
        Call::Read(transfer(0, 0, 1)),
        Call::Write(transfer(0, 0, 1)),
        Call::Sync { file: 0 },
        Call::Close { file: 0 },
    ] {
        assert_eq!(refused(calls.as_mut(), &call), "file 0 is not open");
    }
    calls.call(&open(0, &path, true)).unwrap();
    assert!(refused(calls.as_mut(), &open(0, &path, true)).contains("open already"));
    assert!(refused(calls.as_mut(), &open(u32::MAX, &path, true)).contains("file number"));
    calls.call(&Call::Close { file: 0 }).unwrap();
    assert_eq!(
        refused(calls.as_mut(), &Call::Close { file: 0 }),
        "file 0 is not open"
    );
}

#[test]
fn memory_that_is_not_there_is_refused_and_nothing_is_written() {
    let folder = Folder::on_disk();
    let path = folder.path("t.dat");
    let (_memory, mut calls) = engine(false);
    calls.call(&open(0, &path, true)).unwrap();
    for (local, len) in [(SIZE, 1), (0, SIZE + 1), (u64::MAX, 2)] {
        let text = refused(calls.as_mut(), &Call::Write(transfer(local, 0, len)));
        assert!(text.contains("lie outside a memory"), "{text}");
        assert!(calls.call(&Call::Read(transfer(local, 0, len))).is_err());
    }
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn direct_transfers_leave_nothing_in_the_page_cache() {
    let folder = Folder::on_disk();
    let path = folder.path("t.dat");
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
        .call(&Call::Write(transfer(4096, unit, 4096)))
        .unwrap();
    calls
        .call(&Call::Read(transfer(0, 0, SIZE - 4096)))
        .unwrap();
    assert_eq!(memory.load_byte(unit), Ok(5));
    assert_eq!(memory.load_byte(unit - 1), Ok(9));
    assert_eq!(resident_bytes(&plain, 0, SIZE).unwrap().bytes, 0);
    for bad in [
        transfer(1, 0, unit),
        transfer(0, 1, unit),
        transfer(0, 0, unit - 1),
    ] {
        let refused = calls.call(&Call::Read(bad)).unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        assert!(refused.to_string().contains("--direct"), "{refused}");
    }
    plain.set_len(SIZE - 100).unwrap();
    let text = refused(calls.as_mut(), &Call::Read(transfer(0, SIZE - unit, unit)));
    assert!(text.contains(&format!("ends at {}", SIZE - 100)), "{text}");
}

#[test]
fn direct_is_refused_where_it_would_be_ignored() {
    let Some(folder) = Folder::in_memory() else {
        return println!("skip: /dev/shm is no memory");
    };
    let path = folder.path("t.dat");
    let (_memory, mut calls) = engine(true);
    let refused = calls.call(&open(0, &path, true)).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains("tmpfs"), "{refused}");
    assert!(!path.exists());
    std::fs::write(&path, b"kept").unwrap();
    assert!(calls.call(&open(0, &path, true)).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
}

//! The plays, which are short scripts of file calls. The ranks make the calls, and the launching test checks the
//! results.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tonnage_engine::calls::{
    FileCall, FileCalls, FileDomain, FileTransfer, FileView, OpenFile, OpenFiles,
};
use tonnage_engine::{BeforeJoin, Libraries};
use tonnage_engines::mpiio::ENTRY;
use tonnage_plan::files::{FileLayout, FilePoint, Fsync};
use tonnage_plan::testing::file_point;
use tonnage_ranks::{Identity, Rank, detect, meet};
use tonnage_sys::mapping::{Arena, Pages, Sharing};

const PLAYS: [&str; 5] = ["independent", "collective", "view", "hints", "wrong"];
const FOLDER: &str = "TONNAGE_TEST_FOLDER";
const SOON: Duration = Duration::from_secs(60);
const RANKS: u32 = 2;
const BLOCK: u64 = 96 << 10;
const TRANSFER: u64 = 32 << 10;
const SEGMENTS: u64 = 3;

/// Launchers, each with its package, the expected MPI library, and the library's file layer.
const LAUNCHERS: [[&str; 4]; 3] = [
    [
        "mpirun.openmpi -np 2 --bind-to none --oversubscribe",
        "openmpi-bin",
        "Open MPI",
        "OMPIO",
    ],
    [
        "mpirun.openmpi -np 2 --bind-to none --oversubscribe --mca io romio321",
        "openmpi-bin",
        "Open MPI",
        "ROMIO of Open MPI",
    ],
    ["mpiexec.mpich -np 2", "mpich", "MPICH", "ROMIO"],
];

fn point() -> FilePoint {
    FilePoint {
        engine: "mpiio".into(),
        ranks: RANKS,
        block_bytes: BLOCK,
        transfer_bytes: TRANSFER,
        segments: SEGMENTS,
        fsync: Fsync::End,
        barriers: true,
        ..file_point()
    }
}

/// One rank that runs the plays.
struct Player {
    rank: Rank,
    folder: PathBuf,
    memory: Arc<Arena>,
}

impl Player {
    fn domain(&self, point: &FilePoint) -> tonnage_units::Result<Arc<dyn FileDomain>> {
        (ENTRY.open)(&OpenFiles {
            usage: &point.usage(),
            rank: self.rank.id(),
            libraries: &Libraries::new(),
        })
    }

    fn calls(&self, point: &FilePoint) -> (Arc<dyn FileDomain>, Box<dyn FileCalls>) {
        let domain = self.domain(point).unwrap();
        let calls = domain.thread(0, Arc::clone(&self.memory)).unwrap();
        (domain, calls)
    }

    fn barrier(&mut self) {
        self.rank.barrier("play", SOON).unwrap();
    }

    /// Offsets of a rank's transfers, each with the byte that fills it.
    fn transfers(rank: u32) -> impl Iterator<Item = (u64, u8)> {
        (0..SEGMENTS).flat_map(move |segment| {
            (0..BLOCK / TRANSFER).map(move |transfer| {
                let block = segment * u64::from(RANKS) + u64::from(rank);
                let mark = 1 + rank as u8 * 100 + segment as u8 * 10 + transfer as u8;
                (block * BLOCK + transfer * TRANSFER, mark)
            })
        })
    }

    /// Writes this rank's blocks and reads the other rank's blocks.
    fn write_and_read(&mut self, play: &str, point: &FilePoint, path: &Path) {
        let (domain, mut calls) = self.calls(point);
        let me = self.rank.id();
        let view = |rank: u32| {
            point.file_view.then(|| FileView {
                begin: u64::from(rank) * BLOCK,
                block_bytes: BLOCK,
                stride_bytes: u64::from(RANKS) * BLOCK,
            })
        };
        let is_new = !path.exists();
        self.barrier();
        let made = OpenFile {
            create: is_new,
            ..open(path, true, view(me))
        };
        calls.call(&FileCall::Open(made)).unwrap();
        for (offset, mark) in Self::transfers(me) {
            self.memory
                .write(64, &vec![mark; TRANSFER as usize])
                .unwrap();
            let moved = calls.call(&FileCall::Write(transfer(offset))).unwrap();
            assert_eq!(moved, TRANSFER);
        }
        calls.call(&FileCall::Sync { file: 3 }).unwrap();
        calls.call(&FileCall::Close { file: 3 }).unwrap();
        self.barrier();
        let other = RANKS - 1 - me;
        calls
            .call(&FileCall::Open(open(path, false, view(other))))
            .unwrap();
        for (offset, mark) in Self::transfers(other) {
            self.memory.write(64, &vec![0; TRANSFER as usize]).unwrap();
            calls.call(&FileCall::Read(transfer(offset))).unwrap();
            let mut bytes = vec![0; TRANSFER as usize];
            self.memory.read(64, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == mark), "offset {offset}");
        }
        if point.file_view {
            let own = Self::transfers(me).next().unwrap().0;
            let why = calls
                .call(&FileCall::Read(transfer(own)))
                .unwrap_err()
                .to_string();
            assert!(why.contains("outside this rank's view"), "{why}");
        }
        calls.call(&FileCall::Close { file: 3 }).unwrap();
        println!("said {}", json!([play, domain.report(), calls.chosen()]));
    }

    fn give(&mut self, play: &str) {
        let path = self.folder.join(play);
        match play {
            "independent" => self.write_and_read(play, &point(), &path),
            "collective" | "view" => {
                let point = FilePoint {
                    collective: true,
                    file_view: play == "view",
                    ..point()
                };
                self.write_and_read(play, &point, &path);
            }
            "hints" => {
                let hints = [
                    ("romio_cb_write", "disable"),
                    ("cb_nodes", "1"),
                    ("tonnage_nonsense", "7"),
                ];
                let point = FilePoint {
                    hints: hints
                        .map(|(name, value)| (name.into(), value.into()))
                        .into(),
                    engine_options: [("preallocate".into(), "on".into())].into(),
                    ..point()
                };
                // Runs twice, like two points of one run. MPI is started only once.
                self.write_and_read(play, &point, &path);
                self.write_and_read(play, &point, &path);
            }
            _ => self.wrong(&path),
        }
    }

    /// Makes invalid calls, each of them on a single rank.
    fn wrong(&mut self, path: &Path) {
        let point = FilePoint {
            layout: FileLayout::PerProcess,
            ..point()
        };
        let path = path.with_extension(self.rank.id().to_string());
        let (_domain, mut calls) = self.calls(&point);
        let mut refused = |call: &FileCall<'_>| calls.call(call).unwrap_err().to_string();
        let alone = |write| OpenFile {
            shared: false,
            ..open(&path, write, None)
        };
        let why = refused(&FileCall::Open(alone(false)));
        assert!(why.contains(path.to_str().unwrap()), "{why}");
        assert!(why.contains("MPI_File_open: "), "{why}");
        assert!(refused(&FileCall::Write(transfer(0))).contains("not open"));
        only_regular_files(calls.as_mut(), &path, &alone);
        std::fs::write(&path, vec![1; 1000]).unwrap();
        calls.call(&FileCall::Open(alone(true))).unwrap();
        let mut refused = |call: &FileCall<'_>| calls.call(call).unwrap_err().to_string();
        let why = refused(&FileCall::Read(transfer(500)));
        for part in [
            path.to_str().unwrap(),
            "offset 500",
            "only 500 of 32768",
            "has 1000 bytes",
        ] {
            assert!(why.contains(part), "{why}");
        }
        let outside = FileTransfer {
            local: 1 << 40,
            ..transfer(0)
        };
        assert!(refused(&FileCall::Write(outside)).contains("outside a memory"));
        let second = refused(&FileCall::Open(alone(true)));
        assert!(second.contains("in use"), "{second}");
        calls.call(&FileCall::Close { file: 3 }).unwrap();
        let (memory, domain) = (Arc::clone(&self.memory), self.domain(&point).unwrap());
        assert!(domain.thread(1, memory).is_err());
        let several = FilePoint {
            threads: 2,
            ..point
        };
        let why = self.domain(&several).err().unwrap();
        assert_eq!(why.exit_code(), 2, "{why}");
        // Calls from threads that did not start MPI are refused.
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| calls.call(&FileCall::Open(alone(true))));
            let why = elsewhere.join().unwrap().unwrap_err().to_string();
            assert!(why.contains("another thread"), "{why}");
        });
        println!("said {}", json!(["wrong", domain.report(), Value::Null]));
    }
}

/// If the path is a link or a FIFO, the error names its kind, and MPI does not open it. Creating a file fails if the
/// path exists.
fn only_regular_files<'a>(
    calls: &mut dyn FileCalls,
    path: &'a Path,
    alone: &dyn Fn(bool) -> OpenFile<'a>,
) {
    let victim = path.with_extension("victim");
    std::fs::write(&victim, "precious").unwrap();
    let fifo = || {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    };
    let link = || std::os::unix::fs::symlink(&victim, path).unwrap();
    for (kind, put) in [("a symbolic link", &link as &dyn Fn()), ("a FIFO", &fifo)] {
        put();
        for write in [false, true] {
            let why = calls.call(&FileCall::Open(alone(write))).unwrap_err();
            let named = format!("{}: it is {kind}", path.display());
            assert!(why.to_string().starts_with(&named), "{why}");
        }
        let made = OpenFile {
            create: true,
            ..alone(true)
        };
        let why = calls.call(&FileCall::Open(made)).unwrap_err().to_string();
        assert!(why.contains("MPI_File_open: "), "{why}");
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

fn open(path: &Path, write: bool, view: Option<FileView>) -> OpenFile<'_> {
    OpenFile {
        file: 3,
        path,
        read: true,
        write,
        create: false,
        shared: true,
        view,
    }
}

fn transfer(offset: u64) -> FileTransfer {
    FileTransfer {
        file: 3,
        local: 64,
        offset,
        len: TRANSFER,
    }
}

#[test]
#[ignore = "it is a rank of other tests"]
fn as_rank() {
    let env = |name: &str| std::env::var(name).ok();
    let Some(folder) = env(FOLDER) else {
        println!("skip: only another test starts this one");
        return;
    };
    let identity = detect(&env, None).unwrap().unwrap();
    let before = |identity: &Identity| {
        (ENTRY.lifecycle.before_join)(&BeforeJoin {
            identity,
            libraries: &Libraries::new(),
        });
        Ok(())
    };
    let mut met = meet(&env, identity, None, before).unwrap();
    let options = met.options(&env, "plan".into()).unwrap();
    let rank = Rank::join(met.identity, options).unwrap();
    let memory = Arena::allocate(1 << 20, Pages::Normal, Sharing::Private, None).unwrap();
    let mut player = Player {
        rank,
        folder: folder.into(),
        memory: Arc::new(memory),
    };
    for play in PLAYS {
        player.give(play);
    }
    (ENTRY.lifecycle.finish)().unwrap();
    player.rank.close().unwrap();
    drop(met.leave);
    std::process::exit(0);
}

/// Starts the ranks, and returns their output; `None` if the launcher is not installed.
fn given(launcher: &str, package: &str) -> Option<Vec<Value>> {
    let mut words = launcher.split_whitespace();
    let name = words.next().unwrap();
    if !Path::new("/usr/bin").join(name).exists() {
        println!("skip: {name} is not installed (run: apt-get install {package})");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "90", name])
        .args(words)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "plays::as_rank"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path())
        .env("TMPDIR", folder.path())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env(FOLDER, folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{launcher}: {stdout}\n{stderr}");
    let lines = stdout.split("said ").skip(1);
    let said = lines.map(|line| serde_json::from_str(line.lines().next().unwrap()).unwrap());
    Some(said.collect())
}

#[test]
fn ranks_write_and_read_each_other_s_blocks_and_report_how() {
    for [launcher, package, dialect, io_layer] in LAUNCHERS {
        let Some(said) = given(launcher, package) else {
            continue;
        };
        // Two ranks report five plays, and one play has two points.
        assert_eq!(said.len(), 12, "{launcher}: {said:?}");
        for one in &said {
            let (report, chosen) = (&one[1], &one[2]);
            assert_eq!(report["dialect"], dialect);
            assert!(report["library"].as_str().unwrap().starts_with('/'));
            assert!(!report["version"].as_str().unwrap().is_empty());
            match one[0].as_str().unwrap() {
                "independent" => assert_eq!(report["calls"], "independent"),
                "collective" => assert_eq!(report["calls"], "collective"),
                "view" => assert_eq!(report["file_view"], true),
                "hints" => {
                    assert_eq!(report["preallocate"], true);
                    assert_eq!(chosen["io_layer"], io_layer);
                    let (used, vain) = (&chosen["hints"], &chosen["hints_not_taken"]);
                    if io_layer == "ROMIO" {
                        assert_eq!(used["romio_cb_write"], "disable");
                    }
                    assert_eq!(vain["romio_cb_write"].is_string(), io_layer == "OMPIO");
                    // Open MPI does not report which hints its ROMIO uses.
                    let is_reported = io_layer != "ROMIO of Open MPI";
                    assert_eq!(
                        vain["tonnage_nonsense"].is_string(),
                        is_reported,
                        "{chosen}"
                    );
                    assert!(vain["cb_nodes"].is_null(), "{chosen}");
                }
                _ => {}
            }
        }
    }
}

//! The engine on real files, on the disk of the build directory and in memory.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tonnage_plan::files::{FilePoint, Phase};
use tonnage_plan::testing::file_point;

use super::*;

/// Creates a folder that is removed with its contents, and returns it with the path of a file inside.
fn scratch(place: &Path) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(place).unwrap();
    let path = folder.path().join("t.dat");
    (folder, path)
}

fn on_disk() -> (TempDir, PathBuf) {
    scratch(std::env::current_exe().unwrap().parent().unwrap())
}

fn in_memory() -> (TempDir, PathBuf) {
    scratch(Path::new("/dev/shm"))
}

fn open(path: &Path, file: u32, write: bool) -> FileCall<'_> {
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

const SIZE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Opens the engine for a point like the points of a plan, with only the fields that the engine uses.
fn asked(options: Value, depth: u32) -> Result<Arc<dyn FileDomain>> {
    let point = FilePoint {
        engine: "uring".into(),
        engine_options: serde_json::from_value(options).unwrap(),
        ranks: 1,
        block_bytes: BLOCK,
        transfer_bytes: BLOCK,
        phases: vec![Phase::Write],
        depth,
        ..file_point()
    };
    (ENTRY.open)(&OpenFiles {
        usage: &point.usage(),
        rank: 0,
        libraries: &tonnage_engine::Libraries::new(),
    })
}

fn memory() -> Arc<Arena> {
    Arc::new(Arena::allocate(SIZE as usize, Pages::Normal, Sharing::Private, None).unwrap())
}

/// Returns the engine; `None` if this machine has no io_uring.
fn engine(direct: bool) -> Option<(Arc<Arena>, Uring)> {
    let config = Config {
        depth: 4,
        batch: 8,
        fixed_buffers: true,
        best: Level::Deferred,
    };
    let memory = memory();
    let made = UringDomain::new(
        config,
        OpenMode {
            direct,
            access_time: false,
        },
    )
    .and_then(|domain| domain.uring(memory.clone()));
    match made {
        Ok(engine) => Some((memory, engine)),
        Err(Error::Unavailable { why, .. }) => {
            println!("skip: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn op(write: bool, block: u64) -> Op {
    Op {
        lane: lane_of(5, write),
        tag: block as u32,
        local: block * BLOCK,
        remote: block * BLOCK,
        len: BLOCK as u32,
        imm: 0,
    }
}

/// Executes all operations, with as many in flight as the depth permits. Returns their completions in the order of
/// their tags.
fn carry_out(engine: &mut Uring, ops: &[Op]) -> Vec<Completion> {
    let (mut posted, mut ended) = (0, Vec::new());
    let mut done = [Completion::EMPTY; 3];
    while ended.len() < ops.len() {
        posted += engine.post(&ops[posted..]).unwrap();
        match engine.poll(&mut done).unwrap() {
            0 => engine.wait().unwrap(),
            count => ended.extend_from_slice(&done[..count]),
        }
    }
    ended.sort_by_key(|completion| completion.tag);
    ended
}

/// Returns bytes that differ between blocks and offsets.
fn content(block: u64) -> Vec<u8> {
    (0..BLOCK).map(|at| (at % 251 + block * 11) as u8).collect()
}

fn goes_round(path: &Path, direct: bool) {
    let Some((memory, mut engine)) = engine(direct) else {
        return;
    };
    for block in 0..32 {
        memory.write(block * BLOCK, &content(block)).unwrap();
    }
    engine.call(&open(path, 5, true)).unwrap();
    let writes: Vec<Op> = (0..32).rev().map(|block| op(true, block)).collect();
    let reads: Vec<Op> = (0..32).map(|block| op(false, block)).collect();
    for ended in carry_out(&mut engine, &writes) {
        assert_eq!((ended.ending, ended.len), (Ending::Done, BLOCK as u32));
        assert_eq!(ended.lane, lane_of(5, true));
    }
    engine.call(&FileCall::Sync { file: 5 }).unwrap();
    let stored = std::fs::read(path).unwrap();
    for block in 0..32 {
        memory.write(block * BLOCK, &[0; BLOCK as usize]).unwrap();
        let from = (block * BLOCK) as usize;
        assert!(stored[from..from + BLOCK as usize] == content(block));
    }
    for ended in carry_out(&mut engine, &reads) {
        assert_eq!(ended.ending, Ending::Done);
        assert_eq!(ended.lane, lane_of(5, false));
    }
    let mut bytes = vec![0; BLOCK as usize];
    for block in 0..32 {
        memory.read(block * BLOCK, &mut bytes).unwrap();
        assert!(bytes == content(block), "block {block}");
    }
    assert_eq!(json!(engine.chosen())["fixed_files"], true);
    assert_eq!(json!(engine.chosen())["direct"].is_null(), !direct);
    engine.call(&FileCall::Close { file: 5 }).unwrap();
}

#[test]
fn blocks_make_a_round_trip_on_a_disk_and_in_memory() {
    goes_round(&on_disk().1, false);
    goes_round(&in_memory().1, false);
}

#[test]
fn blocks_make_a_round_trip_with_direct_io() {
    let (_folder, path) = on_disk();
    let Some((_, mut engine)) = engine(true) else {
        return;
    };
    match engine.call(&open(&path, 5, true)) {
        Err(error @ Error::Unavailable { .. }) => return println!("skip: {error}"),
        other => other.unwrap(),
    };
    let wrong = Op {
        remote: 1,
        ..op(true, 0)
    };
    let refused = engine.post(&[wrong]).unwrap_err();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
    goes_round(&path, true);
}

#[test]
fn a_blocking_transfer_is_made_in_pieces() {
    let (_folder, path) = on_disk();
    let Some((memory, mut engine)) = engine(false) else {
        return;
    };
    engine.piece_bytes = 3000;
    for block in 0..4 {
        memory.write(block * BLOCK, &content(block)).unwrap();
    }
    let transfer = |local, offset, len| FileTransfer {
        file: 0,
        local,
        offset,
        len,
    };
    engine.call(&open(&path, 0, true)).unwrap();
    let whole = 4 * BLOCK;
    let written = engine
        .call(&FileCall::Write(transfer(0, 7, whole)))
        .unwrap();
    let read = engine.call(&FileCall::Read(transfer(8 * BLOCK, 7, whole)));
    assert_eq!((written, read.unwrap()), (whole, whole));
    let mut bytes = vec![0; BLOCK as usize];
    for block in 0..4 {
        memory.read((8 + block) * BLOCK, &mut bytes).unwrap();
        assert!(bytes == content(block));
    }
    let beyond = engine.call(&FileCall::Read(transfer(0, 100, whole)));
    let text = beyond.unwrap_err().to_string();
    let end = format!(
        "ends at {}: cannot read {whole} bytes at offset 100",
        7 + whole
    );
    assert!(text.contains(&end), "{text}");
    let nothing = engine.call(&FileCall::Read(transfer(0, 0, 0)));
    assert_eq!(nothing.unwrap(), 0);
}

#[test]
fn the_window_is_respected_and_blocking_calls_wait_until_it_is_empty() {
    let (_folder, path) = in_memory();
    let Some((_, mut engine)) = engine(false) else {
        return;
    };
    engine.call(&open(&path, 5, true)).unwrap();
    let ops: Vec<Op> = (0..6).map(|block| op(true, block)).collect();
    assert_eq!(engine.post(&ops).unwrap(), 4, "the depth is 4");
    let transfer = FileTransfer {
        file: 5,
        local: 0,
        offset: 0,
        len: 1,
    };
    for early in [
        FileCall::Write(transfer),
        FileCall::Read(transfer),
        FileCall::Close { file: 5 },
    ] {
        let text = engine.call(&early).unwrap_err().to_string();
        assert!(text.contains("in flight"), "{text}");
    }
    let (mut ended, mut done) = (0, [Completion::EMPTY; 8]);
    while ended < 4 {
        engine.wait().unwrap();
        ended += engine.poll(&mut done).unwrap();
    }
    // With nothing in flight, `wait` returns immediately.
    engine.wait().unwrap();
    engine.call(&FileCall::Close { file: 5 }).unwrap();
}

#[test]
fn failures_have_the_system_s_error_number_and_an_end_of_file_has_none() {
    let (_folder, path) = on_disk();
    std::fs::write(&path, vec![1; 4096 + 10]).unwrap();
    let Some((_, mut engine)) = engine(false) else {
        return;
    };
    engine.call(&open(&path, 5, false)).unwrap();
    let ops: Vec<Op> = (0..3).map(|block| op(false, block)).collect();
    let ended: Vec<_> = carry_out(&mut engine, &ops)
        .iter()
        .map(|ended| (ended.ending, ended.len))
        .collect();
    let (end, bad) = (Ending::Failed(0), rustix::io::Errno::BADF.raw_os_error());
    assert_eq!(ended, [(Ending::Done, 4096), (end, 10), (end, 0)]);
    // The file was opened only for reading, so the write must fail.
    let ended = carry_out(&mut engine, &[op(true, 0)]);
    assert_eq!((ended[0].ending, ended[0].len), (Ending::Failed(bad), 0));
    let transfer = FileTransfer {
        file: 5,
        local: 0,
        offset: 8192,
        len: 4096,
    };
    let refused = engine
        .call(&FileCall::Write(transfer))
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("cannot write 4096 bytes at offset 8192 of "),
        "{refused}"
    );
    let outside = Op {
        local: SIZE,
        ..op(false, 0)
    };
    let refused = engine.post(&[outside]).unwrap_err().to_string();
    assert!(refused.contains("lie outside a memory"), "{refused}");
    let unknown = Op {
        lane: lane_of(6, false),
        ..op(false, 0)
    };
    let refused = engine.post(&[unknown]).unwrap_err().to_string();
    assert!(refused.contains("file 6 is not open"), "{refused}");
}

#[test]
fn options_have_their_effect_and_the_record_shows_it() {
    let plain = match asked(json!({}), 32) {
        Err(error @ Error::Unavailable { .. }) => return println!("skip: {error}"),
        other => other.unwrap(),
    };
    let effective = json!(plain.report());
    assert_eq!(effective["submit_batch"], 8);
    assert_eq!(effective["depth"], 32);
    assert!(effective["flags"].is_array() && effective["gather_us"].is_u64());
    let chosen = json!(plain.thread(0, memory()).unwrap().chosen());
    assert_ne!(chosen["fixed_buffers"], false);
    let other = json!({ "fixed-buffers": "off", "submit-batch": "16" });
    let other = asked(other, 1).unwrap();
    assert_eq!(json!(other.report())["submit_batch"], 16);
    let chosen = json!(other.thread(0, memory()).unwrap().chosen());
    assert_eq!(chosen["fixed_buffers"], false);
    let refused = asked(json!({}), DEPTH_MAX + 1).err().unwrap().to_string();
    assert!(refused.contains("at most 32768"), "{refused}");
}

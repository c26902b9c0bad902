//! Reads and writes of files neither allocate nor free memory, whichever engine makes them. Thousands of transfers run
//! under a counting allocator, first one at a time, then in a queue as deep as the engine allows.

use std::sync::Arc;

use tonnage_engine::calls::{
    FileCall, FileCalls, FileEntry, FileQueue, FileTransfer, OpenFile, OpenFiles, lane_of,
};
use tonnage_engine::{Completion, Ending, Op};
use tonnage_engines::FILE_ENGINES;
use tonnage_plan::files::{FilePoint, Phase};
use tonnage_plan::testing::file_point;
use tonnage_sys::counting_alloc::{Counts, counts};
use tonnage_sys::mapping::{Arena, Pages, Sharing};
use tonnage_units::{Error, Result};

use super::NOTHING;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;
const TRANSFERS: u64 = 4096;
const DEPTH: u32 = 32;

fn point(engine: &str) -> FilePoint {
    FilePoint {
        engine: engine.into(),
        ranks: 1,
        block_bytes: BLOCK,
        transfer_bytes: BLOCK,
        segments: BLOCKS,
        phases: vec![Phase::Write],
        depth: DEPTH,
        ..file_point()
    }
}

fn engine(entry: &FileEntry) -> Result<Box<dyn FileCalls>> {
    let domain = (entry.open)(&OpenFiles {
        usage: &point(entry.name).usage(),
        rank: 0,
        libraries: &Default::default(),
    })?;
    let bytes = (u64::from(DEPTH) * BLOCK) as usize;
    let memory = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None)
        .map_err(|error| Error::io("no memory", error))?;
    domain.thread(0, Arc::new(memory))
}

/// Writes and reads alternately, one transfer at a time.
fn one_at_a_time(calls: &mut dyn FileCalls) -> Result<()> {
    for transfer in 0..TRANSFERS {
        let write = transfer % 2 == 0;
        let transfer = FileTransfer {
            file: 0,
            local: transfer % u64::from(DEPTH) * BLOCK,
            offset: transfer / 2 % BLOCKS * BLOCK,
            len: BLOCK,
        };
        calls.call(&if write {
            FileCall::Write(transfer)
        } else {
            FileCall::Read(transfer)
        })?;
    }
    Ok(())
}

/// Keeps `DEPTH` transfers in flight. Returns whether any transfer failed.
fn through_a_queue(queue: &mut dyn FileQueue) -> Result<bool> {
    let mut done = [Completion::EMPTY; DEPTH as usize];
    let (mut posted, mut ended, mut failed) = (0, 0, false);
    while ended < TRANSFERS {
        while posted < TRANSFERS && posted - ended < u64::from(DEPTH) {
            let op = Op {
                lane: lane_of(0, posted % 2 == 0),
                tag: posted as u32,
                local: posted % u64::from(DEPTH) * BLOCK,
                remote: posted / 2 % BLOCKS * BLOCK,
                len: BLOCK as u32,
                imm: 0,
            };
            if queue.post(&[op])? == 0 {
                break;
            }
            posted += 1;
        }
        match queue.poll(&mut done)? {
            0 => queue.wait()?,
            count => {
                ended += count as u64;
                failed |= done[..count]
                    .iter()
                    .any(|ended| ended.ending != Ending::Done);
            }
        }
    }
    Ok(failed)
}

/// Returns the counts of blocking calls and, if the engine has a queue, those of the queue.
fn counted(entry: &FileEntry) -> Result<(Counts, Option<Counts>)> {
    // The file is in the build folder. It is filled completely, so that every read finds its bytes.
    let scratch = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR"))
        .map_err(|error| Error::io("cannot make a file", error))?;
    std::fs::write(&scratch, vec![1; (BLOCKS * BLOCK) as usize])
        .map_err(|error| Error::io("cannot fill the file", error))?;
    let mut calls = engine(entry)?;
    calls.call(&FileCall::Open(OpenFile {
        file: 0,
        path: scratch.path(),
        read: true,
        write: true,
        create: false,
        shared: false,
        view: None,
    }))?;
    let before = counts();
    one_at_a_time(calls.as_mut())?;
    let blocking = counts().since(before);
    let queued = match calls.queue() {
        None => None,
        Some(queue) => {
            let before = counts();
            let failed = through_a_queue(queue)?;
            let during = counts().since(before);
            assert!(!failed, "a transfer of {} failed", entry.name);
            Some(during)
        }
    };
    calls.call(&FileCall::Close { file: 0 })?;
    Ok((blocking, queued))
}

#[test]
fn transfers_allocate_nothing() {
    // Engines that load a library cannot guarantee that the library does not allocate.
    for entry in FILE_ENGINES
        .iter()
        .filter(|entry| entry.libraries.is_empty())
    {
        match counted(entry) {
            Ok((blocking, queued)) => {
                assert_eq!(blocking, NOTHING, "blocking calls of {}", entry.name);
                assert_eq!(queued.is_some(), entry.queues, "{}", entry.name);
                assert_eq!(queued.unwrap_or(NOTHING), NOTHING, "{}", entry.name);
            }
            Err(error @ Error::Unavailable { .. }) => println!("skip: {error}"),
            Err(error) => panic!("{}: {error}", entry.name),
        }
    }
}

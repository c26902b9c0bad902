use super::*;

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::files::scratch::Scratch;
use crate::mapping::{Pages, Sharing};

const BLOCK: u32 = 4096;

/// Makes a path in memory or, if this machine has no file system in memory, on disk.
fn in_memory() -> Scratch {
    Scratch::in_memory().unwrap_or_else(Scratch::on_disk)
}

/// Opens the file, after creating it if necessary.
fn opened(scratch: &Scratch, direct: bool) -> OwnedFd {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.custom_flags(flags).open(scratch.path());
    file.unwrap().into()
}

fn arena(blocks: u32) -> Arc<Arena> {
    let bytes = (blocks * BLOCK) as usize;
    Arc::new(Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap())
}

fn config(depth: u32) -> Config {
    Config {
        depth,
        batch: 8,
        fixed_buffers: true,
        best: Level::Deferred,
    }
}

/// Opens a ring; `None` if this machine forbids rings.
fn ring(arena: &Arc<Arena>, config: &Config) -> Option<Ring<OwnedFd>> {
    match Ring::new(Arc::clone(arena), config) {
        Ok(ring) => Some(ring),
        Err(refused) => {
            println!("skip: {refused}");
            None
        }
    }
}

fn request(file: FileId, direction: Direction, block: u64) -> RingRequest {
    RingRequest {
        file,
        direction,
        local: block * u64::from(BLOCK),
        offset: block * u64::from(BLOCK),
        len: BLOCK,
        tag: 1000 + block,
    }
}

/// Polls and waits until `count` requests have ended.
fn finish(ring: &mut Ring<OwnedFd>, count: usize) -> Vec<Finished> {
    let (mut all, mut done) = (Vec::new(), [Finished::EMPTY; 16]);
    while all.len() < count {
        let found = ring.poll(&mut done).unwrap();
        all.extend_from_slice(&done[..found]);
        if found == 0 {
            ring.wait().unwrap();
        }
    }
    all.sort_by_key(|finished| finished.tag);
    all
}

/// Returns the content of a block; all blocks differ.
fn content(block: u64) -> Vec<u8> {
    (0..BLOCK as u64)
        .map(|at| (at % 251 + block * 7) as u8)
        .collect()
}

fn write_then_read(scratch: &Scratch, config: &Config, direct: bool) {
    // Content left by another configuration would hide errors.
    let _ = std::fs::remove_file(scratch.path());
    let (arena, other) = (arena(16), arena(16));
    let Some(mut writer) = ring(&arena, config) else {
        return;
    };
    for block in 0..16 {
        let at = block * u64::from(BLOCK);
        arena.write(at, &content(block)).unwrap();
    }
    let file = FileId(3);
    writer.open(file, opened(scratch, direct)).unwrap();
    for block in 0..16 {
        let wanted = request(file, Direction::Write, block);
        while !writer.post(&wanted).unwrap() {
            finish(&mut writer, 1);
        }
    }
    let left = writer.in_flight() as usize;
    for finished in finish(&mut writer, left) {
        assert_eq!(finished.moved, BLOCK);
        assert_eq!(finished.outcome, RequestOutcome::Whole);
    }
    drop(writer.release(file).unwrap());
    assert_eq!(std::fs::read(scratch.path()).unwrap().len(), 16 * 4096);

    let mut reader = Ring::<OwnedFd>::new(Arc::clone(&other), config).unwrap();
    let file = FileId(3);
    reader.open(file, opened(scratch, direct)).unwrap();
    for block in (0..16).rev() {
        while !reader.post(&request(file, Direction::Read, block)).unwrap() {
            finish(&mut reader, 1);
        }
    }
    let left = reader.in_flight() as usize;
    finish(&mut reader, left);
    for block in 0..16 {
        let mut bytes = vec![0; BLOCK as usize];
        other.read(block * u64::from(BLOCK), &mut bytes).unwrap();
        assert!(bytes == content(block), "block {block}, {config:?}");
    }
}

#[test]
fn blocks_land_where_they_should_however_the_ring_is_set_up() {
    for scratch in [Scratch::on_disk(), in_memory()] {
        for best in Level::ALL {
            for (fixed_buffers, batch, depth) in [(true, 8, 16), (false, 1, 4), (true, 32, 3)] {
                let config = Config {
                    depth,
                    batch,
                    fixed_buffers,
                    best,
                };
                write_then_read(&scratch, &config, false);
            }
        }
    }
    write_then_read(&Scratch::on_disk(), &config(16), true);
}

#[test]
fn the_record_lists_granted_features() {
    let arena = arena(4);
    for best in Level::ALL {
        let wanted = Config { best, ..config(4) };
        let Some(ring) = ring(&arena, &wanted) else {
            return;
        };
        let granted = ring.granted();
        assert!(granted.level >= best);
        // Every skipped level has a reason.
        let passed = Level::ALL
            .iter()
            .filter(|&&level| level >= best && level < granted.level);
        assert_eq!(granted.missing.len(), passed.count());
        match &granted.buffers {
            // If lockable memory is short, the reason names the limit.
            Registered::Refused(why) => assert!(why.contains("ulimit -l"), "{why}"),
            other => assert_eq!(*other, Registered::Yes),
        }
        assert_eq!(granted.files, Registered::Yes);
    }
    let without = Config {
        fixed_buffers: false,
        ..config(4)
    };
    let ring = Ring::<OwnedFd>::new(arena, &without).unwrap();
    assert_eq!(ring.granted().buffers, Registered::NotAsked);
}

#[test]
fn no_more_than_the_depth_is_taken_and_a_batch_gathers() {
    let scratch = in_memory();
    let arena = arena(8);
    let Some(mut ring) = ring(&arena, &config(4)) else {
        return;
    };
    let file = FileId(3);
    ring.open(file, opened(&scratch, false)).unwrap();
    let stored = || std::fs::metadata(scratch.path()).unwrap().len();
    for block in 0..4 {
        assert!(ring.post(&request(file, Direction::Write, block)).unwrap());
        if block == 2 {
            // The kernel has two operations, so this operation waits until a second one is posted.
            assert!(stored() <= 2 * u64::from(BLOCK));
        }
    }
    assert!(!ring.post(&request(file, Direction::Write, 4)).unwrap());
    assert_eq!((ring.in_flight(), ring.free.len()), (4, 0));
    assert!(ring.release(file).is_err(), "it has operations in flight");
    assert_eq!(finish(&mut ring, 4).len(), 4);
    assert_eq!(stored(), 4 * u64::from(BLOCK));
    assert_eq!((ring.in_flight(), ring.free.len()), (0, 4));
    assert!(
        ring.open(file, opened(&scratch, false)).is_err(),
        "the number is in use"
    );
    drop(ring.release(file).unwrap());
    assert!(ring.release(file).is_err(), "it was released already");
    assert!(
        ring.open(FileId(FILES_MAX), opened(&scratch, false))
            .is_err()
    );
    let late = ring.post(&request(file, Direction::Write, 0));
    assert!(matches!(late, Err(PostError::NoFile(_))));
}

#[test]
fn ranges_outside_are_refused_before_they_reach_the_kernel() {
    let scratch = in_memory();
    let arena = arena(4);
    let Some(mut ring) = ring(&arena, &config(4)) else {
        return;
    };
    let file = FileId(3);
    ring.open(file, opened(&scratch, false)).unwrap();
    for local in [arena.len() as u64, arena.len() as u64 - 1, u64::MAX] {
        let wrong = RingRequest {
            local,
            ..request(file, Direction::Write, 0)
        };
        assert!(matches!(ring.post(&wrong), Err(PostError::Outside(_))));
    }
    let unknown = request(FileId(7), Direction::Write, 0);
    assert!(matches!(ring.post(&unknown), Err(PostError::NoFile(_))));
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn the_end_of_a_file_and_errors_are_distinguished() {
    for (scratch, direct) in [
        (Scratch::on_disk(), true),
        (Scratch::on_disk(), false),
        (in_memory(), false),
    ] {
        std::fs::write(scratch.path(), vec![7; 4096 + 100]).unwrap();
        let arena = arena(4);
        let Some(mut ring) = ring(&arena, &config(4)) else {
            return;
        };
        let file = FileId(3);
        ring.open(file, opened(&scratch, direct)).unwrap();
        for block in 0..3 {
            ring.post(&request(file, Direction::Read, block)).unwrap();
        }
        let ended: Vec<_> = finish(&mut ring, 3)
            .iter()
            .map(|finished| (finished.moved, finished.outcome))
            .collect();
        assert_eq!(ended[0], (4096, RequestOutcome::Whole));
        assert_eq!(
            ended[1],
            (100, RequestOutcome::EndOfFile),
            "direct {direct}"
        );
        assert_eq!(ended[2], (0, RequestOutcome::EndOfFile));
        // A write to a file that is open only for reading.
        let reading = FileId(300);
        ring.open(reading, File::open(scratch.path()).unwrap().into())
            .unwrap();
        ring.post(&request(reading, Direction::Write, 0)).unwrap();
        let ended = finish(&mut ring, 1)[0];
        assert_eq!(ended.outcome, RequestOutcome::Failed(libc::EBADF));
    }
}

#[test]
fn short_transfers_are_continued() {
    let Some((mut ring, file, arena)) = with_pipe() else {
        return;
    };
    let (reading, mut writing) = file;
    // A pipe returns its current content, and the rest later.
    use std::io::Write;
    writing.write_all(&content(1)[..100]).unwrap();
    let wanted = RingRequest {
        local: 0,
        // Pipes have no offset.
        offset: u64::MAX,
        ..request(reading, Direction::Read, 0)
    };
    ring.post(&wanted).unwrap();
    let mut done = [Finished::EMPTY; 1];
    for _ in 0..100 {
        assert_eq!(
            ring.poll(&mut done).unwrap(),
            0,
            "the read is not whole yet"
        );
    }
    writing.write_all(&content(1)[100..]).unwrap();
    let ended = finish(&mut ring, 1)[0];
    assert_eq!((ended.moved, ended.outcome), (BLOCK, RequestOutcome::Whole));
    let mut bytes = vec![0; BLOCK as usize];
    arena.read(0, &mut bytes).unwrap();
    assert!(bytes == content(1));
}

type Pipe = (FileId, std::io::PipeWriter);

fn with_pipe() -> Option<(Ring<OwnedFd>, Pipe, Arc<Arena>)> {
    let arena = arena(4);
    let mut ring = ring(&arena, &config(4))?;
    let (reading, writing) = std::io::pipe().unwrap();
    let number = FileId(0);
    ring.open(number, reading.into()).unwrap();
    Some((ring, (number, writing), arena))
}

#[test]
fn a_ring_that_is_dropped_leaves_nothing_in_flight() {
    let Some((mut ring, (reading, writing), arena)) = with_pipe() else {
        return;
    };
    // Two reads that would wait in the kernel forever, and one read that is not submitted.
    for block in 0..3 {
        ring.post(&request(reading, Direction::Read, block))
            .unwrap();
    }
    assert_eq!((ring.in_flight(), ring.pushed), (3, 1));
    let before = std::time::Instant::now();
    assert!(ring.drain());
    assert_eq!(
        ring.in_flight(),
        1,
        "only operations that the kernel never had are left"
    );
    drop(ring);
    assert!(
        before.elapsed().as_secs() < 9,
        "the reads were cancelled, not waited for"
    );
    // The ring has released its memory, so the kernel no longer uses that memory.
    assert_eq!(Arc::strong_count(&arena), 1);
    drop(writing);
}

#[test]
fn memory_that_the_kernel_may_still_write_is_never_given_back() {
    let Some((mut ring, (reading, writing), arena)) = with_pipe() else {
        return;
    };
    if ring.granted().level > Level::Deferred {
        return println!("skip: here any thread may process completions");
    }
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (give, given) = std::sync::mpsc::channel();
    let user = std::thread::spawn(move || {
        ring.post(&request(reading, Direction::Read, 0)).unwrap();
        give.send(ring).unwrap();
        // Stays alive, because a thread's operations end with the thread.
        let _ = ended.recv();
    });
    drop(given.recv().unwrap());
    // This thread cannot know whether the read has ended, so the ring has leaked its reference to the arena.
    assert_eq!(Arc::strong_count(&arena), 2);
    drop((end, writing));
    user.join().unwrap();
}

#[test]
fn a_ring_with_disk_reads_in_flight_can_be_dropped() {
    let scratch = Scratch::on_disk();
    std::fs::write(scratch.path(), vec![1; 64 * 4096]).unwrap();
    for batch in [1, 8] {
        let arena = arena(64);
        let wanted = Config {
            batch,
            ..config(64)
        };
        let Some(mut ring) = ring(&arena, &wanted) else {
            return;
        };
        let file = FileId(3);
        ring.open(file, opened(&scratch, true)).unwrap();
        for block in 0..60 {
            ring.post(&request(file, Direction::Read, block)).unwrap();
        }
        drop(ring);
        assert_eq!(Arc::strong_count(&arena), 1);
    }
}

#[test]
fn another_thread_may_open_a_ring_and_only_one_may_use_it() {
    let scratch = in_memory();
    let arena = arena(4);
    let Some(mut ring) = ring(&arena, &config(4)) else {
        return;
    };
    let single = ring.granted().level <= Level::SingleIssuer;
    let file = FileId(3);
    ring.open(file, opened(&scratch, false)).unwrap();
    let mut ring = std::thread::spawn(move || {
        ring.post(&request(file, Direction::Write, 0)).unwrap();
        assert_eq!(finish(&mut ring, 1).len(), 1);
        ring
    })
    .join()
    .unwrap();
    let posted = ring.post(&request(file, Direction::Write, 1));
    assert_eq!(posted.is_err(), single);
}

#[test]
fn refusals_say_how_to_get_it() {
    let how = |code, disabled| {
        let error = io::Error::from_raw_os_error(code);
        setup::explain(&error, disabled).to_string()
    };
    assert!(how(libc::EPERM, "2").contains("kernel.io_uring_disabled=0"));
    assert!(how(libc::EPERM, "1").contains("io_uring_group"));
    assert!(how(libc::EPERM, "0").contains("seccomp"));
    assert!(how(libc::ENOSYS, "").contains("CONFIG_IO_URING"));
    assert!(how(libc::ENOMEM, "").contains("ulimit -l"));
}

/// Forbids io_uring_setup to the calling thread only.
fn forbid_rings() {
    let number = libc::SYS_io_uring_setup as u32;
    let (load, equal, give) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let step = |code: u32, yes, no, k| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let mut filter = [
        step(load, 0, 0, 0),
        step(equal, 0, 1, number),
        step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: both calls only restrict this thread, and the program outlives them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

#[test]
fn a_sandbox_that_forbids_rings_is_named() {
    let arena = arena(4);
    let refused = std::thread::spawn(move || {
        forbid_rings();
        Ring::<OwnedFd>::new(arena, &config(4)).err().unwrap()
    });
    let refused = refused.join().unwrap();
    assert!(refused.why.contains("io_uring_setup"), "{refused}");
    if !std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .is_ok_and(|text| text.trim() != "0")
    {
        assert!(refused.how.contains("seccomp"), "{refused}");
    }
}

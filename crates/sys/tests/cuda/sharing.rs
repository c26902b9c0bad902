//! Memory for other processes, and words that streams write. The end-to-end tests share memory between two processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonnage_sys::cuda::{
    CudaContext, CudaEvent, CudaFailure, CudaStream, DeviceBuffer, FlagWords, ImportedBuffer,
    IpcHandle, PinnedArena, RawLoop, WordsBehind,
};

use super::{arena, loaded, opened, opened_hip};

#[test]
fn only_other_processes_can_open_shared_memory() {
    for ((_double, context), names) in [
        (
            opened(""),
            ["CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_VALUE"],
        ),
        (
            opened_hip(""),
            ["hipErrorInvalidContext", "hipErrorInvalidValue"],
        ),
    ] {
        let buffer = DeviceBuffer::allocate(&context, 100).unwrap();
        let own = ImportedBuffer::open(&context, buffer.export().unwrap(), 100).unwrap_err();
        let nothing = ImportedBuffer::open(&context, IpcHandle([0; 64]), 100).unwrap_err();
        assert_eq!([own.name(), nothing.name()], names);
    }
}

/// Descriptions of GPUs are read once, and not for the context's own GPU; a lost GPU does not affect the others.
/// Opening a context reads one description, so the read that fails is the second, third or fourth.
#[test]
fn a_path_to_a_gpu_is_queried_by_its_known_address() {
    for (nth, second_is_known) in [(2, true), (3, false), (4, true)] {
        let lines = format!("gpus 2\npeers 0\nfail cuDeviceGetPCIBusId 101 {nth}");
        let (_double, context) = opened(&lines);
        context.check_way_to(|gpu| gpu.number == 0).unwrap();
        for _ in 0..2 {
            let way = context.check_way_to(|gpu| gpu.number == 1);
            let is_refused = matches!(way, Err(CudaFailure::NoPeer { peer: 1, .. }));
            assert_eq!(
                (is_refused, way.is_ok()),
                (second_is_known, !second_is_known),
                "{nth}"
            );
        }
    }
}

#[test]
fn words_are_written_when_the_stream_reaches_them() {
    let (_double, context) = opened("");
    let pinned = PinnedArena::pin(&context, arena(4096)).unwrap();
    let memory = Arc::clone(pinned.arena());
    let words = FlagWords::new(pinned).unwrap();
    let stream = CudaStream::new(&context).unwrap();
    let word = || memory.word(8).unwrap().load(Ordering::Acquire);
    words.write(&stream, 8, u64::MAX - 1).unwrap();
    assert_eq!(word(), 0);
    stream.wait().unwrap();
    assert_eq!(word(), u64::MAX - 1);
    let size = memory.len() as u64;
    for outside in [4, size, size - 4, u64::MAX] {
        let refused = words.write(&stream, outside, 1).unwrap_err();
        assert!(matches!(refused, CudaFailure::Outside(_)), "{refused}");
    }
}

/// Between the steps of the stream, the words appear in order, and only after the data.
#[test]
fn words_are_written_after_the_data() {
    let (double, context) = opened("gpus 2\nslow 1");
    let [data, told] = [(); 2].map(|()| PinnedArena::pin(&context, arena(4096)).unwrap());
    let [data_bytes, told_bytes] = [&data, &told].map(|pinned| Arc::clone(pinned.arena()));
    let buffer = DeviceBuffer::allocate(&context, 8).unwrap();
    buffer.write(0, &7u64.to_ne_bytes()).unwrap();
    let words = FlagWords::new(told).unwrap();
    let (stream, event) = (
        CudaStream::new(&context).unwrap(),
        CudaEvent::untimed(&context).unwrap(),
    );
    let behind = |offset| WordsBehind {
        words: &words,
        offset,
        values: [1, 2],
    };
    let way = || (buffer.part(0, 8).unwrap(), data.part(16, 8).unwrap());
    stream
        .copy_and_signal(way(), Some(behind(8)), &event)
        .unwrap();
    let seen = || {
        let word = |arena: &tonnage_sys::mapping::Arena, at| {
            arena.word(at).unwrap().load(Ordering::Acquire)
        };
        (
            word(&data_bytes, 16),
            word(&told_bytes, 8),
            word(&told_bytes, 16),
        )
    };
    let mut all = vec![seen()];
    while !event.is_passed().unwrap() {
        all.push(seen());
    }
    assert_eq!(all, [(0, 0, 0), (7, 0, 0), (7, 1, 0), (7, 1, 2), (7, 1, 2)]);
    // These calls are refused before the driver gets any part of them.
    for outside in [4, 4096 - 8, 4096] {
        let refused = stream
            .copy_and_signal(way(), Some(behind(outside)), &event)
            .unwrap_err();
        assert!(matches!(refused, CudaFailure::Outside(_)), "{refused}");
    }
    let other = CudaContext::open(&loaded(&double).unwrap(), 1).unwrap();
    let other = CudaStream::new(&other).unwrap();
    let refused = other.copy_and_signal(way(), None, &event).unwrap_err();
    assert!(matches!(refused, CudaFailure::OtherGpu { .. }), "{refused}");
    assert!(event.is_passed().unwrap());
}

#[test]
fn a_raw_loop_carries_all_of_its_copies_out() {
    let (_double, context) = opened("");
    let (from, to) = (
        DeviceBuffer::allocate(&context, 64).unwrap(),
        DeviceBuffer::allocate(&context, 64).unwrap(),
    );
    from.write(0, &[9; 64]).unwrap();
    let raw = RawLoop::new(&context, 3).unwrap();
    raw.copies((from.part(0, 64).unwrap(), to.part(0, 64).unwrap()), 10)
        .unwrap();
    let mut bytes = [0; 64];
    to.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 64]);
    let uneven = (from.part(0, 64).unwrap(), to.part(0, 8).unwrap());
    assert!(raw.copies(uneven, 1).is_err());
}

#[test]
fn a_gpu_that_cannot_write_words_is_refused() {
    let (_double, context) = opened("words 0");
    let pinned = PinnedArena::pin(&context, arena(4096)).unwrap();
    assert_eq!(FlagWords::new(pinned).unwrap_err(), CudaFailure::NoWords);
}

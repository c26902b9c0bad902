//! Memory for other processes, and words that streams write. Two processes share memory in the tests of the program.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonnage_sys::cuda::{
    CudaFailure, CudaStream, DeviceBuffer, FlagWords, ImportedBuffer, IpcHandle, PinnedArena,
};

use super::{arena, opened};

#[test]
fn memory_is_shared_with_other_processes_alone() {
    let Some((_double, context)) = opened("") else {
        return;
    };
    let buffer = DeviceBuffer::allocate(&context, 100).unwrap();
    let handle = buffer.export().unwrap();
    let own = ImportedBuffer::open(&context, handle, 100).unwrap_err();
    assert_eq!(own.name(), "CUDA_ERROR_INVALID_CONTEXT");
    let nothing = ImportedBuffer::open(&context, IpcHandle([0; 64]), 100).unwrap_err();
    assert_eq!(nothing.name(), "CUDA_ERROR_INVALID_VALUE");
}

#[test]
fn words_are_written_when_the_stream_comes_to_them() {
    let Some((_double, context)) = opened("") else {
        return;
    };
    let pinned = PinnedArena::pin(&context, arena(4096)).unwrap();
    let memory = Arc::clone(pinned.arena());
    let words = FlagWords::of(pinned).unwrap();
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

#[test]
fn a_gpu_that_writes_no_words_says_so() {
    let Some((_double, context)) = opened("words 0") else {
        return;
    };
    let pinned = PinnedArena::pin(&context, arena(4096)).unwrap();
    let why = FlagWords::of(pinned).unwrap_err();
    assert!(why.contains("writes no words of 64 bits"), "{why}");
}

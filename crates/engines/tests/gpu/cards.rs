//! Needs of network cards, as far as they can be known without a card: memory of either sort becomes a file where the
//! driver says so, and what cards would have written is flushed where it says that this is needed. Of NVIDIA alone:
//! AMD's runtime is asked for neither, though newer ones have a call that exports.

use std::sync::Arc;

use tonnage_sys::cuda::{CardWrites, CudaContext, DeviceBuffer, Libcuda, WritesOrdering};

use super::{Double, Driver, MAKERS};

/// Contexts of the double, which grants all of it, and of the GPU that is here; each with whether it is the double's.
fn contexts() -> (Option<Double>, Vec<(Arc<CudaContext>, bool)>) {
    let double = Double::with("dmabuf 1\nordering 0\nflushes 1");
    let files = double
        .as_ref()
        .map(|double| double.path().display().to_string());
    let mut all = Vec::new();
    if let Some(file) = &files {
        let library = Libcuda::load(Some(file)).unwrap();
        all.push((CudaContext::open(&library, 0).unwrap(), true));
    }
    if Driver::real(&MAKERS[0]).is_some() {
        let library = Libcuda::load(None).unwrap();
        all.push((CudaContext::open(&library, 0).unwrap(), false));
    }
    (double, all)
}

const BYTES: u64 = 3 << 20;

#[test]
fn memory_becomes_a_file_where_the_driver_says_so() {
    let (_double, contexts) = contexts();
    for (context, is_double) in contexts {
        let mapped = match DeviceBuffer::map(&context, BYTES) {
            Ok(mapped) => Some(mapped),
            Err(why) => {
                assert!(!is_double, "{why}");
                println!("skip: memory by virtual-memory handles: {why}");
                None
            }
        };
        let plain = DeviceBuffer::allocate(&context, BYTES).unwrap();
        let (mut exported, mut tried) = (0, 0);
        for buffer in [Some(plain), mapped].into_iter().flatten() {
            let sort = if buffer.granularity().is_some() {
                "vmm"
            } else {
                "malloc"
            };
            match (buffer.export_dmabuf(), context.device().dmabuf) {
                (Ok(file), _) => {
                    assert!(file.offset < 64 << 10, "{sort}: {file:?}");
                    exported += 1;
                }
                // Some drivers export only one of the sorts.
                (Err(why), Some(true)) => println!("skip: {sort} is not exported: {why}"),
                (Err(why), told) => {
                    println!("skip: this driver exports no memory ({told:?}): {why}")
                }
            }
            tried += 1;
            // It is whole afterwards.
            buffer.write(BYTES - 5, b"whole").unwrap();
            let mut back = [0; 5];
            buffer.read(BYTES - 5, &mut back).unwrap();
            assert_eq!(&back, b"whole");
        }
        match (is_double, context.device().dmabuf) {
            (true, _) => assert_eq!((exported, tried), (2, 2)),
            (false, Some(true)) => assert!(exported > 0, "it says that it exports, and does not"),
            (false, _) => {}
        }
    }
}

#[test]
fn what_cards_wrote_is_flushed_where_the_driver_needs_it() {
    let (_double, contexts) = contexts();
    for (context, is_double) in contexts {
        match context.writes_ordering() {
            WritesOrdering::Flushed => {
                let writes = CardWrites::into_memory_of(&context).unwrap();
                writes.flush().unwrap();
                // Another thread, which has no context of its own yet.
                std::thread::scope(|scope| scope.spawn(|| writes.flush().unwrap()).join().unwrap());
            }
            other => {
                assert!(!is_double, "{other:?}");
                println!("skip: no flush is needed or offered here: {other:?}");
            }
        }
    }
}

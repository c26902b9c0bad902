//! Needs of network cards, as far as they can be known without a card: memory of either sort becomes a file where the
//! driver says so, and what cards would have written is flushed where it says that this is needed, which AMD's runtime
//! does not tell.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;

use tonnage_sys::cuda::{CardWrites, CudaContext, DeviceBuffer, NVIDIA, WritesOrdering};

use super::{Driver, MAKERS};

/// Contexts of the doubles, which grant all of it, and of the GPUs that are here; each with whether it is a double's.
fn contexts() -> Vec<(Driver, Arc<CudaContext>, bool)> {
    let lines = "dmabuf 1\nordering 0\nflushes 1";
    let doubles = MAKERS
        .iter()
        .filter_map(|maker| Driver::double_of(maker, lines));
    let all = doubles.chain(MAKERS.iter().filter_map(Driver::real));
    all.map(|driver| {
        let context = CudaContext::open(&driver.library(), 0).unwrap();
        let is_double = driver._double.is_some();
        (driver, context, is_double)
    })
    .collect()
}

const BYTES: u64 = 3 << 20;

#[test]
fn memory_becomes_a_file_where_the_driver_says_so() {
    for (_driver, context, is_double) in contexts() {
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
                (Ok(exported_as), _) => {
                    let (offset, mut file) = (exported_as.offset, File::from(exported_as.file));
                    let bytes = file.seek(SeekFrom::End(0)).unwrap();
                    assert!(offset + BYTES <= bytes, "{sort}: {offset} of {bytes}");
                    // NVIDIA's driver is asked for whole pages of the host.
                    let is_near = context.driver().name != "cuda" || offset < 64 << 10;
                    assert!(is_near, "{sort}: {offset}");
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
    for (driver, context, is_double) in contexts() {
        match context.writes_ordering() {
            WritesOrdering::Flushed => {
                let writes = CardWrites::into_memory_of(&context).unwrap();
                writes.flush().unwrap();
                // Another thread, which has no context of its own yet.
                std::thread::scope(|scope| scope.spawn(|| writes.flush().unwrap()).join().unwrap());
            }
            other => {
                let is_told = driver.maker.driver.name == NVIDIA.name;
                assert!(!is_double || !is_told, "{other:?}");
                println!("skip: no flush is needed or offered here: {other:?}");
            }
        }
    }
}

//! Needs of network cards, as far as they can be known without a card, of the GPUs that are here: memory of either sort
//! becomes a file where the driver says so, and what cards would have written is flushed where it says that this is
//! needed, which AMD's runtime does not tell.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;

use tonnage_sys::cuda::{CardWrites, CudaContext, DeviceBuffer, WritesOrdering};

use super::{Driver, MAKERS};

fn contexts() -> impl Iterator<Item = Arc<CudaContext>> {
    let drivers = MAKERS.iter().filter_map(Driver::real);
    drivers.map(|driver| CudaContext::open(&driver.library(), 0).unwrap())
}

const BYTES: u64 = 3 << 20;

#[test]
fn memory_becomes_a_file_where_the_driver_says_so() {
    for context in contexts() {
        let mapped = DeviceBuffer::map(&context, BYTES);
        let mapped = mapped.inspect_err(|why| println!("skip: memory by handles: {why}"));
        let plain = DeviceBuffer::allocate(&context, BYTES).unwrap();
        let mut exported = 0;
        for (sort, buffer) in [("malloc", Some(plain)), ("vmm", mapped.ok())] {
            let Some(buffer) = buffer else {
                continue;
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
            // It is whole afterwards.
            buffer.write(BYTES - 5, b"whole").unwrap();
            let mut back = [0; 5];
            buffer.read(BYTES - 5, &mut back).unwrap();
            assert_eq!(&back, b"whole");
        }
        if context.device().dmabuf == Some(true) {
            assert!(exported > 0, "it says that it exports, and does not");
        }
    }
}

#[test]
fn what_cards_wrote_is_flushed_where_the_driver_needs_it() {
    for context in contexts() {
        match context.writes_ordering() {
            WritesOrdering::Flushed => {
                let writes = CardWrites::into_memory_of(&context).unwrap();
                writes.flush().unwrap();
                // Another thread, which has no context of its own yet.
                std::thread::scope(|scope| scope.spawn(|| writes.flush().unwrap()).join().unwrap());
            }
            other => println!("skip: no flush is needed or offered here: {other:?}"),
        }
    }
}

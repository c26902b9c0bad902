//! The driver functions that NICs need, tested on the GPUs of this machine without a NIC. If the driver reports that it
//! exports memory, both kinds of memory can be exported as a dmabuf. If the driver reports that writes of NICs must be
//! flushed, they can be flushed. AMD's runtime does not report this.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;

use tonnage_sys::cuda::{CudaContext, DeviceBuffer, NicWriteFlush, WritesOrdering};

use super::{Driver, MAKERS};

fn contexts() -> impl Iterator<Item = Arc<CudaContext>> {
    let drivers = MAKERS.iter().filter_map(Driver::real);
    drivers.map(|driver| CudaContext::open(&driver.library(), 0).unwrap())
}

const BYTES: u64 = 3 << 20;

#[test]
fn memory_can_be_exported_if_the_driver_reports_it() {
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
                    // NVIDIA's driver exports whole pages of the host, which have at most 64 KiB.
                    let is_near = context.driver().name != "cuda" || offset < 64 << 10;
                    assert!(is_near, "{sort}: {offset}");
                    exported += 1;
                }
                // Some drivers export only one of the two kinds of memory.
                (Err(why), Some(true)) => println!("skip: {sort} is not exported: {why}"),
                (Err(why), told) => {
                    println!("skip: this driver exports no memory ({told:?}): {why}")
                }
            }
            // After the export, the buffer must still be usable.
            buffer.write(BYTES - 5, b"whole").unwrap();
            let mut back = [0; 5];
            buffer.read(BYTES - 5, &mut back).unwrap();
            assert_eq!(&back, b"whole");
        }
        if context.device().dmabuf == Some(true) {
            assert!(
                exported > 0,
                "the driver reports that it exports, but does not"
            );
        }
    }
}

#[test]
fn writes_of_cards_are_flushed_if_the_driver_requires_it() {
    for context in contexts() {
        match context.writes_ordering() {
            WritesOrdering::Flushed => {
                let writes = NicWriteFlush::for_memory_of(&context).unwrap();
                writes.flush().unwrap();
                // A flush must also work on another thread, which has no current context.
                std::thread::scope(|scope| scope.spawn(|| writes.flush().unwrap()).join().unwrap());
            }
            other => println!("skip: no flush is needed or offered here: {other:?}"),
        }
    }
}

//! Registrations of device memory, with a simulated libibverbs that records requests.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use super::super::WorkAction;
use super::super::abi::{IBV_SEND_INLINE, ibv_qp, ibv_send_wr};
use super::super::handles::{PairHandle, PairLimits, QueueDepths};
use super::super::loaded::Libibverbs;
use super::super::post::{WorkRequest, WorkTarget};

use super::*;
use crate::cuda::{CudaContext, DeviceBuffer, DmabufFile, Libcuda};
use crate::mapping::{Pages, Sharing};

#[path = "../../../tests/cuda/double.rs"]
mod double;
use double::Double;

const ACCESS: RegionAccess = RegionAccess {
    relaxed: false,
    atomics: false,
};

thread_local! {
    static FLAGS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Opens queues of the simulated device, and returns them with the folder of its library.
fn queues() -> (tempfile::TempDir, Queues) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("libibverbs.so.1");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs");
    let script = sources.join("double.map");
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"])
        .arg(&file)
        .arg(sources.join("double.c"))
        .arg(format!("-Wl,--version-script={}", script.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the double does not compile: {said}"
    );
    let library = Arc::new(Libibverbs::load(file.to_str()).unwrap());
    let context = Arc::new(Context::open(&library, "double0").unwrap());
    (directory, Queues::open(&context, 16, false).unwrap())
}

/// Returns offset, length, address and file of the last registration, and the number of open registrations.
fn asked(queues: &Queues) -> ([i64; 4], i64) {
    let library = &queues.context.library.library;
    let noted = library.symbol_without_version(c"tonnage_double").unwrap();
    // SAFETY: the symbol is an array of six numbers.
    let [offset, length, address, file, _, open] = unsafe { *noted.cast::<[i64; 6]>().as_ptr() };
    ([offset, length, address, file], open)
}

fn device(offset: u64, address: u64, bytes: u64) -> Arc<DeviceBytes> {
    let file = DmabufFile {
        file: File::open("/dev/null").unwrap().into(),
        offset,
    };
    Arc::new(DeviceBytes::of_file(file, address, bytes))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Registers memory that begins inside a page, memory in pieces, and memory without an address.
#[test]
fn files_are_registered_with_their_offsets_and_released() {
    let (_directory, mut queues) = queues();
    let whole = device(512, 0x7f00_0000_0200, 10_000);
    let file = whole.file().unwrap().0;
    let region = queues.register_device(Arc::clone(&whole), ACCESS).unwrap();
    assert_eq!(
        asked(&queues),
        ([512, 10_000, 0x7f00_0000_0200, file.into()], 1)
    );
    let remote = queues.remote(region).unwrap();
    assert_eq!((remote.base, remote.len), (0x7f00_0000_0200, 10_000));
    queues.deregister(region).unwrap();
    // Only `whole` still keeps the memory alive.
    assert_eq!((asked(&queues).1, Arc::strong_count(&whole)), (0, 1));
    queues.register_up_to(8192);
    let region = queues.register_device(whole, ACCESS).unwrap();
    assert_eq!(
        asked(&queues).0[..3],
        [512 + 4096, 10_000 - 4096, 0x7f00_0000_1200]
    );
    queues.deregister(region).unwrap();
    // The kernel requires offset and address to have the same offset in a page.
    let region = queues.register_device(device(64, 0, 100), ACCESS).unwrap();
    assert_eq!(asked(&queues).0[..3], [64, 100, 64]);
    assert_eq!(queues.remote(region).unwrap().base, 64);
    queues.deregister(region).unwrap();
    let before = descriptors();
    for _ in 0..2000 {
        let region = queues
            .register_device(device(0, 4096, 100), ACCESS)
            .unwrap();
        queues.deregister(region).unwrap();
    }
    // Other tests open and close descriptors at the same time.
    assert!(descriptors() < before + 1000);
}

/// Registers GPU memory of both makers, by its file and by its address. An allocation of AMD's runtime does not begin
/// at the start of its file. Without the offset, bytes of another allocation would be registered.
#[test]
fn memory_of_either_maker_is_registered_where_it_begins() {
    let (_directory, mut queues) = queues();
    let loaded = [
        (Double::with("dmabuf 1"), &crate::cuda::NVIDIA, 0),
        (Double::hip("dmabuf 1"), &crate::hip::AMD, 12_288),
    ];
    for (double, driver, lead) in loaded {
        let double = double.unwrap();
        let library = Libcuda::load_of(driver, double.path().to_str()).unwrap();
        let context = CudaContext::open(&library, 0).unwrap();
        for (buffer, offset) in [
            (DeviceBuffer::allocate(&context, 10_000), lead),
            (DeviceBuffer::map(&context, 10_000), 0),
        ] {
            let buffer = Arc::new(buffer.unwrap());
            let bytes = Arc::new(DeviceBytes::exported(&buffer).unwrap());
            let file = i64::from(bytes.file().unwrap().0);
            let address = i64::try_from(buffer.address()).unwrap();
            let region = queues.register_device(bytes, ACCESS).unwrap();
            let name = driver.name;
            assert_eq!(
                asked(&queues),
                ([offset, 10_000, address, file], 1),
                "{name}"
            );
            queues.deregister(region).unwrap();
            let bytes = Arc::new(DeviceBytes::by_address(&buffer));
            let region = queues.register_device(bytes, ACCESS).unwrap();
            assert_eq!(asked(&queues), ([0, 10_000, address, -1], 1), "{name}");
            queues.deregister(region).unwrap();
        }
    }
}

unsafe extern "C" fn taken(
    _: *mut ibv_qp,
    list: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: the list has one request.
    FLAGS.with_borrow_mut(|flags| flags.push(unsafe { (*list).send_flags }));
    0
}

#[test]
fn payloads_of_devices_are_never_in_the_work_request() {
    let (_directory, mut queues) = queues();
    queues.calls.post_send = taken;
    queues.pairs.push(QueuePair {
        raw: NonNull::dangling(),
        number: 1,
        limits: PairLimits {
            depths: QueueDepths {
                send: 8,
                receive: 8,
            },
            inline_bytes: 64,
        },
        initiator: None,
    });
    let arena = Arena::allocate(4096, Pages::Normal, Sharing::Private, None).unwrap();
    let of_host = queues.register(Arc::new(arena), ACCESS).unwrap();
    let of_device = queues
        .register_device(device(0, 4096, 4096), ACCESS)
        .unwrap();
    for (local, expected) in [(of_host, IBV_SEND_INLINE), (of_device, 0)] {
        let target = WorkTarget {
            action: WorkAction::Write,
            pair: PairHandle(0),
            local,
            remote: queues.remote(of_host).unwrap(),
            inline_bytes_max: 64,
            address: None,
        };
        let request = WorkRequest {
            id: 1,
            local: 0,
            remote: 0,
            len: 8,
            imm: 0,
            signalled: false,
        };
        queues.stage(&target, &request).unwrap();
        queues.ring().unwrap();
        assert_eq!(FLAGS.take(), [expected]);
    }
}

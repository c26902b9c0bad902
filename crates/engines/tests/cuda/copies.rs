//! Copy rates of a GPU within its own memory. They are the bound of copies within this memory.

use tonnage_engines::memory::CUDA;

use super::double::Double;
use super::{BYTES, allocate, rates};

#[test]
fn copies_within_a_gpu_have_a_rate_and_move_the_bytes() {
    let Some(double) = Double::with("") else {
        return;
    };
    let memory = allocate(&double, &CUDA, "", BYTES).unwrap();
    memory.write(0, &vec![7; BYTES as usize / 2]).unwrap();
    let found = rates(&*memory).unwrap();
    assert!(
        found.iter().all(|rate| rate.bytes_per_s() > 0.0),
        "{found:?}"
    );
    // One stream and several streams, each with the driver's call and with the kernel.
    assert_eq!(found.len(), 4, "{found:?}");
    let by_kernel = "the GPU's kernel (by=sm) of 512 KiB";
    for (at, rate) in found.iter().enumerate() {
        assert_eq!(rate.method.starts_with(by_kernel), at >= 2, "{rate:?}");
    }
    // The copy covers all 512 KiB, although the operations have 4 KiB each.
    let expected =
        "the GPU's cuMemcpyAsync of 512 KiB, of nominal 128.0 GB/s for reads and writes together";
    assert_eq!(found[0].method, expected);
    let several = "the GPU's cuMemcpyAsync of 512 KiB by 4 streams, of nominal 128.0 GB/s";
    assert!(found[1].method.starts_with(several), "{found:?}");
    let mut bytes = vec![0; BYTES as usize / 2];
    memory.read(BYTES / 2, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
}

/// Copies of memory larger than any cache must be measured for small operations too, if there is room for this memory.
#[test]
fn small_copies_are_also_bounded_by_large_ones() {
    // Kernels are disabled, because the simulated driver is slow: it executes kernels word by word.
    let Some(double) = Double::with("memory 536870912\nptx 0") else {
        return;
    };
    let found = rates(&*allocate(&double, &CUDA, "", BYTES).unwrap()).unwrap();
    assert_eq!(found.len(), 4, "{found:?}");
    for of_many in &found[2..] {
        assert!(
            of_many.method.contains("of 16 MiB over 128 MiB"),
            "{of_many:?}"
        );
        assert!(of_many.bytes_per_s() > 0.0, "{of_many:?}");
    }
}

//! Tests of finding other threads' memories, which needs no driver. Tests of copies use the simulated driver, and are
//! in `tests/gpu`.

use std::sync::Arc;

use tonnage_engine::Descriptor;
use tonnage_engine::memory::{Memory, Request};

use super::registry::{CudaRegistration, find};
use crate::memory::HOST;

fn memory() -> Arc<dyn Memory> {
    let request = Request {
        bytes: 4096,
        ..Request::default()
    };
    (HOST.allocate)(&request).unwrap()
}

#[test]
fn a_memory_is_found_by_its_descriptor_while_it_is_registered() {
    let [one, other] = [memory(), memory()];
    let (first, second) = (CudaRegistration::new(&one), CudaRegistration::new(&other));
    let descriptor = second.descriptor();
    assert!(Arc::ptr_eq(&find("cuda", &descriptor, 1).unwrap(), &other));
    assert!(Arc::ptr_eq(
        &find("cuda", &first.descriptor(), 1).unwrap(),
        &one
    ));
    drop(second);
    assert!(find("cuda", &descriptor, 1).is_err());
    for invalid in [
        vec![],
        vec![1; 3],
        vec![0; 4],
        first.descriptor().0[..11].to_vec(),
    ] {
        assert!(find("cuda", &Descriptor(invalid), 1).is_err());
    }
    let mut elsewhere = first.descriptor();
    elsewhere.0[0] ^= 1;
    let refused = find("cuda", &elsewhere, 3).err().unwrap().to_string();
    assert!(
        refused.contains("engine cuda with rank 3") && refused.contains("one process"),
        "{refused}"
    );
}

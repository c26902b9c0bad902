//! Pairs of GPUs as the driver describes them, and the management library, each over a simulated library.

use tonnage_sys::cuda::{CudaPeer, Libcuda};
use tonnage_sys::error::LibraryErrorKind;
use tonnage_sys::nvml::{NvlinkEnd, Nvml};

use super::double::Double;

#[test]
fn access_is_reported_for_each_direction() {
    let double = Double::with("gpus 3\nblind 1").unwrap();
    let library = Libcuda::load(double.path().to_str()).unwrap();
    let way = |access: bool| CudaPeer {
        access,
        native_atomics: access,
        performance_rank: u32::from(!access),
    };
    assert_eq!(library.peer(0, 1).unwrap(), way(true));
    assert_eq!(library.peer(1, 0).unwrap(), way(false));
    for (gpu, peer) in [(0, 0), (0, 3), (7, 0)] {
        let refused = library.peer(gpu, peer).unwrap_err();
        assert_eq!(refused.name(), "CUDA_ERROR_INVALID_DEVICE");
    }
}

#[test]
fn links_and_slices_are_those_of_the_library() {
    let lines = "gpu 0000:1b:00.0\ngpu 0000:9a:00.0\nlinks 0 1 2\nlinks 1 0 2\ndown 0 1\nswitch 0 1\nuntold 0 1\n\
                 ones 0 1\nrefuse 0 1\nlinks 0 1 1\nprocessor 0 1\n\
                 speed 26562\nc2c 10 44712\nslice 1 1000 H100 MIG 1g.10gb\nslice 1 2000 H100 MIG 2g.20gb";
    let double = Double::nvml(lines).unwrap();
    let nvml = Nvml::load(double.path().to_str()).unwrap();
    let [one, other] = ["0000:1b:00.0", "0000:9A:00.0"].map(|at| nvml.gpu(at).unwrap());
    assert!(nvml.gpu("0000:77:00.0").is_none() && nvml.gpu("\0").is_none());
    let to_other = || NvlinkEnd::Gpu("0000:9a:00.0".to_owned());
    // The list omits the link that is down and the link that may not be queried, but includes the links after them.
    let expected = [
        to_other(),
        to_other(),
        NvlinkEnd::Switch,
        NvlinkEnd::Other,
        NvlinkEnd::Other,
        to_other(),
        NvlinkEnd::Processor,
    ];
    assert_eq!(one.links().unwrap(), expected);
    assert_eq!(one.c2c(), Some((10, Some(44_712_000_000))));
    assert_eq!(one.link_bytes_per_s(), Some(26_562_000_000));
    assert_eq!(
        (one.is_linked(&other), one.why_not_peer(&other)),
        (Some(true), None)
    );
    assert_eq!(one.slices(), None);
    let slices = other.slices().unwrap();
    let told: Vec<_> = slices
        .iter()
        .map(|slice| (&*slice.name, &*slice.uuid, slice.memory_bytes))
        .collect();
    let expected = [
        ("H100 MIG 1g.10gb", "MIG-0", Some(1000)),
        ("H100 MIG 2g.20gb", "MIG-1", Some(2000)),
    ];
    assert_eq!(told, expected);
}

/// If the library does not report the type of a remote end, the end's address identifies the GPU. An address of all
/// ones is unknown. A lost GPU is an error, unlike a GPU without links. A library of the wrong version is an error too.
#[test]
fn unreported_values_are_unknown() {
    let lines = "gpu 0000:1b:00.0\ngpu 0000:9a:00.0\nkindless\nlinks 0 1 1\nones 0 2\nlost 1";
    let double = Double::nvml(lines).unwrap();
    let nvml = Nvml::load(double.path().to_str()).unwrap();
    let [one, lost] = ["0000:1b:00.0", "0000:9a:00.0"].map(|at| nvml.gpu(at).unwrap());
    let to_other = NvlinkEnd::Gpu("0000:9a:00.0".to_owned());
    let expected = [to_other, NvlinkEnd::Other, NvlinkEnd::Other];
    assert_eq!(one.links().unwrap(), expected);
    assert!(lost.links().unwrap_err().to_string().contains("lost"));
    drop(nvml);
    std::fs::write(double.path().with_extension("1.conf"), "fails 18").unwrap();
    let failure = Nvml::load(double.path().to_str()).err().unwrap();
    assert!(
        matches!(
            *failure,
            LibraryErrorKind::Call {
                code: Nvml::VERSION_MISMATCH,
                ..
            }
        ),
        "{failure}"
    );
}

/// Missing answers stay unknown, and a file that is not the library is refused with a reason.
#[test]
fn missing_answers_stay_unknown() {
    let double = Double::nvml("gpu 0000:1b:00.0\ngpu 0000:1c:00.0\nrefused 3").unwrap();
    let nvml = Nvml::load(double.path().to_str()).unwrap();
    let [one, other] = ["0000:1b:00.0", "0000:1c:00.0"].map(|at| nvml.gpu(at).unwrap());
    assert_eq!(
        (one.links().unwrap(), one.link_bytes_per_s(), one.c2c()),
        (Vec::new(), None, None)
    );
    assert_eq!(one.is_linked(&other), Some(false));
    assert!(one.why_not_peer(&other).unwrap().contains("root complexes"));
    let driver = Double::with("").unwrap();
    let none = |file: &str| Nvml::load(Some(file)).err().unwrap();
    let absent = none("/nonexistent/libnvidia-ml.so.1");
    assert!(matches!(*absent, LibraryErrorKind::NotFound { .. }));
    let other = none(driver.path().to_str().unwrap());
    assert!(other.to_string().contains("nvmlInit_v2"), "{other}");
}

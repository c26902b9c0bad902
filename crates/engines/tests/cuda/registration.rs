//! Tests of simulated GPU memory with libfabric providers that cannot use GPU memory. Test machines have no other
//! providers.

use std::path::PathBuf;

use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{EngineOptions, Libraries, OpenRequest, PlannedMemory, WorkerConfig};
use tonnage_engines::fabric;
use tonnage_engines::memory::{CUDA, HIP};
use tonnage_sys::libfabric::Libfabric;
use tonnage_units::Error;

use super::{BYTES, Double, allocate};

/// Returns the error of a provider for GPU memory. It comes from opening the provider or from registering the memory.
fn refused(
    (double, entry): (&Double, &MemoryEntry),
    (library, provider): (&str, &str),
    registration: &str,
) -> String {
    let libraries = Libraries::from([("libfabric".to_owned(), PathBuf::from(library))]);
    let options = EngineOptions::from([("registration".to_owned(), registration.to_owned())]);
    let own = PlannedMemory {
        name: entry.name,
        gpu: None,
        device: None,
    };
    let opened = (fabric::ENTRY.open)(&OpenRequest {
        variant: provider,
        options: &options,
        libraries: &libraries,
        memories: (own, &[own]),
        ..OpenRequest::default()
    });
    let error = match opened {
        Err(error) => error,
        Ok(domains) => {
            let config = WorkerConfig::polling(0, 1, 16);
            let mut engine = domains[0].worker(&config).unwrap();
            let memory = allocate(double, entry, "", BYTES).unwrap();
            engine.register(&memory).unwrap_err()
        }
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    error.to_string()
}

/// Checks the embedded library, and the installed one if there is one. Bytes must never go through the host unnoticed.
#[test]
fn a_provider_without_device_memory_is_refused() {
    let (Some(double), Some(hip)) = (Double::with("dmabuf 1"), Double::hip("dmabuf 1")) else {
        return;
    };
    // For memory of AMD GPUs, the error uses AMD's terms.
    let said = refused((&hip, &HIP), ("embedded", "tcp"), "auto");
    assert!(
        said.contains("memory hip with engine fabric:tcp")
            && said.contains("built with ROCm")
            && said.contains("such as cxi or")
            && !said.contains("CUDA"),
        "{said}"
    );
    let installed = Libfabric::load(None).ok();
    let installed = installed.map(|library| library.path().to_owned());
    let libraries = std::iter::once("embedded".to_owned()).chain(installed);
    for library in libraries {
        for provider in ["tcp", "shm"] {
            for registration in ["auto", "hmem", "dmabuf"] {
                let said = refused((&double, &CUDA), (&library, provider), registration);
                println!("{library}: {said}");
                for part in ["memory cuda with engine fabric:", "staging=pinned", "CUDA"] {
                    assert!(said.contains(part), "{library}: no {part:?} in {said}");
                }
            }
        }
    }
}

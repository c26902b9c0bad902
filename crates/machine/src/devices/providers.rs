//! Well-known libfabric providers that are not offered here: the reason for each, and which library has the provider.
//! Offered providers are in `fabric`.

use std::fs::File;
use std::io::Read;

use super::super::fabric::LIBFABRIC_VARIABLE;
use super::super::kernel_files::Tree;
use super::Absent;
use super::fabric::FabricLibrary;
use super::rdma::RdmaDevice;

/// Limit on the bytes to read of a library's file, far above any library's size.
const LIBRARY_BYTES_MAX: u64 = 1 << 28;

/// A provider that users ask for by name.
struct Known {
    name: &'static str,
    /// A string that is only in files of libraries with this provider. It is needed because some providers withdraw if
    /// they find no device, and the library then does not list them.
    marker: &'static str,
    /// Description of the device that the provider needs.
    needs: &'static str,
    /// Returns the names of suitable devices on this host.
    devices: fn(&Tree, &[RdmaDevice]) -> Vec<String>,
    /// How to get a library with this provider.
    how: &'static str,
}

const KNOWN: [Known; 7] = [
    Known {
        name: "efa",
        marker: "efadv_query_device",
        needs: "an Elastic Fabric Adapter (RDMA device of driver efa)",
        devices: |_, rdma| devices_of_driver(rdma, "efa"),
        how: "Run AWS's aws-efa-installer; its libfabric in /opt/amazon/efa is found automatically.",
    },
    Known {
        name: "cxi",
        marker: "cxil_open_device",
        needs: "a Slingshot NIC (/sys/class/cxi)",
        devices: |tree, _| tree.names("sys/class/cxi"),
        how: "Use the libfabric of HPE's Slingshot host software (`module load libfabric` on Cray systems).",
    },
    Known {
        name: "verbs",
        marker: "rdma_create_id",
        needs: "an RDMA device (/sys/class/infiniband)",
        devices: |_, rdma| rdma.iter().map(|device| device.name.clone()).collect(),
        how: "Run `apt-get install libfabric1` or `dnf install libfabric`, which have it.",
    },
    Known {
        name: "psm3",
        marker: "PSM3_MULTIRAIL",
        needs: "an RDMA device of driver irdma",
        devices: |_, rdma| devices_of_driver(rdma, "irdma"),
        how: "Use the libfabric of Intel's Ethernet Fabric Suite, or build one with `--enable-psm3`.",
    },
    Known {
        name: "psm2",
        marker: "psm2_ep_open",
        needs: "an Omni-Path adapter (RDMA device of driver hfi1)",
        devices: |_, rdma| devices_of_driver(rdma, "hfi1"),
        how: "Run `apt-get install libfabric1`, or build one with `--enable-psm2` and libpsm2.",
    },
    Known {
        name: "opx",
        marker: "reliability_service_usec_max",
        needs: "an Omni-Path adapter (RDMA device of driver hfi1)",
        devices: |_, rdma| devices_of_driver(rdma, "hfi1"),
        how: "Use the libfabric of Cornelis's Omni-Path Express suite, or build one with `--enable-opx`.",
    },
    Known {
        name: "ucx",
        marker: "ucp_worker_create",
        needs: "an RDMA device that UCX can use",
        devices: |_, rdma| rdma.iter().map(|device| device.name.clone()).collect(),
        how: "Build a libfabric with `--enable-ucx` against UCX's libucp (libfabric 1.18 or newer).",
    },
];

fn devices_of_driver(rdma: &[RdmaDevice], driver: &str) -> Vec<String> {
    let of_it = rdma.iter();
    let of_it = of_it.filter(|device| device.driver.as_deref() == Some(driver));
    of_it.map(|device| device.name.clone()).collect()
}

/// Explains the well-known providers that no library offers.
pub(super) fn absent(tree: &Tree, rdma: &[RdmaDevice], libraries: &[FabricLibrary]) -> Vec<Absent> {
    let installed = libraries.iter().find(|library| !library.embedded);
    let file = installed.map(|library| contents(&library.path));
    let offers = |name: &str| {
        let mut providers = libraries.iter().flat_map(|library| &library.providers);
        providers.any(|provider| provider.name.split(';').next() == Some(name))
    };
    let missing = KNOWN.iter().filter(|known| !offers(known.name));
    let explain = |known: &Known| {
        let devices = (known.devices)(tree, rdma);
        let has = installed.map(|library| {
            let part = library.parts.iter().any(|part| part == known.name);
            let file = file.as_ref();
            let in_file = file.is_some_and(|file| contains(file, known.marker));
            (library.path.as_str(), part || in_file)
        });
        explanation(known, has, &devices)
    };
    missing.map(explain).collect()
}

/// Explains a missing provider. `library` is the installed library's path, and whether that library has the provider.
fn explanation(known: &Known, library: Option<(&str, bool)>, devices: &[String]) -> Absent {
    let Known {
        name, needs, how, ..
    } = known;
    let has = library.is_some_and(|(_, has)| has);
    let why_library = match library {
        Some((path, true)) => format!("{path} has it"),
        Some((path, false)) => format!("{path} was built without it"),
        None => "the embedded libfabric has only tcp and shm".to_owned(),
    };
    let why = match (devices, has) {
        ([], _) => format!("no device for it: it needs {needs}; {why_library}"),
        (devices, true) => format!("{why_library} but does not offer {}", devices.join(", ")),
        (devices, false) => format!(
            "{why_library}; the host has a device for it: {}",
            devices.join(", ")
        ),
    };
    let how = match (devices, has) {
        ([], true) => "Use a host with this device.".to_owned(),
        (_, true) => format!(
            "Run `FI_LOG_LEVEL=info FI_LOG_PROV={name} tonnage devices`; the provider then prints what it lacks."
        ),
        (_, false) if library.is_none() => how.to_string(),
        (_, false) => format!("{how} For a library elsewhere, set {LIBFABRIC_VARIABLE}=PATH."),
    };
    Absent::new(format!("libfabric provider {name}"), why, how)
}

/// Returns the bytes of a file. An unreadable file is treated as empty, so the library counts as one without the
/// provider.
fn contents(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

fn contains(file: &[u8], marker: &str) -> bool {
    let marker = marker.as_bytes();
    file.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
mod tests {
    use super::super::fabric::FabricProvider;
    use super::*;

    fn library(path: &str, embedded: bool, providers: &[&str], parts: &[&str]) -> FabricLibrary {
        let provider = |name: &&str| FabricProvider {
            name: (*name).to_owned(),
            version: "1.0".to_owned(),
            offers: Vec::new(),
        };
        FabricLibrary {
            path: path.to_owned(),
            version: "1.22".to_owned(),
            embedded,
            providers: providers.iter().map(provider).collect(),
            parts: parts.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn device(name: &str, driver: &str) -> RdmaDevice {
        RdmaDevice {
            name: name.to_owned(),
            driver: Some(driver.to_owned()),
            firmware: None,
            board: None,
            pci: None,
            ports: Vec::new(),
        }
    }

    fn of<'a>(absent: &'a [Absent], name: &str) -> &'a Absent {
        let what = format!("libfabric provider {name}");
        absent.iter().find(|absent| absent.what == what).unwrap()
    }

    #[test]
    fn a_missing_device_is_distinguished_from_a_missing_provider() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libfabric.so.1");
        std::fs::write(&path, b"\x7fELF\0efadv_query_device\0").unwrap();
        let path = path.to_str().unwrap();
        let libraries = [
            library(path, false, &["tcp;ofi_rxm"], &["tcp", "verbs"]),
            library("embedded", true, &["tcp", "shm"], &["tcp", "shm"]),
        ];
        let tree = Tree::at(folder.path());
        let found = absent(&tree, &[], &libraries);
        assert_eq!(found.len(), KNOWN.len());
        for has in ["efa", "verbs"] {
            let why = &of(&found, has).why;
            assert!(
                why.starts_with("no device for it: it needs ") && why.ends_with(" has it"),
                "{why}"
            );
            assert!(of(&found, has).how.contains("a host with"));
        }
        let cxi = of(&found, "cxi");
        let why = &cxi.why;
        assert!(
            why.starts_with("no device for it: it needs ")
                && why.ends_with(" was built without it"),
            "{why}"
        );
        assert!(cxi.how.contains("TONNAGE_LIBFABRIC"), "{cxi:?}");
    }

    #[test]
    fn a_device_that_nothing_offers_is_named() {
        let tree = Tree::at("/nonexistent");
        let rdma = [device("efa_0", "efa"), device("mlx5_0", "mlx5_core")];
        let without = [library("embedded", true, &["tcp"], &["tcp"])];
        let found = absent(&tree, &rdma, &without);
        let efa = of(&found, "efa");
        assert!(
            efa.why.contains("the host has a device for it: efa_0"),
            "{efa:?}"
        );
        assert!(efa.how.contains("aws-efa-installer"), "{efa:?}");
        let with = [library(
            "/nonexistent/lib",
            false,
            &["verbs;ofi_rxm"],
            &["verbs", "efa"],
        )];
        let found = absent(&tree, &rdma, &with);
        let efa = of(&found, "efa");
        assert!(efa.why.contains("does not offer efa_0"), "{efa:?}");
        assert!(efa.how.contains("FI_LOG_PROV=efa"), "{efa:?}");
        assert!(!found.iter().any(|absent| absent.what.ends_with(" verbs")));
    }
}

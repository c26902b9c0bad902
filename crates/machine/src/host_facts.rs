//! Facts about a host that decide whether it can take part in a run, at one glance; `tonnage hosts` sets those of
//! several hosts below each other. Everything that is known of one host is in [`super::devices`].

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use tonnage_sys::library::libc_version;

use super::devices::Inventory;
use super::pages::HugePool;
use tonnage_units::{Error, Result};

/// Facts about one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Machine architecture as the kernel names it.
    pub architecture: String,
    /// C library with its version; absent where it does not say.
    pub c_library: Option<String>,
    /// Limit on locked memory; absent without one.
    pub lockable_bytes: Option<u64>,
    /// Soft and hard limit on open files; absent without one.
    pub open_files: (Option<u64>, Option<u64>),
    /// Pools of huge pages.
    pub huge_pools: Vec<HugePool>,
    /// Network interfaces that are up, with their link rates in bits per second, but for the loopback.
    pub networks: Vec<(String, Option<u64>)>,
    /// RDMA devices.
    pub rdma: Vec<String>,
    /// Models of GPUs.
    pub gpus: Vec<String>,
}

impl HostFacts {
    /// Looks at this host.
    pub fn read() -> Self {
        let found = Inventory::read();
        let files = getrlimit(Resource::Nofile);
        let networks = found.networks.into_iter();
        let networks =
            networks.filter(|network| network.kind != "loopback" && network.state != "down");
        Self {
            architecture: rustix::system::uname()
                .machine()
                .to_string_lossy()
                .into_owned(),
            c_library: libc_version(),
            lockable_bytes: found.memory.lockable_bytes,
            open_files: (files.current, files.maximum),
            huge_pools: found.memory.huge_pools,
            networks: networks
                .map(|network| (network.name, network.link_bits_per_s))
                .collect(),
            rdma: found.rdma.into_iter().map(|device| device.name).collect(),
            gpus: found.gpus.into_iter().map(|gpu| gpu.model).collect(),
        }
    }

    /// The facts as JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::Failed(format!("this host cannot be described: {error}")))
    }

    /// The reverse of [`HostFacts::to_json`].
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| Error::Failed(format!("its description cannot be read: {error}")))
    }
}

//! A short summary of a host. It shows whether the host can take part in a run. `tonnage hosts` lists the summaries
//! of several hosts below each other. The full inventory of one host is in [`super::devices`].

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
    /// C library with its version; absent if it reports none.
    pub c_library: Option<String>,
    /// Limit on locked memory; absent if unlimited.
    pub lockable_bytes: Option<u64>,
    /// Soft and hard limit on open files; absent if unlimited.
    pub open_files: (Option<u64>, Option<u64>),
    /// Pools of huge pages.
    pub huge_pools: Vec<HugePool>,
    /// Network interfaces that are up, except the loopback, with their link rates in bits per second.
    pub networks: Vec<(String, Option<u64>)>,
    /// RDMA devices.
    pub rdma: Vec<String>,
    /// Models of GPUs.
    pub gpus: Vec<String>,
}

impl HostFacts {
    /// Reads the facts of this host.
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

    /// Serializes the facts to JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::Failed(format!("this host cannot be described: {error}")))
    }

    /// Parses the output of [`HostFacts::to_json`].
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text)
            .map_err(|error| Error::Failed(format!("its description cannot be read: {error}")))
    }
}

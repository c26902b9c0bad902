//! A rank's messages to rank 0 once its engine is open: its choices in effect, and its CPUs and devices.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::wire_proof::NamedDevices;
use tonnage_engine::memory::{BusDevice, MemoryReport};
use tonnage_engine::{BoundKind, Caps, DeviceMemoryAccess, Domain, EngineReport};

/// Placement of a rank's workers on its host. It differs between the ranks of a host, but is equal for ranks with the
/// same index on other hosts. The description of the host is in [`OpenMessage`]; in one message, the combination would
/// differ for each rank and none could be merged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerCpus {
    /// CPUs of the workers; `None` for one that is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// CPU sockets of these CPUs; `None` if unknown.
    pub sockets: Vec<Option<u32>>,
    /// Memory of its workers; a single entry if it is the same for all.
    pub memory: Vec<MemoryReport>,
}

/// A rank's message to the others once its engine is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenMessage {
    /// Whether there are more workers than CPUs on the host.
    pub yielding: bool,
    /// Whether the rank has no peers, so that its devices do not limit anything.
    pub idle: bool,
    /// The engine's choices.
    pub engine: EngineReport,
    /// The device with the memory of its workers; `None` for host memory.
    pub memory_device: Option<BusDevice>,
    /// How bytes of such memory are moved.
    pub device_memory_by: DeviceMemoryAccess,
    /// Devices of each worker, in the order of its rails.
    pub devices: Vec<Vec<DeviceDescription>>,
    /// The devices that its payload must cross; `None` if it names none.
    pub wire_devices: Option<NamedDevices>,
}

impl OpenMessage {
    /// Returns the memory's device, if all bytes cross its link to the rest of the machine.
    pub fn device_behind_link(&self) -> Option<&BusDevice> {
        let device = self.memory_device.as_ref();
        device.filter(|_| self.device_memory_by.crosses_link())
    }

    /// Returns all devices that some flow uses.
    pub fn used_devices(&self) -> impl Iterator<Item = &DeviceDescription> {
        let all = self.devices.iter().flatten();
        all.filter(|device| device.used)
    }
}

/// A worker's device, with the properties that limits depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Whether one of the worker's flows uses this rail.
    pub used: bool,
    /// Upper bound of the engine's bandwidth on this device.
    pub bound: BoundKind,
    /// Whether that is a link speed stated by the user.
    pub link_stated: bool,
    /// Whether completed writes are visible to the peer: always, and if requested.
    pub delivers: [bool; 2],
    /// Whether a send completes only after its receiver has taken it, by the engine or by credits.
    pub sends_taken: bool,
    /// The engine's address for socket streams.
    pub address: Option<IpAddr>,
    /// The network interface that has that address.
    pub interface: Option<String>,
    /// The device's own name.
    pub name: Option<String>,
    /// Name of the component that limits this device, the same in all processes of the machine. `None` if the device's
    /// name already is one.
    pub bound_place: Option<String>,
}

impl DeviceDescription {
    /// Describes a device of a worker whose devices together have `caps`. `link_bytes_per_s` is the speed to use for a
    /// link that does not report one.
    pub(crate) fn new(
        device: &dyn Domain,
        caps: &Caps,
        counts_sends: bool,
        link_bytes_per_s: Option<u64>,
    ) -> Self {
        let address = device.stream_address();
        let (bound, link_stated) = match (device.caps().bound, link_bytes_per_s) {
            (BoundKind::SocketStream | BoundKind::None, Some(bytes_per_s)) => {
                (BoundKind::Link { bytes_per_s }, true)
            }
            (own, _) => (own, false),
        };
        Self {
            used: true,
            bound,
            link_stated,
            delivers: [caps.delivered, caps.delivery_on_request],
            sends_taken: caps.sends_taken || counts_sends,
            address,
            interface: address.and_then(interface_of),
            name: device.report().device,
            bound_place: device.bound_place().map(str::to_owned),
        }
    }

    /// Returns the device's interface and address, or else its name; `None` if all are unknown.
    pub(crate) fn title(&self) -> Option<String> {
        match (&self.interface, self.address) {
            (Some(interface), Some(address)) => Some(format!("{interface} ({address})")),
            (None, Some(address)) => Some(address.to_string()),
            (interface, None) => interface.clone().or_else(|| self.name.clone()),
        }
    }
}

/// Returns the network interface with an address; `None` if there is none, or the system does not list them.
pub(crate) fn interface_of(address: IpAddr) -> Option<String> {
    let all = tonnage_sys::interfaces::addresses().ok()?;
    let found = all.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.name)
}

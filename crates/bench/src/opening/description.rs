//! The messages that a rank sends to rank 0 when its engine is open: the effective configuration, CPUs and devices.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::wire_proof::NamedDevices;
use tonnage_engine::memory::{BusDevice, MemoryReport};
use tonnage_engine::{BoundKind, Caps, DeviceMemoryAccess, Domain, EngineReport};

/// Placement of a rank's workers. It differs between the ranks of a host, but ranks with the same index on different
/// hosts often have the same placement. [`OpenMessage`] is sent separately, because it is often equal for all ranks of
/// a host. If both were in one message, no two messages would be equal, and none could be merged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerCpus {
    /// CPU of each worker; `None` for a worker that is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// CPU socket of each worker; `None` if unknown.
    pub sockets: Vec<Option<u32>>,
    /// Memory of each worker; a single entry if all are equal.
    pub memory: Vec<MemoryReport>,
}

/// Description of a rank's open engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenMessage {
    /// Whether the host has more workers than CPUs.
    pub yielding: bool,
    /// Whether the rank has no peers. Its devices then don't affect any bound.
    pub idle: bool,
    /// The configuration that the engine chose.
    pub engine: EngineReport,
    /// The device that holds the workers' memory; `None` for host memory.
    pub memory_device: Option<BusDevice>,
    /// How bytes in the device's memory are moved.
    pub device_memory_by: DeviceMemoryAccess,
    /// Devices of each worker, in the order of its rails.
    pub devices: Vec<Vec<DeviceDescription>>,
    /// The devices that the rank's payload must cross; `None` if its engine names none.
    pub wire_devices: Option<NamedDevices>,
}

impl OpenMessage {
    /// Returns the device that holds the memory, if all bytes cross the link between the device and the rest of the
    /// machine.
    pub fn device_behind_link(&self) -> Option<&BusDevice> {
        let device = self.memory_device.as_ref();
        device.filter(|_| self.device_memory_by.crosses_link())
    }

    /// Returns the devices that any of the rank's flows uses.
    pub fn used_devices(&self) -> impl Iterator<Item = &DeviceDescription> {
        let all = self.devices.iter().flatten();
        all.filter(|device| device.used)
    }
}

/// A device of a worker, with the properties that bounds depend on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Whether one of the worker's flows uses this rail.
    pub used: bool,
    /// Kind of upper bound for the engine's bandwidth on this device.
    pub bound: BoundKind,
    /// Whether the bound is a link speed that the user stated.
    pub link_stated: bool,
    /// Whether completed writes are visible to the peer: always, and on request.
    pub delivers: [bool; 2],
    /// Whether the rank knows when the receiver has taken a send, from its completion or by credits.
    pub sends_taken: bool,
    /// The address that the engine uses, for socket streams.
    pub address: Option<IpAddr>,
    /// The network interface with this address.
    pub interface: Option<String>,
    /// The device's own name.
    pub name: Option<String>,
    /// Name of the component that limits this device. It is the same in all processes of a machine. `None` if the
    /// device's own name is already the same in all processes.
    pub bound_place: Option<String>,
}

impl DeviceDescription {
    /// Describes a device of a worker. `caps` are the combined capabilities of the worker's devices. `link_bytes_per_s`
    /// is used for a link that does not report its speed.
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

    /// Returns interface and address of the device, or otherwise its name. `None` if nothing is known.
    pub(crate) fn title(&self) -> Option<String> {
        match (&self.interface, self.address) {
            (Some(interface), Some(address)) => Some(format!("{interface} ({address})")),
            (None, Some(address)) => Some(address.to_string()),
            (interface, None) => interface.clone().or_else(|| self.name.clone()),
        }
    }
}

/// Returns the network interface with this address. `None` if there is none, or the system does not list interfaces.
pub(crate) fn interface_of(address: IpAddr) -> Option<String> {
    let all = tonnage_sys::interfaces::addresses().ok()?;
    let found = all.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.name)
}

//! A rank's messages to rank 0 once its engine is open: what was really chosen, and on which CPUs and devices.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::wire_proof::NamedDevices;
use tonnage_engine::memory::{BusDevice, MemoryReport};
use tonnage_engine::{Caps, DeviceMemoryBy, Domain, EngineReport, LimitKind};

/// Places of a rank's workers on its host: they differ between its ranks, and are the same for those that have its
/// place on other hosts. What describes the host is in [`OpenMessage`]; told together, each rank would be a kind of its
/// own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerPlaces {
    /// CPUs of the workers; `None` where one is not pinned.
    pub cpus: Vec<Option<u32>>,
    /// Sockets of these CPUs; `None` where that is not known.
    pub sockets: Vec<Option<u32>>,
    /// Memory of its workers: said once where it is the same for all.
    pub memory: Vec<MemoryReport>,
}

/// A rank's message to the others once it is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenMessage {
    /// True with more workers than CPUs on the host.
    pub yielding: bool,
    /// True for a rank without peers, whose devices bound nothing.
    pub idle: bool,
    /// The engine's choices.
    pub engine: EngineReport,
    /// The device that the memory of its workers is of; `None` for memory of the host.
    pub memory_device: Option<BusDevice>,
    /// Whoever moves bytes of such memory.
    pub device_memory_by: DeviceMemoryBy,
    /// Devices of each worker, in the order of its rails.
    pub devices: Vec<Vec<Device>>,
    /// The devices that its payload has to cross; `None` where it names none.
    pub wire_devices: Option<NamedDevices>,
}

impl OpenMessage {
    /// The device of the memory, where all bytes cross its link to the rest of the machine.
    pub fn device_behind_link(&self) -> Option<&BusDevice> {
        let device = self.memory_device.as_ref();
        device.filter(|_| self.device_memory_by.crosses_link())
    }

    /// All devices that some flow takes.
    pub fn used_devices(&self) -> impl Iterator<Item = &Device> {
        let all = self.devices.iter().flatten();
        all.filter(|device| device.used)
    }
}

/// A device that a worker was given, as far as limits depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// False for a rail that none of the worker's flows takes.
    pub used: bool,
    /// Upper bound of the engine's bandwidth on it.
    pub limit: LimitKind,
    /// True when that is the speed of its link because the user said so.
    pub link_stated: bool,
    /// True when completed writes are visible to the peer: always, and where it is asked for.
    pub delivers: [bool; 2],
    /// True when a send is done only once its receiver has taken it, by the engine or by counts.
    pub sends_taken: bool,
    /// The engine's address for socket streams.
    pub address: Option<IpAddr>,
    /// The network interface that has that address.
    pub interface: Option<String>,
    /// Its own name.
    pub name: Option<String>,
    /// The name by which all processes know what bounds it, where that is another one.
    pub bound_place: Option<String>,
}

impl Device {
    /// Describes a device of a worker whose devices together can do `caps`. `link_bytes_per_s` is the speed of a link
    /// that does not say it.
    pub(crate) fn new(
        device: &dyn Domain,
        caps: &Caps,
        counts_sends: bool,
        link_bytes_per_s: Option<u64>,
    ) -> Self {
        let address = device.stream_address();
        let (limit, link_stated) = match (device.caps().limit, link_bytes_per_s) {
            (LimitKind::SocketStream | LimitKind::None, Some(bytes_per_s)) => {
                (LimitKind::Link { bytes_per_s }, true)
            }
            (own, _) => (own, false),
        };
        Self {
            used: true,
            limit,
            link_stated,
            delivers: [caps.delivered, caps.delivery_on_request],
            sends_taken: caps.sends_taken || counts_sends,
            address,
            interface: address.and_then(interface_of),
            name: device.report().device,
            bound_place: device.bound_place().map(str::to_owned),
        }
    }

    /// Its interface and address, or its name; `None` where it has none of them.
    pub(crate) fn title(&self) -> Option<String> {
        match (&self.interface, self.address) {
            (Some(interface), Some(address)) => Some(format!("{interface} ({address})")),
            (None, Some(address)) => Some(address.to_string()),
            (interface, None) => interface.clone().or_else(|| self.name.clone()),
        }
    }
}

/// The network interface that has an address; `None` when none has, or the system does not list them.
pub(crate) fn interface_of(address: IpAddr) -> Option<String> {
    let all = tonnage_sys::interfaces::addresses().ok()?;
    let found = all.into_iter().find(|entry| entry.address == address);
    found.map(|entry| entry.name)
}

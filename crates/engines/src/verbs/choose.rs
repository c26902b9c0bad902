//! Chooses the library, the devices, their ports and addresses. Each has its own error if it is missing.

use std::sync::Arc;

use tonnage_engine::{DeviceRequest, OpenRequest};
use tonnage_machine::Topology;
use tonnage_machine::devices::{RdmaDevice, RdmaGid, RdmaPort};
use tonnage_machine::kernel_files::Tree;
use tonnage_sys::verbs::{Context, Libibverbs, LinkLayer, PortState};
use tonnage_units::{Error, Result};

use super::options::{Asked, FlowLabel, LIBIBVERBS_VARIABLE, LIBRARY};
use crate::libraries;
use crate::memory::gpu_nic::GpuPlace;

/// A chosen port, with its device opened.
pub(super) struct ChosenPort {
    pub(super) context: Arc<Context>,
    pub(super) device: RdmaDevice,
    pub(super) state: RdmaPort,
    pub(super) port: PortState,
    /// The address in the packets; `None` if packets carry none.
    pub(super) gid: Option<RdmaGid>,
    /// Why this port was chosen, if the user named none.
    pub(super) why: Option<String>,
}

pub(super) fn choose(request: &OpenRequest<'_>) -> Result<Vec<ChosenPort>> {
    let library = Arc::new(library(request)?);
    let devices = RdmaDevice::all(&Tree::host());
    // The GPU's driver is queried only when needed: not if the user names devices.
    let near = |addresses: &[Option<&str>]| GpuPlace::for_request(request)?.nearest(addresses);
    let here = || {
        let own = || Topology::read().first_memory_node();
        request.near_node.or_else(own)
    };
    let named = named_by(request.devices, &devices, (&near, &here))?;
    let open = |(device, port, why): (&RdmaDevice, &RdmaPort, Option<String>)| {
        open_port(&library, (device, port), &Asked::from_request(request), why)
    };
    named.into_iter().map(open).collect()
}

/// The error for a missing library, device or capability. The caller adds the name of the transport.
pub(super) fn unavailable(why: impl Into<String>, how: &str) -> Error {
    Error::Unavailable {
        what: "verbs".into(),
        why: why.into(),
        how: how.to_owned(),
    }
}

fn library(request: &OpenRequest<'_>) -> Result<Libibverbs> {
    let named = libraries::requested_path(request, LIBRARY, LIBIBVERBS_VARIABLE)?;
    Libibverbs::load(named.as_deref()).map_err(|why| {
        let how = "Install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (others), or name a file with \
                   --library libibverbs=PATH";
        unavailable(why, how)
    })
}

/// A port, and the reason for choosing it if the user named none.
type Wanted<'a> = (&'a RdmaDevice, &'a RdmaPort, Option<String>);

/// Given the PCI addresses of devices, returns the index of the device nearest to the GPU, and the reason.
type NearGpu<'a> = &'a dyn Fn(&[Option<&str>]) -> Option<(usize, String)>;

/// Returns the requested ports.
fn named_by<'a>(
    asked: DeviceRequest<'_>,
    devices: &'a [RdmaDevice],
    (near_gpu, here): (NearGpu<'_>, &dyn Fn() -> Option<u32>),
) -> Result<Vec<Wanted<'a>>> {
    let active: Vec<(&RdmaDevice, &RdmaPort)> = all_ports(devices)
        .filter(|(_, port)| port.state == "ACTIVE")
        .collect();
    let none = || {
        let how = "Run `tonnage devices`: it lists missing parts, and how to get them";
        let why = match names(devices).as_str() {
            "" => "this host has no RDMA device".to_owned(),
            names => format!("no port of {names} is active"),
        };
        unavailable(why, how)
    };
    match asked {
        DeviceRequest::Named(wanted) => wanted.iter().map(|name| by_name(devices, name)).collect(),
        _ if active.is_empty() => Err(none()),
        DeviceRequest::All => Ok(active.into_iter().map(|(d, p)| (d, p, None)).collect()),
        DeviceRequest::Own => {
            if let Some(port) = nearest_to_gpu(&of_one_network(&active), near_gpu) {
                return Ok(vec![port]);
            }
            nearest(&active, here())
                .map(|port| vec![port])
                .ok_or_else(none)
        }
    }
}

fn all_ports<'a>(
    devices: &'a [RdmaDevice],
) -> impl Iterator<Item = (&'a RdmaDevice, &'a RdmaPort)> {
    let ports = |device: &'a RdmaDevice| device.ports.iter().map(move |port| (device, port));
    devices.iter().flat_map(ports)
}

fn names(devices: &[RdmaDevice]) -> String {
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    names.join(", ")
}

/// Keeps only the ports of the more frequent link layer, or of InfiniBand if both are equally frequent.
///
/// Otherwise, the nearest ports of two GPUs could have different link layers, and could not connect. By this rule,
/// identical hosts choose the same link layer.
fn of_one_network<'a>(
    active: &[(&'a RdmaDevice, &'a RdmaPort)],
) -> Vec<(&'a RdmaDevice, &'a RdmaPort)> {
    let of = |layer: &str| -> Vec<_> {
        let ports = active.iter().filter(|(_, port)| port.link_layer == layer);
        ports.copied().collect()
    };
    let (infiniband, ethernet) = (of("InfiniBand"), of("Ethernet"));
    match infiniband.len() + ethernet.len() == active.len() {
        true if infiniband.len() >= ethernet.len() => infiniband,
        true => ethernet,
        false => active.to_vec(),
    }
}

/// Returns the port nearest to the GPU of this rank's memory; `None` for host memory.
fn nearest_to_gpu<'a>(
    active: &[(&'a RdmaDevice, &'a RdmaPort)],
    near_gpu: NearGpu<'_>,
) -> Option<Wanted<'a>> {
    let address = |(device, _): &(&'a RdmaDevice, &RdmaPort)| {
        let pci = device.pci.as_ref();
        pci.map(|pci| pci.address.as_str())
    };
    let addresses: Vec<Option<&str>> = active.iter().map(address).collect();
    let (place, why) = near_gpu(&addresses)?;
    let &(device, port) = active.get(place)?;
    Some((device, port, Some(why)))
}

/// Returns the first port at the NUMA node of this process's memory, or else the first port of all.
fn nearest<'a>(active: &[(&'a RdmaDevice, &'a RdmaPort)], here: Option<u32>) -> Option<Wanted<'a>> {
    let node = |device: &RdmaDevice| device.pci.as_ref().and_then(|pci| pci.numa_node);
    let near = active
        .iter()
        .find(|(device, _)| here.is_some() && node(device) == here);
    let (device, port) = near.or(active.first())?;
    let why = match (near, node(device), active.len()) {
        (_, _, 1) => "the only active port".to_owned(),
        (Some(_), Some(node), _) => {
            format!("the first active port at NUMA node {node}, where this rank's memory is")
        }
        _ => "the first active port: none is known to be nearer to this rank's memory".to_owned(),
    };
    Some((device, port, Some(why)))
}

/// Finds a port by `DEVICE:PORT`, or the first active port of `DEVICE`.
fn by_name<'a>(devices: &'a [RdmaDevice], name: &str) -> Result<Wanted<'a>> {
    let (device_name, number) = match name.split_once(':') {
        Some((device, number)) => (device, Some(number)),
        None => (name, None),
    };
    let Some(device) = devices.iter().find(|device| device.name == device_name) else {
        let why = format!("this host has no RDMA device {device_name}");
        let how = match names(devices).as_str() {
            "" => "Run `tonnage devices`: it lists missing parts, and how to get them".to_owned(),
            names => format!("Choose --devices among {names}"),
        };
        return Err(unavailable(why, &how));
    };
    let wanted = |port: &&RdmaPort| match number {
        Some(number) => port.port.to_string() == number,
        None => port.state == "ACTIVE",
    };
    let found = device.ports.iter().find(wanted);
    match found.or(device.ports.first().filter(|_| number.is_none())) {
        Some(port) if port.state == "ACTIVE" => Ok((device, port, None)),
        Some(port) => {
            let why = format!("port {} of {device_name} is {}", port.port, port.state);
            let how = "Check that its cable or interface is up (ip link, ibstat), or choose another by --devices";
            Err(unavailable(why, how))
        }
        None => {
            let ports: Vec<String> = device.ports.iter().map(|it| it.port.to_string()).collect();
            let why = format!("{device_name} has no port {}", number.unwrap_or_default());
            let how = format!("It has port {}", ports.join(" and "));
            Err(unavailable(why, &how))
        }
    }
}

fn open_port(
    library: &Arc<Libibverbs>,
    (device, state): (&RdmaDevice, &RdmaPort),
    asked: &Asked,
    why: Option<String>,
) -> Result<ChosenPort> {
    let name = &device.name;
    let node = Tree::host().text(format!("sys/class/infiniband/{name}/node_type"));
    if node.is_some_and(|node| node.ends_with("RNIC")) {
        let how = "Use fabric:verbs;ofi_rxm, which connects by rdma_cm, as iWARP requires";
        return Err(unavailable(format!("{name} uses iWARP"), how));
    }
    let context = Context::open(library, name).map_err(|why| {
        let how = "Load ib_uverbs, check that this user may open /dev/infiniband/uverbs* (in a container: --device \
                   /dev/infiniband), and install the NIC's driver (ibverbs-providers)";
        unavailable(format!("{name} cannot be opened: {why}"), how)
    })?;
    let number = u8::try_from(state.port).unwrap_or(u8::MAX);
    let port = context
        .port(number)
        .map_err(|why| Error::Failed(format!("port {number} of {name}: {why}")))?;
    check_port(name, &port, asked)?;
    let gid = gid(state, port.link_layer, asked)?;
    check_address(name, gid.as_ref(), asked)?;
    Ok(ChosenPort {
        gid,
        context: Arc::new(context),
        device: device.clone(),
        state: state.clone(),
        port,
        why,
    })
}

/// Refuses options that exceed the port's capabilities.
fn check_port(name: &str, port: &PortState, asked: &Asked) -> Result<()> {
    let refused = |what: String, fits: String| Err(unavailable(what, &fits));
    match asked.mtu {
        Some(mtu) if mtu > port.mtu => refused(
            format!(
                "mtu={mtu}, but port {} of {name} carries at most {} bytes",
                port.number, port.mtu
            ),
            format!(
                "Choose mtu=auto or at most {}, or give the network a larger MTU",
                port.mtu
            ),
        ),
        _ if asked.pkey_index >= port.pkeys.max(1) => refused(
            format!(
                "pkey={}, but {name} has {} partition keys",
                asked.pkey_index, port.pkeys
            ),
            format!("Choose pkey=0 to {}", port.pkeys.saturating_sub(1)),
        ),
        _ => Ok(()),
    }
}

/// Refuses options that need addresses in packets if packets carry none.
fn check_address(name: &str, gid: Option<&RdmaGid>, asked: &Asked) -> Result<()> {
    if gid.is_some() || (asked.traffic_class == 0 && asked.flow_label == FlowLabel::Auto) {
        return Ok(());
    }
    let why = format!(
        "traffic-class and flow-label are for packets that carry addresses, but those of {name} carry none"
    );
    Err(unavailable(
        why,
        "Add the engine-option gid=0, or leave them out",
    ))
}

/// Returns the address for packets: the first of RoCE v2 with IPv4, else of RoCE v2, else of any kind. InfiniBand
/// packets carry an address only on request.
fn gid(state: &RdmaPort, layer: LinkLayer, asked: &Asked) -> Result<Option<RdmaGid>> {
    let gids = || state.gids.iter();
    let list = || {
        let all: Vec<String> = gids()
            .map(|gid| format!("{} ({}, {})", gid.index, gid.kind, gid.ip()))
            .collect();
        all.join(", ")
    };
    if let Some(index) = asked.gid {
        let found = gids().find(|gid| gid.index == u32::from(index));
        let why = format!("port {} has no address with index {index}", state.port);
        let how = format!("Choose gid=auto, or one of {}", list());
        return found
            .cloned()
            .map(Some)
            .ok_or_else(|| unavailable(why, &how));
    }
    if layer == LinkLayer::InfiniBand {
        return Ok(None);
    }
    let why = format!("port {} has no address (GID)", state.port);
    let how = "Give its network interface an address: ip addr add";
    let best = state.usual_gid().cloned();
    best.map(Some).ok_or_else(|| unavailable(why, how))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_machine::kernel_files::invented::Machine;

    fn two_devices() -> Vec<RdmaDevice> {
        let machine = Machine::new();
        for (name, state) in [("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")] {
            let port = format!("sys/class/infiniband/{name}/ports/1");
            machine.file(&format!("{port}/state"), state);
            for (index, kind, gid) in [
                (0, "IB/RoCE v1", "fe80::1"),
                (1, "RoCE v2", "fe80::1"),
                (2, "IB/RoCE v1", "::ffff:10.1.0.1"),
                (3, "RoCE v2", "::ffff:10.1.0.1"),
            ] {
                machine.file(&format!("{port}/gids/{index}"), gid);
                machine.file(&format!("{port}/gid_attrs/types/{index}"), kind);
            }
        }
        machine.file("sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE");
        RdmaDevice::all(&machine.tree())
    }

    fn refusal(asked: &str) -> String {
        let names = [asked.to_owned()];
        let devices = two_devices();
        let refused = named_by(
            DeviceRequest::Named(&names),
            &devices,
            (&|_| None, &|| None),
        );
        refused.unwrap_err().to_string()
    }

    #[test]
    fn ports_are_named_by_device_and_number() {
        let devices = two_devices();
        let port = |name: &str| by_name(&devices, name).unwrap().1.port;
        assert_eq!((port("mlx5_0"), port("mlx5_0:2")), (1, 2));
        let all = named_by(DeviceRequest::All, &devices, (&|_| None, &|| None)).unwrap();
        assert_eq!(all.len(), 2);
        let (device, port, why) =
            &named_by(DeviceRequest::Own, &devices, (&|_| None, &|| None)).unwrap()[0];
        assert_eq!((device.name.as_str(), port.port), ("mlx5_0", 1));
        assert!(
            why.as_ref().unwrap().contains("first active port"),
            "{why:?}"
        );
    }

    #[test]
    fn missing_devices_and_ports_are_refused_with_the_existing_ones() {
        assert!(refusal("mlx5_7").contains("mlx5_0, mlx5_1"));
        assert!(refusal("mlx5_0:3").contains("port 1 and 2"));
        assert!(refusal("mlx5_1").contains("port 1 of mlx5_1 is DOWN"));
        assert!(
            named_by(DeviceRequest::Own, &[], (&|_| None, &|| None))
                .unwrap_err()
                .to_string()
                .contains("no RDMA device")
        );
    }

    #[test]
    fn the_nearest_port_is_the_one_at_the_same_node() {
        let mut devices = two_devices();
        devices[1].ports[0].state = "ACTIVE".into();
        for (node, device) in devices.iter_mut().enumerate() {
            device.pci = Some(tonnage_machine::devices::PciFunction {
                address: String::new(),
                numa_node: Some(node as u32),
                link: None,
            });
        }
        let active: Vec<_> = all_ports(&devices).collect();
        for (here, expected) in [(Some(0), "mlx5_0"), (Some(1), "mlx5_1"), (None, "mlx5_0")] {
            let (device, _, why) = nearest(&active, here).unwrap();
            assert_eq!(device.name, expected);
            assert_eq!(here.is_some(), why.unwrap().contains("NUMA node"));
        }
    }

    #[test]
    fn ports_for_gpus_share_one_link_layer() {
        let mut devices = two_devices();
        devices[1].ports[0].state = "ACTIVE".into();
        let mut layers = |layers: [&str; 3]| {
            let ports = devices.iter_mut().flat_map(|device| &mut device.ports);
            for (port, layer) in ports.zip(layers) {
                port.link_layer = layer.to_owned();
            }
            let active: Vec<_> = all_ports(&devices).collect();
            let of_one = of_one_network(&active);
            let left = of_one.iter().map(|(_, port)| port.link_layer.clone());
            left.collect::<Vec<_>>()
        };
        let (ib, ethernet) = ("InfiniBand", "Ethernet");
        assert_eq!(layers([ethernet, ib, ib]), [ib, ib]);
        assert_eq!(layers([ethernet, ib, ethernet]), [ethernet, ethernet]);
        assert_eq!(layers([ethernet, ib, ""]).len(), 3);
    }

    /// The host has two switches, each with a GPU and a NIC, and a software device.
    #[test]
    fn memory_of_a_gpu_takes_the_nic_at_its_switch() {
        let machine = Machine::new();
        machine.processors(1, 2, 1);
        for (slot, name, maker) in [("1", "mlx5_0", "0x10de"), ("2", "mlx5_1", "0x1002")] {
            let switch = format!("sys/devices/pci0000:00/0000:00:0{slot}.0/0000:{slot}0:00.0");
            for (port, class, vendor) in [("1", "0x030200", maker), ("2", "0x020700", "0x15b3")] {
                let address = format!("0000:{slot}{port}:00.0");
                let path = format!("{switch}/0000:{slot}0:0{port}.0/{address}");
                machine.file(&format!("{path}/class"), class);
                machine.file(&format!("{path}/vendor"), vendor);
                machine.link(&format!("sys/bus/pci/devices/{address}"), &path);
            }
            let device = format!("sys/class/infiniband/{name}");
            machine.file(&format!("{device}/ports/1/state"), "4: ACTIVE");
            let nic = format!("sys/bus/pci/devices/0000:{slot}2:00.0");
            machine.link(&format!("{device}/device"), &nic);
        }
        machine.file("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
        let tree = machine.tree();
        let topology = Topology::read_from(&tree, vec![]);
        let devices = RdmaDevice::all(&tree);
        let chosen = |gpu: &str, asked: DeviceRequest<'_>| {
            let gpu = GpuPlace {
                name: "cuda:3".to_owned(),
                address: gpu.to_owned(),
            };
            let near = |addresses: &[Option<&str>]| gpu.nearest_in(&tree, &topology, addresses);
            let (device, _, why) = named_by(asked, &devices, (&near, &|| None))
                .unwrap()
                .remove(0);
            (device.name.clone(), why.unwrap_or_default())
        };
        for (gpu, expected) in [
            ("0000:11:00.0", "mlx5_0"),
            ("0000:21:00.0", "mlx5_1"),
            // A partition of the second GPU, with the address that AMD's runtime gives it.
            ("0000:21:00.3", "mlx5_1"),
        ] {
            let (name, why) = chosen(gpu, DeviceRequest::Own);
            assert_eq!(name, expected);
            let nearest = format!("the nearest to cuda:3 ({gpu}), by one PCIe switch");
            assert!(why.contains(&nearest), "{why}");
        }
        // First a GPU that the kernel does not list, then a device that the user named.
        let (name, why) = chosen("0000:99:00.0", DeviceRequest::Own);
        assert_eq!(name, "mlx5_0");
        assert!(why.contains("none is known to be nearer"), "{why}");
        let named = ["mlx5_0".to_owned()];
        let (name, why) = chosen("0000:21:00.0", DeviceRequest::Named(&named));
        assert_eq!((name.as_str(), why.as_str()), ("mlx5_0", ""));
    }

    #[test]
    fn packets_carry_the_address_of_roce_2_and_ipv4() {
        let devices = two_devices();
        let port = &devices[0].ports[0];
        let mut asked = Asked::from_request(&OpenRequest::default());
        let chosen = |asked: &Asked, layer| gid(port, layer, asked).unwrap().map(|gid| gid.index);
        assert_eq!(chosen(&asked, LinkLayer::Ethernet), Some(3));
        assert_eq!(chosen(&asked, LinkLayer::InfiniBand), None);
        asked.gid = Some(1);
        assert_eq!(chosen(&asked, LinkLayer::InfiniBand), Some(1));
        asked.gid = Some(9);
        let refused = gid(port, LinkLayer::Ethernet, &asked)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("3 (RoCE v2, 10.1.0.1)"), "{refused}");
    }
}

//! RDMA devices and their ports. If there are none, the missing driver or module is reported.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonnage_sys::verbs::{Context, Libibverbs};

use super::super::kernel_files::Tree;
use super::Absent;
use super::network::NetworkInterface;
use super::pci::{PciFunction, function_of, functions, hexadecimal};

/// Network drivers, each with the module that adds RDMA to it.
const RDMA_MODULES: [(&str, &str); 8] = [
    ("bnxt_en", "bnxt_re"),
    ("cxgb4", "iw_cxgb4"),
    ("hns3", "hns_roce_hw_v2"),
    ("i40e", "irdma"),
    ("ice", "irdma"),
    ("ionic", "ionic_rdma"),
    ("mlx5_core", "mlx5_ib"),
    ("qede", "qedr"),
];

const MELLANOX: u32 = 0x15b3;
const AMAZON: u32 = 0x1d0f;
/// The upper bits of the PCI device number, the same for all EFA generations.
const EFA_DEVICES: u32 = 0xefa0;

/// One RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaDevice {
    /// The kernel's name, such as "mlx5_0".
    pub name: String,
    /// The driver; absent for a software device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Firmware version; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Vendor's board identifier; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// Location on the PCI bus; absent for a software device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciFunction>,
    /// Ports of the device.
    pub ports: Vec<RdmaPort>,
}

/// One port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaPort {
    /// Port number, from 1.
    pub port: u32,
    /// Logical state: "ACTIVE", "DOWN", "INIT", …
    pub state: String,
    /// Physical state: "LinkUp", "Disabled", …
    pub physical_state: String,
    /// Rate as the kernel prints it, such as "200 Gb/sec (4X HDR)".
    pub rate: String,
    /// The parsed rate; absent if it is not a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bits_per_s: Option<u64>,
    /// "InfiniBand" or "Ethernet".
    pub link_layer: String,
    /// Current MTU: the largest payload of a packet. Absent if libibverbs is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// The network interface of the same port; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// GIDs of the port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gids: Vec<RdmaGid>,
}

/// One GID (address) of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaGid {
    /// Index of the GID in the port's table.
    pub index: u32,
    /// The protocol that the GID is used with, as the kernel names it: "IB/RoCE v1" or "RoCE v2".
    pub kind: String,
    /// The address.
    pub address: Ipv6Addr,
}

impl RdmaDevice {
    /// Returns all RDMA devices of a host, in the kernel's order.
    pub fn all(tree: &Tree) -> Vec<Self> {
        let names = tree.names("sys/class/infiniband");
        names.iter().map(|name| device(tree, name)).collect()
    }
}

impl RdmaPort {
    /// Returns the GID that packets usually carry. GIDs for RoCE v2 are preferred, then IPv4 addresses, and then
    /// addresses that are not link-local.
    pub fn usual_gid(&self) -> Option<&RdmaGid> {
        let gids = self.gids.iter();
        gids.min_by_key(|gid| {
            let is_local = gid.address.is_unicast_link_local();
            (!gid.is_roce_2(), !gid.ip().is_ipv4(), is_local, gid.index)
        })
    }
}

impl RdmaGid {
    /// Returns the address as users know it: as IPv4 if the GID holds an IPv4 address.
    pub fn ip(&self) -> IpAddr {
        match self.address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => self.address.into(),
        }
    }

    /// Returns whether the GID is for RoCE v2, which has routable packets.
    pub fn is_roce_2(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

pub(super) fn find(
    tree: &Tree,
    networks: &[NetworkInterface],
    absent: &mut Vec<Absent>,
) -> Vec<RdmaDevice> {
    let found = RdmaDevice::all(tree);
    if found.is_empty() {
        absent.push(why_none(tree, networks));
    } else if !(tree.names("dev/infiniband").iter()).any(|name| name.starts_with("uverbs")) {
        absent.push(Absent::new(
            "RDMA for programs",
            "there are RDMA devices, but /dev/infiniband has no uverbs device",
            "Run `modprobe ib_uverbs`; in a container, start it with `--device /dev/infiniband`.",
        ));
    }
    found
}

/// Queries the MTU of each port from libibverbs, because the kernel's files do not have it. If the library is missing
/// or a device cannot be opened, its ports get no MTU.
pub(super) fn ask_mtu(devices: &mut [RdmaDevice]) {
    if devices.is_empty() {
        return;
    }
    let Ok(library) = Libibverbs::load(None) else {
        return;
    };
    let library = Arc::new(library);
    for device in devices {
        let Ok(context) = Context::open(&library, &device.name) else {
            continue;
        };
        for port in &mut device.ports {
            let number = u8::try_from(port.port).ok();
            let state = number.and_then(|number| context.port(number).ok());
            port.mtu_bytes = state.map(|state| state.mtu);
        }
    }
}

fn device(tree: &Tree, name: &str) -> RdmaDevice {
    let path = format!("sys/class/infiniband/{name}");
    let ports = tree.names(format!("{path}/ports"));
    RdmaDevice {
        name: name.to_owned(),
        driver: tree.link_name(format!("{path}/device/driver")),
        firmware: tree.text(format!("{path}/fw_ver")),
        board: tree.text(format!("{path}/board_id")),
        pci: function_of(tree, format!("{path}/device")),
        ports: ports
            .iter()
            .filter_map(|number| port(tree, &path, number))
            .collect(),
    }
}

fn port(tree: &Tree, device: &str, number: &str) -> Option<RdmaPort> {
    let path = format!("{device}/ports/{number}");
    let said = |name: &str| tree.text(format!("{path}/{name}"));
    let text = |name: &str| said(name).unwrap_or_else(|| "unknown".to_owned());
    // The kernel writes states as "4: ACTIVE".
    let state = |name: &str| {
        let text = text(name);
        text.split_once(": ")
            .map_or(&*text, |(_, name)| name)
            .to_owned()
    };
    let rate = text("rate");
    Some(RdmaPort {
        port: number.parse().ok()?,
        state: state("state"),
        physical_state: state("phys_state"),
        link_bits_per_s: rate_bits_per_s(&rate),
        rate,
        link_layer: text("link_layer"),
        mtu_bytes: None,
        network: said("gid_attrs/ndevs/0").or_else(|| tree.text(format!("{device}/parent"))),
        gids: gids(tree, &path),
    })
}

/// Reads the GIDs of a port. A free entry of the kernel's table has no type, so it is left out.
fn gids(tree: &Tree, port: &str) -> Vec<RdmaGid> {
    let indices = tree.names(format!("{port}/gids"));
    let gid = |index: &String| {
        let address: Ipv6Addr = tree.text(format!("{port}/gids/{index}"))?.parse().ok()?;
        Some(RdmaGid {
            index: index.parse().ok()?,
            kind: tree.text(format!("{port}/gid_attrs/types/{index}"))?,
            address,
        })
    };
    indices.iter().filter_map(gid).collect()
}

/// Parses rates such as "200 Gb/sec (4X HDR)" and "2.5 Gb/sec (1X SDR)".
fn rate_bits_per_s(rate: &str) -> Option<u64> {
    let (number, _) = rate.split_once(" Gb/sec")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, tenths): (u64, u64) = (whole.parse().ok()?, tenths.get(..1)?.parse().ok()?);
    let tenths = whole.checked_mul(10)?.checked_add(tenths)?;
    tenths.checked_mul(100_000_000)
}

fn why_none(tree: &Tree, networks: &[NetworkInterface]) -> Absent {
    let what = "RDMA devices";
    let module_for = |driver: &str| RDMA_MODULES.iter().find(|(name, _)| *name == driver);
    for network in networks {
        let driver = network.driver.as_deref();
        if let Some((driver, module)) = driver.and_then(module_for) {
            let why = format!(
                "{} is driven by {driver}, but the module {module} that adds RDMA is not loaded",
                network.name
            );
            let how = format!(
                "Run `modprobe {module}` on the host; where the card can do no RDMA, this changes nothing."
            );
            return Absent::new(what, why, how);
        }
    }
    if let Some((address, module)) = idle_card(tree) {
        let why = format!("the card at {address} can do RDMA, but no driver uses it");
        return Absent::new(what, why, format!("Run `modprobe {module}` on the host."));
    }
    let advice = soft_roce(tree, networks);
    Absent::new(
        what,
        "/sys/class/infiniband lists none, and no card on the PCI bus is known to be one",
        format!("Use a host with an RDMA card. To try RDMA in software: {advice}"),
    )
}

/// Returns the address of an RDMA NIC without a driver, and the module that it needs.
fn idle_card(tree: &Tree) -> Option<(String, &'static str)> {
    functions(tree).into_iter().find_map(|path| {
        if tree.exists(path.join("driver")) {
            return None;
        }
        let number = |file: &str| hexadecimal(tree, path.join(file));
        let (class, vendor, device) = (number("class")?, number("vendor")?, number("device")?);
        let module = match vendor {
            MELLANOX if class >> 16 == 0x02 => "mlx5_ib",
            AMAZON if device & 0xfff0 == EFA_DEVICES => "efa",
            _ => return None,
        };
        Some((path.file_name()?.to_str()?.to_owned(), module))
    })
}

/// Returns advice on software RDMA, as far as this kernel supports it.
fn soft_roce(tree: &Tree, networks: &[NetworkInterface]) -> String {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let module = format!("lib/modules/{release}/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko");
    let mut ends = ["", ".xz", ".zst", ".gz"].into_iter();
    let is_there = ends.any(|end| tree.exists(format!("{module}{end}")));
    if !is_there && !tree.exists("sys/module/rdma_rxe") {
        return format!(
            "this kernel ({release}) has no Soft-RoCE module (rdma_rxe); a distribution's own kernel does."
        );
    }
    let usable = |network: &&NetworkInterface| network.kind == "ethernet" && network.state == "up";
    let network = networks.iter().find(usable);
    let network = network.map_or("eth0", |network| &network.name);
    format!(
        "`apt-get install rdma-core iproute2`, `modprobe crc32_generic rdma_rxe`, `rdma link add rxe0 type rxe netdev {network}`."
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::super::network;
    use super::super::pci::tests::invent;
    use super::*;

    fn find_rdma(machine: &Machine) -> (Vec<RdmaDevice>, Vec<Absent>) {
        let networks = network::find(&machine.tree(), &mut Vec::new());
        let mut absent = Vec::new();
        (find(&machine.tree(), &networks, &mut absent), absent)
    }

    #[test]
    fn a_device_with_two_ports() {
        let machine = Machine::new();
        let link = Some(["32.0 GT/s PCIe", "16", "32.0 GT/s PCIe", "16"]);
        let ids = "0x020700 0x15b3 0x1021";
        let card = invent(&machine, "0000:41:00.0", ids, link);
        let device = "sys/class/infiniband/mlx5_0";
        machine
            .link(&format!("{device}/device"), &card)
            .link(&format!("{card}/driver"), "sys/bus/pci/drivers/mlx5_core")
            .files(
                device,
                &[
                    ("fw_ver", "28.39.1002"),
                    ("ports/1/state", "4: ACTIVE"),
                    ("ports/1/phys_state", "5: LinkUp"),
                    ("ports/1/rate", "400 Gb/sec (4X NDR)"),
                    ("ports/1/link_layer", "InfiniBand"),
                    ("ports/2/rate", "2.5 Gb/sec (1X SDR)"),
                    ("ports/1/gids/0", "fe80:0000:0000:0000:9a03:9bff:fe00:e4e2"),
                    ("ports/1/gid_attrs/types/0", "IB/RoCE v1"),
                    ("ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a01:0001"),
                    ("ports/1/gid_attrs/types/3", "RoCE v2"),
                    ("ports/1/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000"),
                ],
            )
            .file("dev/infiniband/uverbs0", "");
        let (found, absent) = find_rdma(&machine);
        assert!(absent.is_empty(), "{absent:?}");
        assert_eq!(found[0].driver.as_deref(), Some("mlx5_core"));
        assert_eq!(found[0].firmware.as_deref(), Some("28.39.1002"));
        let [one, two] = &found[0].ports[..] else {
            panic!("{found:?}")
        };
        assert_eq!((&*one.state, &*one.physical_state), ("ACTIVE", "LinkUp"));
        assert_eq!(one.link_bits_per_s, Some(400_000_000_000));
        let known = |gid: &RdmaGid| (gid.index, gid.ip().to_string());
        let gids: Vec<_> = one.gids.iter().map(known).collect();
        let expected = [(0, "fe80::9a03:9bff:fe00:e4e2"), (3, "10.1.0.1")];
        assert_eq!(gids, expected.map(|(index, ip)| (index, ip.to_owned())));
        assert!(one.gids[1].is_roce_2() && !one.gids[0].is_roce_2());
        assert_eq!(
            (two.link_bits_per_s, &*two.state),
            (Some(2_500_000_000), "unknown")
        );
    }

    #[test]
    fn devices_without_uverbs_cannot_be_used() {
        let machine = Machine::new();
        machine.file("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
        let (found, absent) = find_rdma(&machine);
        assert_eq!(found.len(), 1);
        assert!(absent[0].how.contains("ib_uverbs"), "{absent:?}");
    }

    #[test]
    fn a_card_without_its_rdma_module_is_named() {
        let machine = Machine::new();
        let card = invent(&machine, "0000:41:00.0", "0x020000 0x14e4 0x1760", None);
        machine
            .file("sys/class/net/ens1/mtu", "1500")
            .link("sys/class/net/ens1/device", &card)
            .link(&format!("{card}/driver"), "sys/bus/pci/drivers/bnxt_en");
        machine.file("sys/bus/pci/drivers/bnxt_en/bind", "");
        let (_, absent) = find_rdma(&machine);
        assert!(absent[0].why.contains("ens1"), "{absent:?}");
        assert!(absent[0].how.contains("modprobe bnxt_re"), "{absent:?}");
    }

    #[test]
    fn an_idle_card_is_named() {
        let machine = Machine::new();
        invent(&machine, "0000:41:00.0", "0x020000 0x1d0f 0xefa2", None);
        let (_, absent) = find_rdma(&machine);
        assert!(absent[0].why.contains("0000:41:00.0"), "{absent:?}");
        assert!(absent[0].how.contains("modprobe efa"), "{absent:?}");
    }

    #[test]
    fn software_rdma_is_offered_where_the_kernel_has_it() {
        let machine = Machine::new();
        let (_, absent) = find_rdma(&machine);
        assert!(absent[0].how.contains("has no Soft-RoCE"), "{absent:?}");
        machine.file("sys/module/rdma_rxe/refcnt", "0").files(
            "sys/class/net/ens7",
            &[("mtu", "1500"), ("type", "1"), ("operstate", "up")],
        );
        let (_, absent) = find_rdma(&machine);
        assert!(absent[0].how.contains("type rxe netdev ens7"), "{absent:?}");
    }
}

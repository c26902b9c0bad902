//! Network interfaces.

use serde::{Deserialize, Serialize};

use super::super::kernel_files::Tree;
use super::Absent;
use super::pci::{PciFunction, function_of};

/// The kernel's hardware types of the loopback, Ethernet and IP over InfiniBand.
const KINDS: [(u32, &str); 3] = [(772, "loopback"), (1, "ethernet"), (32, "infiniband")];

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// The kernel's name.
    pub name: String,
    /// "loopback", "ethernet", "infiniband" or "other".
    pub kind: String,
    /// The driver; absent for an interface without a device, such as a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Operational state: "up", "down", "unknown", …
    pub state: String,
    /// Link rate; absent if the driver does not report it, or the link is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bits_per_s: Option<u64>,
    /// Largest packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// Location on the PCI bus; absent if it is not a PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciFunction>,
    /// RDMA devices of the same NIC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rdma_devices: Vec<String>,
}

pub(super) fn find(tree: &Tree, absent: &mut Vec<Absent>) -> Vec<NetworkInterface> {
    let root = "sys/class/net";
    let names = tree.names(root);
    // If the module `bonding` is loaded, the directory also holds a file.
    let is_interface = |name: &str| tree.exists(format!("{root}/{name}/mtu"));
    let found = names.iter().filter(|name| is_interface(name));
    let found: Vec<NetworkInterface> = found.map(|name| interface(tree, root, name)).collect();
    if found.iter().all(|interface| interface.kind == "loopback") {
        absent.push(Absent::new(
            "network interfaces",
            "/sys/class/net lists none except the loopback",
            "Give this machine or container a network, or load the driver of its network card.",
        ));
    }
    found
}

fn interface(tree: &Tree, root: &str, name: &str) -> NetworkInterface {
    let path = format!("{root}/{name}");
    let hardware: Option<u32> = tree.number(format!("{path}/type"));
    let mut kinds = KINDS.into_iter();
    let kind = kinds.find(|(number, _)| Some(*number) == hardware);
    // -1 and huge numbers mean "unknown". While the link is down, reading fails.
    let mbits: Option<i64> = tree.number(format!("{path}/speed"));
    let mbits = mbits.and_then(|speed| u64::try_from(speed).ok());
    let mbits = mbits.filter(|speed| (1..100_000_000).contains(speed));
    NetworkInterface {
        name: name.to_owned(),
        kind: kind.map_or("other", |(_, kind)| kind).to_owned(),
        driver: tree.link_name(format!("{path}/device/driver")),
        state: tree
            .text(format!("{path}/operstate"))
            .unwrap_or_else(|| "unknown".to_owned()),
        link_bits_per_s: mbits.map(|mbits| mbits * 1_000_000),
        mtu_bytes: tree.number(format!("{path}/mtu")),
        pci: function_of(tree, format!("{path}/device")),
        rdma_devices: tree.names(format!("{path}/device/infiniband")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kernel_files::invented::Machine;
    use super::super::pci::tests::invent;
    use super::*;

    #[test]
    fn a_card_is_described_and_a_bridge_has_no_driver() {
        let machine = Machine::new();
        let link = Some(["16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16"]);
        let ids = "0x020000 0x15b3 0x101d";
        let card = invent(&machine, "0000:41:00.0", ids, link);
        machine
            .link("sys/class/net/ens1/device", &card)
            .link(&format!("{card}/driver"), "sys/bus/pci/drivers/mlx5_core")
            .file(&format!("{card}/infiniband/mlx5_0/fw_ver"), "1")
            .files(
                "sys/class/net",
                &[
                    ("ens1/type", "1"),
                    ("ens1/operstate", "up"),
                    ("ens1/speed", "200000"),
                    ("ens1/mtu", "9000"),
                    ("br0/type", "1"),
                    ("br0/speed", "-1"),
                    ("br0/mtu", "1500"),
                    ("bonding_masters", "bond0"),
                ],
            );
        let mut absent = Vec::new();
        let found = find(&machine.tree(), &mut absent);
        assert!(absent.is_empty());
        assert_eq!(found.len(), 2);
        let (bridge, card) = (&found[0], &found[1]);
        assert_eq!((&bridge.driver, bridge.link_bits_per_s), (&None, None));
        assert_eq!(bridge.state, "unknown");
        assert_eq!(card.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(card.link_bits_per_s, Some(200_000_000_000));
        assert_eq!(card.mtu_bytes, Some(9000));
        assert_eq!(card.rdma_devices, ["mlx5_0"]);
        assert_eq!(card.pci.as_ref().unwrap().link.unwrap().generation, 4);
    }

    #[test]
    fn a_loopback_alone_does_not_count_as_a_network() {
        let machine = Machine::new();
        machine.files("sys/class/net/lo", &[("type", "772"), ("mtu", "65536")]);
        let mut absent = Vec::new();
        assert_eq!(find(&machine.tree(), &mut absent)[0].kind, "loopback");
        assert_eq!(absent[0].what, "network interfaces");
    }
}

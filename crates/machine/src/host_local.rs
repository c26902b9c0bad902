//! Recognizes network interfaces that do not lead to other hosts: interfaces that are down, bridges inside this host,
//! and tunnels. Tunnels do not count because they send through another interface.
//!
//! Both ends of a veth pair count as leading to other hosts, because network namespaces count as hosts.

use crate::kernel_files::Tree;

/// Returns why an interface does not lead to other hosts. `None` if it may lead there, or if /sys does not describe it.
/// /sys does not describe it if `name` is not an interface, or if /sys shows another network namespace, in which this
/// name has a different `index`.
pub fn why_host_local(tree: &Tree, name: &str, index: u32) -> Option<&'static str> {
    let path = format!("sys/class/net/{name}");
    if tree.number(format!("{path}/ifindex")) != Some(index) {
        return None;
    }
    match tree.text(format!("{path}/operstate")).as_deref() {
        Some("up" | "unknown") | None => {}
        Some(_) => return Some("down"),
    }
    let ports = tree.names(format!("{path}/brif"));
    // A bridge leads out if one of its ports is a device, or is stacked on one: a bond, a VLAN, a VLAN of a bond.
    let leads_out = |port: &String| leads_to_device(tree, port, STACK_MAX);
    if tree.exists(format!("{path}/bridge")) && !ports.iter().any(leads_out) {
        return Some("a bridge inside this host");
    }
    let links = tree.text(format!("{path}/uevent")).unwrap_or_default();
    let is_virtual = |line: &str| TUNNEL_LINES.contains(&line);
    let number: Option<u32> = tree.number(format!("{path}/type"));
    let is_tunnel = tree.exists(format!("{path}/tun_flags"))
        || number.is_some_and(|number| TUNNEL_TYPES.contains(&number))
        || links.lines().any(is_virtual);
    is_tunnel.then_some("a tunnel")
}

/// Maximum number of stacked interfaces: a VLAN of a bond of a device is three.
const STACK_MAX: u32 = 8;

/// Returns whether an interface belongs to a device, or is stacked on one through at most `most` interfaces.
fn leads_to_device(tree: &Tree, name: &str, most: u32) -> bool {
    let path = format!("sys/class/net/{name}");
    let lower = tree.names(&path);
    let mut lower = lower.iter().filter_map(|name| name.strip_prefix("lower_"));
    tree.exists(format!("{path}/device"))
        || (most > 1 && lower.any(|name| leads_to_device(tree, name, most - 1)))
}

/// Link types of tunnels (ARPHRD numbers of Linux' `if_arp.h`): IPIP, IP6 in IP6, SIT, GRE, GRE over IPv6.
const TUNNEL_TYPES: [u32; 5] = [768, 769, 776, 778, 823];

/// Lines in `uevent` that mark other kinds of tunnels.
const TUNNEL_LINES: [&str; 3] = ["DEVTYPE=vxlan", "DEVTYPE=geneve", "DEVTYPE=wireguard"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_files::invented::Machine;

    #[test]
    fn interfaces_that_are_down_or_local_are_named() {
        let machine = Machine::new();
        let names = "eth0 eth1 docker0 br0 br1 tun0 flannel.1 bond0 br2 tunl0".split(' ');
        for (index, name) in (1..).zip(names) {
            let state = if name == "eth1" { "down" } else { "up" };
            let files = [("ifindex", &*index.to_string()), ("operstate", state)];
            machine.files(&format!("sys/class/net/{name}"), &files);
        }
        machine
            .files(
                "sys/class/net",
                &[
                    ("docker0/bridge/bridge_id", "8000"),
                    ("docker0/brif/veth1/state", "3"),
                    ("br0/bridge/bridge_id", "8000"),
                    ("br0/brif/eth0/state", "3"),
                    ("br1/bridge/bridge_id", "8000"),
                    ("br1/brif/bond0/state", "3"),
                    ("br2/bridge/bridge_id", "8000"),
                    ("br2/brif/bond0.100/state", "3"),
                    ("eth0/type", "1"),
                    ("tunl0/type", "768"),
                    ("tun0/tun_flags", "0x1001"),
                    ("flannel.1/uevent", "DEVTYPE=vxlan\nINTERFACE=flannel.1"),
                ],
            )
            .file("sys/devices/pci0/vendor", "0x15b3")
            .link("sys/class/net/eth0/device", "sys/devices/pci0")
            .link("sys/class/net/bond0/lower_eth0", "sys/class/net/eth0")
            .link("sys/class/net/bond0.100/lower_bond0", "sys/class/net/bond0");
        let found = |name: &str, index| why_host_local(&machine.tree(), name, index);
        assert_eq!(found("eth0", 1), None);
        assert_eq!(found("eth1", 2), Some("down"));
        assert_eq!(found("docker0", 3), Some("a bridge inside this host"));
        let bridges = [found("br0", 4), found("br1", 5), found("br2", 9)];
        assert_eq!(bridges, [None; 3]);
        assert_eq!(found("tunl0", 10), Some("a tunnel"));
        assert_eq!(found("tun0", 6), Some("a tunnel"));
        assert_eq!(found("flannel.1", 7), Some("a tunnel"));
        // In the first case, the files describe another namespace's interface. In the second, the name is not an
        // interface.
        assert_eq!(found("eth1", 99), None);
        assert_eq!(found("mlx5_0", 0), None);
    }
}

//! Network interfaces that have no way of their own to other hosts: those that are down, bridges between what is on
//! this host, and tunnels, which take the way of another interface.
//!
//! Both ends of a veth pair may have one, because network namespaces are hosts as well.

use crate::kernel_files::Tree;

/// Reason why an interface has no way of its own to other hosts. `None` where it may have one, and where the files in
/// /sys say nothing about it: it is no interface, or they are those of another network namespace, in which the
/// interface of that name has another `index`.
pub fn no_way_out(tree: &Tree, name: &str, index: u32) -> Option<&'static str> {
    let path = format!("sys/class/net/{name}");
    if tree.number(format!("{path}/ifindex")) != Some(index) {
        return None;
    }
    match tree.text(format!("{path}/operstate")).as_deref() {
        Some("up" | "unknown") | None => {}
        Some(_) => return Some("down"),
    }
    let ports = tree.names(format!("{path}/brif"));
    // A port that belongs to a device, or stands on one: a bond, a VLAN, a VLAN of a bond.
    let leads_out = |port: &String| stands_on_device(tree, port, STACK_MAX);
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

/// Interfaces that stand on each other, at most: a VLAN of a bond of a device is three.
const STACK_MAX: u32 = 8;

/// Returns whether an interface is a device's or stands on one, over `most` others.
fn stands_on_device(tree: &Tree, name: &str, most: u32) -> bool {
    let path = format!("sys/class/net/{name}");
    let lower = tree.names(&path);
    let mut lower = lower.iter().filter_map(|name| name.strip_prefix("lower_"));
    tree.exists(format!("{path}/device"))
        || (most > 1 && lower.any(|name| stands_on_device(tree, name, most - 1)))
}

/// Types of links (ARPHRD numbers of Linux' `if_arp.h`) that are tunnels: IPIP, IP6 in IP6, SIT, GRE, GRE over IPv6.
const TUNNEL_TYPES: [u32; 5] = [768, 769, 776, 778, 823];

/// Lines of the kernel about links that are tunnels too.
const TUNNEL_LINES: [&str; 3] = ["DEVTYPE=vxlan", "DEVTYPE=geneve", "DEVTYPE=wireguard"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_files::invented::Machine;

    #[test]
    fn what_is_down_or_stays_inside_the_host_has_no_way_out() {
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
        let found = |name: &str, index| no_way_out(&machine.tree(), name, index);
        assert_eq!(found("eth0", 1), None);
        assert_eq!(found("eth1", 2), Some("down"));
        assert_eq!(found("docker0", 3), Some("a bridge inside this host"));
        let bridges = [found("br0", 4), found("br1", 5), found("br2", 9)];
        assert_eq!(bridges, [None; 3]);
        assert_eq!(found("tunl0", 10), Some("a tunnel"));
        assert_eq!(found("tun0", 6), Some("a tunnel"));
        assert_eq!(found("flannel.1", 7), Some("a tunnel"));
        // The files are those of another namespace; and no interface at all.
        assert_eq!(found("eth1", 99), None);
        assert_eq!(found("mlx5_0", 0), None);
    }
}

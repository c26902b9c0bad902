//! The inventory in a few lines, for the tour page.

use tonnage_machine::devices::{Inventory, NetworkInterface};

use tonnage_units::quantity::human::link_speed;

use super::rows::{free_of, shortened};

/// Returns one line per kind of hardware. Missing items are only named.
pub fn summary(found: &Inventory) -> Vec<(&'static str, String)> {
    let usable = &found.cpu.allowed;
    // The program uses the first library.
    let fabric = found.libfabric.first().map(|library| {
        let names: Vec<&str> = library
            .providers
            .iter()
            .map(|provider| &*provider.name)
            .collect();
        let embedded = if library.embedded { " (embedded)" } else { "" };
        format!(
            "libfabric {}{embedded} with {}",
            library.version,
            shortened(&names)
        )
    });
    let up = |network: &&NetworkInterface| network.kind != "loopback" && network.state != "down";
    let absent: Vec<&str> = found.absent.iter().map(|absent| &*absent.what).collect();
    let mut not_here = absent.join(", ");
    if !absent.is_empty() {
        not_here += " (`tonnage devices` explains why, and how to get them)";
    }
    let groups = [
        (
            "CPU",
            vec![format!("{}, CPUs {usable} usable", found.cpu.model)],
        ),
        (
            "memory",
            vec![free_of(
                found.memory.available_bytes,
                found.memory.total_bytes,
            )],
        ),
        (
            "network",
            found.networks.iter().filter(up).map(link).collect(),
        ),
        (
            "RDMA",
            found
                .rdma
                .iter()
                .map(|device| device.name.clone())
                .collect(),
        ),
        ("fabric", fabric.into_iter().collect()),
        (
            "GPU",
            found
                .gpus
                .iter()
                .map(|gpu| match gpu.model.starts_with(&*gpu.vendor) {
                    true => gpu.model.clone(),
                    false => format!("{} {}", gpu.vendor, gpu.model),
                })
                .collect(),
        ),
        ("not here", vec![not_here]),
    ];
    let join = |(name, things): (&'static str, Vec<String>)| (name, things.join(", "));
    groups
        .into_iter()
        .map(join)
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

fn link(network: &NetworkInterface) -> String {
    let speed = network
        .link_bits_per_s
        .map_or_else(|| network.state.clone(), link_speed);
    format!("{} ({speed})", network.name)
}

//! Chooses the library, the provider and its devices. Each has its own error if it is missing.
//!
//! `tonnage devices` lists everything that a library offers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::{DeviceRequest, OpenRequest, Verb};
use tonnage_machine::devices::rdma_address;
use tonnage_machine::fabric::LIBFABRIC_VARIABLE;
use tonnage_machine::kernel_files::{Tree, natural};
use tonnage_sys::libfabric::{Hints, Info, Libfabric};
use tonnage_units::{Error, Result};

use super::files;
use super::options::{LIBRARY, OPTIONS, SHM_WRITES, core_provider};
use super::worker::without_hmem;
use crate::libraries;
use crate::memory::cuda_region::is_of_gpu;
use crate::memory::gpu_nic::GpuPlace;

/// The chosen library's chosen offers.
pub(super) struct Chosen {
    /// One offer per device.
    pub(super) infos: Vec<Info>,
    /// Whether the provider grants completions that mean delivery.
    pub(super) delivery: bool,
    /// Why the embedded library is used although the user did not ask for it.
    pub(super) why_embedded: Option<String>,
    /// Devices that `all` left out, with reasons. If no device could reach other hosts, all are used and this is empty.
    pub(super) left_out: String,
    /// Why this device was chosen, if the rank's memory determined the choice.
    pub(super) why_device: Option<String>,
}

pub(super) fn choose(request: &OpenRequest<'_>) -> Result<Chosen> {
    let provider = request.variant;
    let (library, why_embedded) = library(request)?;
    let library = Arc::new(library);
    let is_shm = core_provider(provider) == "shm";
    let writes = request
        .verbs
        .iter()
        .any(|verb| matches!(verb, Verb::Write | Verb::WriteImm));
    // Ordered writes make reads use the queue too, so ordering is requested only if something is written.
    let ordered = is_shm && writes && request.option(&OPTIONS, SHM_WRITES) == "ordered";
    let hints = Hints {
        provider,
        messages: request.verbs.contains(&Verb::Send),
        ordered_writes: ordered,
        reads_after_writes: ordered,
        delivery: false,
        virtual_addresses: true,
        device_memory: is_of_gpu(request.memories.0),
    };
    let offered = Info::query(&library, &hints)
        .map_err(|why| unavailable(provider, why.into(), "Run `tonnage devices`".into()))?;
    if offered.is_empty() {
        let with = (request.memories.0.name, why_embedded.as_deref());
        if hints.device_memory
            && let Some(refusal) = without_hmem(&library, &hints, with)
        {
            return Err(refusal);
        }
        return Err(not_offered(&library, provider, why_embedded.as_deref()));
    }
    let delivering = Hints {
        delivery: true,
        ..hints.clone()
    };
    let delivery = Info::query(&library, &delivering).is_ok_and(|infos| !infos.is_empty());
    let mut why_device = None;
    let (infos, left_out) = match request.devices {
        DeviceRequest::Own => {
            let mut near = offered;
            if !has_sockets(provider) {
                let nearest =
                    |addresses: &[Option<&str>]| GpuPlace::for_request(request)?.nearest(addresses);
                (near, why_device) = nearest_to_gpu(near, nearest);
            }
            (vec![preferred(near, request)], String::new())
        }
        DeviceRequest::All => all_devices(offered, request, no_way_out),
        DeviceRequest::Named(names) => (by_device(&offered, names, provider)?, String::new()),
    };
    Ok(Chosen {
        infos,
        delivery,
        why_embedded,
        left_out,
        why_device,
    })
}

/// Whether the provider uses sockets. Then routes determine the path of its packets, and the choice of an interface
/// does not. Device names do not show whether sockets are used, because IPoIB interfaces may have the names of their
/// RDMA devices.
fn has_sockets(provider: &str) -> bool {
    ["tcp", "udp", "sockets", "net", "shm"].contains(&core_provider(provider))
}

/// Returns the name of a domain's RDMA device, without the suffix for the endpoint kind that EFA and verbs append.
fn device_of(domain: &str) -> &str {
    let kinds = ["-rdm", "-dgram", "-dgrm", "-msg", "-xrc"];
    let without = kinds.iter().find_map(|kind| domain.strip_suffix(kind));
    without.unwrap_or(domain)
}

/// Keeps only the offers of the RDMA device nearest to the GPU of this rank's memory, and returns the reason.
///
/// For host memory, keeps all offers. It also keeps all if none of them belongs to an RDMA device. If some devices have
/// an address, those without an address are not considered, because RoCE connects only by address.
fn nearest_to_gpu(
    mut offered: Vec<Info>,
    near_gpu: impl Fn(&[Option<&str>]) -> Option<(usize, String)>,
) -> (Vec<Info>, Option<String>) {
    let offer = |info: &Info| {
        let attributes = info.attributes();
        (attributes.domain.clone(), attributes.address.is_some())
    };
    let offers: Vec<DomainOffer> = offered.iter().map(offer).collect();
    let Some((name, why)) = nearest_domain(&offers, &Tree::host(), near_gpu) else {
        return (offered, None);
    };
    offered.retain(|info| info.attributes().domain == name);
    (offered, Some(why))
}

/// Name of a domain, and whether it has an address.
type DomainOffer = (String, bool);

/// Returns the domain nearest to the GPU, and the reason.
fn nearest_domain(
    offers: &[DomainOffer],
    tree: &Tree,
    near_gpu: impl Fn(&[Option<&str>]) -> Option<(usize, String)>,
) -> Option<(String, String)> {
    let some_have_address = offers.iter().any(|(_, has_address)| *has_address);
    let fitting = offers
        .iter()
        .filter(|(_, has_address)| *has_address || !some_have_address);
    let names: BTreeSet<&String> = fitting.map(|(name, _)| name).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_cached_key(|name| natural(name));
    let address = |name: &&String| rdma_address(tree, device_of(name));
    let addresses: Vec<Option<String>> = names.iter().map(address).collect();
    if addresses.iter().all(Option::is_none) {
        return None;
    }
    let addresses: Vec<Option<&str>> = addresses.iter().map(Option::as_deref).collect();
    let (place, why) = near_gpu(&addresses)?;
    Some(((*names.get(place)?).clone(), why))
}

/// Loads the library named on the command line, else the one named in the environment, else the first one found.
fn library(request: &OpenRequest<'_>) -> Result<(Libfabric, Option<String>)> {
    let asked = libraries::requested_path(request, LIBRARY, LIBFABRIC_VARIABLE)?;
    Libfabric::choose(asked.as_deref()).map_err(|why| {
        let by_option = request.library(LIBRARY).map(|_| "--libfabric");
        let option = by_option.unwrap_or(LIBFABRIC_VARIABLE);
        let how = format!(
            "Name another file with {option}, or \"embedded\" for the library inside this program"
        );
        unavailable(request.variant, why.into(), how)
    })
}

fn unavailable(provider: &str, why: String, how: String) -> Error {
    Error::Unavailable {
        what: format!("fabric:{provider}"),
        why,
        how,
    }
}

/// The error for a provider that is not offered. It lists the available providers, and explains how to get the
/// requested one.
fn not_offered(library: &Libfabric, provider: &str, why_embedded: Option<&str>) -> Error {
    let offers = library.offers().unwrap_or_default().into_iter();
    let usable = offers.filter(|offer| offer.endpoint == "rdm");
    let names: BTreeSet<String> = usable.map(|offer| offer.provider).collect();
    let names: Vec<_> = names.into_iter().collect();
    let (path, release) = (library.path(), library.release());
    let parts = library.parts().unwrap_or_default();
    let built_in = (parts.iter()).any(|part| part.provider == core_provider(provider));
    let problem = (built_in && core_provider(provider) == "shm")
        .then(files::problem)
        .flatten();
    if let Some(problem) = problem {
        let why = format!(
            "libfabric {release} ({path}) stores its files in shared memory, and {problem}"
        );
        let how = "Mount a larger writable tmpfs there (docker run --shm-size=1g, mount -o remount,size=1g), or use \
                   engine shm, which does not need it";
        return unavailable(provider, why, how.into());
    }
    let mut why = if built_in {
        format!(
            "libfabric {release} ({path}) has the provider, but finds no device on this host that supports reads and \
             writes"
        )
    } else {
        format!("libfabric {release} ({path}) was built without it")
    };
    if let Some(why_embedded) = why_embedded {
        why += &format!("; this library is used because {why_embedded}");
    }
    let source = match core_provider(provider) {
        "efa" => "Install AWS's EFA software (aws-efa-installer)",
        "cxi" => "Use the libfabric of the Slingshot host software",
        "verbs" => "Install libfabric1 and the NIC's driver (rdma-core)",
        "shm" | "tcp" => "Use --libfabric embedded",
        _ => "Install a libfabric that has it",
    };
    let how = format!(
        "Available providers: {}. {source}, or name its libfabric.so.1 with --libfabric; `tonnage devices` lists \
         missing parts",
        names.join(", ")
    );
    unavailable(provider, why, how)
}

/// Returns the device to use if the user names none.
///
/// On one host, this is the loopback device, because packets between the host's addresses use it anyway. Between hosts,
/// it is the device of the control channel, which is known to reach the other hosts. If that device is not offered,
/// returns the provider's first device other than the loopback. Offers without a readable address come last: verbs
/// offers a device once per kind of address, and only the IP kinds connect over RoCE.
fn preferred(mut offered: Vec<Info>, request: &OpenRequest<'_>) -> Info {
    let rank = |info: &Info| match info.attributes().address {
        None => 5,
        Some(address) if !request.one_network && request.address == Some(address) => 0,
        Some(address) => {
            let loopback_fits = address.is_loopback() == request.one_network;
            1 + 2 * u32::from(!loopback_fits) + u32::from(address.is_ipv6())
        }
    };
    // The first of the best offers is chosen.
    let best = (0..offered.len()).min_by_key(|&index| rank(&offered[index]));
    offered.swap_remove(best.unwrap_or(0))
}

/// Returns every device once, by its first address, in natural order. Also returns the devices left out, with reasons.
///
/// On one host, returns only the loopback device if there is one, because packets to other addresses use it too.
/// Between hosts, returns all devices that can reach other hosts. The loopback and devices with only link-local
/// addresses cannot reach other hosts. Neither can devices for which `no_way_out` has a reason; only these are listed
/// as left out. The device of the control channel is always included.
pub(super) fn all_devices(
    offered: Vec<Info>,
    request: &OpenRequest<'_>,
    no_way_out: fn(&str) -> Option<&'static str>,
) -> (Vec<Info>, String) {
    let one_network = request.one_network;
    let loops = offered.iter().any(is_loopback);
    let reaches = |info: &Info| match info.attributes().address {
        Some(IpAddr::V6(address)) if address.is_unicast_link_local() => false,
        Some(address) => address.is_loopback() == (one_network && loops),
        None => true,
    };
    let (mut fitting, others): (Vec<Info>, Vec<Info>) = offered.into_iter().partition(reaches);
    if fitting.is_empty() {
        fitting = others;
    }
    // All addresses of a device are compared here, before all except the first are dropped.
    let met = fitting.iter().filter(|info| {
        let address = info.attributes().address;
        address.is_some() && address == request.address
    });
    let met: BTreeSet<String> = met.map(|info| info.attributes().domain.clone()).collect();
    fitting.sort_by_key(|info| info.attributes().address.is_some_and(|a| a.is_ipv6()));
    let mut known = BTreeSet::new();
    fitting.retain(|info| known.insert(info.attributes().domain.clone()));
    fitting.sort_by_cached_key(|info| natural(&info.attributes().domain));
    let reason = |info: &Info| {
        let domain = &info.attributes().domain;
        no_way_out(domain).filter(|_| !one_network && !met.contains(domain))
    };
    if fitting.iter().all(|info| reason(info).is_some()) {
        return (fitting, String::new());
    }
    let (taken, left): (Vec<Info>, Vec<Info>) =
        fitting.into_iter().partition(|info| reason(info).is_none());
    let words = left.iter().filter_map(|info| {
        let why = reason(info)?;
        Some(format!("{} ({why})", info.attributes().domain))
    });
    let words: Vec<String> = words.collect();
    (taken, words.join(", "))
}

/// Returns the reason why a device cannot reach other hosts on its own; `None` if it can.
fn no_way_out(device: &str) -> Option<&'static str> {
    let index = tonnage_sys::interfaces::index(device)?;
    tonnage_machine::host_local::why_host_local(&Tree::host(), device, index)
}

fn is_loopback(info: &Info) -> bool {
    let address = info.attributes().address;
    address.is_some_and(|address| address.is_loopback())
}

fn by_device(offered: &[Info], devices: &[String], provider: &str) -> Result<Vec<Info>> {
    let find = |device: &String| {
        let mut fitting: Vec<&Info> = offered
            .iter()
            .filter(|info| is_device(info, device))
            .collect();
        fitting.sort_by_key(|info| info.attributes().address.is_some_and(|a| a.is_ipv6()));
        match fitting.first() {
            Some(info) => info
                .duplicate()
                .map_err(|error| Error::Failed(error.into())),
            None => {
                let domain = |info: &'_ Info| info.attributes().domain.clone();
                let names: BTreeSet<String> = offered.iter().map(domain).collect();
                let names: Vec<_> = names.into_iter().collect();
                Err(unavailable(
                    provider,
                    format!(
                        "it has no device {device} on this host{}",
                        not_running(device, std::fs::read_to_string(state_file(device)).ok())
                    ),
                    format!("Choose --devices among {}", names.join(", ")),
                ))
            }
        }
    };
    devices.iter().map(find).collect()
}

/// Remark about a network interface that exists but is down. Libraries do not list interfaces that are down.
pub(super) fn not_running(device: &str, state: Option<String>) -> String {
    match state.as_deref().map(str::trim) {
        Some("up" | "unknown") | None => String::new(),
        Some(state) => format!(
            ": the interface {device} exists and is {state}: it came up only now, or has no carrier"
        ),
    }
}

fn state_file(device: &str) -> String {
    format!("/sys/class/net/{device}/operstate")
}

/// Whether `device` names this offer: by its domain, with or without the suffix of EFA and verbs ("-rdm"), or by its
/// address.
fn is_device(info: &Info, device: &str) -> bool {
    let attributes = info.attributes();
    let rest = attributes.domain.strip_prefix(device);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        || attributes
            .address
            .is_some_and(|address| address.to_string() == device)
}

#[cfg(test)]
mod tests {
    use tonnage_machine::kernel_files::invented::Machine;

    use super::*;

    /// There are three RDMA devices and one network interface. A device without an address must not be chosen if other
    /// devices have one.
    #[test]
    fn memory_of_a_gpu_takes_the_nearest_domain_that_can_connect() {
        let machine = Machine::new();
        for (slot, name) in [("1", "mlx5_0"), ("2", "mlx5_2"), ("3", "mlx5_10")] {
            let address = format!("0000:{slot}0:00.0");
            let path = format!("sys/devices/pci0000:00/0000:00:0{slot}.0/{address}");
            machine.file(&format!("{path}/class"), "0x020700");
            machine.file(&format!("{path}/vendor"), "0x15b3");
            let on_bus = format!("sys/bus/pci/devices/{address}");
            machine.link(&on_bus, &path);
            machine.link(&format!("sys/class/infiniband/{name}/device"), &on_bus);
        }
        let taken = |offers: &[(&str, bool)], place: usize| {
            let offers: Vec<_> = offers
                .iter()
                .map(|(name, has)| ((*name).to_owned(), *has))
                .collect();
            let near = |addresses: &[Option<&str>]| Some((place, format!("{addresses:?}")));
            nearest_domain(&offers, &machine.tree(), near)
        };
        let all = [
            ("mlx5_10-rdm", true),
            ("mlx5_2", true),
            ("mlx5_0", false),
            ("eth0", true),
        ];
        let (name, why) = taken(&all, 2).unwrap();
        // Candidates are in natural order, and each domain occurs once.
        assert_eq!(why, r#"[None, Some("0000:20:00.0"), Some("0000:30:00.0")]"#);
        assert_eq!(name, "mlx5_10-rdm");
        let without = [("mlx5_2", false), ("mlx5_0", false), ("mlx5_0", false)];
        let (name, why) = taken(&without, 0).unwrap();
        assert_eq!(why, r#"[Some("0000:10:00.0"), Some("0000:20:00.0")]"#);
        assert_eq!(name, "mlx5_0");
        assert_eq!(taken(&[("eth0", true), ("lo", true)], 0), None);
        assert_eq!(taken(&without, 2), None);
    }

    #[test]
    fn device_names_and_sockets_follow_from_domain_and_provider() {
        for (domain, device) in [
            ("mlx5_0", "mlx5_0"),
            ("mlx5_0-xrc", "mlx5_0"),
            ("rdmap0s6-dgrm", "rdmap0s6"),
            ("bond-0", "bond-0"),
            ("bond-0-rdm", "bond-0"),
        ] {
            assert_eq!(device_of(domain), device);
        }
        for (provider, sockets) in [
            ("tcp", true),
            ("tcp;ofi_rxm", true),
            ("verbs;ofi_rxm", false),
            ("efa", false),
        ] {
            assert_eq!(has_sockets(provider), sockets, "{provider}");
        }
    }
}

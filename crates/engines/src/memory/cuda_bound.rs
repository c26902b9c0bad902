//! The upper bound of copies between the memory of a rank and the memories of its peers. It is determined before any of
//! them is allocated.

use std::collections::BTreeSet;

use tonnage_engine::memory::BusDevice;
use tonnage_engine::{BoundKind, PlannedMemory};
use tonnage_machine::devices::{GpuLinks, LinkTable, gpu_links};
use tonnage_units::Result;

use super::bus_device::counted;
use super::cuda_region::number_of;
use super::nvidia::NVIDIA;
use super::vendor::GpuVendor;

/// A rank's end of its copies, and the upper bound of these copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundedEnd {
    /// Name of the end: its GPU, or the host with the GPUs that it copies to; and the links that set the bound. GPUs
    /// have the numbers of this process.
    pub(crate) name: String,
    /// Name of the end by PCI addresses, which are the same in all processes. Ends with the same name share one bound.
    pub(crate) place: String,
    /// The bound.
    pub(crate) bound: BoundKind,
    /// Description of the links that set the bound; `None` if no link sets it.
    pub(crate) links: Option<String>,
    /// Reason why links other than PCIe are unknown for one of the GPUs.
    pub(crate) links_unknown: Option<String>,
}

/// Describes a rank's end.
///
/// - Copies to the host: the bound is the GPU's PCIe link, or other links that the driver's management library reports.
/// - Copies to another GPU over NVLink: the bound is the GPU's NVLinks, which that library reports too.
/// - Copies within a GPU: the bound is the GPU's own copy rate.
/// - Copies between two GPUs without NVLink: no bound is known, because the bytes may cross several PCIe links.
/// - Copies of a GPU that its rank did not describe: no bound is known.
pub(crate) fn end(
    vendor: &GpuVendor,
    (own, peers): (PlannedMemory<'_>, &[PlannedMemory<'_>]),
) -> Result<BoundedEnd> {
    let mut gpus = EndGpus::default();
    let own = gpus.place(vendor, own)?;
    let peers = peers.iter().map(|&peer| gpus.place(vendor, peer));
    let peers = peers.collect::<Result<Vec<_>>>()?;
    let table = links_beside_pcie(vendor, (own, &peers), &gpus);
    let to_host = |gpu: Option<usize>| {
        let link = gpus.device(gpu?)?.link.as_ref()?;
        Some((link.bytes_per_s, link.kind.clone()))
    };
    let linked = |own: usize, peer: usize| {
        let [own, peer] = [own, peer].map(|gpu| gpus.device(gpu));
        table
            .between(&own?.pci_address, &peer?.pci_address)
            .cloned()
    };
    let described = |title: &dyn Fn(usize) -> String| {
        let (bound, links) = kind(own, &peers, to_host, linked, title);
        let name = name(own, &peers, title);
        let name = match &links {
            Some(links) => format!("{name}, by {links}"),
            None => name,
        };
        (name, bound, links)
    };
    let (place, ..) = described(&|gpu| gpus.address(gpu));
    let (name, bound, links) = described(&|gpu| gpus.title(gpu));
    Ok(BoundedEnd {
        name,
        place,
        bound,
        links,
        links_unknown: table.unknown.or_else(|| gpus.links_unknown()),
    })
}

/// GPUs of a rank and its peers, each GPU once: two processes may use different numbers for the same GPU.
#[derive(Default)]
struct EndGpus<'a>(Vec<(String, Option<&'a BusDevice>)>);

impl<'a> EndGpus<'a> {
    /// Returns the index of the GPU that holds a rank's memory; `None` for host memory.
    fn place(&mut self, vendor: &GpuVendor, memory: PlannedMemory<'a>) -> Result<Option<usize>> {
        let Some(number) = number_of(vendor, memory)? else {
            return Ok(None);
        };
        let name = format!("{}:{number}", vendor.memory);
        let known = self.0.iter().position(|(_, device)| {
            let addresses = [*device, memory.device].map(|it| Some(&it?.pci_address));
            // A GPU without a description is never equal to another.
            addresses[0].is_some() && addresses[0] == addresses[1]
        });
        Ok(Some(known.unwrap_or_else(|| {
            self.0.push((name, memory.device));
            self.0.len() - 1
        })))
    }

    fn device(&self, gpu: usize) -> Option<&'a BusDevice> {
        self.0.get(gpu)?.1
    }

    fn title(&self, gpu: usize) -> String {
        let (name, device) = &self.0[gpu];
        device.map_or_else(|| name.clone(), BusDevice::title)
    }

    /// Returns the GPU's PCI address, or its name if the address is unknown.
    fn address(&self, gpu: usize) -> String {
        let (name, device) = &self.0[gpu];
        device.map_or_else(|| name.clone(), |device| device.pci_address.clone())
    }

    /// Returns the reasons why links of some GPUs are unknown, each reason once.
    fn links_unknown(&self) -> Option<String> {
        let devices = self.0.iter().filter_map(|(_, device)| *device);
        let reasons: BTreeSet<&str> = devices
            .filter_map(|device| device.links_unknown.as_deref())
            .collect();
        let reasons: Vec<&str> = reasons.into_iter().collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// Returns the links between these GPUs, with one query to the management library. The library is not queried if no
/// such link could set the bound.
fn links_beside_pcie(
    vendor: &GpuVendor,
    (own, peers): (Option<usize>, &[Option<usize>]),
    gpus: &EndGpus<'_>,
) -> LinkTable {
    let is_other = |peer: &Option<usize>| peer.is_some() && *peer != own;
    if vendor.memory != NVIDIA.memory || own.is_none() || !peers.iter().any(is_other) {
        return LinkTable::default();
    }
    let devices = gpus.0.iter().filter_map(|(_, device)| *device);
    gpu_links(devices.map(|device| device.pci_address.clone()).collect())
}

fn name(own: Option<usize>, peers: &[Option<usize>], title: impl Fn(usize) -> String) -> String {
    let host = "memory of the host";
    match own {
        Some(gpu) => title(gpu),
        None if peers.iter().all(Option::is_none) => host.to_owned(),
        // The links of these GPUs are the host's links, so the GPUs are part of the host's name.
        None => {
            let peers: BTreeSet<String> = peers.iter().flatten().map(|&peer| title(peer)).collect();
            let peers: Vec<String> = peers.into_iter().collect();
            format!("{host}, to {}", peers.join(" and "))
        }
    }
}

/// Returns the bound of an end, and a description of the links if they set the bound. `link` returns the speed and kind
/// of a GPU's link to the host.
fn kind(
    own: Option<usize>,
    peers: &[Option<usize>],
    link: impl Fn(Option<usize>) -> Option<(u64, String)>,
    linked: impl Fn(usize, usize) -> Option<GpuLinks>,
    title: impl Fn(usize) -> String,
) -> (BoundKind, Option<String>) {
    let peers: BTreeSet<Option<usize>> = peers.iter().copied().collect();
    let of_links = |speed: Option<u64>, words: String| match speed.filter(|&speed| speed > 0) {
        Some(bytes_per_s) => (BoundKind::Link { bytes_per_s }, Some(words)),
        None => (BoundKind::None, None),
    };
    match own {
        _ if peers.is_empty() => (BoundKind::None, None),
        // The host is not a link. Its bound is the sum over the links of all GPUs that it copies to, each counted once.
        None => {
            let count = peers.len();
            let links: Option<Vec<(u64, String)>> = peers.into_iter().map(link).collect();
            let links = links.unwrap_or_default();
            let kinds: BTreeSet<&str> = links.iter().map(|(_, kind)| kind.as_str()).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            let words = match count {
                1 => kinds.join(""),
                count => format!("{}, of {count} GPUs", kinds.join(" and ")),
            };
            of_links(Some(links.iter().map(|(speed, _)| speed).sum()), words)
        }
        Some(_) if peers.iter().all(|&peer| peer == own) => (BoundKind::MemoryCopy, None),
        Some(_) if peers.iter().all(Option::is_none) => {
            let (speed, words) = link(own).unwrap_or_default();
            of_links(Some(speed), words)
        }
        Some(own) => {
            let links = peers.into_iter().map(|peer| {
                let peer = peer.filter(|&peer| peer != own)?;
                Some((peer, linked(own, peer)?))
            });
            let links: Option<Vec<(usize, GpuLinks)>> = links.collect();
            let combined = links.map(|links| combined_links(&links, title));
            let (speed, words) = combined.unwrap_or_default();
            of_links(speed, words)
        }
    }
}

/// Returns the speed and description of a GPU's links to other GPUs. Links to switches reach all GPUs, so they count
/// once. Direct links to different GPUs are separate, so there is a bound only with a single peer. With several peers,
/// the bound would depend on how many of them are written to at once.
fn combined_links(
    links: &[(usize, GpuLinks)],
    title: impl Fn(usize) -> String,
) -> (Option<u64>, String) {
    match links {
        [(peer, links)] if !links.switched => {
            let words = format!("{} to {}", counted(links), title(*peer));
            (links.bytes_per_s, words)
        }
        all if all.iter().all(|(_, links)| links.switched) => {
            let widest = all.iter().map(|(_, links)| links);
            let widest = widest.max_by_key(|links| links.bytes_per_s);
            let speed = widest.and_then(|links| links.bytes_per_s);
            let words = widest.map_or_else(String::new, counted);
            (speed, format!("{words} to switches"))
        }
        _ => (None, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::memory::BusLink;

    use super::*;

    fn title(gpu: usize) -> String {
        format!("cuda:{gpu}")
    }

    #[test]
    fn the_crossed_links_bound_the_copies() {
        let link = |number: Option<usize>| {
            let number = number.filter(|&number| number < 2)?;
            Some((10 + number as u64, "PCIe".to_owned()))
        };
        let of = |own, peers: &[Option<usize>]| kind(own, peers, link, |_, _| None, title).0;
        let speed = |bytes_per_s| BoundKind::Link { bytes_per_s };
        assert_eq!(of(None, &[Some(1)]), speed(11));
        assert_eq!(of(None, &[Some(0), Some(1)]), speed(21));
        // Two peers on one GPU share the GPU's link.
        assert_eq!(of(None, &[Some(1), Some(1)]), speed(11));
        assert_eq!(of(Some(1), &[None]), speed(11));
        assert_eq!(of(Some(1), &[Some(1)]), BoundKind::MemoryCopy);
        // Cases without a bound: NVLink may exist, the kernel does not report the link, or there is no peer.
        for (own, peers) in [
            (Some(0), &[Some(1)][..]),
            (Some(7), &[None]),
            (None, &[Some(7)]),
            (None, &[None]),
            (None, &[]),
            (Some(0), &[]),
        ] {
            assert_eq!(of(own, peers), BoundKind::None);
        }
    }

    /// GPUs 1 to 3 are behind switches with GPU 0, GPUs 4 and 5 are linked to it directly, and other links are unknown.
    #[test]
    fn links_between_gpus_bound_the_copies_over_them() {
        let linked = |own, peer| {
            let (count, switched) = match (own, peer) {
                (0, 1..=3) => (18, true),
                (0, 4 | 5) => (peer as u32, false),
                _ => return None,
            };
            Some(GpuLinks {
                kind: "NVLink".to_owned(),
                count: Some(count),
                switched,
                bytes_per_s: Some(u64::from(count) * 10),
            })
        };
        let of = |peers: &[usize]| {
            let peers: Vec<Option<usize>> = peers.iter().copied().map(Some).collect();
            let c2c = |_| Some((7, "NVLink-C2C, 10 links".to_owned()));
            let (bound, words) = kind(Some(0), &peers, c2c, linked, title);
            match bound {
                BoundKind::Link { bytes_per_s } => (bytes_per_s, words.unwrap_or_default()),
                other => (0, format!("{other:?}")),
            }
        };
        let switched = (180, "NVLink, 18 links to switches".to_owned());
        assert_eq!(of(&[1]), switched);
        // The links are the same for any number of GPUs behind the switches.
        assert_eq!(of(&[1, 2, 3, 3]), switched);
        // Each GPU has its own direct links. A common bound would depend on how many GPUs are written to at once.
        assert_eq!(of(&[4]), (40, "NVLink, 4 links to cuda:4".to_owned()));
        assert_eq!(of(&[5, 5]), (50, "NVLink, 5 links to cuda:5".to_owned()));
        assert_eq!(of(&[0]), (0, "MemoryCopy".to_owned()));
        for unknown in [&[4, 5][..], &[1, 4], &[6], &[1, 6], &[0, 1]] {
            assert_eq!(of(unknown), (0, "None".to_owned()), "{unknown:?}");
        }
    }

    /// The host's memory can be reached by links other than PCIe, if the library reports such links.
    #[test]
    fn links_to_the_host_bound_by_their_own_speed() {
        let link = |number: Option<usize>| {
            let links = [(447, "NVLink-C2C, 10 links"), (63, "PCIe")];
            let (speed, words) = links.get(number?)?;
            Some((*speed, (*words).to_owned()))
        };
        let of = |own, peers: &[Option<usize>]| {
            let (bound, words) = kind(own, peers, link, |_, _| None, title);
            (bound, words.unwrap_or_default())
        };
        let bound = |bytes_per_s, words: &str| (BoundKind::Link { bytes_per_s }, words.to_owned());
        assert_eq!(of(Some(0), &[None]), bound(447, "NVLink-C2C, 10 links"));
        assert_eq!(of(None, &[Some(1), Some(1)]), bound(63, "PCIe"));
        let both = bound(510, "NVLink-C2C, 10 links and PCIe, of 2 GPUs");
        assert_eq!(of(None, &[Some(0), Some(1)]), both);
    }

    /// A rank with memory of the GPU that has this name in the rank's process.
    fn rank<'a>(name: &'a str, device: Option<&'a BusDevice>) -> PlannedMemory<'a> {
        PlannedMemory {
            name,
            gpu: None,
            device,
        }
    }

    fn gpu(number: u32, bus: u32) -> BusDevice {
        BusDevice {
            name: format!("cuda:{number}"),
            pci_address: format!("0000:{bus:02x}:00.0"),
            uuid: format!("GPU-{bus:02x}"),
            link: Some(BusLink {
                kind: "PCIe".to_owned(),
                bytes_per_s: 10 + u64::from(bus),
            }),
            links_unknown: None,
            memory_bytes_per_s: None,
            shared_by: None,
        }
    }

    /// Ends with the same name are counted once, so the host needs different names for different GPUs.
    #[test]
    fn the_host_is_named_by_the_gpus_that_it_copies_to() {
        let gpus = [gpu(0, 1), gpu(1, 2)];
        let of = |own: PlannedMemory<'_>, peers: &[usize]| {
            let names = ["cuda", "cuda:1"];
            let peers = peers.iter().map(|&n| rank(names[n], Some(&gpus[n])));
            let peers: Vec<_> = peers.collect();
            let end = end(NVIDIA, (own, &peers)).unwrap();
            (end.name, end.bound)
        };
        let speed = |bytes_per_s| BoundKind::Link { bytes_per_s };
        let one = "memory of the host, to cuda:1 (0000:02:00.0), by PCIe";
        assert_eq!(of(rank("host", None), &[1]), (one.to_owned(), speed(12)));
        let both = "memory of the host, to cuda:0 (0000:01:00.0) and cuda:1 (0000:02:00.0), by PCIe, of 2 GPUs";
        assert_eq!(
            of(rank("cuda-pinned", None), &[1, 0, 1]),
            (both.to_owned(), speed(23))
        );
        let host = of(rank("host", None), &[]);
        assert_eq!(host, ("memory of the host".to_owned(), BoundKind::None));
    }

    /// The same number can mean different GPUs in two processes, and different numbers the same GPU.
    #[test]
    fn gpus_are_identified_by_their_addresses() {
        let of = |own: &BusDevice, peers: &[PlannedMemory<'_>]| {
            end(NVIDIA, (rank("cuda", Some(own)), peers)).unwrap()
        };
        let own = gpu(0, 1);
        let same = gpu(3, 1);
        let within = of(&own, &[rank("cuda:3", Some(&same))]);
        assert_eq!(
            (within.bound, within.name),
            (BoundKind::MemoryCopy, own.title())
        );
        // The link is the same, regardless of the number that a process uses for its GPU.
        let host = rank("host", None);
        let to_host = [&own, &same].map(|gpu| of(gpu, &[host]));
        let names = ["cuda", "cuda:3"].into_iter().zip([&own, &same]);
        let of_host =
            names.map(|(name, gpu)| end(NVIDIA, (host, &[rank(name, Some(gpu))])).unwrap());
        let of_host: Vec<_> = of_host.collect();
        for ends in [&to_host[..], &of_host] {
            assert_ne!(ends[0].name, ends[1].name);
            assert_eq!(ends[0].place, ends[1].place);
        }
        let other = gpu(0, 2);
        assert_ne!(of(&other, &[host]).place, to_host[0].place);
        let apart = of(&own, &[rank("cuda", Some(&other))]);
        assert_eq!(apart.bound, BoundKind::None);
        assert_eq!(to_host[0].bound, BoundKind::Link { bytes_per_s: 11 });
        assert_eq!(to_host[0].name, "cuda:0 (0000:01:00.0), by PCIe");
        // If the GPU of the peer or of this rank is not described, equal numbers do not prove that it is the same GPU.
        assert_eq!(of(&own, &[rank("cuda", None)]).bound, BoundKind::None);
        for (own, peer) in [("cuda", "cuda:1"), ("cuda:1", "cuda"), ("cuda", "host")] {
            let unknown = end(NVIDIA, (rank(own, None), &[rank(peer, None)])).unwrap();
            assert_eq!(unknown.bound, BoundKind::None, "{own} {peer}");
        }
    }
}

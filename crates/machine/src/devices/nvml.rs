//! Answers of NVIDIA's management library (NVML) about GPUs: links between GPUs and to the host, reasons why a GPU
//! cannot access another one's memory, and slices.

use std::collections::BTreeMap;

use tonnage_sys::error::{LibraryError, LibraryErrorKind};
use tonnage_sys::nvml::{MigSlice, NvlinkEnd, Nvml, NvmlGpu};

use super::Absent;
use super::gpu_pairs::{GpuLinks, GpuPair};
use super::timeout::{TIMEOUT, with_timeout};

/// The environment variable that names the NVML library to use instead of the installed one.
pub const LIBNVML_VARIABLE: &str = "TONNAGE_LIBNVML";

/// Links other than PCI of some GPUs, by the GPUs' PCI addresses.
#[derive(Debug, Clone, Default)]
pub struct LinkTable {
    between: BTreeMap<(String, String), GpuLinks>,
    to_host: BTreeMap<String, GpuLinks>,
    /// Why the links of a GPU, or all links, are unknown.
    pub unknown: Option<String>,
}

impl LinkTable {
    /// Returns the links from the first GPU towards the second; `None` if there are none or they are unknown.
    pub fn between(&self, from: &str, to: &str) -> Option<&GpuLinks> {
        self.between.get(&(from.to_owned(), to.to_owned()))
    }

    /// Returns the links from a GPU to host memory; `None` if there are none or they are unknown.
    pub fn to_host(&self, address: &str) -> Option<&GpuLinks> {
        self.to_host.get(address)
    }
}

/// Answers about some GPUs, by their PCI addresses.
#[derive(Debug, Default)]
pub(super) struct NvmlAnswer {
    links: LinkTable,
    /// Reasons why the first GPU cannot read the second one's memory.
    refusals: BTreeMap<(String, String), &'static str>,
    /// Slices of the GPUs with MIG on.
    slices: BTreeMap<String, Vec<MigSlice>>,
}

impl NvmlAnswer {
    /// Adds links and reasons to the pairs.
    pub(super) fn add_to(&self, pairs: &mut [GpuPair]) {
        for pair in pairs {
            if let Some(links) = self.links.between(&pair.from, &pair.to) {
                pair.links = Some(links.clone());
            }
            let key = (pair.from.clone(), pair.to.clone());
            if let Some(access) = pair.access.as_mut().filter(|access| !access.granted) {
                access.why_not = self.refusals.get(&key).map(|why| (*why).to_owned());
            }
        }
    }

    /// Returns the links from the GPU with this address to host memory.
    pub(super) fn to_host(&self, address: &str) -> Option<&GpuLinks> {
        self.links.to_host(address)
    }

    /// Returns the slices of the GPU with this address; `None` for a whole or unknown GPU.
    pub(super) fn slices(&self, address: &str) -> Option<&[MigSlice]> {
        self.slices.get(address).map(Vec::as_slice)
    }
}

/// Queries NVML about the GPUs with these PCI addresses. The library is the one that the variable names, or else the
/// installed one.
pub(super) fn ask(addresses: Vec<String>, absent: &mut Vec<Absent>) -> NvmlAnswer {
    let what = "NVLink and MIG by NVML";
    let (why, how) = match asked(addresses) {
        Ok(answer) => {
            let unknown = answer.links.unknown.clone().map(|why| {
                let how = "See that `nvidia-smi -q` describes the GPU: it asks the same library.";
                Absent::new(what, why, how)
            });
            absent.extend(unknown);
            return answer;
        }
        Err(no_answer) => no_answer,
    };
    absent.push(Absent::new(what, why, how));
    NvmlAnswer::default()
}

/// Queries the links of the GPUs with these PCI addresses. The library is the one that the variable names, or else the
/// installed one.
pub fn gpu_links(addresses: Vec<String>) -> LinkTable {
    match asked(addresses) {
        Ok(answer) => answer.links,
        Err((why, _)) => LinkTable {
            unknown: Some(format!("NVML: {why}")),
            ..LinkTable::default()
        },
    }
}

/// The reason for a missing answer, and advice.
type NoAnswer = (String, &'static str);

const INSTALL: &str = "Install libnvidia-ml.so.1 of the driver (libnvidia-ml1 on Debian, libnvidia-compute on Ubuntu); in a \
                       container, NVIDIA_DRIVER_CAPABILITIES has to hold utility.";

fn not_loaded(error: &LibraryError) -> NoAnswer {
    let how = match **error {
        LibraryErrorKind::Call {
            code: Nvml::VERSION_MISMATCH,
            ..
        } => {
            "Restart the machine, or reload the driver's modules, as after an update of the driver."
        }
        _ => INSTALL,
    };
    (error.to_string(), how)
}

fn asked(addresses: Vec<String>) -> Result<NvmlAnswer, NoAnswer> {
    let named = std::env::var_os(LIBNVML_VARIABLE).filter(|path| !path.is_empty());
    let asked = with_timeout(TIMEOUT, move || {
        let file = named.as_deref().map(|path| {
            path.to_str().ok_or_else(|| {
                let why = format!("the path of the library is not UTF-8: {}", path.display());
                (why, INSTALL)
            })
        });
        let nvml = Nvml::load(file.transpose()?).map_err(|error| not_loaded(&error))?;
        Ok(answer(&nvml, &addresses))
    });
    let late = || format!("it did not answer within {} s", TIMEOUT.as_secs());
    asked.unwrap_or_else(|| Err((late(), INSTALL)))
}

/// A GPU's address, its handle, and the remote ends of its links.
type Linked<'a> = (&'a String, NvmlGpu<'a>, Vec<NvlinkEnd>);

fn answer(nvml: &Nvml, addresses: &[String]) -> NvmlAnswer {
    let mut unknown = Vec::new();
    let mut gpus: Vec<Linked<'_>> = Vec::new();
    for address in addresses {
        let Some(gpu) = nvml.gpu(address) else {
            unknown.push(format!("{address}: NVML lists no GPU there"));
            continue;
        };
        match gpu.links() {
            Ok(ends) => gpus.push((address, gpu, ends)),
            Err(why) => unknown.push(format!("{address}: {why}")),
        }
    }
    let mut answer = NvmlAnswer::default();
    answer.links.unknown = (!unknown.is_empty()).then(|| unknown.join("; "));
    let is_known = |at: &str| addresses.iter().any(|address| address == at);
    for (address, gpu, ends) in &gpus {
        if let Some(links) = to_host(gpu, ends) {
            answer.links.to_host.insert((*address).clone(), links);
        }
        if let Some(slices) = gpu.slices() {
            answer.slices.insert((*address).clone(), slices);
        }
        for (to, peer, their_ends) in gpus.iter().filter(|(to, ..)| to != address) {
            let key = ((*address).clone(), (*to).clone());
            if let Some(why) = gpu.why_not_peer(peer) {
                answer.refusals.insert(key.clone(), why);
            }
            let linked = gpu.is_linked(peer);
            let found = between(ends, (to, their_ends), linked, &is_known);
            if let Some((count, switched)) = found {
                let links = GpuLinks {
                    kind: "NVLink".to_owned(),
                    count: Some(count),
                    switched,
                    bytes_per_s: gpu.link_bytes_per_s().map(|one| one * u64::from(count)),
                };
                answer.links.between.insert(key, links);
            }
        }
    }
    answer
}

/// Returns the links of a GPU to the host's processors, and through them to host memory.
fn to_host(gpu: &NvmlGpu<'_>, ends: &[NvlinkEnd]) -> Option<GpuLinks> {
    let processors = ends.iter().filter(|end| **end == NvlinkEnd::Processor);
    let (kind, count, one) = match (gpu.c2c(), processors.count() as u32) {
        (Some((count, one)), _) => ("NVLink-C2C", count, one),
        (None, 0) => return None,
        (None, count) => ("NVLink", count, gpu.link_bytes_per_s()),
    };
    Some(GpuLinks {
        kind: kind.to_owned(),
        count: Some(count),
        switched: false,
        bytes_per_s: one.map(|one| one * u64::from(count)),
    })
}

/// Returns the number of links from one GPU towards another one, and whether these lead to switches. `own` and `their`
/// are the link ends of the two GPUs. `linked` is the library's answer for the pair, if it has one. `is_known` returns
/// whether an address is a GPU's.
fn between(
    own: &[NvlinkEnd],
    (peer, their): (&str, &[NvlinkEnd]),
    linked: Option<bool>,
    is_known: &dyn Fn(&str) -> bool,
) -> Option<(u32, bool)> {
    let count = |ends: &[NvlinkEnd], wanted: &dyn Fn(&NvlinkEnd) -> bool| {
        ends.iter().filter(|end| wanted(end)).count() as u32
    };
    let both = |wanted: &dyn Fn(&NvlinkEnd) -> bool| count(own, wanted).min(count(their, wanted));
    let direct = count(own, &|end| matches!(end, NvlinkEnd::Gpu(at) if at == peer));
    let switched = both(&|end| *end == NvlinkEnd::Switch);
    // A guest cannot see the far end of links behind some switches. If a far end's kind is not reported, only its
    // address is known, and an address that belongs to no GPU may be a switch's.
    let unknown_ends = both(&|end| match end {
        NvlinkEnd::Gpu(at) => !is_known(at),
        NvlinkEnd::Other => true,
        NvlinkEnd::Switch | NvlinkEnd::Processor => false,
    });
    match (linked, direct, switched) {
        (Some(false), ..) => None,
        (_, 1.., _) => Some((direct, false)),
        (_, _, 1..) => Some((switched, true)),
        (Some(true), ..) => (unknown_ends > 0).then_some((unknown_ends, true)),
        (None, ..) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An answer about a GPU with these MIG slices and with links to the host.
    pub(in super::super) fn of_slices(address: &str, slices: Vec<MigSlice>) -> NvmlAnswer {
        let links = GpuLinks {
            kind: "NVLink-C2C".to_owned(),
            count: Some(10),
            switched: false,
            bytes_per_s: None,
        };
        let mut answer = NvmlAnswer::default();
        answer.slices.insert(address.to_owned(), slices);
        answer.links.to_host.insert(address.to_owned(), links);
        answer
    }

    fn gpu(at: &str) -> NvlinkEnd {
        NvlinkEnd::Gpu(at.to_owned())
    }

    #[test]
    fn links_are_those_that_lead_to_the_peer_or_to_switches_of_both() {
        let between = |own: &[NvlinkEnd], peer: (&str, &[NvlinkEnd]), linked| {
            super::between(own, peer, linked, &|at| ["a", "b", "c", "d"].contains(&at))
        };
        let (switch, other) = (NvlinkEnd::Switch, NvlinkEnd::Other);
        let own = [gpu("b"), gpu("c"), gpu("b"), switch.clone(), switch.clone()];
        assert_eq!(between(&own, ("b", &[]), Some(true)), Some((2, false)));
        assert_eq!(between(&own, ("b", &[]), None), Some((2, false)));
        let one = [switch.clone(), other.clone()];
        assert_eq!(between(&own, ("d", &one), Some(true)), Some((1, true)));
        // If NVML reports that the GPUs are not linked, their link ends are ignored. If it reports that they are
        // linked, links with unknown ends count too.
        assert_eq!(between(&own, ("b", &one), Some(false)), None);
        let unknown_ends = [other.clone(), other];
        assert_eq!(
            between(&unknown_ends, ("d", &unknown_ends), Some(true)),
            Some((2, true))
        );
        assert_eq!(between(&unknown_ends, ("d", &unknown_ends), None), None);
        assert_eq!(between(&[gpu("c")], ("d", &[switch]), None), None);
        assert_eq!(between(&[], ("d", &[]), Some(true)), None);
        // An address that is not a GPU of this machine may be a switch. A processor is never a switch.
        let [address, processor] = [gpu("switch"), NvlinkEnd::Processor];
        let both = [address.clone(), address, processor, gpu("c")];
        assert_eq!(between(&both, ("d", &both), Some(true)), Some((2, true)));
        assert_eq!(between(&both, ("d", &both), None), None);
    }
}

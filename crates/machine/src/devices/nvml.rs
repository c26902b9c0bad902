//! Answers of NVIDIA's management library (NVML) about GPUs: links between them, reasons why they do not reach each
//! other, and slices.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use tonnage_sys::nvml::{MigSlice, NvlinkEnd, Nvml, NvmlGpu};

use super::absent::Absent;
use super::gpu_pairs::{GpuLinks, GpuPair};
use super::timeout::{TIMEOUT, within};

/// The environment variable that names NVIDIA's management library to use instead of the installed one.
pub const LIBNVML_VARIABLE: &str = "TONNAGE_LIBNVML";

/// Answers about some GPUs, by their PCI addresses.
#[derive(Debug, Default)]
pub(super) struct NvmlAnswer {
    /// Links of a GPU towards another one.
    links: BTreeMap<(String, String), GpuLinks>,
    /// Reasons why a GPU does not read another one's memory.
    refusals: BTreeMap<(String, String), &'static str>,
    /// Slices of GPUs that are not whole.
    slices: BTreeMap<String, Vec<MigSlice>>,
}

impl NvmlAnswer {
    /// Adds to pairs what is told of them.
    pub(super) fn add_to(&self, pairs: &mut [GpuPair]) {
        for pair in pairs {
            let key = (pair.from.clone(), pair.to.clone());
            if let Some(links) = self.links.get(&key) {
                pair.links = Some(links.clone());
            }
            if let Some(access) = pair.access.as_mut().filter(|access| !access.granted) {
                access.why_not = self.refusals.get(&key).map(|why| (*why).to_owned());
            }
        }
    }

    /// Slices of the GPU with an address; `None` for one that is whole, or that nobody knows.
    pub(super) fn slices(&self, address: &str) -> Option<&[MigSlice]> {
        self.slices.get(address).map(Vec::as_slice)
    }
}

/// Asks the library that the variable names, or the installed one, about GPUs with these PCI addresses.
pub(super) fn ask(addresses: Vec<String>, absent: &mut Vec<Absent>) -> NvmlAnswer {
    let named = std::env::var_os(LIBNVML_VARIABLE).filter(|path| !path.is_empty());
    let asked = within(TIMEOUT, move || {
        let nvml = load(named.as_deref())?;
        Ok::<_, String>(answer(&nvml, &addresses))
    });
    let why = match asked {
        Some(Ok(answer)) => return answer,
        Some(Err(why)) => why,
        None => format!("it did not answer within {} s", TIMEOUT.as_secs()),
    };
    absent.push(Absent::new(
        "NVLink and MIG by NVML",
        why,
        "Install libnvidia-ml.so.1 of the driver (libnvidia-ml1 on Debian, libnvidia-compute on Ubuntu); in a container, \
         NVIDIA_DRIVER_CAPABILITIES has to hold utility.",
    ));
    NvmlAnswer::default()
}

/// Links of the GPU with one PCI address towards that with another one, by the library that the variable names or the
/// installed one; `None` where there are none, or nobody tells.
pub fn gpu_links(from: &str, to: &str) -> Option<GpuLinks> {
    let named = std::env::var_os(LIBNVML_VARIABLE).filter(|path| !path.is_empty());
    let nvml = load(named.as_deref()).ok()?;
    let addresses = [from, to].map(str::to_owned);
    let mut answer = answer(&nvml, &addresses);
    answer.links.remove(&addresses.into())
}

fn load(named: Option<&OsStr>) -> Result<Nvml, String> {
    let file = named.map(|path| {
        path.to_str()
            .ok_or_else(|| format!("the path of the library is not UTF-8: {}", path.display()))
    });
    Nvml::load(file.transpose()?)
}

/// A GPU, its address, and the other ends of its links.
type Linked<'a> = (&'a String, NvmlGpu<'a>, Vec<NvlinkEnd>);

fn answer(nvml: &Nvml, addresses: &[String]) -> NvmlAnswer {
    let found = addresses.iter().filter_map(|address| {
        let gpu = nvml.gpu(address)?;
        let ends = gpu.links();
        Some((address, gpu, ends))
    });
    let gpus: Vec<Linked<'_>> = found.collect();
    let mut answer = NvmlAnswer::default();
    for (address, gpu, ends) in &gpus {
        if let Some(slices) = gpu.slices() {
            answer.slices.insert((*address).clone(), slices);
        }
        for (to, peer, their_ends) in gpus.iter().filter(|(to, ..)| to != address) {
            let key = ((*address).clone(), (*to).clone());
            if let Some(why) = gpu.why_not_peer(peer) {
                answer.refusals.insert(key.clone(), why);
            }
            let linked = gpu.is_linked(peer);
            if let Some((count, switched)) = between(ends, (to, their_ends), linked) {
                let links = GpuLinks {
                    kind: "NVLink".to_owned(),
                    count,
                    switched,
                    bytes_per_s: gpu.link_bytes_per_s().map(|one| one * u64::from(count)),
                };
                answer.links.insert(key, links);
            }
        }
    }
    answer
}

/// Number of links from one GPU towards another one, by the ends of both, and whether they lead to switches. `linked`
/// is the library's own word on the two, where it has one.
fn between(
    own: &[NvlinkEnd],
    (peer, their): (&str, &[NvlinkEnd]),
    linked: Option<bool>,
) -> Option<(u32, bool)> {
    let count = |ends: &[NvlinkEnd], wanted: &dyn Fn(&NvlinkEnd) -> bool| {
        ends.iter().filter(|end| wanted(end)).count() as u32
    };
    let both = |wanted: &dyn Fn(&NvlinkEnd) -> bool| count(own, wanted).min(count(their, wanted));
    let direct = count(own, &|end| matches!(end, NvlinkEnd::Gpu(at) if at == peer));
    let switched = both(&|end| *end == NvlinkEnd::Switch);
    // Behind some switches a guest is not told what its links lead to.
    let untold = both(&|end| *end != NvlinkEnd::Switch && !matches!(end, NvlinkEnd::Gpu(_)));
    match (linked, direct, switched) {
        (Some(false), ..) => None,
        (_, 1.., _) => Some((direct, false)),
        (_, _, 1..) => Some((switched, true)),
        (Some(true), ..) => (untold > 0).then_some((untold, true)),
        (None, ..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(at: &str) -> NvlinkEnd {
        NvlinkEnd::Gpu(at.to_owned())
    }

    #[test]
    fn links_are_those_that_lead_to_the_peer_or_to_switches_of_both() {
        let (switch, other) = (NvlinkEnd::Switch, NvlinkEnd::Other);
        let own = [gpu("b"), gpu("c"), gpu("b"), switch.clone(), switch.clone()];
        assert_eq!(between(&own, ("b", &[]), Some(true)), Some((2, false)));
        assert_eq!(between(&own, ("b", &[]), None), Some((2, false)));
        let one = [switch.clone(), other.clone()];
        assert_eq!(between(&own, ("d", &one), Some(true)), Some((1, true)));
        // The library's word against it counts, and for it where nobody tells what is at the other end.
        assert_eq!(between(&own, ("b", &one), Some(false)), None);
        let untold = [other.clone(), other];
        assert_eq!(
            between(&untold, ("d", &untold), Some(true)),
            Some((2, true))
        );
        assert_eq!(between(&untold, ("d", &untold), None), None);
        assert_eq!(between(&[gpu("c")], ("d", &[switch]), None), None);
        assert_eq!(between(&[], ("d", &[]), Some(true)), None);
    }
}

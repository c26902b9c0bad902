//! Groups of the devices page about GPUs: each GPU, its slices, its nearest NICs, and the connections between GPUs.

use std::collections::BTreeSet;

use tonnage_machine::devices::{CudaGpu, Gpu, GpuLinks, GpuPair, GpuSlice, Inventory, NearNic};
use tonnage_units::quantity::human::{gigabytes_per_s, size};

use super::rows::{DeviceRow, WIDTH, place, row, shortened};

pub(super) fn gpus(gpus: &[Gpu]) -> Vec<DeviceRow> {
    let one = |gpu: &Gpu| {
        let driver = gpu.driver.as_deref().unwrap_or("no driver");
        let memory = gpu.memory_bytes.map_or_else(String::new, size);
        let usable = if gpu.usable { "usable" } else { "not usable" };
        let bar = if gpu.vendor == "AMD" { "BAR0" } else { "BAR1" };
        let window = match (&gpu.host_links, gpu.window_bytes) {
            (Some(links), _) => format!("{} to the host", counted(links)),
            (None, Some(bytes)) => format!("{bar} {}", size(bytes)),
            (None, None) => String::new(),
        };
        let [numa, pcie] = place(Some(&gpu.pci));
        row([
            &gpu.pci.address,
            &gpu.vendor,
            &gpu.model,
            driver,
            usable,
            &memory,
            &window,
            &numa,
            &pcie,
        ])
    };
    gpus.iter().map(one).collect()
}

/// GPUs as the driver lists them, under the names that `--memory` accepts.
pub(super) fn driver_gpus((memory, interface): (&str, &str), gpus: &[CudaGpu]) -> Vec<DeviceRow> {
    let one = |gpu: &CudaGpu| {
        let dmabuf = match gpu.dmabuf {
            Some(true) => "dmabuf",
            Some(false) => "no dmabuf",
            None => "dmabuf unknown",
        };
        let rate = gpu.memory_bytes_per_s;
        let rate = rate.map_or_else(String::new, |rate| gigabytes_per_s(rate as f64));
        let copy_engines = match gpu.copy_engines {
            None => String::new(),
            Some(1) => "1 copy engine".to_owned(),
            Some(count) => format!("{count} copy engines"),
        };
        row([
            &format!("{memory}:{}", gpu.number),
            &gpu.name,
            &size(gpu.memory_bytes),
            &rate,
            &copy_engines,
            &format!("compute {}", gpu.compute),
            &gpu.pci_address,
            dmabuf,
            &format!("{interface} {}", gpu.cuda_version),
            &gpu.uuid,
        ])
    };
    gpus.iter().map(one).collect()
}

/// Slices of partitioned GPUs.
pub(super) fn slices(gpus: &[Gpu]) -> Vec<DeviceRow> {
    let one = |gpu: &Gpu, slice: &GpuSlice| {
        let memory = slice.memory_bytes.map_or_else(String::new, size);
        let uuid = slice.uuid.as_deref().unwrap_or_default();
        row([&gpu.pci.address, &slice.name, &memory, uuid])
    };
    let all = gpus
        .iter()
        .flat_map(|gpu| gpu.slices.iter().map(move |slice| one(gpu, slice)));
    all.collect()
}

/// Each GPU's nearest NICs, and the modules that give NICs access to GPU memory.
pub(super) fn nics(found: &Inventory) -> Vec<DeviceRow> {
    let names = GpuNames::new(found);
    let one = |gpu: &Gpu| {
        let way = gpu.nics.first()?.way.words();
        let nics: Vec<String> = gpu.nics.iter().map(nic).collect();
        let nics: Vec<&str> = nics.iter().map(String::as_str).collect();
        let name = names.name(&gpu.pci.address);
        Some(row([&name, &shortened(&nics), &format!("by {way}")]))
    };
    let mut rows: Vec<DeviceRow> = found.gpus.iter().filter_map(one).collect();
    let module = found.peer_memory_module.iter();
    rows.extend(module.map(|name| row(["module", name, "hands memory of NVIDIA GPUs to NICs"])));
    let listed = found.amd_peer_memory.iter();
    rows.extend(listed.map(|_| row(["module", "amdgpu", "hands memory of AMD GPUs to NICs"])));
    let options = found.amd_dmabuf_options.iter();
    let exports = "amdgpu exports memory of AMD GPUs to NICs (dmabuf)";
    rows.extend(options.map(|options| row(["kernel", options, exports])));
    rows
}

fn nic(nic: &NearNic) -> String {
    nic.names.join("+")
}

/// Names of GPUs: the driver's number if it is unique, otherwise the PCI address.
struct GpuNames<'a> {
    found: &'a Inventory,
    /// Whether all addresses have the default PCI domain, which is then left out.
    one_domain: bool,
}

const DOMAIN: &str = "0000:";

impl<'a> GpuNames<'a> {
    fn new(found: &'a Inventory) -> Self {
        let mut addresses = found.gpu_pairs.iter().map(|pair| &pair.from);
        Self {
            found,
            one_domain: addresses.all(|address| address.starts_with(DOMAIN)),
        }
    }

    fn name(&self, address: &str) -> String {
        let of_cuda = self.found.cuda.iter().map(|gpu| ("cuda", gpu));
        let of_hip = self.found.hip.iter().map(|gpu| ("hip", gpu));
        let numbered = of_cuda.chain(of_hip);
        let numbered: Vec<(&str, &CudaGpu)> = numbered
            .filter(|(_, gpu)| gpu.pci_address == address)
            .collect();
        match numbered.as_slice() {
            [(memory, gpu)] => format!("{memory}:{}", gpu.number),
            _ if self.one_domain => address.trim_start_matches(DOMAIN).to_owned(),
            _ => address.to_owned(),
        }
    }
}

/// The matrix of connections between GPUs, with a legend below.
pub(super) fn pairs(found: &Inventory) -> Vec<DeviceRow> {
    let names = GpuNames::new(found);
    let from = found.gpu_pairs.iter().map(|pair| pair.from.as_str());
    let gpus: BTreeSet<&str> = from.collect();
    let mut gpus: Vec<&str> = gpus.into_iter().collect();
    let number = |address: &&str| {
        let mut numbered = found.cuda.iter().chain(&found.hip);
        numbered.position(|gpu| gpu.pci_address == *address)
    };
    gpus.sort_by_key(|address| (number(address).unwrap_or(usize::MAX), *address));
    let mut legend = Legend::default();
    let mut cell = |from: &str, to: &str| {
        let same = |pair: &&GpuPair| (pair.from.as_str(), pair.to.as_str()) == (from, to);
        let pair = found.gpu_pairs.iter().find(same);
        pair.map_or_else(|| "-".to_owned(), |pair| legend.word(pair))
    };
    let line = |from: &&str| gpus.iter().map(|to| cell(from, to)).collect();
    let cells: Vec<Vec<String>> = gpus.iter().map(line).collect();
    let names: Vec<String> = gpus.iter().map(|address| names.name(address)).collect();
    let widest = cells.iter().flatten().chain(&names);
    let widest = widest.map(|text| text.chars().count()).max().unwrap_or(0);
    // The first column holds the names. Further columns go to the next block.
    let columns = (WIDTH / (widest + 2)).saturating_sub(1).max(1);
    let mut rows = Vec::new();
    for first in (0..gpus.len()).step_by(columns) {
        let block = first..(first + columns).min(gpus.len());
        let row = |name: String, cells: &[String]| [&[name], &cells[block.clone()]].concat();
        rows.push(row(String::new(), &names));
        rows.extend(
            names
                .iter()
                .zip(&cells)
                .map(|(name, cells)| row(name.clone(), cells)),
        );
    }
    rows.extend(legend.rows());
    rows
}

/// Short labels used in the matrix, with their meanings.
#[derive(Default)]
struct Legend {
    words: Vec<(String, String)>,
}

impl Legend {
    /// Returns the label of a pair. Pairs share a label only if their meanings are equal.
    fn word(&mut self, pair: &GpuPair) -> String {
        let meaning = meaning(pair);
        if let Some((word, _)) = self.words.iter().find(|(_, known)| *known == meaning) {
            return word.clone();
        }
        let short = short(pair);
        let taken = |word: &str| self.words.iter().any(|(known, _)| known == word);
        let numbered = (2..).map(|number| format!("{short} ({number})"));
        let mut words = std::iter::once(short.clone()).chain(numbered);
        let word = words.find(|word| !taken(word)).unwrap_or(short.clone());
        self.words.push((word.clone(), meaning));
        word
    }

    fn rows(self) -> impl Iterator<Item = DeviceRow> {
        // The legend is a single cell, so that it does not widen the columns above.
        let width = self.words.iter().map(|(word, _)| word.chars().count());
        let width = width.max().unwrap_or(0);
        let line =
            move |(word, meaning): (String, String)| vec![format!("{word:<width$}  {meaning}")];
        self.words.into_iter().map(line)
    }
}

fn short(pair: &GpuPair) -> String {
    match &pair.links {
        Some(links) => counted(links),
        None => pair.pci.name().to_owned(),
    }
}

/// Kind of the links, with the number of links if known.
fn counted(links: &GpuLinks) -> String {
    match links.count {
        Some(count) => format!("{} x{count}", links.kind),
        None => links.kind.clone(),
    }
}

/// Describes a pair's connection and the access that the driver grants.
fn meaning(pair: &GpuPair) -> String {
    let way = match &pair.links {
        Some(links) => links_in_words(links),
        None => pair.pci.words().to_owned(),
    };
    let Some(access) = &pair.access else {
        return way;
    };
    let rank = access.performance_rank;
    match (access.granted, access.native_atomics, &access.why_not) {
        (true, true, _) => format!("{way}; peer access with native atomics, rank {rank}"),
        (true, false, _) => format!("{way}; peer access without native atomics, rank {rank}"),
        (false, _, Some(why)) => format!("{way}; no peer access: {why}"),
        (false, _, None) => format!("{way}; no peer access"),
    }
}

fn links_in_words(links: &GpuLinks) -> String {
    let count = match links.count {
        None => {
            return format!("{}, over other GPUs, or by unknown links", links.kind);
        }
        Some(1) => "1 link".to_owned(),
        Some(count) => format!("{count} links"),
    };
    let switched = if links.switched { " to switches" } else { "" };
    let speed = links.bytes_per_s.map_or_else(String::new, |speed| {
        format!(", {} in each direction", gigabytes_per_s(speed as f64))
    });
    format!("{count}{switched}{speed}")
}

#[cfg(test)]
mod tests;

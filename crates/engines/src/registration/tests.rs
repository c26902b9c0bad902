//! Tests of device memory in the forms that NICs accept. They use simulated drivers, and no real NIC.

use std::sync::Arc;

use tonnage_engine::Ending::{Arrived, Done, Failed};
use tonnage_engine::memory::{Memory, MemoryEntry, Request};
use tonnage_engine::{Completion, EngineOptions, Facts, Lane, Libraries, RegionId, fact_names};
use tonnage_machine::kernel_files::invented::Machine;
use tonnage_sys::libfabric::HmemInterface;
use tonnage_sys::registrable::DeviceBytes;

use super::double::Double;
use super::ways::{first_granted, not_granted};
use super::{AUTO, NicMemory, NicRegions, RegistrationWay};
use crate::memory::{CUDA, HIP, HOST};

const WAYS: [RegistrationWay; 2] = [RegistrationWay::Dmabuf, RegistrationWay::Peermem];

/// Returns memory of a simulated CUDA driver with this script. `alloc` is the value of the memory option.
fn memory(lines: &str, alloc: &str) -> Option<(Double, Arc<dyn Memory>)> {
    memory_of(&CUDA, Double::with(lines), (alloc, 10_000))
}

/// Returns memory of a simulated AMD runtime with this script. `alloc` is the value of the memory option.
fn hip_memory(lines: &str, alloc: &str) -> Option<(Double, Arc<dyn Memory>)> {
    memory_of(&HIP, Double::hip(lines), (alloc, 10_000))
}

fn memory_of(
    entry: &MemoryEntry,
    double: Option<Double>,
    (alloc, bytes): (&str, u64),
) -> Option<(Double, Arc<dyn Memory>)> {
    let double = double?;
    let libraries = Libraries::from([(entry.libraries[0].name.to_owned(), double.path())]);
    let options = EngineOptions::from([("alloc".to_owned(), alloc.to_owned())]);
    let memory = (entry.allocate)(&Request {
        bytes,
        options: Some(&options),
        libraries: Some(&libraries),
        ..Request::default()
    });
    Some((double, memory.unwrap()))
}

/// Returns memory that is registered as one region.
fn registered(lines: &str) -> Option<(Double, Arc<dyn Memory>, NicRegions)> {
    let (double, memory) = memory(lines, "malloc")?;
    let card = NicMemory::new(&memory, "verbs:rc").unwrap();
    let mut regions = NicRegions::default();
    regions.keep(
        RegionId(0),
        (RegistrationWay::Peermem, &[]),
        card.context(),
        None,
    );
    Some((double, memory, regions))
}

/// Returns one of the facts about regions.
fn fact(regions: &NicRegions, name: &str) -> Option<String> {
    let facts = regions.add_granted(Facts::default());
    facts
        .get(name)
        .and_then(|fact| fact.text().map(str::to_owned))
}

fn remarks(regions: &NicRegions) -> Vec<String> {
    let facts = regions.add_granted(Facts::default());
    let texts = facts.texts(fact_names::REMARKS);
    texts.into_iter().map(str::to_owned).collect()
}

/// Returns the description of the flushes.
fn flushes(regions: &NicRegions) -> String {
    fact(regions, "card_writes_flushed").unwrap()
}

/// Returns the first method that `takes` grants in place of a NIC, and the reasons of earlier refusals.
fn taken(
    memory: &Arc<dyn Memory>,
    takes: fn(&DeviceBytes) -> bool,
) -> Result<(RegistrationWay, Vec<String>), Vec<String>> {
    let card = NicMemory::new(memory, "verbs:rc").unwrap();
    let attempt = |way| match card.bytes(way) {
        Ok(bytes) if takes(&bytes) => Ok(()),
        Ok(_) => Err("the card refuses it".to_owned()),
        Err(why) => Err(why),
    };
    let words = |all: Vec<super::ways::NotGranted>| all.iter().map(ToString::to_string).collect();
    first_granted(AUTO, &WAYS, attempt)
        .map(|(way, (), before)| (way, words(before)))
        .map_err(words)
}

#[test]
fn the_dmabuf_is_used_if_the_driver_exports_one() {
    for alloc in ["malloc", "vmm"] {
        let known = [memory("dmabuf 1", alloc), hip_memory("dmabuf 1", alloc)];
        // Either both simulated drivers can be built, or there is no compiler.
        assert_eq!(known[0].is_some(), known[1].is_some());
        // An older release of ROCm: it exports memory, but does not know the attributes that report this.
        let older = hip_memory("dmabuf 2\ndirect 2", alloc);
        for (_double, memory) in known.into_iter().chain([older]).flatten() {
            let (way, before) = taken(&memory, DeviceBytes::has_file).unwrap();
            assert_eq!((way, before.len()), (RegistrationWay::Dmabuf, 0), "{alloc}");
            let (way, before) = taken(&memory, |bytes| !bytes.has_file()).unwrap();
            assert_eq!(
                (way, before),
                (
                    RegistrationWay::Peermem,
                    vec!["dmabuf: the card refuses it".to_owned()]
                )
            );
        }
    }
}

#[test]
fn a_driver_that_exports_nothing_is_reported_with_its_reason() {
    let said = |attribute: &str| {
        format!("dmabuf: the driver exports no memory of this GPU (its attribute {attribute} is 0)")
    };
    for (opened, said) in [
        (memory("dmabuf 0", "malloc"), said("DMA_BUF_SUPPORTED")),
        (
            hip_memory("dmabuf 0", "malloc"),
            said("hipDeviceAttributeDmaBufSupported"),
        ),
        // These drivers do not know the attributes, and refuse the export itself.
        (
            memory("", "malloc"),
            "dmabuf: cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801)".to_owned(),
        ),
        (
            hip_memory("", "malloc"),
            "dmabuf: hsa_amd_portable_export_dmabuf: HSA_STATUS_ERROR (4096)".to_owned(),
        ),
    ] {
        let Some((_double, memory)) = opened else {
            return;
        };
        let refused = taken(&memory, |_| false).unwrap_err();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with(&said), "{refused:?}");
    }
}

#[test]
fn mapped_memory_that_cards_cannot_access_differs_from_an_unknown_query() {
    for (lines, said) in [
        ("dmabuf 1\ndirect 0", "is 0"),
        ("dmabuf 1\ndirect 2", "is not known to it"),
    ] {
        let Some((_double, memory)) = memory(lines, "vmm") else {
            return;
        };
        let refused = taken(&memory, |_| true).unwrap_err();
        assert_eq!(refused.len(), 2);
        for why in refused {
            let part = format!("GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED {said}): leave");
            assert!(why.contains(&part), "{lines}: {why}");
        }
        let report = memory.report().allocated.unwrap();
        assert_eq!(
            report.ends_with("the driver does not report whether they can access it"),
            said != "is 0",
            "{report}"
        );
    }
}

#[test]
fn memory_that_no_card_can_know_is_refused() {
    let host = (HOST.allocate)(&Request {
        bytes: 4096,
        ..Request::default()
    });
    let refused = NicMemory::new(&host.unwrap(), "verbs:rc").err().unwrap();
    let said =
        "memory host with engine verbs:rc cannot be used here: it registers host memory, NVIDIA";
    assert!(refused.to_string().starts_with(said), "{refused}");
}

/// An old release of ROCm cannot export memory that was allocated by handles. Allocation succeeds and reports this;
/// registration by dmabuf is refused.
#[test]
fn mapped_memory_without_export_is_reported() {
    let Some((_double, memory)) = hip_memory("dmabuf 2\ndirect 2\nhandles 0", "vmm") else {
        return;
    };
    let told = memory.report().allocated.unwrap();
    let said = "; this release refuses exportable handles";
    assert!(told.ends_with(said), "{told}");
    let (way, before) = taken(&memory, |_| true).unwrap();
    assert_eq!(way, RegistrationWay::Peermem);
    assert!(
        before[0].starts_with("dmabuf: the runtime refuses exportable memory by"),
        "{before:?}"
    );
}

/// After registration by dmabuf, the kernel's counters show whether bytes were moved to the host. This is only checked
/// for AMD GPUs.
#[test]
fn memory_that_the_kernel_moves_to_the_host_is_a_remark() {
    let machine = Machine::new();
    let gpu = "sys/bus/pci/devices/0000:1b:00.0";
    let used = |own: u64, host: u64| {
        machine.file(&format!("{gpu}/mem_info_vram_used"), &own.to_string());
        machine.file(&format!("{gpu}/mem_info_gtt_used"), &host.to_string());
    };
    const BYTES: u64 = 32 << 20;
    let lines = "dmabuf 1\nmemory 268435456";
    let opened = [
        memory_of(&HIP, Double::hip(lines), ("malloc", BYTES)),
        memory_of(&CUDA, Double::with(lines), ("malloc", BYTES)),
    ];
    for ((_double, memory), is_amd) in opened.into_iter().flatten().zip([true, false]) {
        let card = NicMemory::new(&memory, "verbs:rc").unwrap();
        for (way, moved, doubted) in [
            (RegistrationWay::Dmabuf, BYTES, is_amd),
            (RegistrationWay::Dmabuf, 0, false),
            (RegistrationWay::Peermem, BYTES, false),
        ] {
            used(2 * BYTES, 0);
            let register = |_| {
                used(2 * BYTES - moved, moved);
                Ok(7)
            };
            let at = (&machine.tree(), "bnxt_re0");
            let (made, doubt) = card.register(at, way, register).unwrap();
            assert_eq!((made, doubt.is_some()), (7, doubted), "{way:?} {moved}");
            let mut regions = NicRegions::default();
            regions.keep(RegionId(0), (way, &[]), card.context(), doubt);
            let said = remarks(&regions).join("");
            assert_eq!(
                said.contains("amdgpu moved the GPU's memory to the host"),
                doubted
            );
        }
    }
}

/// Refusals and records of AMD memory name the requirements of ROCm and its kernel driver, and none of NVIDIA's.
#[test]
fn refusals_for_amd_memory_do_not_mention_nvidia() {
    let Some((_double, memory)) = hip_memory("dmabuf 1\ndirect 0", "vmm") else {
        return;
    };
    let card = NicMemory::new(&memory, "fabric:verbs").unwrap();
    assert_eq!(card.interface(), Ok((HmemInterface::Rocr, 0)));
    let ways = [
        RegistrationWay::Dmabuf,
        RegistrationWay::Peermem,
        RegistrationWay::Hmem,
    ];
    let refused = first_granted(AUTO, &ways, |way| card.bytes(way).map(|_| ())).unwrap_err();
    let said = not_granted(("memory hip".to_owned(), card.rules()), &refused, "leave");
    let said = said.to_string();
    for part in [
        "hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported is 0): leave",
        "dmabuf needs ROCm 5.4 or newer",
        "libfabric 1.20, built with ROCm",
        "peermem needs amdgpu of AMD's packages",
        "hmem needs a libfabric that was built with ROCm",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let told = memory.report().allocated.unwrap();
    assert!(told.starts_with("vmm: hipMemCreate and hipMemMap, in granules of 2097152"));
    let mut regions = NicRegions::default();
    regions.keep(
        RegionId(0),
        (RegistrationWay::Dmabuf, &[]),
        card.context(),
        None,
    );
    let all = format!("{said} {told} {}", flushes(&regions)).to_lowercase();
    assert!(!all.contains("cuda") && !all.contains("nvidia"), "{all}");
}

/// The recorded text about flushes for this reason.
fn flushed(when: &str) -> String {
    format!("by cuFlushGPUDirectRDMAWrites {when}")
}

/// The simulated driver's second flush fails, so that the test notices whether the call is made.
#[test]
fn arrivals_are_flushed_if_the_driver_requires_it() {
    let lines = "ordering 0\nflushes 1\nfail cuFlushGPUDirectRDMAWrites 700 2";
    let Some((_double, _memory, regions)) = registered(lines) else {
        return;
    };
    assert_eq!(fact(&regions, "registration").as_deref(), Some("peermem"));
    let flush = |ending, reads: bool| {
        let done = Completion {
            ending,
            ..Completion::EMPTY
        };
        let flushed = regions.flush("verbs:rc", &[done], |_: Lane| reads);
        flushed.map(|()| flushes(&regions))
    };
    // Completed writes to peers, and failed operations, bring no bytes to this side.
    for (ending, reads) in [(Done, false), (Failed(5), true)] {
        let said = flush(ending, reads).unwrap();
        assert!(said.starts_with("needed, and never done"), "{said}");
    }
    let said = flush(Done, true).unwrap();
    assert_eq!(said, flushed("before arrivals and reads are reported"));
    let failed = flush(Arrived, false).unwrap_err().to_string();
    assert!(
        failed.contains("cuFlushGPUDirectRDMAWrites: CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{failed}"
    );
}

/// A target of plain writes sees no completion, so its caller requests the flush. The call reports a failure.
#[test]
fn plain_writes_are_flushed_when_they_have_ended() {
    assert!(!NicRegions::default().flush_all("verbs:rc").unwrap());
    let lines = "ordering 0\nflushes 1\nfail cuFlushGPUDirectRDMAWrites 700 5";
    let Some((_double, _memory, mut regions)) = registered(lines) else {
        return;
    };
    // The text is the same for any number of flushes, so it does not differ between ranks and runs.
    for _ in 0..2 {
        assert!(regions.flush_all("verbs:rc").unwrap());
        let expected = flushed("when peers' plain writes have ended");
        assert_eq!(flushes(&regions), expected);
    }
    let arrived = Completion {
        ending: Arrived,
        ..Completion::EMPTY
    };
    (regions.flush("verbs:rc", &[arrived], |_| false)).unwrap();
    let both =
        flushed("before arrivals and reads are reported, and when peers' plain writes have ended");
    assert_eq!(flushes(&regions), both);
    assert!(remarks(&regions).is_empty());
    // Only the beginning of a point resets the description; the end of its warm-up and its trials do not.
    regions.begin_point(false);
    assert_eq!(flushes(&regions), both);
    regions.begin_point(true);
    assert!(flushes(&regions).starts_with("needed, and never done"));
    regions.flush_all("verbs:rc").unwrap();
    regions.flush_all("verbs:rc").unwrap_err();
    // A flush does nothing after the region was deregistered.
    regions.forget(RegionId(0));
    regions.flush_all("verbs:rc").unwrap();
}

/// If a flush is required but unsupported, there is a remark after something has arrived, and not before.
#[test]
fn a_missing_flush_is_a_remark() {
    for (lines, doubted) in [("ordering 0", true), ("ordering 100", false), ("", false)] {
        let Some((_double, _memory, regions)) = registered(lines) else {
            return;
        };
        assert!(remarks(&regions).is_empty(), "{lines}");
        regions.flush_all("verbs:rc").unwrap();
        let said = remarks(&regions);
        let is_remarked = said.len() == 1
            && said[0]
                .ends_with("a flush was needed and not done: the driver has no call for the host");
        assert_eq!(is_remarked, doubted, "{lines}: {said:?}");
        assert_eq!(said.is_empty(), !doubted, "{lines}: {said:?}");
        // There is no arrival in the next point.
        regions.begin_point(true);
        assert!(remarks(&regions).is_empty(), "{lines}");
    }
}

/// The record has only the methods of regions that are still registered.
#[test]
fn ways_are_those_of_the_remaining_regions() {
    let Some((_double, memory)) = memory("", "malloc") else {
        return;
    };
    let card = NicMemory::new(&memory, "verbs:rc").unwrap();
    let mut regions = NicRegions::default();
    let ways = |regions: &NicRegions| fact(regions, "registration");
    regions.keep(
        RegionId(1),
        (RegistrationWay::Dmabuf, &[]),
        card.context(),
        None,
    );
    regions.keep(
        RegionId(2),
        (RegistrationWay::Peermem, &[]),
        card.context(),
        None,
    );
    regions.keep(
        RegionId(4),
        (RegistrationWay::Peermem, &[]),
        card.context(),
        None,
    );
    assert_eq!(ways(&regions).as_deref(), Some("dmabuf, peermem"));
    // Region 3 is host memory, which is not stored here.
    regions.forget(RegionId(3));
    regions.forget(RegionId(1));
    assert_eq!(ways(&regions).as_deref(), Some("peermem"));
    assert!(!regions.is_empty());
    regions.forget(RegionId(2));
    regions.forget(RegionId(4));
    assert!(regions.is_empty() && ways(&regions).is_none());
}

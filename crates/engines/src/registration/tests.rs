//! Memory of a GPU as a card takes it, over the double of the driver. No card registers it here.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{Completion, EngineOptions, Facts, Lane, Libraries, RegionId, fact_names};
use tonnage_sys::registrable::DeviceBytes;

use super::double::Double;
use super::{AUTO, CardMemory, CardRegions, CardWay, first_granted};
use crate::memory::{CUDA, HIP, HOST};
use crate::staged::INSTEAD;

const WAYS: [CardWay; 2] = [CardWay::Dmabuf, CardWay::Peermem];

/// Memory of a double that does as the lines say, allocated in this way.
fn memory(lines: &str, alloc: &str) -> Option<(Double, Arc<dyn Memory>)> {
    let double = Double::with(lines)?;
    let libraries = Libraries::from([("libcuda".to_owned(), double.path())]);
    let options = EngineOptions::from([("alloc".to_owned(), alloc.to_owned())]);
    let memory = (CUDA.allocate)(&Request {
        bytes: 10_000,
        options: Some(&options),
        libraries: Some(&libraries),
        ..Request::default()
    });
    Some((double, memory.unwrap()))
}

/// The way that a card takes which takes what `takes` says, and the reasons of those before it.
fn taken(
    memory: &Arc<dyn Memory>,
    takes: fn(&DeviceBytes) -> bool,
) -> Result<(CardWay, Vec<String>), Vec<String>> {
    let card = CardMemory::of(memory, "verbs:rc", INSTEAD).unwrap();
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
fn the_file_is_taken_where_the_driver_exports_one() {
    for alloc in ["malloc", "vmm"] {
        let Some((_double, memory)) = memory("dmabuf 1", alloc) else {
            return;
        };
        let (way, before) = taken(&memory, DeviceBytes::has_file).unwrap();
        assert_eq!((way, before.len()), (CardWay::Dmabuf, 0), "{alloc}");
        let (way, before) = taken(&memory, |bytes| !bytes.has_file()).unwrap();
        assert_eq!(
            (way, before),
            (
                CardWay::Peermem,
                vec!["dmabuf: the card refuses it".to_owned()]
            )
        );
    }
}

#[test]
fn a_driver_that_exports_nothing_is_told_with_its_reason() {
    for (lines, said) in [
        (
            "dmabuf 0",
            "dmabuf: the driver exports no memory of this GPU",
        ),
        // It does not know the question, and then refuses.
        (
            "",
            "dmabuf: cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED (801)",
        ),
    ] {
        let Some((_double, memory)) = memory(lines, "malloc") else {
            return;
        };
        let refused = taken(&memory, |_| false).unwrap_err();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with(said), "{refused:?}");
    }
}

#[test]
fn mapped_memory_that_no_card_reaches_is_told_apart_from_what_the_driver_does_not_tell() {
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
        let told = memory.report().allocated.unwrap();
        assert_eq!(
            told.ends_with("the driver does not tell whether they reach it"),
            said != "is 0",
            "{told}"
        );
    }
}

#[test]
fn memory_that_no_card_could_know_is_refused() {
    let host = (HOST.allocate)(&Request {
        bytes: 4096,
        ..Request::default()
    });
    let refused = CardMemory::of(&host.unwrap(), "verbs:rc", INSTEAD)
        .err()
        .unwrap();
    let said = "memory host with engine verbs:rc cannot be used here: it registers memory of the host, of GPUs";
    assert!(refused.to_string().starts_with(said), "{refused}");
}

#[test]
fn memory_of_amd_is_refused_with_what_to_do() {
    let Some(double) = Double::hip("") else {
        return;
    };
    let libraries = Libraries::from([("libamdhip64".to_owned(), double.path())]);
    let memory = (HIP.allocate)(&Request {
        bytes: 4096,
        libraries: Some(&libraries),
        ..Request::default()
    });
    let refused = CardMemory::of(&memory.unwrap(), "verbs:dc", "choose verbs:rc")
        .err()
        .unwrap()
        .to_string();
    for part in [
        "memory hip with engine verbs:dc cannot be used here: only memory of NVIDIA's GPUs is registered with network cards \
         yet",
        "To move its bytes through the host, choose verbs:rc; or",
        "--memory hip-pinned",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

/// The double's flush fails the second time: a wait that is not made would not notice.
#[test]
fn arrivals_are_flushed_where_the_driver_needs_it() {
    let done = |ending| Completion {
        ending,
        ..Completion::EMPTY
    };
    let lines = "ordering 0\nflushes 1\nfail cuFlushGPUDirectRDMAWrites 700 2";
    let Some((_double, memory)) = memory(lines, "malloc") else {
        return;
    };
    let card = CardMemory::of(&memory, "verbs:rc", INSTEAD).unwrap();
    let mut regions = CardRegions::default();
    assert!(regions.add_granted(Facts::default()).0.is_empty());
    regions.keep(RegionId(3), (CardWay::Peermem, &[]), card.context());
    let facts = regions.add_granted(Facts::default());
    assert_eq!(facts.get("registration").unwrap().text(), Some("peermem"));
    let said = |regions: &CardRegions| {
        let facts = regions.add_granted(Facts::default());
        let words = facts.get("card_writes_flushed").unwrap();
        words.text().unwrap().to_owned()
    };
    assert!(said(&regions).starts_with("needed, and never done"));
    let flush = |ending, reads: bool| regions.flush("verbs:rc", &[done(ending)], |_: Lane| reads);
    use tonnage_engine::Ending::{Arrived, Done, Failed};
    // What was written elsewhere, and what failed, brings nothing here.
    flush(Done, false).unwrap();
    flush(Failed(5), true).unwrap();
    assert!(said(&regions).starts_with("needed, and never done"));
    flush(Done, true).unwrap();
    let words = said(&regions);
    assert_eq!(words, flushed("before arrivals and reads are told"));
    let failed = flush(Arrived, false).unwrap_err().to_string();
    assert!(
        failed.contains("cuFlushGPUDirectRDMAWrites: CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{failed}"
    );
}

/// Words of the record for flushes at these moments.
fn flushed(when: &str) -> String {
    format!("by cuFlushGPUDirectRDMAWrites {when}")
}

/// A target of plain writes is not told of their end: the flush is made where it is asked for, and its failure told.
#[test]
fn plain_writes_are_flushed_when_they_have_ended() {
    let lines = "ordering 0\nflushes 1\nfail cuFlushGPUDirectRDMAWrites 700 5";
    let Some((_double, memory)) = memory(lines, "malloc") else {
        return;
    };
    let card = CardMemory::of(&memory, "verbs:rc", INSTEAD).unwrap();
    let mut regions = CardRegions::default();
    assert!(!regions.flush_all("verbs:rc").unwrap());
    regions.keep(RegionId(0), (CardWay::Peermem, &[]), card.context());
    let said = |regions: &CardRegions| {
        let facts = regions.add_granted(Facts::default());
        assert!(facts.get(fact_names::REMARKS).is_none());
        let words = facts.get("card_writes_flushed").unwrap();
        words.text().unwrap().to_owned()
    };
    // However often: the words are those of each rank and each run.
    for _ in 0..2 {
        assert!(regions.flush_all("verbs:rc").unwrap());
        assert_eq!(
            said(&regions),
            flushed("when peers' plain writes have ended")
        );
    }
    let arrived = Completion {
        ending: tonnage_engine::Ending::Arrived,
        ..Completion::EMPTY
    };
    (regions.flush("verbs:rc", &[arrived], |_| false)).unwrap();
    let both =
        flushed("before arrivals and reads are told, and when peers' plain writes have ended");
    assert_eq!(said(&regions), both);
    // The next point is told of by itself; the end of its warm-up, and each of its trials, begin none.
    regions.begin(false);
    assert_eq!(said(&regions), both);
    regions.begin(true);
    assert!(said(&regions).starts_with("needed, and never done"));
    regions.flush_all("verbs:rc").unwrap();
    regions.flush_all("verbs:rc").unwrap_err();
    // Of what is no longer registered, nothing arrives.
    regions.forget(RegionId(0));
    regions.flush_all("verbs:rc").unwrap();
}

/// A flush that is needed and cannot be made is a remark as soon as something has arrived, and not before.
#[test]
fn a_flush_that_is_lacking_is_a_remark() {
    for (lines, doubted) in [("ordering 0", true), ("ordering 100", false), ("", false)] {
        let Some((_double, memory)) = memory(lines, "malloc") else {
            return;
        };
        let card = CardMemory::of(&memory, "verbs:rc", INSTEAD).unwrap();
        let mut regions = CardRegions::default();
        regions.keep(RegionId(0), (CardWay::Peermem, &[]), card.context());
        let remarks = |regions: &CardRegions| {
            let facts = regions.add_granted(Facts::default());
            let texts = facts.texts(fact_names::REMARKS);
            texts.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(remarks(&regions).is_empty(), "{lines}");
        regions.flush_all("verbs:rc").unwrap();
        let said = remarks(&regions);
        let is_told = said.len() == 1
            && said[0]
                .ends_with("a flush was needed and not done: the driver has no call for the host");
        assert_eq!(is_told, doubted, "{lines}: {said:?}");
        assert_eq!(said.is_empty(), !doubted, "{lines}: {said:?}");
        // Nothing arrives in the next point.
        regions.begin(true);
        assert!(remarks(&regions).is_empty(), "{lines}");
    }
}

/// Grants are told of the regions that there are, and of none that was taken back.
#[test]
fn ways_are_those_of_the_regions_that_are_left() {
    let Some((_double, memory)) = memory("", "malloc") else {
        return;
    };
    let card = CardMemory::of(&memory, "verbs:rc", INSTEAD).unwrap();
    let mut regions = CardRegions::default();
    let ways = |regions: &CardRegions| {
        let facts = regions.add_granted(Facts::default());
        facts
            .get("registration")
            .and_then(|way| way.text().map(str::to_owned))
    };
    regions.keep(RegionId(1), (CardWay::Dmabuf, &[]), card.context());
    regions.keep(RegionId(2), (CardWay::Peermem, &[]), card.context());
    regions.keep(RegionId(4), (CardWay::Peermem, &[]), card.context());
    assert_eq!(ways(&regions).as_deref(), Some("dmabuf, peermem"));
    // Memory of the host has other numbers.
    regions.forget(RegionId(3));
    regions.forget(RegionId(1));
    assert_eq!(ways(&regions).as_deref(), Some("peermem"));
    assert!(!regions.is_empty());
    regions.forget(RegionId(2));
    regions.forget(RegionId(4));
    assert!(regions.is_empty() && ways(&regions).is_none());
}

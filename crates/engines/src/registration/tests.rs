//! Memory of a GPU as a card takes it, over the double of the driver. No card registers it here.

use std::sync::Arc;

use tonnage_engine::memory::{Memory, Request};
use tonnage_engine::{Completion, EngineOptions, Facts, Lane, Libraries};
use tonnage_sys::registrable::DeviceBytes;

use super::double::Double;
use super::{AUTO, CardMemory, CardRegions, CardWay, first_granted};
use crate::memory::{CUDA, HOST};

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
    let card = CardMemory::of(memory, "verbs:rc").unwrap();
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
fn memory_that_no_card_could_know_is_refused() {
    let host = (HOST.allocate)(&Request {
        bytes: 4096,
        ..Request::default()
    });
    let refused = CardMemory::of(&host.unwrap(), "verbs:rc").err().unwrap();
    let said = "memory host with engine verbs:rc cannot be used here: it registers memory of the host, of GPUs";
    assert!(refused.to_string().starts_with(said), "{refused}");
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
    let card = CardMemory::of(&memory, "verbs:rc").unwrap();
    let mut regions = CardRegions::default();
    assert!(regions.add_granted(Facts::default()).0.is_empty());
    regions.keep((CardWay::Peermem, &[]), card.context());
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
    let by = words.starts_with("by cuFlushGPUDirectRDMAWrites");
    assert!(by && words.ends_with(": 1 times"), "{words}");
    let failed = flush(Arrived, false).unwrap_err().to_string();
    assert!(
        failed.contains("cuFlushGPUDirectRDMAWrites: CUDA_ERROR_ILLEGAL_ADDRESS"),
        "{failed}"
    );
}

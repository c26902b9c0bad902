//! The page for synthetic hosts and records.

use super::*;
use crate::samples;
use tonnage_machine::devices::Inventory;
use tonnage_record::Bound;

fn inventory() -> Inventory {
    let text = r#"{
        "host": { "name": "node1", "boot_id": "0" },
        "cpu": {
            "model": "Example CPU", "online": "0-1", "allowed": "0-1", "sockets": 1, "cores": 2,
            "threads_per_core": 1, "governor": "performance"
        },
        "numa": [],
        "memory": {
            "total_bytes": 8589934592, "available_bytes": 4294967296, "huge_pools": [],
            "transparent": { "enabled": "madvise", "shmem_enabled": "never" }
        },
        "networks": [], "rdma": [], "libfabric": [], "providers_absent": [], "gpus": [], "file_systems": [],
        "absent": [{ "what": "GPUs", "why": "none is on the PCI bus", "how": "use a host with one" }]
    }"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_page_reads_from_top_to_bottom() {
    let bound = |what: &str, bytes_per_s| Bound {
        what: what.to_owned(),
        bytes_per_s,
        ci95_bytes_per_s: None,
        links: None,
    };
    let bounds = HostBounds {
        copy_in_cache: (bound("memory copy by memcpy, 1 copier", 5.5e10), 1 << 18),
        copy_in_dram: (
            bound("memory copy by non-temporal stores, 1 copier", 1.4e10),
            1 << 27,
        ),
        socket_bytes_per_s: 4.2e9,
        cache_line_ns: Ok(([0, 1], 62.5)),
    };
    let records = [
        samples::ping_pongs(),
        samples::streams(),
        samples::side_by_side(),
    ];
    let records = records.concat();
    let page = page(&Tour {
        inventory: &inventory(),
        bounds: &bounds,
        records: &records,
        output: Path::new("tour.jsonl"),
        program: "tonnage",
    });
    crate::tests::fits(&page);
    insta::assert_snapshot!(page);
}

#[test]
fn two_sockets_have_separate_tables() {
    let records = [samples::ping_pongs(), samples::streams()].concat();
    let far = records.iter().cloned().map(|mut record| {
        record.placed = Some(Placed::Far);
        record
    });
    let both: Vec<Record> = records.iter().cloned().chain(far).collect();
    let drawn = |records: &[Record]| {
        let records: Vec<_> = records.iter().filter_map(Record::as_transfer).collect();
        latency(&records) + &bandwidth(&records)
    };
    let (one, two) = (drawn(&records), drawn(&both));
    assert!(!one.contains("near") && !one.contains("far"), "{one}");
    let titles = [Placed::Near, Placed::Far].map(place::describe);
    let rows = ["near", "far"].map(|place| format!("shm write-imm 8 B, {place}"));
    for words in titles.iter().chain(&rows) {
        assert!(two.contains(words.as_str()), "{words}: {two}");
    }
}

#[test]
fn any_engine_that_moves_no_data_shows_the_overhead() {
    let mut record = samples::streams().swap_remove(1);
    assert_eq!(harness_overhead(&[record.as_transfer().unwrap()]), "");
    let facts = &mut record.effective[0].engine.facts;
    facts
        .0
        .insert(fact_names::MOVES_BYTES.to_owned(), Fact::Flag(false));
    let records = [record.as_transfer().unwrap()];
    let text = harness_overhead(&records);
    assert!(
        text.contains("for each operation (engine shm, depth 64)"),
        "{text}"
    );
    assert_eq!(bandwidth(&records), "");
}

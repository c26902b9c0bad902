//! Any bytes are a file of results or refused, and what was read can be written, read again and drawn.
//!
//! The reader takes a line without a checksum for unchanged, so that most inputs get behind that check; the lines that
//! are written again have one, and must be refused, or say the same, when any of their bytes is another.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tonnage_record::Record;
use tonnage_record::checksum::line;
use tonnage_record::read::read_records_of;
use tonnage_report::{Format, render};

const NAME: &str = "fuzz.jsonl";

fn read(bytes: &[u8]) -> Option<Vec<Record>> {
    let outcome = read_records_of(bytes, Path::new(NAME)).ok()?;
    assert!(outcome.good_bytes <= bytes.len() as u64);
    assert!(outcome.truncated_tail || outcome.good_bytes == bytes.len() as u64);
    Some(outcome.records)
}

fuzz_target!(|data: &[u8]| {
    let Some(records) = read(data) else {
        return;
    };
    for record in &records {
        let written = line(record).expect("a record that was read can be written") + "\n";
        let again = read(written.as_bytes()).expect("a written record reads back");
        assert_eq!(again, [record.clone()]);
        // The input chooses what is damaged, so that each finding can be repeated.
        let mut damaged = written.into_bytes();
        let choice = data.iter().fold(0usize, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
        });
        let place = choice % (damaged.len() - 1);
        damaged[place] ^= 1 << (choice / damaged.len() % 8);
        if let Some(survived) = read(&damaged) {
            assert!(
                survived.iter().all(|other| other == record),
                "byte {place} was changed, and nobody noticed"
            );
        }
    }
    for format in Format::ALL {
        render(format, &records).expect("records that were read can be drawn");
    }
});

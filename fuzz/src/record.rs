//! Any bytes are a results file or are refused. Records that were read can be written, read back, rendered and
//! compared.
//!
//! The reader accepts a line without a checksum, so most inputs get past that check. Lines that this target writes have
//! a checksum. If a bit of such a line changes, it must be refused or must read as the same record.
use std::path::Path;

use tonnage_judge::compare::{CompareRequest, compare};
use tonnage_judge::criteria::PointVerdict;
use tonnage_judge::sides::sides_of_two_files;
use tonnage_record::Record;
use tonnage_record::checksum::line_with_checksum;
use tonnage_record::read::read_records_of;
use tonnage_report::compare::CompareFormat;
use tonnage_report::{Format, render};

const NAME: &str = "fuzz.jsonl";

fn read(bytes: &[u8]) -> Option<Vec<Record>> {
    let outcome = read_records_of(bytes, Path::new(NAME)).ok()?;
    assert!(outcome.good_bytes <= bytes.len() as u64);
    assert!(outcome.truncated_tail || outcome.good_bytes == bytes.len() as u64);
    Some(outcome.records)
}

/// Compares records with the same records of other runs. No verdict may be better or worse.
fn compare_with_themselves(records: &[Record]) {
    let again = records.iter().map(|record| Record {
        run_id: format!("{} again", record.run_id),
        ..record.clone()
    });
    let again: Vec<Record> = again.collect();
    let compared = sides_of_two_files([(records, "a"), (&again, "b")])
        .and_then(|sides| compare(&sides, &CompareRequest::default()));
    let Ok(comparison) = compared else {
        return;
    };
    for verdict in [PointVerdict::Worse, PointVerdict::Better] {
        assert_eq!(comparison.count(verdict), 0, "equal sides differ");
    }
    for format in CompareFormat::ALL {
        let drawn = tonnage_report::compare::render(format, &comparison, ["a", "b"], &[]);
        drawn.expect("a comparison can be drawn");
    }
}

pub fn try_input(data: &[u8]) {
    let Some(records) = read(data) else {
        return;
    };
    for record in &records {
        let written =
            line_with_checksum(record).expect("a record that was read can be written") + "\n";
        let again = read(written.as_bytes()).expect("a written record reads back");
        assert_eq!(again, std::slice::from_ref(record));
        // The position of the damage follows from the input, so that each finding can be reproduced.
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
    compare_with_themselves(&records);
}

//! Files of records: written, interrupted, read and resumed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::read::{already_measured, final_attempts, read_records};
use super::writer::{RecordWriter, check_writable, resume};
use super::{FileBody, Outcome, Record, checksum};
use tonnage_plan::Point;
use tonnage_plan::point::PointNotes;
use tonnage_units::Error;

fn sample_value(size_bytes: u32) -> Value {
    json!({
        "schema_version": 3,
        "run_id": "r",
        "plan": "transfer",
        "kind": "transfer",
        "time_unix_ns": 1,
        "tonnage": {"version": "0.1.0", "git_revision": "unknown"},
        "point": {
            "engine": "shm", "op": "write", "traffic": "pair", "ranks": 2, "threads": 1, "size_bytes": size_bytes,
            "pacing": {"kind": "paced", "depth": 4, "rate_per_s": 123456.70000000001},
            "memory": "host", "footprint_bytes": 4096, "stride_bytes": 64, "access": "sequential", "seed": 1,
            "latency": true, "verify": false, "bound": {"kind": "stated", "bytes_per_s": 1e9 / 3.0},
            "length": {"trials": 3, "trial": {"iterations": 10}, "warmup_ns": 0, "until_ci": 0.1 + 0.2},
        },
        "effective": [],
        "environment": [],
        "outcome": {"status": "measured"},
        "trials": [],
    })
}

pub(crate) fn sample(size_bytes: u32) -> Record {
    serde_json::from_value(sample_value(size_bytes)).unwrap()
}

#[test]
fn only_a_skip_may_be_optional() {
    let why = || "why".to_owned();
    for (outcome, fine) in [
        (Outcome::Measured, [true, true]),
        (Outcome::Skipped { why: why() }, [false, true]),
        (Outcome::Failed { why: why() }, [false, false]),
    ] {
        let is_fine = |optional| {
            let outcome = outcome.clone();
            Record {
                outcome,
                optional,
                ..sample(8)
            }
            .is_fine()
        };
        assert_eq!([false, true].map(is_fine), fine, "{outcome:?}");
    }
}

/// The point of a record in the form that plans use, which includes the kind.
fn point_of(record: &Record) -> Point {
    let mut point = serde_json::to_value(record).unwrap()["point"].take();
    point["kind"] = record.body.kind().into();
    serde_json::from_value(point).unwrap()
}

fn file_in(directory: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join("results.jsonl");
    fs::write(&path, bytes).unwrap();
    path
}

fn line(size_bytes: u32) -> Vec<u8> {
    (checksum::line_with_checksum(&sample(size_bytes)).unwrap() + "\n").into_bytes()
}

#[test]
fn written_records_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.jsonl");
    let mut writer = RecordWriter::create(&path).unwrap();
    writer.write(&sample(1)).unwrap();
    assert_eq!(
        fs::read(&path).unwrap(),
        line(1),
        "a record is in the file when write returns"
    );
    writer.finish().unwrap();
    let mut writer = RecordWriter::append(&path).unwrap();
    writer.write(&sample(2)).unwrap();
    let found = read_records(&path).unwrap();
    assert_eq!(found.records, [sample(1), sample(2)]);
    assert!(!found.truncated_tail);
    assert_eq!(found.good_bytes, fs::metadata(&path).unwrap().len());
    writer.finish().unwrap();
    RecordWriter::create(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_file_cut_anywhere_is_resumed() {
    let whole = [line(1), line(2)].concat();
    let directory = tempfile::tempdir().unwrap();
    for cut in 0..=whole.len() {
        let path = file_in(&directory, &whole[..cut]);
        // If only the newline of a record was cut off, the record still counts as complete.
        let whole_records =
            usize::from(cut + 1 >= line(1).len()) + usize::from(cut + 1 >= whole.len());
        let (records, mut writer) = resume(&path).unwrap();
        assert_eq!(records.len(), whole_records, "cut at {cut}");
        writer.write(&sample(3)).unwrap();
        let found = read_records(&path).unwrap();
        assert!(!found.truncated_tail, "cut at {cut}");
        assert_eq!(found.records.len(), whole_records + 1, "cut at {cut}");
        assert_eq!(found.records.last(), Some(&sample(3)));
    }
}

#[test]
fn a_cut_line_is_reported_and_left_alone_by_reading() {
    let directory = tempfile::tempdir().unwrap();
    for tail in [&line(2)[..40], b"{", b"\0\0\0\0"] {
        let path = file_in(&directory, &[&line(1), tail].concat());
        let found = read_records(&path).unwrap();
        assert_eq!(found.records, [sample(1)]);
        assert!(found.truncated_tail);
        assert_eq!(found.good_bytes, line(1).len() as u64);
        assert!(matches!(RecordWriter::append(&path), Err(Error::Usage(_))));
    }
}

#[test]
fn a_foreign_file_is_refused_and_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    for (bytes, expected) in [
        (b"dear diary".to_vec(), "line 1"),
        (b"{\"schema\": 1}\n".to_vec(), "line 1"),
        (
            [line(1), b"{\"schema_version\": 3, oops\n".to_vec(), line(2)].concat(),
            "line 2",
        ),
        (
            [line(1), b"\n\n{\"schema_version\": 7}\n".to_vec()].concat(),
            "line 4: schema version 7, and this tonnage reads versions 2 to 3",
        ),
    ] {
        let path = file_in(&directory, &bytes);
        let error = resume(&path).err().unwrap();
        assert!(matches!(error, Error::Usage(_)));
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn only_measured_points_are_done() {
    let measured = sample(8);
    let mut skipped = sample(16);
    skipped.outcome = Outcome::Skipped { why: "no".into() };
    let mut failed = sample(32);
    failed.outcome = Outcome::Failed { why: "no".into() };
    let points = [point_of(&measured), point_of(&skipped), point_of(&failed)];
    let lines = [skipped, measured, failed];
    let done = points.map(|point| already_measured(&lines, &point, None));
    assert_eq!(done, [true, false, false]);
    assert!(!already_measured(&lines, &point_of(&sample(64)), None));
}

#[test]
fn repetitions_are_measured_and_retried_independently() {
    let nth = |repetition| Record {
        repetition: Some(repetition),
        ..sample(8)
    };
    let point = point_of(&sample(8));
    let done = |records: &[Record]| [0, 1, 2].map(|at| already_measured(records, &point, Some(at)));
    assert_eq!(done(&[nth(0), nth(2)]), [true, false, true]);
    // A record without a repetition number counts as the first of several.
    assert_eq!(done(&[sample(8)]), [true, false, false]);
    let failed = Record {
        outcome: Outcome::Failed { why: "x".into() },
        ..nth(0)
    };
    let kept = final_attempts(&[failed.clone(), nth(1)]);
    assert_eq!(kept.len(), 2, "another repetition is not a second attempt");
    assert_eq!(final_attempts(&[failed, nth(1), nth(0)]).len(), 2);
}

#[test]
fn an_attempt_that_failed_gives_way_to_a_later_one() {
    let failed = |size| Record {
        outcome: Outcome::Failed { why: "x".into() },
        ..sample(size)
    };
    let records = [
        failed(8),
        failed(16),
        sample(32),
        failed(8),
        sample(8),
        sample(32),
    ];
    let kept = final_attempts(&records);
    assert_eq!(kept, [failed(16), sample(32), sample(8), sample(32)]);
    assert_eq!(final_attempts(&[sample(8), failed(8)]).len(), 2);
}

#[test]
fn a_full_disk_is_an_error_at_once() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("skip: there is no /dev/full here");
        return;
    }
    let mut writer = RecordWriter::create(full).unwrap();
    let error = writer.write(&sample(1)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    let text = error.to_string();
    assert!(
        text.contains("/dev/full") && text.contains("make room"),
        "{text}"
    );
}

/// A sink that accepts this many bytes and then fails.
struct Narrow(usize);

impl io::Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(taken)
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_that_ends_is_an_error_with_its_name() {
    let mut writer = RecordWriter::to_sink(Narrow(line(1).len() + 10), "standard output");
    writer.write(&sample(1)).unwrap();
    let text = writer.write(&sample(2)).unwrap_err().to_string();
    assert!(text.contains("standard output"), "{text}");
}

#[test]
fn unwritable_results_are_found_before_measuring() {
    let directory = tempfile::tempdir().unwrap();
    let existing = file_in(&directory, b"keep me");
    check_writable(&existing).unwrap();
    check_writable(&directory.path().join("new.jsonl")).unwrap();
    check_writable(Path::new("/dev/null")).unwrap();
    check_writable(Path::new("relative-and-new.jsonl")).unwrap();
    assert!(
        !Path::new("relative-and-new.jsonl").exists(),
        "checking creates nothing"
    );
    assert_eq!(fs::read(&existing).unwrap(), b"keep me");
    for (path, expected) in [
        (directory.path().to_owned(), "is a directory"),
        (PathBuf::from("/"), "is a directory"),
        (directory.path().join("no/such.jsonl"), "mkdir -p"),
        (PathBuf::new(), "is not a file name"),
        (existing.join("below-a-file.jsonl"), "cannot write results"),
        (PathBuf::from("/proc/results.jsonl"), "/proc"),
    ] {
        let error = check_writable(&path).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

fn file_value(transfer_bytes: u64, outcome: Value) -> Value {
    json!({
        "schema_version": 3, "run_id": "r", "plan": "file", "time_unix_ns": 1, "kind": "file",
        "tonnage": {"version": "0.1.0", "git_revision": "unknown"},
        "point": {
            "engine": "posix", "ranks": 2, "threads": 1, "paths": ["t.dat"], "layout": "per-process",
            "block_bytes": 4096, "transfer_bytes": transfer_bytes, "segments": 1, "order": "sequential", "seed": 1,
            "phases": ["write"], "read_from": {"kind": "own"}, "fsync": "end", "direct": false, "collective": false,
            "file_view": false, "barriers": false, "keep": false, "existing": false, "depth": 1, "prefill": false,
            "data": {"kind": "random"}, "drop_caches": false, "trials": 1, "bound": {"kind": "none"},
        },
        "effective": [], "environment": [], "storage": [], "outcome": outcome, "phases": [],
    })
}

fn file_record(transfer_bytes: u64, outcome: Value) -> Record {
    serde_json::from_value(file_value(transfer_bytes, outcome)).unwrap()
}

#[test]
fn both_kinds_of_records_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.jsonl");
    let measured = file_record(512, json!({"status": "measured"}));
    let failed = file_record(1024, json!({"status": "failed", "why": "no"}));
    let lines = [sample(1), measured.clone(), failed.clone(), sample(2)];
    let mut writer = RecordWriter::create(&path).unwrap();
    lines.iter().for_each(|line| writer.write(line).unwrap());
    writer.finish().unwrap();
    let (found, _) = resume(&path).unwrap();
    assert_eq!(found, lines);
    assert!(already_measured(&found, &point_of(&measured), None));
    assert!(!already_measured(&found, &point_of(&failed), None));
    assert!(already_measured(&found, &point_of(&sample(2)), None));
    let again = file_record(1024, json!({"status": "measured"}));
    let kept = final_attempts(&[found, vec![again.clone()]].concat());
    assert_eq!(kept, [sample(1), measured, sample(2), again]);
}

#[test]
fn the_error_of_a_broken_record_names_the_missing_part_of_its_kind() {
    let directory = tempfile::tempdir().unwrap();
    let mut value = file_value(512, json!({"status": "measured"}));
    value.as_object_mut().unwrap().remove("storage");
    let path = file_in(&directory, format!("{value}\n").as_bytes());
    let text = read_records(&path).unwrap_err().to_string();
    assert!(
        text.contains("line 1") && text.contains("`storage`"),
        "{text}"
    );
}

#[test]
fn a_file_of_another_version_is_refused_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    for (version, expected) in [
        (
            1,
            "line 1: schema version 1, written by tonnage 0.1.0 (abc), and this tonnage reads versions 2 to 3: show it \
             with that tonnage, and write new results to another file",
        ),
        (4, "show it with that tonnage, or a newer one"),
    ] {
        let mut value = sample_value(8);
        value["schema_version"] = json!(version);
        value["tonnage"]["git_revision"] = json!("abc");
        // A record of version 1 has no key `kind`.
        value.as_object_mut().unwrap().remove("kind");
        let path = file_in(&directory, format!("{value}\n").as_bytes());
        let error = read_records(&path).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.ends_with(expected) && !text.contains('\n'), "{text}");
    }
}

/// Records of version 2, as it wrote them, become those of the current version: nothing differs between them.
#[test]
fn records_of_version_2_are_those_of_the_current_one() {
    let directory = tempfile::tempdir().unwrap();
    let old = include_str!("tests/schema_2.jsonl");
    let records = read_records(&file_in(&directory, old.as_bytes()))
        .unwrap()
        .records;
    let lines = records
        .iter()
        .map(|record| checksum::line_with_checksum(record).unwrap() + "\n");
    let new: String = lines.collect();
    for key in ["window", "workers", "addresses", "limit"].map(|key| format!("\"{key}\":")) {
        assert!(old.contains(&key) && !new.contains(&key), "{key}");
    }
    for key in ["depth", "threads", "access", "bound"].map(|key| format!("\"{key}\":")) {
        assert!(new.contains(&key), "{key}");
    }
    let again = read_records(&file_in(&directory, new.as_bytes()))
        .unwrap()
        .records;
    assert_eq!(again, records);
}

#[test]
fn editing_a_published_figure_does_not_repeat_measurements() {
    let record = file_record(512, json!({"status": "measured"}));
    let mut point = record.file().unwrap().point.clone();
    let reading = PointNotes {
        published: vec![
            serde_json::from_value(json!({"phase": "write", "what": "elsewhere"})).unwrap(),
        ],
        outlier_ns: Some(5),
        ..PointNotes::default()
    };
    let record = Record {
        body: FileBody::new(point.clone(), reading).into(),
        ..record
    };
    // Published figures and the outlier threshold don't matter: the resumed plan has neither, but the same point.
    let records = [record];
    assert!(already_measured(
        &records,
        &Point::File(point.clone()),
        None
    ));
    point.depth += 1;
    assert!(!already_measured(&records, &Point::File(point), None));
}

#[test]
fn a_record_that_was_changed_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.jsonl");
    let whole = checksum::line_with_checksum(&sample(8)).unwrap() + "\n";
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_records(&path).map(|file| file.records)
    };
    assert_eq!(read(&whole).unwrap(), [sample(8)]);
    // A change of any byte is detected, even in the checksum itself. Only changes of the key `checksum` are not
    // detected.
    let key = whole.find(",\"checksum\"").unwrap();
    let is_key = |at: &usize| (key..key + ",\"checksum\"".len()).contains(at);
    for at in (0..whole.len() - 1).filter(|at| !is_key(at)) {
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(read_records(&path).is_err(), "byte {at} of {whole}");
    }
    for changed in [
        whole.replace("\"time_unix_ns\":1,", "\"time_unix_ns\":2,"),
        whole.replace("\"}\n", "\",\"remarks\":[]}\n"),
    ] {
        assert_ne!(changed, whole);
        let error = read(&changed).unwrap_err().to_string();
        for part in ["line 1", "changed after it was written"] {
            assert!(error.contains(part), "{error}");
        }
    }
    // Users can edit a record if they remove its checksum.
    let (text, _) = whole.split_once(",\"checksum\"").unwrap();
    let without = format!("{text}}}\n").replace("\"time_unix_ns\":1,", "\"time_unix_ns\":2,");
    assert_eq!(read(&without).unwrap()[0].time_unix_ns, 2);
}

//! Engines with queues: transfers that really were in flight, and the CPU time of the kernel's own threads.

use tempfile::tempdir;
use tonnage_record::files::PhaseTrial;

use super::files::unavailable;
use super::support::file_records::measured;

#[test]
fn what_a_queue_really_did_is_in_the_record() {
    let dir = tempdir().unwrap();
    if unavailable("uring") {
        return;
    }
    // Waiting for the common start takes CPU time too, which is not the transfers'.
    let arguments = "--engine uring --path t --block 64k --transfer 64k --window 256 --trials 20";
    let (_, record) = measured(dir.path(), arguments);
    for phase in &record.file().unwrap().phases {
        let within = |trial: &&PhaseTrial| trial.transfer_cpu_ns <= trial.total_ns;
        assert!(
            phase.trials.iter().filter(within).count() > 10,
            "{phase:#?}"
        );
        // The window was larger than the file.
        assert!(
            phase
                .trials
                .iter()
                .all(|trial| trial.in_flight_max == Some(1))
        );
    }
    let (_, record) = measured(
        dir.path(),
        "--engine uring --path t --block 1m --transfer 4k --window 32",
    );
    for phase in &record.file().unwrap().phases {
        let most = phase.trials[0].in_flight_max.unwrap();
        assert!((2..=32).contains(&most), "{most}");
    }
    let (_, record) = measured(dir.path(), "--path t --block 1m --transfer 4k --threads 3");
    assert_eq!(
        record.file().unwrap().phases[0].trials[0].in_flight_max,
        Some(1)
    );
}

//! Native collectives in whole runs with threads as ranks. Every operation and algorithm gives exact results. A wrong
//! byte makes the point fail, and is located. With a backend of these tests, a rank that is late is reported.

use tonnage_collective::steps::{algorithms, check};
use tonnage_collective::{Collective, Dtype, Reduction};
use tonnage_record::{CollectiveBody, Outcome, Record};

use crate::runs::{Run, over};
use crate::{far, late};

/// Returns a table with one trial of three calls. The results of the first and the last call are verified.
fn table(lines: &str) -> String {
    format!(
        "[[collective]]\nbackend = 'native:shm'\ntrials = 1\niters = 3\nwarmup = '0s'\nverify = true\n{lines}\n"
    )
}

fn measured(ranks: u32, tables: &str) -> Vec<Record> {
    let records = Run::default().tables(ranks, tables).unwrap();
    for record in &records {
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
    }
    records
}

fn body(record: &Record) -> &CollectiveBody {
    record.collective().unwrap()
}

/// Returns the number of bytes that all ranks verify at a point: those of the first and of the last call.
fn checked_bytes(body: &CollectiveBody) -> u64 {
    let shape = body.point.shape();
    let all = (0..body.point.ranks).map(|rank| shape.output_bytes(rank));
    2 * all.sum::<u64>()
}

#[test]
fn every_operation_and_algorithm_gives_exact_results() {
    for ranks in [1, 2, 3, 4, 5] {
        let mut tables = String::new();
        for op in Collective::ALL {
            if op == Collective::SendRecvPairs && ranks % 2 == 1 {
                continue;
            }
            for in_place in [false, true] {
                let own = algorithms(op)
                    .iter()
                    .filter(|it| check(op, **it, in_place).is_ok());
                let names: Vec<_> = own.map(|it| format!("'{it}'")).collect();
                let root = format!("root = {}", ranks - 1);
                // The number of elements is odd, and they are divided into several messages.
                let cut = format!("sizes = [300, 4012]\nchunk = 1024\nin-place = {in_place}");
                let own = match (op, op.is_rooted()) {
                    (Collective::Barrier | Collective::SendRecvRing, _) if in_place => continue,
                    (Collective::Barrier, _) => String::new(),
                    (_, true) => format!("{cut}\n{root}"),
                    (_, false) => cut,
                };
                let names = names.join(", ");
                tables += &table(&format!("op = '{op}'\n{own}\nalgorithm = [{names}]"));
            }
        }
        for record in measured(ranks, &tables) {
            let body = body(&record);
            let summary = body.backends[0].summary.as_ref().unwrap();
            assert_eq!(summary.verified_bytes, checked_bytes(body), "{body:#?}");
            assert_eq!(summary.iterations, 3);
        }
    }
}

#[test]
fn every_type_and_reduction_gives_exact_results() {
    let names = |all: Vec<&str>| format!("['{}']", all.join("', '"));
    let dtypes = names(Dtype::ALL.iter().map(|it| it.name()).collect());
    let reductions = names(Reduction::ALL.iter().map(|it| it.name()).collect());
    let tables = table(&format!(
        "op = ['all-reduce', 'reduce-scatter', 'reduce']\nsizes = 1000\ndtype = {dtypes}\nreduce = {reductions}"
    ));
    let records = measured(3, &tables);
    assert_eq!(records.len(), 3 * Dtype::ALL.len() * Reduction::ALL.len());
}

/// The chosen algorithm must be the fastest one that was tried. All ranks must use it.
#[test]
fn without_an_algorithm_one_is_chosen_and_recorded() {
    let records = measured(2, &table("op = 'all-reduce'\nsizes = '300k'"));
    let backend = &body(&records[0]).backends[0];
    assert!(
        backend
            .chosen_algorithm
            .is_some_and(|it| algorithms(Collective::AllReduce).contains(&it))
    );
    assert!(
        backend
            .chosen_chunk_bytes
            .is_some_and(|bytes| bytes <= 300 << 10)
    );
}

#[test]
fn back_to_back_calls_have_a_mean_time_and_no_percentiles() {
    let records = measured(
        2,
        &table("op = ['broadcast', 'all-gather']\nsizes = 64\nalign = 'none'"),
    );
    for record in &records {
        let summary = body(record).backends[0].summary.as_ref().unwrap();
        assert!(summary.latency.is_none() && summary.call_ns.mean > 0.0);
    }
}

#[test]
fn a_flipped_byte_fails_the_point_and_names_rank_and_element() {
    // Message 0 belongs to the barrier, which carries no data, so it is left out.
    for at in [1, 2] {
        let tables = format!(
            "[[collective]]\nbackend = 'native:far'\nop = 'all-reduce'\nsizes = 4000\ntrials = 1\niters = 1\nwarmup = '0s'\n\
             memory = 'host'\nalgorithm = 'ring'\nengine-options = {{ lie = 'flip', at = '{at}' }}\n"
        );
        let records = over(far::LISTS).tables(2, &tables).unwrap();
        let backend = &body(&records[0]).backends[0];
        let Outcome::Failed { why } = &backend.backend_outcome else {
            panic!("{backend:#?}");
        };
        assert!(
            why.contains("wrong results") && why.contains("element") && why.contains("rank"),
            "{why}"
        );
    }
}

/// The late rank begins last in every call, and the other ranks wait for it. The recorded time of a call is therefore
/// that of the other ranks.
#[test]
fn a_rank_that_is_late_to_each_call_begins_last_in_all_of_them() {
    let tables =
        "[[collective]]\nbackend = 'late'\nop = 'barrier'\ntrials = 2\niters = 50\nwarmup = '0s'\n";
    let records = over(late::LISTS).tables(3, tables).unwrap();
    let summary = body(&records[0]).backends[0].summary.as_ref().unwrap();
    assert_eq!(summary.iterations, 100);
    let late_by_ns = late::LATE_BY.as_nanos() as f64;
    for times in &summary.rank_times {
        let is_late = times.rank == late::LATE_RANK;
        let expected = if is_late { 100 } else { 0 };
        assert_eq!(times.began_last, expected, "{summary:#?}");
        assert_eq!(times.call_ns_mean < late_by_ns, is_late, "{summary:#?}");
    }
    assert!(summary.call_ns_rank_max >= late_by_ns, "{summary:#?}");
    assert!(summary.call_ns_rank_min < late_by_ns, "{summary:#?}");
}

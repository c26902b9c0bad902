//! Latency with and without a background load: the table, the meaning of its ratios, and loads that were not reached.

use crate::derived::with_interval;
use tonnage_record::figures::Row;
use tonnage_record::transfer::{BackgroundSummary, CpuSharing, LoadedLatency};
use tonnage_record::{Outcome, TransferRecord};
use tonnage_units::quantity::human::{prefixed, whole_percent};

use super::footers::row_name;
use super::paced::background_stall;
use crate::derived::{P50_RATIO, P99_RATIO};
use crate::table::{Line, TableBuilder, TitledTable};

/// Minimum fraction of the requested load.
const REACHED_LEAST: f64 = 0.95;

const LOAD: &[&str] = &["background_bandwidth_bytes_per_s_mean"];
const P50: &[&str] = &["idle_latency_ns_p50", "loaded_latency_ns_p50"];
const P99: &[&str] = &["idle_latency_ns_p99", "loaded_latency_ns_p99"];
const RATIO_OF: &[&str] = &["latency_ratio_of"];

/// Table of latencies with and without a background. It includes points that failed after at least one trial with a
/// background.
pub fn table(records: &[TransferRecord<'_>], varying: &[&'static str]) -> Option<TitledTable> {
    let loaded = records.iter().filter(|record| has_load(record));
    let loaded: Vec<_> = loaded.copied().collect();
    let rows = loaded
        .iter()
        .flat_map(|record| Row::all_of_record(record.record));
    let ratios = |latency: fn(&BackgroundSummary) -> LoadedLatency| {
        let of_row = |record: &TransferRecord<'_>| {
            let background = record.body.background();
            background.map_or_else(String::new, |load| with_interval(latency(&load).ratio))
        };
        loaded.iter().map(of_row).collect::<Vec<_>>()
    };
    let builder = TableBuilder::new(rows.map(Line::from).collect())
        .keyed_by(&[&["size_bytes"], varying].concat())
        .always(&["size_bytes"])
        .always(varying)
        .if_known(&["initiators"])
        .if_known(LOAD)
        .if_known(P50)
        .text_column(P50_RATIO.name, ratios(|load| load.p50))
        .if_known(P99)
        .text_column(P99_RATIO.name, ratios(|load| load.p99))
        .if_known(RATIO_OF);
    let table = builder.table()?;
    Some(table.with_title("latency without and with the background:"))
}

fn has_load(record: &TransferRecord<'_>) -> bool {
    record.body.background().is_some()
}

/// Lines below the table: warnings on ratios that measure the scheduler, and rows of points that failed later.
pub fn lines(records: &[TransferRecord<'_>], distinguishing: &[&str]) -> Vec<String> {
    let loaded = || records.iter().filter(|record| has_load(record));
    let on = |cpus: CpuSharing| loaded().any(|record| record.body.measuring_cpus == Some(cpus));
    let shared = [CpuSharing::WithLoad, CpuSharing::Together];
    let shared = shared.into_iter().filter(|&cpus| on(cpus));
    let mut lines: Vec<String> = shared.filter_map(about).map(str::to_owned).collect();
    let failed = loaded().filter(|record| matches!(record.outcome, Outcome::Failed { .. }));
    lines.extend(failed.map(|record| {
        format!(
            "{} with its background: {} that ended before it failed",
            row_name(record, records, distinguishing),
            match record.body.trials.len() {
                1 => "the trial".to_owned(),
                trials => format!("the {trials} trials"),
            }
        )
    }));
    lines
}

/// Explains ratios that are dominated by the scheduler.
fn about(cpus: CpuSharing) -> Option<&'static str> {
    match cpus {
        CpuSharing::Own => None,
        CpuSharing::WithLoad => Some(
            "threads that measure share CPUs with those of the background: under load they wait for their turns, so that \
             latency and the ratios are of the scheduler, not of the path; use a CPU for each thread",
        ),
        CpuSharing::Together => Some(
            "threads that measure share CPUs with each other: both latencies and the ratios are of the scheduler, not of \
             the path; use a CPU for each thread",
        ),
    }
}

/// Note on a background that did not reach the requested rate.
pub fn not_reached(record: TransferRecord<'_>) -> Option<String> {
    let point = &record.body.point;
    let asked_per_s = point.background?.rate_per_s?;
    let background = record.body.background()?;
    let initiators = f64::from(point.roles.initiating_at_once());
    let size_bytes = f64::from(point.background?.size_bytes);
    let per_s = background.bandwidth_bytes_per_s.mean / size_bytes / initiators.max(1.0);
    if per_s >= REACHED_LEAST * asked_per_s {
        return None;
    }
    let trials = record.body.trials.iter();
    let loads: Vec<_> = trials
        .filter_map(|trial| trial.background.as_ref())
        .collect();
    let stall = background_stall(&loads, asked_per_s * initiators.max(1.0));
    Some(format!(
        "the background reached {} of the {} op/s that each initiator was asked for{}: the column has the actual load, \
         in GB/s",
        whole_percent(per_s / asked_per_s),
        prefixed(asked_per_s),
        stall.map_or_else(String::new, |stall| format!(", because of {stall}"))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::table::Markup;
    use crate::view::View;
    use tonnage_record::transfer::Stall;
    use tonnage_record::{Record, TransferBody};

    fn changed(change: impl Fn(&mut TransferBody)) -> Record {
        let mut record = samples::loaded().remove(0);
        let body = samples::transfer(&mut record);
        change(body);
        record
    }

    #[test]
    fn an_unreached_load_is_reported() {
        let note = |gigabytes_per_s: f64| {
            let record = changed(|body| {
                let background = body.summary.as_mut().unwrap().background.as_mut();
                background.unwrap().bandwidth_bytes_per_s.mean = gigabytes_per_s * 1e9;
            });
            not_reached(record.as_transfer().unwrap())
        };
        // The requested load is 1,000 operations of 1 MiB per second, which is 1.05 GB/s.
        assert_eq!(note(1.04), None);
        let told = note(0.524288).unwrap();
        assert!(
            told.starts_with("the background reached 50 % of the 1.00k op/s"),
            "{told}"
        );
        assert!(!told.contains("stall"), "{told}");
    }

    /// The mean rate is as low as in the test above, but the cause is a stall in one of three trials.
    #[test]
    fn a_stalled_load_is_distinguished_from_an_overload() {
        let record = changed(|body| {
            let background = body.summary.as_mut().unwrap().background.as_mut();
            background.unwrap().bandwidth_bytes_per_s.mean = 0.524288e9;
            for trial in &mut body.trials {
                let load = trial.background.as_mut().unwrap();
                (load.window_ns, load.operations) = (200_000_000, 200);
            }
            let load = body.trials[2].background.as_mut().unwrap();
            load.window_ns += 3_000_000_000;
            load.stall = Some(Stall {
                length_ns: 3_000_000_000,
                begin_ns: 1_000_000,
                loop_ns: 0,
                rank: 0,
                peer: 1,
            });
        });
        let told = not_reached(record.as_transfer().unwrap()).unwrap();
        assert!(
            told.contains("because of a stall of 3.00 s in trial 3"),
            "{told}"
        );
    }

    fn shown(records: &[TransferRecord<'_>]) -> String {
        table(records, &[])
            .unwrap()
            .draw(Markup::Plain(&View::default()))
    }

    #[test]
    fn ratios_dominated_by_the_scheduler_are_labelled() {
        let said = |cpus| {
            let record = changed(|body| body.measuring_cpus = Some(cpus));
            let records = [record.as_transfer().unwrap()];
            (
                lines(&records, &[]).concat(),
                shown(&records).contains("scheduler"),
            )
        };
        assert_eq!(said(CpuSharing::Own), (String::new(), false));
        for cpus in [CpuSharing::WithLoad, CpuSharing::Together] {
            let (line, in_table) = said(cpus);
            assert!(line.contains("of the scheduler, not of the path"), "{line}");
            assert!(in_table);
        }
    }

    #[test]
    fn trials_that_ended_before_a_failure_are_shown() {
        let mut record = changed(|body| body.summary = None);
        record.outcome = Outcome::Failed {
            why: "interrupted".to_owned(),
        };
        let records = [record.as_transfer().unwrap()];
        let shown = shown(&records);
        assert!(shown.contains("p50 / idle"), "{shown}");
        let line = lines(&records, &[]).concat();
        assert!(line.contains("the 3 trials that ended before"), "{line}");
    }
}

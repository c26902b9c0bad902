//! Reports on collectives: per operation, one table of backends and sizes, and a table of ranks if requested. Tables of
//! groups are in `groups`.

mod groups;

use tonnage_collective::Collective;
use tonnage_plan::collective::{Align, CollectivePoint, RankTime, Refill};
use tonnage_plan::transfer::TrialLength;
use tonnage_record::body::Part;
use tonnage_record::collective::BackendResult;
use tonnage_record::figures::Row;
use tonnage_record::figures::engine::memory_of;
use tonnage_record::grouping::by_answer;
use tonnage_record::spread::GeometricSpread;
use tonnage_record::{CollectiveBody, CollectiveRecord, Outcome};
use tonnage_units::quantity::human::{
    exact_duration, exact_size, gigabytes_per_s, number, whole_percent,
};

use crate::column::Column;
use crate::derived::{BEGAN_LAST, RANK, TO_FIRST_BACKEND};
use crate::engine;
use crate::layout::{Report, not_measured};
use crate::published;
use crate::table::{Line, TableBuilder, TitledTable};
use crate::text::{counted, extend_distinct, extremes};

/// Report on collectives: one table per operation and configuration.
pub struct CollectiveReport;

/// Figures that identify a row.
const ROW_KEYS: &[&str] = &["call_size_bytes", "engine"];

/// Figures shown in the title if they are equal in all rows.
const ELEMENTS: &[&str] = &["dtype", "reduction"];

/// Confidence interval of the time. Hidden if there are several backends: their ratios have intervals instead.
const INTERVAL: &[&str] = &["call_ci95_fraction"];

/// Algorithm and message size that the backend chose, and the mean time of a call.
const ALGORITHM: &[&str] = &["chosen_algorithm", "chosen_chunk_bytes", "call_ns_mean"];

/// Result figures.
const RESULTS: &[&str] = &[
    "latency_ns_p50",
    "latency_ns_p99",
    "algbw_bytes_per_s_mean",
    "busbw_bytes_per_s_mean",
    "busbw_bound_fraction",
];

impl Report for CollectiveReport {
    type Body = CollectiveBody;

    fn same_section(left: CollectiveRecord<'_>, right: CollectiveRecord<'_>) -> bool {
        left.plan == right.plan && shared(&left.body.point) == shared(&right.body.point)
    }

    fn configuration(first: CollectiveRecord<'_>, records: &[CollectiveRecord<'_>]) -> Vec<String> {
        let point = &first.body.point;
        let size = match (point.op, point.shape().size_bytes()) {
            (Collective::Barrier, _) => None,
            _ if tonnage_collective::Shape::is_total(point.op) => {
                Some(format!("size of all ranks{} together", of_group(point)))
            }
            _ => Some("size of each rank".to_owned()),
        };
        let parts = [
            Some(match point.op.is_rooted() {
                true => format!("{} with root {}", point.op, point.root),
                false => point.op.to_string(),
            }),
            Some(ranks(point)),
            elements(records),
            size,
            Some(memory(records, &point.memory)),
            point.in_place.then(|| "in place".to_owned()),
            Some(aligned(point)),
            Some(length(point)),
            Some(format!("time {}", across(point.across))),
        ];
        parts.into_iter().flatten().collect()
    }

    fn tables(records: &[CollectiveRecord<'_>]) -> Vec<TitledTable> {
        let rows: Vec<Row<'_>> = records
            .iter()
            .flat_map(|it| Row::all_of_record(it.record))
            .collect();
        let to_first = records.iter().flat_map(speedups).collect();
        let outcomes = rows.iter().map(outcome).collect();
        let elements = if same_elements(records) {
            &[][..]
        } else {
            ELEMENTS
        };
        let builder = TableBuilder::new(rows.iter().copied().map(Line::from).collect());
        let builder = builder.keyed_by(&[ROW_KEYS, elements].concat());
        let is_alone = records.iter().all(|it| it.body.backends.len() < 2);
        let interval = if is_alone { INTERVAL } else { &[][..] };
        let builder = builder
            .if_known(ROW_KEYS)
            .if_known(elements)
            .if_known(ALGORITHM);
        let builder = builder.if_known(interval).if_known(RESULTS);
        let builder = builder.text_column(TO_FIRST_BACKEND.name, to_first);
        let whole = builder.marks("", outcomes).table();
        let ranks = records.iter().filter(|it| it.body.point.per_rank);
        let beside = published::tables(records.iter().map(|it| it.record));
        let groups = records.iter().flat_map(groups::tables);
        let others = groups.chain(ranks.flat_map(rank_tables)).chain(beside);
        whole.into_iter().chain(others).collect()
    }

    fn footers(records: &[CollectiveRecord<'_>]) -> Vec<String> {
        let mut lines: Vec<String> = bounds(records);
        extend_distinct(&mut lines, records.iter().flat_map(below));
        lines
    }
}

/// Reasons for missing measurements, and the library and devices of each backend.
fn below(record: &CollectiveRecord<'_>) -> Vec<String> {
    let backends = &record.body.backends;
    if backends.is_empty() {
        let op = record.body.point.op.name();
        return not_measured(op, &record.outcome, record.skip_reason())
            .into_iter()
            .collect();
    }
    let backends = backends.iter();
    let outcomes =
        backends.filter_map(|it| not_measured(&it.backend, &it.backend_outcome, "skipped"));
    outcomes.chain(engine::of_backends(record)).collect()
}

/// Measured upper bounds on what each rank sends, once per backend and kind of bound.
fn bounds(records: &[CollectiveRecord<'_>]) -> Vec<String> {
    let backends = records.iter().flat_map(|record| &record.body.backends);
    let bounds = backends.filter_map(|backend| {
        let bound = backend.bus_bound.as_ref()?;
        Some((bound.bytes_per_s, (&backend.backend, &bound.what)))
    });
    let line = |((who, what), values): ((&String, &String), Vec<f64>)| {
        let (least, most) = extremes(values.iter().copied());
        let range = match values.len() {
            1 => gigabytes_per_s(most),
            _ => format!("{} to {}", number(least * 1e-9), gigabytes_per_s(most)),
        };
        format!("bound of {who}: {range} from each rank that sends, {what}")
    };
    by_answer(bounds).into_iter().map(line).collect()
}

/// Whether all records use the same element type and reduction.
fn same_elements(records: &[CollectiveRecord<'_>]) -> bool {
    let key = |record: &CollectiveRecord<'_>| {
        let point = &record.body.point;
        (point.dtype, point.reduction)
    };
    let mut keys = records.iter().map(key);
    let first = keys.next();
    keys.all(|key| Some(key) == first)
}

/// Element type and reduction, if all records share them.
fn elements(records: &[CollectiveRecord<'_>]) -> Option<String> {
    let point = &records.first()?.body.point;
    if point.op == Collective::Barrier || !same_elements(records) {
        return None;
    }
    let reduction = point.reduction.map(|reduction| format!("{reduction} of "));
    Some(reduction.unwrap_or_default() + point.dtype.name())
}

/// The point without the values that vary between rows.
fn shared(point: &CollectivePoint) -> CollectivePoint {
    CollectivePoint {
        size_bytes: 0,
        block_elements: 0,
        dtype: tonnage_collective::Dtype::Float32,
        reduction: None,
        algorithm: None,
        chunk_bytes: None,
        each: false,
        ..point.clone()
    }
}

fn ranks(point: &CollectivePoint) -> String {
    let grouping = point.grouping();
    let all = counted(point.ranks, "rank");
    match grouping.count() {
        1 => all,
        count => format!(
            "{all} in {count} groups of {} ({}) at once",
            grouping.size(),
            point.groups
        ),
    }
}

/// Suffix of values that apply to each group instead of all ranks.
fn of_group(point: &CollectivePoint) -> &'static str {
    match point.grouping().count() {
        1 => "",
        _ => " of a group",
    }
}

/// Memory that held the elements. It may differ from the plan, because some libraries allocate their own tensors. If
/// backends used different memory, each backend is named.
fn memory(records: &[CollectiveRecord<'_>], asked: &str) -> String {
    let rows = records.iter().flat_map(|it| Row::all_of_record(it.record));
    let mut of_backends: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let backend = row.record.collective().and_then(|it| it.backend(row.part));
        if let Some((backend, kind)) = backend.zip(memory_of(&row))
            && !of_backends.iter().any(|(name, _)| *name == backend.backend)
        {
            of_backends.push((&backend.backend, kind));
        }
    }
    let kinds = by_answer(of_backends.into_iter());
    match kinds.as_slice() {
        [] => format!("{asked} memory"),
        [(kind, _)] => format!("{kind} memory"),
        kinds => {
            let named = kinds
                .iter()
                .map(|(kind, of)| format!("{kind} memory of {}", of.join(", ")));
            named.collect::<Vec<_>>().join(", ")
        }
    }
}

fn aligned(point: &CollectivePoint) -> String {
    match (point.align, point.refill) {
        (Align::None, _) => "calls follow each other".to_owned(),
        (Align::Barrier, Refill::Iteration) => {
            "inputs rewritten and a barrier before each call".to_owned()
        }
        (Align::Barrier, Refill::Trial) => "a barrier before each call".to_owned(),
    }
}

fn length(point: &CollectivePoint) -> String {
    let each = match point.length.trial {
        TrialLength::Iterations(iterations) => counted(iterations, "call"),
        TrialLength::DurationNs(ns) => exact_duration(ns),
    };
    format!("{} of {each}", counted(point.length.trials, "trial"))
}

fn across(across: RankTime) -> &'static str {
    match across {
        RankTime::Max => "of the slowest rank",
        RankTime::Mean => "as the mean of the ranks",
        RankTime::Min => "of the fastest rank",
    }
}

/// Speedup of each backend over the first. Trials alternate between backends, so trials with the same number are
/// compared.
fn speedups(record: &CollectiveRecord<'_>) -> Vec<String> {
    let (backends, across) = (&record.body.backends, record.body.point.across);
    if backends.len() < 2 {
        return vec![String::new(); backends.len().max(1)];
    }
    // The time of a backend that moved no data is only call overhead, so that backend gets no speedup.
    let moves = record.body.point.op != Collective::Barrier;
    let times = |backend: &BackendResult| -> Vec<f64> {
        let summary = backend.summary.iter();
        let measured = summary.filter(|it| !moves || it.algbw_bytes_per_s.is_some());
        let trials = measured.flat_map(|_| &backend.trials);
        trials.map(|trial| trial.call_ns(across)).collect()
    };
    let first = backends.first().map(times).unwrap_or_default();
    let cell = |(at, backend): (usize, &BackendResult)| {
        let turns = first.iter().zip(times(backend));
        let ratios: Vec<f64> = turns.map(|(first, own)| first / own).collect();
        match GeometricSpread::from_values(&ratios) {
            Some(_) if at == 0 => "the first".to_owned(),
            Some(ratio) => times_faster(ratio),
            None => String::new(),
        }
    };
    backends.iter().enumerate().map(cell).collect()
}

/// Formats the time of the first backend divided by the time of another backend, such as `27.8x slower ± 3 %`. The
/// percentage is the relative half-width of the ratio's interval, if any.
fn times_faster(ratio: GeometricSpread) -> String {
    let (factor, word) = match ratio.mean {
        mean if mean < 1.0 => (1.0 / mean, "slower"),
        mean => (mean, "faster"),
    };
    let half = ratio
        .high
        .map(|high| whole_percent(high / ratio.mean - 1.0));
    let half = half.map_or_else(String::new, |half| format!(" ± {half}"));
    format!("{}x {word}{half}", number(factor))
}

/// Outcome label of a row that was not measured.
fn outcome(row: &Row<'_>) -> String {
    let body = row.record.collective();
    let backend = body.and_then(|body| body.backend(row.part));
    let outcome = backend.map_or(&row.record.outcome, |it| &it.backend_outcome);
    match outcome {
        Outcome::Measured => String::new(),
        Outcome::Skipped { .. } => "skipped".to_owned(),
        Outcome::Failed { .. } => "FAILED".to_owned(),
    }
}

/// One table of ranks per backend.
fn rank_tables(record: &CollectiveRecord<'_>) -> Vec<TitledTable> {
    let point = &record.body.point;
    let table = |backend: &BackendResult| {
        let summary = backend.summary.as_ref()?;
        let times = &summary.rank_times;
        let columns = vec![
            Column::numbers(RANK.name, 1.0, times.iter().map(|it| it.rank)).identifying(),
            Column::numbers("Time (us)", 1e-3, times.iter().map(|it| it.call_ns_mean)),
            Column::numbers(BEGAN_LAST.name, 1.0, times.iter().map(|it| it.began_last)),
        ];
        let size = exact_size(point.shape().size_bytes());
        let title = format!("ranks of {} {size} by {}", point.op, backend.backend);
        Some(TitledTable::of_columns(columns).with_title(title))
    };
    let parts = (0..record.body.backends.len()).map(Part::Nth);
    parts
        .filter_map(|part| table(record.body.backend(part)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::samples::collective::{collectives, torch_on_unlike_hosts};
    use crate::tests::table_of;
    use crate::{Format, render};

    #[test]
    fn tables_look_as_agreed() {
        let records = collectives();
        insta::assert_snapshot!("collective", table_of(&records));
        let csv = render(Format::Csv, &records).unwrap();
        insta::assert_snapshot!("csv_collective", csv.replace("\r\n", "\n"));
    }

    #[test]
    fn memory_and_versions_are_those_that_the_ranks_had() {
        let records = [torch_on_unlike_hosts()];
        let table = table_of(&records).replace("\n  ", " ");
        for part in [
            "size of each rank; cuda memory of torch:nccl, host memory of native:shm; inputs",
            "torch:nccl: different versions: ranks 0: PyTorch 2.4.0 in Python 3.11.2; ranks 1: PyTorch 2.4.0 in Python \
             3.12.1",
        ] {
            assert!(table.contains(part), "{table}");
        }
        assert!(!table.contains("native:shm: different"), "{table}");
        let csv = render(Format::Csv, &records).unwrap();
        assert!(csv.contains(",cuda,") && csv.contains(",host,"), "{csv}");
    }
}

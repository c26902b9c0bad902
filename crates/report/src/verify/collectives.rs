//! Table of verified operations per collective backend.

use tonnage_record::{CollectiveBody, CollectiveRecord, Record};

use super::PLAN;
use super::rows::{Rows, VerifiedPoint};
use crate::engine;
use crate::layout::Report;
use crate::result::ReportResult;
use crate::table::TitledTable;
use crate::text::extend_distinct;

/// Report on collectives of `tonnage verify`: one table for all records, then wrong results and reasons for skips, each
/// printed once.
pub struct VerifyCollectives;

impl Report for VerifyCollectives {
    type Body = CollectiveBody;

    fn handles(record: &Record) -> bool {
        record.plan == PLAN && record.collective().is_some()
    }

    fn same_section(left: CollectiveRecord<'_>, right: CollectiveRecord<'_>) -> bool {
        left.body.point.ranks == right.body.point.ranks
    }

    fn configuration(first: CollectiveRecord<'_>, _: &[CollectiveRecord<'_>]) -> Vec<String> {
        vec![format!(
            "collectives among {} ranks",
            first.body.point.ranks
        )]
    }

    fn result(records: &[CollectiveRecord<'_>]) -> Option<ReportResult> {
        let is_fine = records.iter().all(|record| record.record.is_fine());
        Some(rows(records).result("of results are correct", is_fine))
    }

    fn tables(records: &[CollectiveRecord<'_>]) -> Vec<TitledTable> {
        vec![rows(records).table()]
    }

    fn footers(records: &[CollectiveRecord<'_>]) -> Vec<String> {
        let mut lines = rows(records).further_reasons();
        extend_distinct(&mut lines, records.iter().flat_map(engine::of_backends));
        lines
    }
}

fn rows(records: &[CollectiveRecord<'_>]) -> Rows {
    records.iter().flat_map(points).collect()
}

/// Returns one verified point per backend. If no backend was opened, every requested backend has the record's outcome.
fn points<'a>(record: &CollectiveRecord<'a>) -> Vec<VerifiedPoint<'a>> {
    let point = &record.body.point;
    let reduction = point.reduction.map(|reduction| format!("{reduction} of "));
    let elements = reduction.unwrap_or_default() + point.dtype.name();
    let of = |backend: &str, outcome, checked_bytes| VerifiedPoint {
        engine: backend.to_owned(),
        op: point.op.name(),
        size_bytes: point.shape().size_bytes(),
        elements: elements.clone(),
        checked_bytes,
        outcome,
    };
    let opened = record.body.backends.iter().map(|it| {
        let summary = it.summary.as_ref();
        let checked = summary.map_or(0, |summary| summary.verified_bytes);
        of(&it.backend, &it.backend_outcome, checked)
    });
    if record.body.backends.is_empty() {
        let asked = point.backends.iter();
        let all = asked.map(|backend| of(backend, &record.record.outcome, 0));
        return all.collect();
    }
    opened.collect()
}

#[cfg(test)]
mod tests {
    use crate::samples::collective::verified;
    use crate::tests::table_of;

    #[test]
    fn a_reason_is_printed_once_per_backend() {
        insta::assert_snapshot!("collectives", table_of(&verified()));
        insta::assert_snapshot!("collectives_right", table_of(&verified()[..3]));
    }
}

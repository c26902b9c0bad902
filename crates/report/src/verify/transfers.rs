//! Table of verified operations per engine.

use tonnage_record::{Record, TransferBody, TransferRecord};
use tonnage_units::quantity::human::size;

use super::PLAN;
use super::rows::{Rows, VerifiedPoint};
use crate::layout::Report;
use crate::result::ReportResult;
use crate::table::TitledTable;
use crate::{driver_start, engine, filling, wire_proof};

/// Report on transfers of `tonnage verify`: the result, one table for all records, then further mismatches and
/// reasons for skips, each once.
pub struct VerifyTransfers;

impl Report for VerifyTransfers {
    type Body = TransferBody;

    fn handles(record: &Record) -> bool {
        record.plan == PLAN && record.transfer().is_some()
    }

    fn same_section(_: TransferRecord<'_>, _: TransferRecord<'_>) -> bool {
        true
    }

    fn configuration(_: TransferRecord<'_>, _: &[TransferRecord<'_>]) -> Vec<String> {
        Vec::new()
    }

    fn result(records: &[TransferRecord<'_>]) -> Option<ReportResult> {
        let correct = format!("arrived as sent ({})", coverage(records));
        let is_fine = records.iter().all(|record| record.record.is_fine());
        Some(rows(records).result(&correct, is_fine))
    }

    fn tables(records: &[TransferRecord<'_>]) -> Vec<TitledTable> {
        vec![rows(records).table()]
    }

    fn footers(records: &[TransferRecord<'_>]) -> Vec<String> {
        let mut lines = rows(records).further_reasons();
        lines.extend(engine::lines(records.iter().map(|record| record.record)));
        lines.extend(filling::lines(records.iter().map(|record| record.record)));
        lines.extend(driver_start::line(records));
        lines.extend(wire_proof::lines(records.iter().copied()));
        let unproven = records.iter();
        let mut unproven: Vec<String> = unproven
            .filter_map(|record| wire_proof::unproven(*record))
            .collect();
        unproven.dedup();
        lines.extend(unproven);
        lines
    }
}

/// Describes how much of the payload was verified.
fn coverage(records: &[TransferRecord<'_>]) -> String {
    let trials = || records.iter().flat_map(|record| &record.body.trials);
    let verified: u64 = trials().filter_map(|trial| trial.verified_bytes).sum();
    let moved: u64 = trials().map(|trial| trial.payload_bytes).sum();
    match verified >= moved {
        true => "every byte compared".to_owned(),
        false => format!("the last visit of each slot, of {} moved", size(moved)),
    }
}

fn rows<'a>(records: &[TransferRecord<'a>]) -> Rows {
    let checked = |record: &TransferRecord<'_>| {
        let trials = record.body.trials.iter();
        trials.filter_map(|trial| trial.verified_bytes).sum()
    };
    let row = |record: &TransferRecord<'a>| {
        let point = &record.body.point;
        VerifiedPoint {
            engine: engine::name(&point.engine, &point.engine_options),
            op: point.op.name(),
            size_bytes: point.slots.size_bytes.into(),
            checked_bytes: checked(record),
            elements: String::new(),
            outcome: &record.record.outcome,
        }
    };
    records.iter().map(row).collect()
}

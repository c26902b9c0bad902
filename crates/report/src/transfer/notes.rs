//! Remarks on single lines of a table of transfers: a mark at the line, and the text below.

use tonnage_plan::point::LimitChoice;
use tonnage_record::{Canary, Outcome, TransferRecord};
use tonnage_units::quantity::human::number;

use crate::wire_proof;

/// Marks of the lines, and the texts that they count.
pub fn marks(records: &[TransferRecord<'_>]) -> (Vec<String>, Vec<String>) {
    let mut notes = Notes::default();
    let marks = records.iter().map(|record| notes.mark(*record)).collect();
    (marks, notes.texts)
}

/// Workers that had less of their CPUs than this were disturbed so much that the figures are about something else.
pub const CPU_SHARE_LEAST: f64 = 0.9;

/// Remarks on single rows, each text once.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
}

impl Notes {
    /// Text of the row's last column: the outcome unless measured, and the numbers of its notes.
    fn mark(&mut self, record: TransferRecord<'_>) -> String {
        let mut words = Vec::new();
        match &record.outcome {
            Outcome::Measured => {}
            Outcome::Skipped { why } => words.push(format!(
                "skipped {}",
                self.number(format!("skipped: {why}"))
            )),
            Outcome::Failed { why } => {
                words.push(format!("FAILED {}", self.number(format!("failed: {why}"))))
            }
        }
        if let Some(Canary::Measured {
            before_ns,
            after_ns,
            changed: true,
            ..
        }) = record.canary
        {
            let text = format!(
                "the machine changed while this point was measured: its cache-line ping-pong took {} ns before and \
                 {} ns after; distrust small differences",
                number(before_ns),
                number(after_ns)
            );
            words.push(self.number(text));
        }
        if let Some(share) = record.cpu_share().filter(|share| *share < CPU_SHARE_LEAST) {
            // In tens, so that a table does not get a note of its own for every row.
            let percent = (share * 10.0).floor() * 10.0;
            words.push(self.number(format!(
                "other programs took CPU time from the workers, which had less than {:.0} % of it: the figures are too \
                 low",
                percent + 10.0
            )));
        }
        if record
            .body
            .summary
            .as_ref()
            .is_some_and(|summary| summary.converged == Some(false))
        {
            words.push(
                self.number("the time was up before CI95 became as narrow as asked for".to_owned()),
            );
        }
        if let Some(text) = above_limit(record) {
            words.push(self.number(text));
        }
        if let Some(why) = wire_proof::unproven(record) {
            words.push(format!("OFF PATH {}", self.number(why)));
        }
        words.join(" ")
    }

    fn number(&mut self, text: String) -> String {
        let at = self
            .texts
            .iter()
            .position(|known| *known == text)
            .unwrap_or_else(|| {
                self.texts.push(text);
                self.texts.len() - 1
            });
        format!("[{}]", at + 1)
    }
}

/// A limit that is exceeded by more than it may be off deserves a word about why.
const UTILIZATION_MOST: f64 = 1.05;

/// Tells why a point is above its limit, if it is.
fn above_limit(record: TransferRecord<'_>) -> Option<String> {
    let summary = record.body.summary.as_ref()?;
    summary
        .utilization
        .filter(|part| *part > UTILIZATION_MOST)?;
    let what = &record.limit.as_ref()?.what;
    let why = match record.body.point.limit {
        LimitChoice::Auto if what.starts_with("link speed") => {
            "the device is faster than it says, or not all bytes crossed it; --require-path tells"
        }
        LimitChoice::Auto => {
            "it was measured for moments just before and after the trials, and the machine was faster in between (its \
             clock, its caches, other programs); measure longer with --duration"
        }
        _ => "it was stated, not measured; --limit auto measures one",
    };
    Some(format!("above its limit: {why}"))
}

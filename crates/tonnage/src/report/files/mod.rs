//! Reports of file experiments.

use tonnage_core::record::files::FileRecord;

/// Tables for all experiments, in their order, with an empty line between two.
pub fn table(records: &[FileRecord]) -> String {
    let texts = records.iter().flat_map(|record| &record.phases);
    let texts = texts.map(|phase| {
        format!(
            "{} {}\n",
            phase.phase.name(),
            phase.summary.bandwidth_bytes_per_s.mean
        )
    });
    texts.collect()
}

//! The startup time of GPU drivers, shown below a table. It is outside every measured interval.

use tonnage_record::TransferRecord;
use tonnage_units::quantity::human::number;

/// Longest driver startup of any process, or `None` if no memory was on a GPU.
pub fn line(records: &[TransferRecord<'_>]) -> Option<String> {
    let starts = records.iter().filter_map(|it| it.body.driver_start_ns);
    let longest = starts.max()?;
    Some(format!(
        "starting the driver of a GPU took {} ms, once in a process and outside of every measured interval",
        number(longest as f64 / 1e6)
    ))
}

#[cfg(test)]
mod tests {
    use tonnage_record::Record;

    use super::*;
    use crate::samples;

    #[test]
    fn the_longest_driver_start_is_reported() {
        let mut all = samples::streams();
        let told = |all: &[Record]| {
            let records: Vec<_> = all.iter().filter_map(Record::as_transfer).collect();
            line(&records)
        };
        assert_eq!(told(&all), None);
        for (record, ms) in all.iter_mut().zip([210, 123]) {
            let body = samples::transfer(record);
            body.driver_start_ns = Some(ms * 1_000_000);
        }
        let said = told(&all).unwrap();
        assert!(
            said.starts_with("starting the driver of a GPU took 210.0 ms,"),
            "{said}"
        );
    }
}

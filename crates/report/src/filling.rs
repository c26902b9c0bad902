//! Lines below a table about devices that cannot fill and verify their own memory.

use tonnage_record::Record;

use crate::text::distinct;

/// Lists devices with memory that is filled and verified by copies through the host, once per reason.
pub fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let ranks = records.flat_map(|record| &record.effective);
    let memories = ranks.flat_map(|ranks| ranks.memory.all());
    distinct(memories.filter_map(|memory| {
        let why = memory.why_filled_by_copies.as_ref()?;
        let device = memory.device.as_ref().unwrap_or(&memory.kind);
        Some(format!(
            "memory of {device} is filled and verified by copies through the host, outside of every measurement: {why}"
        ))
    }))
}

#[cfg(test)]
mod tests {
    use tonnage_engine::memory::MemoryReport;
    use tonnage_record::environment::Memories;

    use super::*;
    use crate::samples;

    #[test]
    fn each_device_and_reason_is_reported_once() {
        let mut records = samples::streams();
        assert!(lines(records.iter()).is_empty());
        let gpu = |number: u32, why: Option<&str>| MemoryReport {
            kind: "cuda".to_owned(),
            device: Some(format!("cuda:{number} (a model)")),
            why_filled_by_copies: why.map(str::to_owned),
            ..MemoryReport::default()
        };
        records[0].effective[0].memory = Memories::Alike(Box::new(gpu(0, Some("it wrote 00"))));
        records[1].effective[0].memory = Memories::Several(vec![
            gpu(0, Some("it wrote 00")),
            gpu(1, Some("refused")),
            gpu(2, None),
        ]);
        let begin = |number| {
            format!(
                "memory of cuda:{number} (a model) is filled and verified by copies through the host, outside of every \
                 measurement: "
            )
        };
        let expected = [begin(0) + "it wrote 00", begin(1) + "refused"];
        assert_eq!(lines(records.iter()), expected);
    }
}

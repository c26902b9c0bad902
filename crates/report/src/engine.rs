//! Formats an engine's name and options, and its library, provider and device.

use tonnage_engine::EngineOptions;
use tonnage_record::collective::BackendResult;
use tonnage_record::figures::Row;
use tonnage_record::figures::engine::{different_versions, transport_of_record, transport_of_row};
use tonnage_record::{CollectiveRecord, Record};

use crate::text::distinct;

/// Engine name, with options that differ from their defaults.
pub fn name(engine: &str, options: &EngineOptions) -> String {
    let options = options.iter();
    let options = options.map(|(name, value)| format!(" {name}={value}"));
    engine.to_owned() + &options.collect::<String>()
}

/// Footer lines on library, provider and device, each once. Engines without a library, such as `shm`, have none.
pub fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let known = records
        .map(transport_of_record)
        .filter(|text| !text.is_empty());
    distinct(known.map(|text| format!("engine: {text}")))
}

/// Whether the bytes of a record cross a network, or would do so if its ranks were on several hosts. True if the engine
/// names a device other than the one that holds the bytes. Shared memory does not count: its device has the provider's
/// name.
pub fn may_cross_a_network(record: &Record) -> bool {
    record.effective.iter().any(|ranks| {
        let one = std::iter::once(&ranks.engine);
        let mut devices = one.chain(&ranks.engine.devices);
        devices.any(|engine| {
            let device = engine.device.as_ref();
            device.is_some_and(|device| {
                let holds = |kind: &str| device.split(':').next() == Some(kind);
                let mut memories = ranks.memory.all().iter();
                engine.provider.as_ref() != Some(device)
                    && !memories.any(|memory| holds(&memory.kind))
            })
        })
    })
}

/// Footer lines for collectives: library and devices of each backend, and version differences between ranks.
pub fn of_backends(record: &CollectiveRecord<'_>) -> Vec<String> {
    let rows = Row::all_of_record(record.record).into_iter();
    let lines = |(row, backend): (Row<'_>, &BackendResult)| {
        let (who, means) = (&backend.backend, transport_of_row(&row));
        let means = (!means.is_empty()).then(|| format!("{who}: {means}"));
        let differ = different_versions(&row);
        let differ = differ.map(|them| format!("{who}: different versions: {them}"));
        [means, differ]
    };
    let parts = rows.zip(&record.body.backends);
    parts.flat_map(lines).flatten().collect()
}

#[cfg(test)]
mod tests {
    use tonnage_engine::EngineReport;
    use tonnage_plan::transfer::Pacing;
    use tonnage_record::figures::{Row, Value, figure_by_field};

    use super::super::samples::{fabric, files, sample};
    use super::*;

    fn text(record: &Record, field: &str) -> Option<String> {
        let row = Row::all_of_record(record).swap_remove(0);
        match (figure_by_field(field).unwrap().value)(&row) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn an_engine_without_a_library_has_no_line() {
        let record = sample(Pacing::PingPong, 8).record();
        for field in ["library", "provider", "device"] {
            assert_eq!(text(&record, field), None);
        }
        assert!(lines([&record].into_iter()).is_empty());
        let point = &record.transfer().unwrap().point;
        assert_eq!(name(&point.engine, &point.engine_options), "shm");
    }

    #[test]
    fn any_library_is_reported() {
        let expected = "Open MPI v4.1.4 (/usr/lib/libmpi.so.40)";
        assert_eq!(
            text(&files::collective(), "library").as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn ranks_with_different_devices_are_listed_separately() {
        let mut record = fabric().swap_remove(0);
        let device = |record: &Record| text(record, "device").unwrap();
        let mut other = record.effective[0].clone();
        record.effective[0].ranks = "0".to_owned();
        other.ranks = "1".to_owned();
        record.effective.push(other);
        assert_eq!(device(&record), "eth0");
        record.effective[1].engine.device = Some("eth1".to_owned());
        assert_eq!(device(&record), "ranks 0: eth0; ranks 1: eth1");
        record.effective.remove(0);
        let of = |name: &str| EngineReport {
            device: Some(name.to_owned()),
            ..EngineReport::default()
        };
        record.effective[0].engine.devices = vec![of("eth0"), of("eth1")];
        assert_eq!(device(&record), "eth0,eth1");
    }
}

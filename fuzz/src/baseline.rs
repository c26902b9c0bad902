//! Tries any text as a baseline and as values set by hand. A baseline that was read must read back the same after
//! writing, and must be usable for checks.

use tonnage_judge::baseline::Baseline;
use tonnage_judge::baseline::by_hand::HandValue;
use tonnage_judge::baseline::drift::drift;
use tonnage_judge::baseline::order::{fit_budget, most_informative_first};
use tonnage_judge::check::CheckVerdict;
use tonnage_judge::check::device::{HostDevices, device_failures};
use tonnage_judge::check::entry::EntryVerdict;
use tonnage_judge::check::reason::{REASON_BYTES_MAX, reason};

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let _ = HandValue::read_all(text, "fuzz");
    let Ok(read) = Baseline::from_toml(text, "fuzz") else {
        return;
    };
    let written = read.to_toml().expect("what was read has a form");
    let again = Baseline::from_toml(&written, "fuzz").expect("what was written is read");
    assert_eq!(again, read);
    let _ = drift(&read, &again);
    for kind in &read.kinds {
        let steps = most_informative_first(&kind.entries);
        let found = fit_budget(steps, 10.0, 0.5, 1);
        let chosen: usize = found
            .chosen
            .iter()
            .chain(&found.left)
            .map(|step| step.entries.len())
            .sum();
        assert_eq!(chosen, kind.entries.len());
        let entries: Vec<_> = kind.entries.iter().collect();
        let mut verdicts = device_failures(&entries, &HostDevices::default(), "h0");
        verdicts.extend(kind.entries.iter().map(|entry| EntryVerdict {
            verdict: CheckVerdict::Fail,
            value: Some(entry.fail),
            ..EntryVerdict::unmeasured(entry)
        }));
        assert!(reason(CheckVerdict::Fail, &verdicts, 1).len() <= REASON_BYTES_MAX);
        for entry in &kind.entries {
            assert!(!entry.is_beyond(entry.median, entry.warn));
        }
    }
}

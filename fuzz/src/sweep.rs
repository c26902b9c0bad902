//! Any text is a bounded sweep or is refused. A sweep must print as text that reads back as the same sweep.
use tonnage_plan::sweep::{Sweep, VALUES_MAX};

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let Ok(sweep) = text.parse::<Sweep>() else {
        return;
    };
    assert!((1..=VALUES_MAX).contains(&sweep.values().len()));
    let again: Sweep = sweep
        .to_string()
        .parse()
        .expect("a printed sweep reads back");
    assert_eq!(again, sweep);
}

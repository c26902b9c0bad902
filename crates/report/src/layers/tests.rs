use tonnage_plan::transfer::Pacing;
use tonnage_record::{Outcome, Record};

use super::*;
use crate::samples::collective::layers;
use crate::tests::table_of;

#[test]
fn each_layer_is_compared_with_the_one_below() {
    insta::assert_snapshot!("layers", table_of(&layers()));
}

/// If a layer failed in a round, ratios to other layers must leave out that round.
#[test]
fn only_rounds_of_both_are_compared() {
    let mut records = layers();
    records[0].outcome = Outcome::Failed {
        why: "rank 1 on b: gone".to_owned(),
    };
    let stack = Stack::new(records.iter());
    let on_shm = |level| {
        let mut all = stack.layers().iter();
        all.find(|it| it.level == level && it.engine() == "shm")
            .unwrap()
    };
    let (writes, calls) = (on_shm(Level::Writes), on_shm(Level::SendRecv));
    assert_eq!(calls.ratios(writes).len(), 1);
    let table = table_of(&records);
    assert!(
        table.contains("shm write: FAILED: rank 1 on b: gone"),
        "{table}"
    );
}

#[test]
fn other_plans_have_their_own_tables() {
    let handles = |record: &Record| (LAYERS.handles)(record);
    assert!(layers().iter().all(handles));
    let mut record = crate::samples::sample(Pacing::Stream { depth: 1 }, 8).record();
    assert!(!handles(&record));
    record.plan = PLAN.to_owned();
    assert!(handles(&record));
}

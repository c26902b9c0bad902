use tonnage_plan::transfer::Pacing;
use tonnage_record::{Outcome, Record};

use super::*;
use crate::samples::collective::layers;
use crate::tests::table_of;

#[test]
fn each_layer_stands_on_the_one_below() {
    insta::assert_snapshot!("layers", table_of(&layers()));
}

/// A round that failed for one layer is not part of its ratio.
#[test]
fn only_rounds_of_both_are_compared() {
    let mut records = layers();
    records[0].outcome = Outcome::Failed {
        why: "rank 1 on b: gone".to_owned(),
    };
    let stack = Stack::of(records.iter());
    let on_shm = |floor| {
        let mut all = stack.layers().iter();
        all.find(|it| it.floor == floor && it.engine() == "shm")
            .unwrap()
    };
    let (writes, calls) = (on_shm(Floor::Writes), on_shm(Floor::SendRecv));
    assert_eq!(calls.ratios(writes).len(), 1);
    let table = table_of(&records);
    assert!(
        table.contains("shm write: FAILED: rank 1 on b: gone"),
        "{table}"
    );
}

#[test]
fn other_plans_have_their_own_tables() {
    let takes = |record: &Record| (LAYERS.takes)(record);
    assert!(layers().iter().all(takes));
    let mut record = crate::samples::sample(Pacing::Stream { window: 1 }, 8).record();
    assert!(!takes(&record));
    record.plan = PLAN.to_owned();
    assert!(takes(&record));
}

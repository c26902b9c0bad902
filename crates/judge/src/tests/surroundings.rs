//! Differences in surroundings and canary: some make points incomparable, others are only reported.

use serde_json::{Value, json};

use super::{
    accepting, changed, compared, compared_as, compared_by_turns, environment, only, refusal, runs,
    side,
};
use crate::criteria::PointVerdict;
use crate::surroundings::DifferenceWeight;

#[test]
fn another_canary_is_another_machine_unless_sides_took_turns() {
    let slow = |record: &mut Value| {
        record["canary"]["before_ns"] = 90.0.into();
        record["canary"]["after_ns"] = 91.0.into();
    };
    for count in [1, 3] {
        let b = changed(runs("b", count, 1e10), slow);
        let judged = only(&compared(&runs("a", count, 1e10), &b)).clone();
        assert_eq!(judged.verdict, PointVerdict::NotComparable);
        assert!(
            judged.why[0].contains("canary is 50.5 ns on A"),
            "{judged:?}"
        );
    }
    // Neither varying canaries nor the side that is slower change this verdict.
    let uneven = |name: &str| {
        let mut records = runs(name, 3, 1e10);
        records[0]["canary"]["after_ns"] = 75.0.into();
        records
    };
    for (a, b) in [
        (uneven("a"), changed(runs("b", 3, 1e10), slow)),
        (changed(runs("a", 3, 1e10), slow), uneven("b")),
    ] {
        assert_eq!(only(&compared(&a, &b)).verdict, PointVerdict::NotComparable);
    }
    let a = changed(runs("a", 3, 1e10), side("a"));
    let b = changed(changed(runs("b", 3, 1e10), slow), side("b"));
    let comparison = compared_by_turns(&[a.clone(), b.clone()].concat());
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
    // Sides in two files did not alternate.
    assert_eq!(only(&compared(&a, &b)).verdict, PointVerdict::NotComparable);
}

#[test]
fn another_machine_is_not_comparable_unless_accepted() {
    let newer = |record: &mut Value| record["environment"] = json!([environment("6.12")]);
    let (a, b) = (runs("a", 3, 1e10), changed(runs("b", 3, 1e10), newer));
    let comparison = compared(&a, &b);
    assert_eq!(only(&comparison).verdict, PointVerdict::NotComparable);
    assert!(only(&comparison).why[0].contains("kernel"));
    let [difference] = comparison.differences.as_slice() else {
        panic!("{comparison:#?}")
    };
    assert_eq!(
        (difference.key.as_str(), difference.weight),
        ("kernel", DifferenceWeight::Counts)
    );
    assert_eq!(
        (&difference.a, &difference.b),
        (&vec!["6.1".to_owned()], &vec!["6.12".to_owned()])
    );
    let comparison = compared_as(&a, &b, &accepting(&["kernel"])).unwrap();
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
    assert_eq!(comparison.differences[0].weight, DifferenceWeight::Accepted);
    refusal(&a, &b, &accepting(&["kernal"]), &["--accept", "\"kernel\""]);
}

#[test]
fn expected_differences_do_not_prevent_a_comparison() {
    let own = |record: &mut Value| {
        record["tonnage"]["git_revision"] = "def".into();
        record["environment"][0]["machine"]["memory"]["total_bytes"] = ((1u64 << 34) - 4096).into();
        record["environment"][0]["machine"]["libraries"]["libfabric"] = "2.1".into();
        record["environment"][0]["hosts"][0]["name"] = "n2".into();
        record["environment"][0]["hosts"][0]["clock_offset_ns"] = 77.into();
    };
    let comparison = compared(&runs("a", 3, 1e10), &changed(runs("b", 3, 1e10), own));
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
    let told: Vec<&str> = comparison
        .differences
        .iter()
        .map(|it| it.key.as_str())
        .collect();
    assert_eq!(told, ["program.revision", "hosts", "libraries.libfabric"]);
    assert!(
        comparison
            .differences
            .iter()
            .all(|it| it.weight == DifferenceWeight::Reported)
    );
    // More memory than firmware reserves, another library version and another variable each make points incomparable.
    let fields: [(&str, &str, Value); 3] = [
        ("memory", "total_bytes", (1u64 << 33).into()),
        ("libraries", "libc", "2.40".into()),
        ("variables", "FI_X", "1".into()),
    ];
    for (group, field, value) in fields {
        let other =
            |record: &mut Value| record["environment"][0]["machine"][group][field] = value.clone();
        let b = changed(runs("b", 3, 1e10), other);
        let comparison = compared(&runs("a", 3, 1e10), &b);
        assert_eq!(
            only(&comparison).verdict,
            PointVerdict::NotComparable,
            "{field}"
        );
        let accepted = compared_as(&runs("a", 3, 1e10), &b, &accepting(&[group]));
        assert_eq!(
            only(&accepted.unwrap()).verdict,
            PointVerdict::Same,
            "{field}"
        );
    }
    // If the sides alternated, another library version is a consequence of the varied setting.
    let other = |record: &mut Value| {
        side("b")(record);
        record["environment"][0]["machine"]["libraries"]["libc"] = "2.40".into();
    };
    let both = [
        changed(runs("a", 3, 1e10), side("a")),
        changed(runs("b", 3, 1e10), other),
    ]
    .concat();
    let comparison = compared_by_turns(&both);
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
    assert_eq!(comparison.differences[0].weight, DifferenceWeight::Reported);
    // A setting that was deliberately changed on side B is accepted without `--accept`.
    let varied = |record: &mut Value| {
        record["environment"][0]["machine"]["variables"]["FI_X"] = "1".into();
        record["side"] = json!({"name": "b", "turn": 1, "varied": ["variables.FI_X"]});
    };
    let comparison = compared(&runs("a", 3, 1e10), &changed(runs("b", 3, 1e10), varied));
    assert_eq!(only(&comparison).verdict, PointVerdict::Same);
}

#[test]
fn each_size_of_memory_needs_a_counterpart() {
    let hosts = |totals: [u64; 2]| {
        move |record: &mut Value| {
            let groups = totals.map(|total| {
                let mut group = environment("6.1");
                group["machine"]["memory"]["total_bytes"] = total.into();
                group
            });
            record["environment"] = json!(groups);
        }
    };
    let (small, large) = (1u64 << 34, 1u64 << 35);
    for (totals, verdict) in [
        ([small - 4096, large + 4096], PointVerdict::Same),
        ([small, small], PointVerdict::NotComparable),
        ([small, large / 2 * 3], PointVerdict::NotComparable),
    ] {
        let a = changed(runs("a", 3, 1e10), hosts([small, large]));
        let b = changed(runs("b", 3, 1e10), hosts(totals));
        assert_eq!(only(&compared(&a, &b)).verdict, verdict, "{totals:?}");
        assert_eq!(only(&compared(&b, &a)).verdict, verdict, "{totals:?}");
    }
}

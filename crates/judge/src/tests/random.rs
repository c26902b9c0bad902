//! Files with arbitrary lines, and sides with arbitrary values.

use proptest::prelude::*;
use serde_json::Value;
use tonnage_record::read::read_readable_of;

use super::{compared, only, record, runs};
use crate::criteria::PointVerdict;

proptest! {
    /// For any file content, the valid records are read and nothing panics.
    #[test]
    fn broken_lines_are_left_out_and_counted(junk in "[^\n]{0,60}", place in 0usize..4, version in 4u32..9) {
        let mut lines: Vec<String> = runs("a", 3, 1e10).iter().map(Value::to_string).collect();
        let newer = lines[0].replacen("\"schema_version\":3", &format!("\"schema_version\":{version}"), 1);
        lines.insert(place, junk.clone());
        lines.push(newer);
        let text = lines.join("\n");
        let found = read_readable_of(text.as_bytes(), std::path::Path::new("f")).unwrap();
        prop_assert_eq!(found.records.len(), 3);
        let is_blank = junk.trim_ascii().is_empty();
        let last = found.left_out.last().unwrap();
        prop_assert!(last.0 == 5 && last.1.contains(&format!("schema version {version}")), "{:?}", last);
        prop_assert_eq!(found.left_out.len(), if is_blank { 1 } else { 2 });
        if !is_blank {
            prop_assert_eq!(found.left_out[0].0, place as u64 + 1);
        }
    }

    /// For any values, the verdict agrees with its interval. Swapping the sides gives the opposite verdict.
    #[test]
    fn verdicts_follow_from_intervals(a in values(), b in values()) {
        let side = |name: &str, values: &[f64]| -> Vec<Value> {
            let each = values.iter().enumerate();
            each.map(|(at, value)| record(&format!("{name}{at}"), 64, &[*value, *value])).collect()
        };
        let (a, b) = (side("a", &a), side("b", &b));
        let (there, back) = (compared(&a, &b), compared(&b, &a));
        let (there, back) = (only(&there), only(&back));
        let ratio = there.ratio.unwrap();
        prop_assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
        prop_assert!((0.0..=1.0).contains(&ratio.p) && ratio.p <= ratio.p_adjusted);
        match there.verdict {
            PointVerdict::Worse => prop_assert!(ratio.high < 0.95),
            PointVerdict::Better => prop_assert!(ratio.low > 1.05),
            PointVerdict::Same => prop_assert!(ratio.low >= 0.95 && ratio.high <= 1.05),
            _ => {}
        }
        // -5 % is slightly more than the inverse of +5 %, so only ratios far from the margin give exact opposites.
        if ratio.high < 0.9 && there.verdict == PointVerdict::Worse {
            prop_assert_eq!(back.verdict, PointVerdict::Better);
        }
    }
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1e-3..1e12f64, 3..8)
}

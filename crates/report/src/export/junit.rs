//! Writes JUnit test cases for CI systems: one case per point, one suite per run.
//!
//! A part of a point with its own outcome, such as a backend of a collective, is a separate case. The time of a case is
//! the time of its trials.

use tonnage_judge::keys::PointKeys;
use tonnage_record::body::Part;
use tonnage_record::figures::Row;
use tonnage_record::{Outcome, Record};

use super::naming::PointNames;

/// A point, or a part of a point with its own outcome.
struct Case<'a> {
    row: Row<'a>,
    keys: PointKeys,
    outcome: &'a Outcome,
}

/// Writes all points in order.
pub fn junit(records: &[Record]) -> String {
    let cases: Vec<Case<'_>> = records.iter().flat_map(cases).collect();
    let names = PointNames::new(cases.iter().map(|case| &case.keys));
    let of_a_run = cases.chunk_by(|left, right| left.row.record.run_id == right.row.record.run_id);
    let suites: String = of_a_run.map(|cases| suite(cases, &names)).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"tonnage\" {}>\n{suites}</testsuites>\n",
        counts(&cases)
    )
}

fn cases(record: &Record) -> Vec<Case<'_>> {
    let body = record.body.any();
    let parts = body.parts().into_iter();
    let ending = parts.filter_map(|part| Some((part, body.outcome(part)?)));
    let mut cases: Vec<(Part, &Outcome)> = ending.collect();
    if cases.is_empty() {
        cases.push((Part::Whole, &record.outcome));
    }
    let case = |(part, outcome)| {
        let row = Row { record, part };
        Case {
            row,
            keys: PointKeys::from_row(&row),
            outcome,
        }
    };
    cases.into_iter().map(case).collect()
}

fn counts(cases: &[Case<'_>]) -> String {
    let count = |of: fn(&Outcome) -> bool| cases.iter().filter(|case| of(case.outcome)).count();
    let ns: u64 = cases.iter().map(Case::measured_ns).sum();
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{}\"",
        cases.len(),
        count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        seconds(ns)
    )
}

fn seconds(ns: u64) -> String {
    format!("{:.6}", ns as f64 * 1e-9)
}

fn suite(cases: &[Case<'_>], names: &PointNames) -> String {
    let record = cases.first().map(|case| case.row.record);
    let (plan, run) = record.map_or(("", ""), |record| (&record.plan, &record.run_id));
    let lines: String = cases.iter().map(|case| case.text(names)).collect();
    format!(
        "  <testsuite name=\"{}\" id=\"{}\" {}>\n{lines}  </testsuite>\n",
        escaped(plan),
        escaped(run),
        counts(cases)
    )
}

impl Case<'_> {
    fn measured_ns(&self) -> u64 {
        self.row.record.body.any().measured_ns(self.row.part)
    }

    fn text(&self, names: &PointNames) -> String {
        let record = self.row.record;
        let mut name = names.full(&self.keys);
        if let Some(side) = &record.side {
            name += &format!(" side={}", side.name);
        }
        if let Some(repetition) = record.repetition {
            name += &format!(" repetition={repetition}");
        }
        let open = format!(
            "    <testcase classname=\"tonnage.{}\" name=\"{}\" time=\"{}\"",
            escaped(record.body.kind()),
            escaped(&name),
            seconds(self.measured_ns())
        );
        match self.outcome {
            Outcome::Measured => open + "/>\n",
            Outcome::Skipped { why } => {
                let why = escaped(why);
                format!("{open}>\n      <skipped message=\"{why}\"/>\n    </testcase>\n")
            }
            Outcome::Failed { why } => {
                let why = escaped(why);
                let failure = format!("<failure type=\"failed\" message=\"{why}\">{why}</failure>");
                format!("{open}>\n      {failure}\n    </testcase>\n")
            }
        }
    }
}

/// Escapes text for attributes and element content. Characters that XML 1.0 cannot represent become Rust escapes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\t' | '\n' | '\r' => out += &format!("&#{};", u32::from(character)),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out += &format!("\\u{{{:x}}}", u32::from(character));
            }
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_is_escaped_and_kept() {
        for (text, expected) in [
            ("plain", "plain"),
            ("<script>\"&'", "&lt;script&gt;&quot;&amp;&apos;"),
            ("]]>", "]]&gt;"),
            ("a\tb\nc\r", "a&#9;b&#10;c&#13;"),
            (
                "\u{0}\u{1b}[31m\u{85}\u{ffff}",
                "\\u{0}\\u{1b}[31m\\u{85}\\u{ffff}",
            ),
            ("é→\u{202e}", "é→\u{202e}"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}

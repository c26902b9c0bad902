//! Bytes that exchanges cost the two ends of the tree, counted at ranks that are threads, beside the formulas of
//! docs/SCALE.md.
#![cfg(test)]

mod steps;

use steps::{BothEnds, Cost, quiet, take};
use tonnage_ranks::testing::run_with;

/// A row of the table of formulas.
struct Row {
    name: String,
    /// Bytes that a leaf gets and says, and that rank 0 gets and says.
    cells: [String; 4],
}

/// The value of a formula such as `40 c + 3.5 N + 120`: c is the number of rank 0's children, N that of all ranks.
fn value(formula: &str, ranks: u32) -> f64 {
    let children = f64::from((ranks - 1).min(32));
    let term = |term: &str| {
        let (number, factor) = match term.trim().split_once(' ') {
            None => (term.trim(), 1.0),
            Some((number, "c")) => (number, children),
            Some((number, "N")) => (number, f64::from(ranks)),
            Some((number, "c N")) => (number, children * f64::from(ranks)),
            Some(other) => panic!("{other:?} of {formula}"),
        };
        number.parse::<f64>().unwrap() * factor
    };
    formula.split('+').map(term).sum()
}

fn formulas() -> Vec<Row> {
    let text = std::fs::read_to_string("../../docs/SCALE.md").unwrap();
    let table = text.split("<!-- formulas -->").nth(1).unwrap();
    let table = table.split("<!-- end -->").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    rows.map(|line| {
        let mut cells = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned());
        let mut next = || cells.next().unwrap();
        Row {
            name: next(),
            cells: [next(), next(), next(), next()],
        }
    })
    .collect()
}

fn counted(ranks: u32) -> BothEnds {
    let change = |_, options: &mut _| quiet(options);
    let all = run_with(ranks, change, |rank| {
        let mut rank = rank.unwrap();
        let (_, ends) = take(&mut rank, 20, 2).unwrap();
        rank.close().unwrap();
        ends
    });
    all.into_iter().next().flatten().unwrap()
}

fn is_close(counted: f64, computed: f64) -> bool {
    (counted - computed).abs() <= 0.1 * computed.max(counted)
}

#[test]
fn the_formulas_are_what_is_counted() {
    let rows = formulas();
    let mut wrong = String::new();
    for ranks in [8, 48] {
        let BothEnds { root, leaf } = counted(ranks);
        assert_eq!(rows.len(), root.len(), "each exchange has a formula");
        for row in &rows {
            let of = |steps: &[Cost]| {
                let step = steps.iter().find(|step| step.name == row.name);
                let step = step.unwrap_or_else(|| panic!("no exchange is called {}", row.name));
                [step.got, step.said]
            };
            let counted = [of(&leaf), of(&root)].concat();
            for (counted, formula) in counted.into_iter().zip(&row.cells) {
                let computed = value(formula, ranks);
                if !is_close(counted, computed) {
                    let name = &row.name;
                    wrong += &format!(
                        "{name}, {ranks} ranks: {formula} is {computed}, counted {counted}\n"
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_wrong_formula_is_noticed() {
    assert_eq!(
        value("40 c + 3.5 N + 120", 41),
        40.0 * 32.0 + 3.5 * 41.0 + 120.0
    );
    assert!(is_close(100.0, 109.0) && !is_close(100.0, 115.0) && !is_close(115.0, 100.0));
}

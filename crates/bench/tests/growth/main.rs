//! Compares the bytes of exchanges with the formulas in docs/SCALE.md. Bytes are counted at both ends of the tree, with
//! threads as ranks.
#![cfg(test)]

mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use steps::{BothEnds, ENGINES, PairSession, quiet, take};
use tonnage_bench::host::RankHost;
use tonnage_machine::{CpuChoice, Topology};
use tonnage_ranks::testing::{list_bytes, pairs_bytes, run, run_with};

/// A row of the table with formulas.
struct Row {
    name: String,
    /// Formulas for the bytes that a leaf receives and sends, and that rank 0 receives and sends.
    cells: [String; 4],
}

/// Returns the value of a formula such as `40 c + 3.5 N + 120`. `N` is the number of ranks, `n` is that without rank 0,
/// and `c` is the number of rank 0's children.
fn value(formula: &str, ranks: u32) -> f64 {
    let children = f64::from((ranks - 1).min(32));
    let term = |term: &str| {
        let (number, factor) = match term.trim().split_once(' ') {
            None => (term.trim(), 1.0),
            Some((number, "c")) => (number, children),
            Some((number, "n")) => (number, f64::from(ranks - 1)),
            Some((number, "N")) => (number, f64::from(ranks)),
            Some((number, "c N")) => (number, children * f64::from(ranks)),
            Some(other) => panic!("{other:?} of {formula}"),
        };
        number.parse::<f64>().unwrap() * factor
    };
    formula.split('+').map(term).sum()
}

/// Returns the cells of the table between the marker `name` and the end marker, row by row.
fn table(name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string("../../docs/SCALE.md").unwrap();
    let table = text.split(&format!("<!-- {name} -->")).nth(1).unwrap();
    let table = table.split("<!-- end -->").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

fn formulas() -> Vec<Row> {
    let row = |cells: Vec<String>| {
        let mut next = cells.into_iter();
        Row {
            name: next.next().unwrap(),
            cells: std::array::from_fn(|_| next.next().unwrap()),
        }
    };
    table("formulas").into_iter().map(row).collect()
}

/// Waits until every rank (a thread) has called this as often as the calling one.
fn wait_for_all(came: &AtomicU32, ranks: u32) {
    let begun = Instant::now();
    let before = came.fetch_add(1, Ordering::AcqRel);
    while came.load(Ordering::Acquire) / ranks == before / ranks {
        assert!(begun.elapsed() < Duration::from_secs(60), "a rank is lost");
        sleep(Duration::from_millis(1));
    }
}

fn counted(ranks: u32) -> BothEnds {
    let change = |_, options: &mut _| quiet(options);
    let have_read = Arc::new(AtomicU32::new(0));
    let all = run_with(ranks, change, move |rank| {
        let mut rank = rank.unwrap();
        // Endpoint addresses have the same length with any number of ranks, so a few ranks suffice for the second
        // engine.
        let engines = if ranks > 8 {
            &ENGINES[..1]
        } else {
            &ENGINES[..]
        };
        let (_, ends) = take(&mut rank, 20, (2, engines), &|| {
            wait_for_all(&have_read, ranks);
        })
        .unwrap();
        rank.close().unwrap();
        ends
    });
    all.into_iter().next().flatten().unwrap()
}

fn is_close(counted: f64, computed: f64) -> bool {
    (counted - computed).abs() <= 0.1 * computed.max(counted)
}

/// Returns the differences between the table and the bytes counted with `ranks` ranks.
fn wrong(rows: &[Row], ranks: u32) -> String {
    let mut wrong = String::new();
    let BothEnds { root, leaf } = counted(ranks);
    for (root, leaf) in root.iter().zip(&leaf) {
        let row = rows.iter().find(|row| row.name == root.name);
        let row = row.unwrap_or_else(|| panic!("{} has no formula", root.name));
        let counted = [leaf.received, leaf.sent, root.received, root.sent];
        if counted == [0.0; 4] {
            // All ranks are children of rank 0, so none has this exchange.
            assert!(row.name == "going to a parent" && ranks <= 33);
            continue;
        }
        for (counted, formula) in counted.into_iter().zip(&row.cells) {
            let computed = value(formula, ranks);
            if !is_close(counted, computed) {
                let name = &row.name;
                wrong +=
                    &format!("{name}, {ranks} ranks: {formula} is {computed}, counted {counted}\n");
            }
        }
    }
    wrong
}

#[test]
fn counts_match_the_formulas() {
    let rows = formulas();
    for ranks in [8, 48] {
        let wrong = wrong(&rows, ranks);
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}

/// Pinned ranks of a host have different CPUs, but the descriptions of their engines must be equal.
#[test]
fn different_cpus_do_not_make_ranks_differ_in_kind() {
    let all = run(2, |mut rank| {
        let session = PairSession::new(&rank, ENGINES[0], CpuChoice::Auto).unwrap();
        let host = RankHost::gather(&mut rank, &Topology::read().into()).unwrap();
        let kinds = session.open(&mut rank, &host).unwrap().opened.all.count();
        rank.close().unwrap();
        kinds
    });
    assert_eq!(all[0], 1);
}

/// With few ranks, the cost of one more rank hardly shows. With many ranks, encoded numbers are longer.
#[test]
fn the_stated_growth_per_rank_matches_the_code() {
    let rank = |ranks| {
        let more = list_bytes(2 * ranks, ranks / 8) - list_bytes(ranks, ranks / 8);
        more / f64::from(ranks)
    };
    let host = |ranks: u32| {
        let (all, half) = (ranks / 8, ranks / 16);
        (list_bytes(ranks, all) - list_bytes(ranks, half)) / f64::from(all - half)
    };
    let pair = |ranks| pairs_bytes(ranks) / f64::from(ranks);
    let of = |name: &str| {
        let each = |ranks| match name {
            "a rank in the list" => rank(ranks),
            "a host in the list" => host(ranks),
            "around a card that crosses rank 0" => pair(ranks),
            _ => panic!("{name} is not computed"),
        };
        [each(48), each(44_000)]
    };
    let rows = table("growth");
    assert_eq!(rows.len(), 3);
    for row in rows {
        let stated = row[1..].iter().map(|cell| cell.parse().unwrap());
        for (computed, stated) in of(&row[0]).into_iter().zip(stated) {
            assert!(is_close(computed, stated), "{row:?}: {computed}");
        }
    }
}

//! An engine that lies about one operation: verification fails the point and names the place, and without it counters
//! disagree where they can.
#![cfg(test)]

mod far;
mod runs;

use far::LISTS;
use tonnage_machine::CpuChoice;
use tonnage_plan::Plan;
use tonnage_record::{Outcome, Record};
use tonnage_units::Result;

const VERBS: [&str; 4] = ["write", "write-imm", "read", "send"];
const PACINGS: [&str; 4] = ["window = 4", "batch = 4", "ping-pong = true", "rate = 1000"];

/// Operations of each flow in the one trial, each in a slot of its own.
const OPERATIONS: usize = 8;

/// The outcome of a point, in words.
fn outcome(ranks: u32, lines: &str) -> Result<String> {
    Ok(outcomes(ranks, &[lines.to_owned()])?.swap_remove(0))
}

/// Outcomes of points of one run, in words. Where the run ends with one, it is the last.
fn outcomes(ranks: u32, points: &[String]) -> Result<Vec<String>> {
    let tables: String = points.iter().map(|lines| table(lines)).collect();
    let text = format!("name = 'lies'\n{tables}");
    let planned = Plan::from_toml(&text, "lies.toml")?.points(ranks, &LISTS)?;
    let run = runs::records(ranks, planned, LISTS, CpuChoice::None);
    let words = |record: &Record| match &record.outcome {
        Outcome::Measured => "measured".into(),
        Outcome::Skipped { why } => format!("skipped: {why}"),
        Outcome::Failed { why } => format!("failed: {why}"),
    };
    Ok(match run {
        Ok(records) => records.iter().map(words).collect(),
        Err(error) => vec![format!("failed: {error}")],
    })
}

/// Lies about more than one visit of a slot.
const SEVERAL: [&str; 4] = ["'last-visits'", "'exchange'", "'again'", "'short'"];

/// An experiment of a plan.
fn table(lines: &str) -> String {
    let length = if lines.contains("rate") {
        // What is paced takes as long as its operations are due.
        "trial-time = '8ms'"
    } else if lines.contains("traffic-file") {
        // As long as its bytes are moved.
        ""
    } else if lines.contains("batch") {
        "iters = 2"
    } else if SEVERAL.iter().any(|lie| lines.contains(lie)) {
        "iters = 24"
    } else {
        "iters = 8"
    };
    let is_atomic = lines.contains("fetch-add") || lines.contains("compare-swap");
    let size = if is_atomic { 8 } else { 64 };
    format!(
        "[[transfer]]\nengine = 'far'\nsizes = {size}\nfootprint = 512\nstride = 64\ntrials = 1\nwarmup = '0s'\n\
         limit = 'none'\n{length}\n{lines}\n"
    )
}

/// Lies after which nobody waits for what never comes.
const TOLD: [&str; 5] = ["flip", "swap", "truncate", "elsewhere", "double"];

fn lines(lie: &str, verb: &str, pacing: &str, verify: bool) -> String {
    let memory = if verb == "write" { "host" } else { "far" };
    // Where CPUs are busy, later operations of a timetable are given up.
    let at = if pacing.starts_with("rate") {
        0
    } else {
        OPERATIONS / 2
    };
    format!(
        "op = '{verb}'\n{pacing}\nmemory = '{memory}'\nverify = {verify}\n\
         engine-options = {{ lie = '{lie}', at = '{at}' }}"
    )
}

/// The same lines with each operation compared, in memory that it can be compared in.
fn each(lines: &str) -> String {
    lines
        .replace("verify = true", "verify = 'each'")
        .replace("'far'", "'host'")
}

/// Cells that a lie lets end. The last byte of a write is what a ping-pong waits for, so that most lies stop it.
fn cells() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = VERBS
        .into_iter()
        .flat_map(|verb| PACINGS.map(|pacing| (verb, pacing)));
    all.filter(|&(verb, pacing)| verb != "write" || !pacing.starts_with("ping-pong"))
}

fn notifies(verb: &str) -> bool {
    ["write-imm", "send"].contains(&verb)
}

#[test]
fn who_does_not_lie_is_measured() {
    for (verb, pacing) in cells().chain([("write", "ping-pong = true")]) {
        let told = outcome(2, &lines("none", verb, pacing, true)).unwrap();
        assert_eq!(told, "measured", "{verb} {pacing}");
    }
}

#[test]
fn every_lie_about_bytes_fails_the_point_and_names_the_place() {
    for lie in TOLD.into_iter().filter(|&lie| lie != "double") {
        for (verb, pacing) in cells() {
            let told = outcome(2, &lines(lie, verb, pacing, true)).unwrap();
            let named = told.contains("bytes are wrong; at offset ");
            assert!(
                told.starts_with("failed: rank ") && named,
                "{lie} {verb} {pacing}: {told}"
            );
        }
    }
    let told = outcome(2, &lines("flip", "write", "ping-pong = true", true)).unwrap();
    assert!(told.contains("at offset 256"), "{told}");
}

#[test]
fn bytes_that_stay_behind_are_missed() {
    for lie in ["drop", "late"] {
        for (verb, pacing) in cells() {
            // A notification that never comes is waited for, and a read in turn for its completion.
            if !notifies(verb) && !pacing.starts_with("ping-pong") {
                let told = outcome(2, &lines(lie, verb, pacing, true)).unwrap();
                assert!(
                    told.contains("bytes are wrong; at offset "),
                    "{lie} {verb} {pacing}: {told}"
                );
            }
        }
    }
}

#[test]
fn every_lie_about_words_fails_the_point_and_says_which() {
    let lies = [
        ("flip", "an old value came to them twice"),
        ("truncate", "the old value did not come"),
        ("elsewhere", "an old value came to them twice"),
        ("flip-all", "and their initiators were told of"),
        ("drop", "the old value did not come"),
    ];
    for verb in ["fetch-add", "compare-swap"] {
        for pacing in PACINGS {
            let lines = |lie| lines(lie, verb, pacing, true);
            let told = outcome(2, &lines("none")).unwrap();
            assert_eq!(told, "measured", "{verb} {pacing}");
            for (lie, expected) in lies {
                let told = outcome(2, &lines(lie)).unwrap();
                let expected = match (verb, lie) {
                    // What is not what was expected is no success.
                    ("compare-swap", "flip") => "and their initiators were told of",
                    _ => expected,
                };
                assert!(told.contains(expected), "{lie} {verb} {pacing}: {told}");
            }
        }
    }
}

/// A notification too many is one arrival too many, or stands where another should.
fn is_noticed_twice(verb: &str, told: &str) -> bool {
    let parts = match notifies(verb) {
        true => [
            "operations arrived of the",
            "receives that were posted ahead",
            "but not those that were sent",
        ],
        false => ["completed one twice"; 3],
    };
    parts.iter().any(|part| told.contains(part))
}

#[test]
fn what_comes_twice_is_noticed_without_verification() {
    for verify in [false, true] {
        for (verb, pacing) in cells() {
            let told = outcome(2, &lines("double", verb, pacing, verify)).unwrap();
            assert!(is_noticed_twice(verb, &told), "{verb} {pacing}: {told}");
        }
    }
}

#[test]
fn what_comes_twice_is_noticed_by_each_comparison() {
    for (verb, pacing) in cells() {
        let lines = each(&lines("double", verb, pacing, true));
        let told = outcome(2, &lines).unwrap();
        let is_noticed = match verb {
            "write-imm" => told.contains("is of no operation under way"),
            _ => is_noticed_twice(verb, &told),
        };
        assert!(is_noticed, "{verb} {pacing}: {told}");
    }
}

/// A lie about more than one operation, over 24 visits of 8 slots.
fn lines_of_several(lie: &str, verb: &str, verify: &str) -> String {
    let window = if lie == "short" { 1 } else { 4 };
    let at = if lie == "last-visits" { 16 } else { 4 };
    format!(
        "op = '{verb}'\nwindow = {window}\nmemory = 'host'\nverify = {verify}\nengine-options = {{ lie = '{lie}', at = \
         '{at}' }}"
    )
}

/// Lie × operation × mode, as docs/METHODOLOGY.md has the table.
#[test]
fn what_the_last_visit_hides_each_comparison_finds() {
    const MODES: [&str; 3] = ["false", "true", "'each'"];
    let lies = ["none", "last-visits", "exchange", "again", "short"];
    let all = lies.iter().flat_map(|lie| VERBS.map(|verb| (*lie, verb)));
    let cells = all.flat_map(|(lie, verb)| MODES.map(|mode| (lie, verb, mode)));
    // The set of arrivals is known in every mode, and ends the run.
    let is_set = |&(lie, verb, _): &(&str, &str, &str)| (lie, verb) == ("again", "write-imm");
    let (alone, cells): (Vec<_>, Vec<_>) = cells.partition(is_set);
    for (lie, verb, mode) in alone {
        let told = outcome(2, &lines_of_several(lie, verb, mode)).unwrap();
        let expected = match mode {
            "'each'" => "is of no operation under way",
            _ => "but not those that were sent",
        };
        assert!(told.contains(expected), "{mode}: {told}");
    }
    let points: Vec<_> = cells
        .iter()
        .map(|(lie, verb, mode)| lines_of_several(lie, verb, mode))
        .collect();
    let told = outcomes(2, &points).unwrap();
    assert_eq!(told.len(), cells.len(), "{told:#?}");
    let expected = |lie, mode| match (lie, mode) {
        ("none", _) => "measured",
        (_, "'each'") => "of operation ",
        _ => "measured",
    };
    let cells = cells.into_iter().zip(told);
    let wrong = cells.filter(|((lie, _, mode), told)| !told.contains(expected(lie, mode)));
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

/// Every pacing and traffic that the loops have: all operations in the pacings, some of them elsewhere.
#[test]
fn each_operation_is_compared_in_every_pacing_and_traffic() {
    let orders = [
        (
            2,
            "window = 8\naddresses = 'random'\nlocal-addresses = 'sequential'",
        ),
        (2, "window = 8\naddresses = 'fixed'"),
        (2, "window = 4\nqps = 3"),
        (2, "batch = 8\nbatches-in-flight = 2"),
        (2, "window = 4\nworkers = 2"),
    ];
    let words = ["fetch-add", "compare-swap"].map(|verb| (2, "window = 4", verb));
    let pacings = PACINGS
        .iter()
        .flat_map(|lines| VERBS.map(|verb| (2, *lines, verb)));
    let orders = orders.into_iter().zip(VERBS.iter().cycle());
    let orders = orders.map(|((ranks, lines), verb)| (ranks, lines, *verb));
    let traffics = TRAFFICS.into_iter().zip(VERBS.iter().cycle());
    let traffics = traffics.map(|((ranks, lines), verb)| (ranks, lines, *verb));
    let all: Vec<_> = words
        .into_iter()
        .chain(pacings)
        .chain(orders)
        .chain(traffics)
        .collect();
    for ranks in [2, 3] {
        let cells: Vec<_> = all.iter().filter(|cell| cell.0 == ranks).collect();
        let point = |(_, lines, verb): &&(u32, &str, &str)| {
            format!("op = '{verb}'\n{lines}\nmemory = 'host'\nverify = 'each'")
        };
        let points: Vec<_> = cells.iter().map(point).collect();
        let told = outcomes(ranks, &points).unwrap();
        assert_eq!(told.len(), cells.len(), "{told:#?}");
        for (cell, told) in cells.iter().zip(&told) {
            assert_eq!(told, "measured", "{cell:?}");
        }
    }
}

/// Every lie about one operation, which the last visit shows too where it is one.
#[test]
fn each_comparison_finds_the_other_lies_too() {
    let cells = VERBS
        .iter()
        .flat_map(|verb| ["flip", "swap", "truncate", "elsewhere"].map(|lie| (lie, *verb)));
    let cells: Vec<_> = cells
        .chain([
            ("drop", "write"),
            ("drop", "read"),
            ("late", "write"),
            ("late", "read"),
        ])
        .collect();
    let point = |(lie, verb): &(&str, &str)| each(&lines(lie, verb, "window = 4", true));
    let points: Vec<_> = cells.iter().map(point).collect();
    for ((lie, verb), told) in cells.iter().zip(outcomes(2, &points).unwrap()) {
        assert!(
            told.contains("bytes are wrong; at offset"),
            "{lie} {verb}: {told}"
        );
    }
}

/// All at once, since each is waited for.
#[test]
fn a_notification_that_never_comes_is_missed_without_verification() {
    let notifying = ["write-imm", "send"].into_iter();
    let cells = notifying.flat_map(|verb| PACINGS.map(|pacing| (verb, pacing)));
    std::thread::scope(|scope| {
        for ((verb, pacing), lie) in cells.zip(["drop", "late"].into_iter().cycle()) {
            scope.spawn(move || {
                let told = outcome(2, &lines(lie, verb, pacing, false)).unwrap();
                // A ping-pong waits for each, and is ended as one whose path is cut. The others miss one; of how many
                // is up to the time that a trial at a rate has.
                let missed = match pacing.starts_with("ping-pong") {
                    true => told.contains("with rank 1 on here has ended for"),
                    false => (0..100).any(|arrived| {
                        let words =
                            format!(": {arrived} operations arrived of the {} ", arrived + 1);
                        told.contains(&words)
                    }),
                };
                assert!(missed, "{lie} {verb} {pacing}: {told}");
            });
        }
    });
}

/// Slots of one end land in others of the other: a check that paired the slots of one place would call honest bytes
/// wrong, and one that looked at nothing would call lies right.
#[test]
fn lies_are_found_in_every_order() {
    let orders = [
        ("permuted", "permuted"),
        ("permuted", "sequential"),
        ("sequential", "permuted"),
    ];
    for (remote, local) in orders {
        let orders = format!("addresses = '{remote}'\nlocal-addresses = '{local}'");
        for verb in VERBS {
            for lie in ["none", "flip", "swap", "truncate", "elsewhere"] {
                let told = outcome(
                    2,
                    &format!("{orders}\n{}", lines(lie, verb, "batch = 4", true)),
                );
                let told = told.unwrap();
                let right = match lie {
                    "none" => told == "measured",
                    _ => told.contains("bytes are wrong; at offset "),
                };
                assert!(right, "{lie} {verb} {remote} {local}: {told}");
            }
        }
    }
}

#[test]
fn lies_about_a_shared_footprint_are_found() {
    for traffic in ["fan-in", "all-to-all"] {
        for lie in ["none", "flip", "elsewhere"] {
            let lines = lines(lie, "read", "window = 4", true);
            let shared = format!("traffic = '{traffic}'\ntarget-footprint = 'shared'\n{lines}");
            let told = outcome(3, &shared).unwrap();
            let right = match lie {
                "none" => told == "measured",
                _ => told.contains("bytes are wrong; at offset"),
            };
            assert!(right, "{lie} {traffic}: {told}");
        }
    }
}

/// Every traffic, with the ranks that it takes.
const TRAFFICS: [(u32, &str); 8] = [
    (3, "traffic = 'fan-out'"),
    (3, "traffic = 'fan-in'"),
    (3, "traffic = 'all-to-all'"),
    (3, "traffic = 'in-turn'"),
    (3, "traffic = 'shift'\nshift = 2"),
    (3, "traffic = 'matrix'"),
    (
        3,
        "traffic-file = \"\"\"0 512 512\n512 0 512\n512 512 0\"\"\"",
    ),
    (2, "bidirectional = true"),
];

/// Lies about a traffic, each with the verb and the pacing that it is told under: all of them for a stream, some for
/// batches. A traffic file is always a stream, and a notification that never comes is waited for.
fn lies_of(traffic: &str) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut cells = Vec::new();
    for verb in VERBS {
        let silent = |lie: &&str| !notifies(verb) || !["drop", "late"].contains(lie);
        let stream = [
            "none",
            "flip",
            "swap",
            "truncate",
            "elsewhere",
            "drop",
            "late",
        ]
        .into_iter();
        cells.extend(stream.filter(silent).map(|lie| (lie, verb, "window = 4")));
        let batch = ["elsewhere", "drop"]
            .into_iter()
            .filter(|_| !traffic.starts_with("traffic-file"));
        cells.extend(batch.filter(silent).map(|lie| (lie, verb, "batch = 4")));
    }
    cells
}

/// One run for each traffic: a lie about bytes ends its point alone.
#[test]
fn lies_are_found_in_every_traffic() {
    for (ranks, traffic) in TRAFFICS {
        let cells = lies_of(traffic);
        let point = |&(lie, verb, pacing): &(&str, &str, &str)| {
            format!("{traffic}\n{}", lines(lie, verb, pacing, true))
        };
        let points: Vec<String> = cells.iter().map(point).collect();
        let told = outcomes(ranks, &points).unwrap();
        assert_eq!(told.len(), cells.len(), "{traffic}: {told:#?}");
        for (cell, told) in cells.iter().zip(&told) {
            let right = match cell.0 {
                "none" => told == "measured",
                _ => told.contains("bytes are wrong; at offset"),
            };
            assert!(right, "{cell:?} {traffic}: {told}");
        }
    }
}

#[test]
fn what_comes_twice_is_noticed_in_every_traffic() {
    for (ranks, traffic) in TRAFFICS {
        for verb in ["write-imm", "read"] {
            let lines = lines("double", verb, "window = 4", false);
            let told = outcome(ranks, &format!("{traffic}\n{lines}")).unwrap();
            assert!(is_noticed_twice(verb, &told), "{verb} {traffic}: {told}");
        }
    }
}

/// Queue pairs, parts, and both; a lie of each path about its second operation or part.
#[test]
fn lies_are_found_on_every_path_and_in_every_part() {
    for paths in ["qps = 3", "chunk = 16", "qps = 2\nchunk = 24"] {
        for (verb, pacing) in cells().filter(|(_, pacing)| !pacing.starts_with("rate")) {
            if verb == "send" && paths.contains("chunk") {
                continue;
            }
            let cell = format!("{verb} {pacing} {paths}");
            let memory = if verb == "write" { "host" } else { "far" };
            let told = |lie: &str, verify: bool| {
                let lines = format!(
                    "op = '{verb}'\n{pacing}\n{paths}\nmemory = '{memory}'\nverify = {verify}\n\
                     engine-options = {{ lie = '{lie}', at = '1' }}"
                );
                outcome(2, &lines).unwrap()
            };
            assert_eq!(told("none", true), "measured", "{cell}");
            for lie in ["flip", "swap", "truncate", "elsewhere"] {
                let told = told(lie, true);
                assert!(
                    told.contains("bytes are wrong; at offset "),
                    "{lie} {cell}: {told}"
                );
            }
            let told = told("double", false);
            let noticed = match (verb, paths.contains("chunk")) {
                // Of some write-imm a part is left over.
                ("write-imm", true) => ["is left with", "operations arrived of the"],
                ("write-imm", false) => ["arrived of the", "but not those that were sent"],
                ("send", _) => ["arrived of the", "completed one twice"],
                _ => ["completed one twice"; 2],
            };
            let noticed = noticed.iter().any(|part| told.contains(part))
                || told.contains("receives that were posted ahead");
            assert!(noticed, "double {cell}: {told}");
        }
    }
}

//! An engine that lies about one operation. With verification, the point fails and the location is named. Without
//! verification, counts of operations disagree, if the lie affects them.

use tonnage_record::{Outcome, Record};

use crate::far::LISTS;
use crate::runs::over;

const VERBS: [&str; 4] = ["write", "write-imm", "read", "send"];
const PACINGS: [&str; 4] = ["depth = 4", "batch = 4", "ping-pong = true", "rate = 1000"];

/// Number of operations of each flow in the single trial. Each operation has a slot of its own.
const OPERATIONS: usize = 8;

/// Lies that make bytes wrong.
const WRONG: [&str; 4] = ["flip", "swap", "truncate", "elsewhere"];

/// Each traffic, with a number of ranks for it.
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

/// Returns the outcome of a single point as text.
fn outcome(ranks: u32, lines: &str) -> String {
    outcomes(ranks, &[lines.to_owned()]).swap_remove(0)
}

/// Returns the outcomes of a run's points as text. If a point ends the run, its outcome is the only one.
fn outcomes(ranks: u32, points: &[String]) -> Vec<String> {
    let tables: String = points.iter().map(|lines| table(lines)).collect();
    let words = |record: &Record| match &record.outcome {
        Outcome::Measured => "measured".into(),
        Outcome::Skipped { why } => format!("skipped: {why}"),
        Outcome::Failed { why } => format!("failed: {why}"),
    };
    match over(LISTS).tables(ranks, &tables) {
        Ok(records) => records.iter().map(words).collect(),
        Err(error) => vec![format!("failed: {error}")],
    }
}

/// Measures all cells in one run, because a lie about bytes ends only its own point. Cells without a lie must be
/// measured. All others must fail with the right location.
fn check_all(ranks: u32, cells: &[(&str, String)]) {
    let points: Vec<String> = cells.iter().map(|(_, lines)| lines.clone()).collect();
    let text = outcomes(ranks, &points);
    assert_eq!(text.len(), cells.len(), "{text:#?}");
    for ((lie, lines), text) in cells.iter().zip(&text) {
        let right = match *lie {
            "none" => text == "measured",
            _ => text.starts_with("failed: rank ") && text.contains("bytes are wrong; at offset "),
        };
        assert!(right, "{lines}: {text}");
    }
}

/// Returns the text of an experiment of a plan.
fn table(lines: &str) -> String {
    /// Lies that involve several operations on a slot.
    const SEVERAL: [&str; 4] = ["'last-visits'", "'exchange'", "'again'", "'short'"];
    let length = if lines.contains("rate") {
        // A paced trial lasts until all its operations are due.
        "trial-time = '8ms'"
    } else if lines.contains("traffic-file") {
        // A trial with a traffic file ends when its bytes are moved.
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
         bound = 'none'\n{length}\n{lines}\n"
    )
}

fn lines(lie: &str, verb: &str, pacing: &str, verify: bool) -> String {
    // On busy CPUs, the last operations of a timetable may be given up. So the lie concerns the first one.
    let is_paced = pacing.starts_with("rate");
    let at = if is_paced { 0 } else { OPERATIONS / 2 };
    lines_at(at, lie, verb, pacing, verify)
}

/// Returns the lines of a plan with a lie that begins with operation `at`.
fn lines_at(at: usize, lie: &str, verb: &str, pacing: &str, verify: bool) -> String {
    let memory = if verb == "write" { "host" } else { "far" };
    format!(
        "op = '{verb}'\n{pacing}\nmemory = '{memory}'\nverify = {verify}\n\
         engine-options = {{ lie = '{lie}', at = '{at}' }}"
    )
}

/// Returns the same lines, except that every operation is compared, and that memory supports this.
fn each(lines: &str) -> String {
    lines
        .replace("verify = true", "verify = 'each'")
        .replace("'far'", "'host'")
}

/// Returns the cells that complete despite a lie. Ping-pongs of plain writes are left out: they wait for the last byte,
/// so most lies would stop them.
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
fn every_lie_about_bytes_fails_only_its_point_and_names_the_location() {
    let mut all = vec![("none", lines("none", "write", "ping-pong = true", true))];
    for (verb, pacing) in cells() {
        let lies = ["none"].into_iter().chain(WRONG);
        // These two lies are left out if the target would wait for the missing notification, or a ping-pong for the
        // missing read.
        let waits = notifies(verb) || pacing.starts_with("ping-pong");
        let stay = ["drop", "late"].into_iter().filter(|_| !waits);
        all.extend(
            lies.chain(stay)
                .map(|lie| (lie, lines(lie, verb, pacing, true))),
        );
    }
    check_all(2, &all);
    let text = outcome(2, &lines("flip", "write", "ping-pong = true", true));
    assert!(text.contains("at offset 256"), "{text}");
}

#[test]
fn every_lie_about_words_fails_the_point_and_names_the_error() {
    let lies = [
        ("none", "measured"),
        ("flip", "one old value arrived twice"),
        ("truncate", "the old value did not arrive"),
        ("elsewhere", "one old value arrived twice"),
        ("flip-all", "and their initiators received old values for"),
        ("drop", "the old value did not arrive"),
    ];
    for verb in ["fetch-add", "compare-swap"] {
        for pacing in PACINGS {
            for (lie, expected) in lies {
                let text = outcome(2, &lines(lie, verb, pacing, true));
                let expected = match (verb, lie) {
                    // If the old value is not the expected one, the swap does not count as a success.
                    ("compare-swap", "flip") => "and their initiators received old values for",
                    _ => expected,
                };
                assert!(text.contains(expected), "{lie} {verb} {pacing}: {text}");
            }
        }
    }
}

/// Returns whether a second notification was noticed. It counts as one arrival too many, or takes the place of another
/// notification.
fn is_noticed_twice(verb: &str, text: &str) -> bool {
    let parts = if notifies(verb) {
        [
            "operations arrived of the",
            "receives that were posted ahead",
            "but not those that were sent",
        ]
    } else {
        ["completed one twice"; 3]
    };
    parts.iter().any(|part| text.contains(part))
}

#[test]
fn duplicates_are_noticed_with_and_without_verification() {
    for (verb, pacing) in cells() {
        let of = |verify| lines("double", verb, pacing, verify);
        for lines in [of(false), of(true)] {
            let text = outcome(2, &lines);
            assert!(is_noticed_twice(verb, &text), "{lines}: {text}");
        }
        let text = outcome(2, &each(&of(true)));
        let is_noticed = match verb {
            "write-imm" => text.contains("does not belong to any operation in progress"),
            _ => is_noticed_twice(verb, &text),
        };
        assert!(is_noticed, "{verb} {pacing}: {text}");
    }
    for (ranks, traffic) in TRAFFICS {
        for verb in ["write-imm", "read"] {
            let lines = lines("double", verb, "depth = 4", false);
            let text = outcome(ranks, &format!("{traffic}\n{lines}"));
            assert!(is_noticed_twice(verb, &text), "{verb} {traffic}: {text}");
        }
    }
}

/// Returns the lines of a plan with a lie about several operations. There are 24 operations on 8 slots.
fn lines_of_several(lie: &str, verb: &str, verify: &str) -> String {
    let depth = if lie == "short" { 1 } else { 4 };
    let at = if lie == "last-visits" { 16 } else { 4 };
    format!(
        "op = '{verb}'\ndepth = {depth}\nmemory = 'host'\nverify = {verify}\nengine-options = {{ lie = '{lie}', at = \
         '{at}' }}"
    )
}

/// Checks the table in docs/METHODOLOGY.md that has a cell for each lie, operation and mode.
#[test]
fn comparing_each_operation_finds_lies_that_the_last_one_hides() {
    const MODES: [&str; 3] = ["false", "true", "'each'"];
    let lies = ["none", "last-visits", "exchange", "again", "short"];
    let all = lies.iter().flat_map(|lie| VERBS.map(|verb| (*lie, verb)));
    let cells = all.flat_map(|(lie, verb)| MODES.map(|mode| (lie, verb, mode)));
    // The set of arrivals is checked in every mode. A mismatch ends the run, so these cells have a run of their own.
    let is_set = |&(lie, verb, _): &(&str, &str, &str)| (lie, verb) == ("again", "write-imm");
    let (alone, cells): (Vec<_>, Vec<_>) = cells.partition(is_set);
    for (lie, verb, mode) in alone {
        let text = outcome(2, &lines_of_several(lie, verb, mode));
        let expected = match mode {
            "'each'" => "does not belong to any operation in progress",
            _ => "but not those that were sent",
        };
        assert!(text.contains(expected), "{mode}: {text}");
    }
    let points: Vec<_> = cells
        .iter()
        .map(|(lie, verb, mode)| lines_of_several(lie, verb, mode))
        .collect();
    let text = outcomes(2, &points);
    assert_eq!(text.len(), cells.len(), "{text:#?}");
    let expected = |lie, mode| match (lie, mode) {
        ("none", _) => "measured",
        (_, "'each'") => "of operation ",
        _ => "measured",
    };
    let cells = cells.into_iter().zip(text);
    let wrong = cells.filter(|((lie, _, mode), text)| !text.contains(expected(lie, mode)));
    assert_eq!(wrong.collect::<Vec<_>>(), []);
}

/// Checks every pacing and traffic: with all operations for each pacing, and some operations for other traffic. Then
/// checks every lie about one operation. Such lies must be found here too, although comparing only the last operation
/// on each slot can also reveal them.
#[test]
fn each_operation_is_compared_in_every_pacing_and_traffic() {
    let orders = [
        "depth = 8\naccess = 'random'\nlocal-access = 'sequential'",
        "depth = 8\naccess = 'fixed'",
        "depth = 4\nqueue-pairs = 3",
        "batch = 8\nbatches-in-flight = 2",
        "depth = 4\nthreads = 2",
    ];
    let orders = orders.map(|lines| (2, lines)).into_iter();
    let elsewhere = orders.chain(TRAFFICS).zip(VERBS.into_iter().cycle());
    let elsewhere = elsewhere.map(|((ranks, lines), verb)| (ranks, lines, verb));
    let words = ["fetch-add", "compare-swap"].map(|verb| (2, "depth = 4", verb));
    let pacings = PACINGS
        .iter()
        .flat_map(|lines| VERBS.map(|verb| (2, *lines, verb)));
    let all: Vec<_> = elsewhere.chain(words).chain(pacings).collect();
    for ranks in [2, 3] {
        let cells = all.iter().filter(|cell| cell.0 == ranks);
        let honest = cells.map(|(_, lines, verb)| {
            let lines = format!("op = '{verb}'\n{lines}\nmemory = 'host'\nverify = 'each'");
            ("none", lines)
        });
        check_all(ranks, &honest.collect::<Vec<_>>());
    }
    let lies = VERBS
        .into_iter()
        .flat_map(|verb| WRONG.map(|lie| (lie, verb)));
    let stay = ["write", "read"].map(|verb| [("drop", verb), ("late", verb)]);
    let lies = lies.chain(stay.into_iter().flatten());
    let lies = lies.map(|(lie, verb)| (lie, each(&lines(lie, verb, "depth = 4", true))));
    check_all(2, &lies.collect::<Vec<_>>());
}

/// The cases run at the same time, because each of them waits for a timeout.
#[test]
fn a_notification_that_never_comes_is_missed_without_verification() {
    let notifying = ["write-imm", "send"].into_iter();
    let cells = notifying.flat_map(|verb| PACINGS.map(|pacing| (verb, pacing)));
    std::thread::scope(|scope| {
        for ((verb, pacing), lie) in cells.zip(["drop", "late"].into_iter().cycle()) {
            scope.spawn(move || {
                let text = outcome(2, &lines(lie, verb, pacing, false));
                // A ping-pong waits for the missing notification, and fails as if the path were cut. Other pacings end
                // with one arrival too few. In a trial at a rate, the total number of operations varies.
                let missed = if pacing.starts_with("ping-pong") {
                    text.contains("with rank 1 on here has ended for")
                } else {
                    (0..100).any(|arrived| {
                        let words =
                            format!(": {arrived} operations arrived of the {} ", arrived + 1);
                        text.contains(&words)
                    })
                };
                assert!(missed, "{lie} {verb} {pacing}: {text}");
            });
        }
    });
}

/// A slot at one end belongs to a slot with another number at the other end. A check of equal slot numbers would reject
/// correct bytes. Without any check, lies would be accepted.
#[test]
fn lies_are_found_in_every_order() {
    let orders = [
        ("permuted", "permuted"),
        ("permuted", "sequential"),
        ("sequential", "permuted"),
    ];
    let mut cells = Vec::new();
    for (remote, local) in orders {
        let orders = format!("access = '{remote}'\nlocal-access = '{local}'");
        for verb in VERBS {
            let lies = ["none"].into_iter().chain(WRONG);
            let of = |lie| format!("{orders}\n{}", lines(lie, verb, "batch = 4", true));
            cells.extend(lies.map(|lie| (lie, of(lie))));
        }
    }
    check_all(2, &cells);
}

/// Checks all lies about bytes with a stream, and some with batches. A traffic file is always a stream. Missing
/// notifications are left out, because the run would wait for them.
#[test]
fn lies_are_found_in_every_traffic() {
    for (ranks, traffic) in TRAFFICS {
        let mut cells = Vec::new();
        let mut add = |traffic: &str, lie, verb, pacing| {
            let lines = lines(lie, verb, pacing, true);
            cells.push((lie, format!("{traffic}\n{lines}")));
        };
        for verb in VERBS {
            let stay = ["drop", "late"].into_iter().filter(|_| !notifies(verb));
            for lie in ["none"].into_iter().chain(WRONG).chain(stay) {
                add(traffic, lie, verb, "depth = 4");
            }
            if !traffic.starts_with("traffic-file") {
                let stays = (!notifies(verb)).then_some("drop");
                for lie in ["elsewhere"].into_iter().chain(stays) {
                    add(traffic, lie, verb, "batch = 4");
                }
            }
        }
        if traffic.contains("fan-in") || traffic.contains("all-to-all") {
            let shared = format!("{traffic}\ntarget-footprint = 'shared'");
            for lie in ["none", "flip", "elsewhere"] {
                add(&shared, lie, "read", "depth = 4");
            }
        }
        check_all(ranks, &cells);
    }
}

/// Checks several queue pairs, several parts, and both together. On each path, the lie concerns the second operation or
/// part.
#[test]
fn lies_are_found_on_every_path_and_in_every_part() {
    for paths in [
        "queue-pairs = 3",
        "chunk = 16",
        "queue-pairs = 2\nchunk = 24",
    ] {
        for (verb, pacing) in cells().filter(|(_, pacing)| !pacing.starts_with("rate")) {
            if verb == "send" && paths.contains("chunk") {
                continue;
            }
            let of = |lie, verify| {
                let lines = lines_at(1, lie, verb, pacing, verify);
                format!("{paths}\n{lines}")
            };
            let lies = ["none"].into_iter().chain(WRONG);
            check_all(2, &lies.map(|lie| (lie, of(lie, true))).collect::<Vec<_>>());
            let text = outcome(2, &of("double", false));
            let noticed = match (verb, paths.contains("chunk")) {
                // If a part of a write-imm arrives twice, one part is left over.
                ("write-imm", true) => ["parts: some are missing", "operations arrived of the"],
                ("write-imm", false) => ["arrived of the", "but not those that were sent"],
                ("send", _) => ["arrived of the", "completed one twice"],
                _ => ["completed one twice"; 2],
            };
            let noticed = noticed.iter().any(|part| text.contains(part))
                || text.contains("receives that were posted ahead");
            assert!(noticed, "double {verb} {pacing} {paths}: {text}");
        }
    }
}

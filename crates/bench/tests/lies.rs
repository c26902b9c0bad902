//! An engine that lies about one operation: verification fails the point and names the place, and without it counters
//! disagree where they can.

mod far;
mod runs;

use far::LISTS;
use tonnage_machine::CpuChoice;
use tonnage_plan::Plan;
use tonnage_record::Outcome;
use tonnage_units::Result;

const VERBS: [&str; 4] = ["write", "write-imm", "read", "send"];
const PACINGS: [&str; 4] = ["window = 4", "batch = 4", "ping-pong = true", "rate = 1000"];

/// Operations of each flow in the one trial, each in a slot of its own.
const OPERATIONS: usize = 8;

/// The outcome of a point, in words.
fn outcome(ranks: u32, lines: &str) -> Result<String> {
    let length = if lines.contains("rate") {
        // What is paced takes as long as its operations are due.
        "trial-time = '8ms'"
    } else if lines.contains("batch") {
        "iters = 2"
    } else {
        "iters = 8"
    };
    let is_atomic = lines.contains("fetch-add") || lines.contains("compare-swap");
    let size = if is_atomic { 8 } else { 64 };
    let text = format!(
        "name = 'lies'\n[[transfer]]\nengine = 'far'\nsizes = {size}\nfootprint = 512\nstride = 64\ntrials = 1\n\
         warmup = '0s'\nlimit = 'none'\n{length}\n{lines}"
    );
    let planned = Plan::from_toml(&text, "lies.toml")?.points(ranks, &LISTS)?;
    let run = runs::records(ranks, planned, LISTS, CpuChoice::None);
    Ok(match run {
        Ok(records) => match &records[0].outcome {
            Outcome::Measured => "measured".into(),
            Outcome::Skipped { why } => format!("skipped: {why}"),
            Outcome::Failed { why } => format!("failed: {why}"),
        },
        Err(error) => format!("failed: {error}"),
    })
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

#[test]
fn what_comes_twice_is_noticed_without_verification() {
    for verify in [false, true] {
        for (verb, pacing) in cells() {
            let told = outcome(2, &lines("double", verb, pacing, verify)).unwrap();
            // A notification too many is one arrival too many, or stands where another should.
            let parts = match notifies(verb) {
                true => [
                    "operations arrived of the",
                    "receives that were posted ahead",
                    "the immediates of",
                ],
                false => ["completed one twice"; 3],
            };
            let noticed = parts.iter().any(|part| told.contains(part));
            assert!(noticed, "{verb} {pacing}: {told}");
        }
    }
}

#[test]
fn a_notification_that_never_comes_is_missed_without_verification() {
    std::thread::scope(|scope| {
        for (lie, verb) in [("drop", "write-imm"), ("late", "send")] {
            scope.spawn(move || {
                let told = outcome(2, &lines(lie, verb, "window = 4", false)).unwrap();
                assert!(
                    told.contains("7 operations arrived of the 8"),
                    "{lie} {verb}: {told}"
                );
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

#[test]
fn lies_are_found_in_every_traffic() {
    for traffic in ["fan-out", "fan-in", "all-to-all"] {
        for verb in VERBS {
            for lie in ["flip", "elsewhere"] {
                let lines = lines(lie, verb, "window = 4", true);
                let told = outcome(3, &format!("traffic = '{traffic}'\n{lines}")).unwrap();
                assert!(
                    told.contains("bytes are wrong; at offset"),
                    "{lie} {verb} {traffic}: {told}"
                );
            }
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
                ("write-imm", false) => ["arrived of the", "the immediates of"],
                ("send", _) => ["arrived of the", "completed one twice"],
                _ => ["completed one twice"; 2],
            };
            let noticed = noticed.iter().any(|part| told.contains(part))
                || told.contains("receives that were posted ahead");
            assert!(noticed, "double {cell}: {told}");
        }
    }
}

//! The arrows between crates: each may depend on those that docs/ARCHITECTURE.md gives it, and on no other.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Every crate of the workspace, and the ones that it may depend on.
const ROOMS: &[(&str, &[&str])] = &[
    ("libfabric-embedded", &[]),
    ("sys", &["libfabric-embedded"]),
    ("units", &[]),
    ("machine", &["sys", "units"]),
    ("engine", &["sys", "units"]),
    ("engines", &["engine", "machine", "sys", "units"]),
    ("ranks", &["sys", "units"]),
    ("plan", &["engine", "units"]),
    ("record", &["plan", "engine", "machine", "units"]),
    (
        "bench",
        &[
            "record", "plan", "ranks", "machine", "engine", "sys", "units",
        ],
    ),
    ("report", &["record", "plan", "machine", "engine", "units"]),
    ("ior", &["plan", "record", "engine", "units"]),
    (
        "tonnage",
        &[
            "bench", "engine", "engines", "ior", "machine", "plan", "ranks", "record", "report",
            "sys", "units",
        ],
    ),
    ("testbed", &[]),
];

/// Crates of the workspace that each of its crates is built with, asked of cargo. Marked as a test, as lints see it.
#[cfg(test)]
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name_of = |package: &serde_json::Value| room(package["name"].as_str().unwrap());
    let names: BTreeSet<_> = packages.iter().map(name_of).collect();
    let built_with = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        // Tests may reach for more.
        let built = all.iter().filter(|dependency| dependency["kind"] != "dev");
        let rooms = built.map(name_of);
        rooms.filter(|name| names.contains(name)).collect()
    };
    packages
        .iter()
        .map(|package| (name_of(package), built_with(package)))
        .collect()
}

fn room(package: &str) -> String {
    package
        .strip_prefix("tonnage-")
        .unwrap_or(package)
        .to_owned()
}

/// Arrows that are not allowed, and crates that are in one list only.
fn wrong(found: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, arrows) in found {
        let Some(rooms) = allowed.get(name.as_str()) else {
            wrong.push(format!("{name} is not in the table of rooms"));
            continue;
        };
        let strangers = arrows.iter().filter(|to| !rooms.contains(&to.as_str()));
        wrong.extend(strangers.map(|to| format!("{name} → {to}")));
    }
    let gone = ROOMS.iter().filter(|(name, _)| !found.contains_key(*name));
    wrong.extend(gone.map(|(name, _)| format!("{name} is no crate")));
    wrong
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    assert_eq!(wrong(&arrows()), Vec::<String>::new());
}

#[test]
fn an_arrow_that_is_not_in_the_table_is_found() {
    let mut found = arrows();
    found.get_mut("engine").unwrap().insert("plan".to_owned());
    found.insert("attic".to_owned(), BTreeSet::new());
    found.remove("units");
    let expected = [
        "attic is not in the table of rooms",
        "engine → plan",
        "units is no crate",
    ];
    assert_eq!(wrong(&found), expected);
}

//! Dependencies between crates: each crate may depend only on those that the table in docs/ARCHITECTURE.md allows.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::source;

/// Each crate with the crates that it depends on, or may depend on.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The page with the table of crates.
fn page() -> String {
    std::fs::read_to_string(source::root().join("docs/ARCHITECTURE.md")).unwrap()
}

/// Returns the dependencies that the table allows. "all of the above" means the crates of all earlier rows.
fn rooms(page: &str) -> Arrows {
    let table = page
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let mut rooms = Arrows::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let arrows = match cells[3] {
            "all of the above" => rooms.keys().cloned().collect(),
            some => some
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect(),
        };
        rooms.insert(cells[1].trim_matches('`').to_owned(), arrows);
    }
    rooms
}

/// Returns each crate's dependencies within the workspace, as cargo reports them. It is marked as a test, so that lints
/// treat it as one.
#[cfg(test)]
fn arrows() -> Arrows {
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
    // The table does not list the fuzz targets.
    let is_room = |package: &&serde_json::Value| {
        package["manifest_path"]
            .as_str()
            .unwrap()
            .contains("/crates/")
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    let packages: Vec<_> = packages.filter(is_room).collect();
    let name_of = |package: &serde_json::Value| room(package["name"].as_str().unwrap());
    let names: BTreeSet<_> = packages.iter().copied().map(name_of).collect();
    let built_with = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        // Tests may depend on other crates as well.
        let built = all.iter().filter(|dependency| dependency["kind"] != "dev");
        let rooms = built.map(name_of);
        rooms.filter(|name| names.contains(name)).collect()
    };
    packages
        .into_iter()
        .map(|package| (name_of(package), built_with(package)))
        .collect()
}

fn room(package: &str) -> String {
    package
        .strip_prefix("tonnage-")
        .unwrap_or(package)
        .to_owned()
}

/// Returns dependencies that are not allowed, and crates that are missing from the table or from the workspace.
fn wrong(allowed: &Arrows, found: &Arrows) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, arrows) in found {
        let Some(rooms) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table of rooms"));
            continue;
        };
        let strangers = arrows.difference(rooms);
        wrong.extend(strangers.map(|to| format!("{name} → {to}")));
    }
    let gone = allowed.keys().filter(|name| !found.contains_key(*name));
    wrong.extend(gone.map(|name| format!("{name} is not a crate")));
    wrong
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    assert_eq!(wrong(&rooms(&page()), &arrows()), Vec::<String>::new());
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
        "units is not a crate",
    ];
    assert_eq!(wrong(&rooms(&page()), &found), expected);
}

#[test]
fn an_arrow_that_is_taken_out_of_the_page_is_found() {
    let page = page();
    let change = |from: &str, to: &str| {
        assert_eq!(page.matches(from).count(), 1, "{from}");
        wrong(&rooms(&page.replace(from, to)), &arrows())
    };
    let expected = ["ior → record"];
    assert_eq!(
        change(
            "`plan`, `record`, `engine`, `units` |",
            "`plan`, `engine`, `units` |"
        ),
        expected
    );
    assert_eq!(
        change("| `testbed` |", "| `hall` |"),
        [
            "testbed is not in the table of rooms",
            "hall is not a crate"
        ]
    );
}

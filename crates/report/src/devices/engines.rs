//! The page of `tonnage engines`: engines, memories and backends of this program, how to select each, its options and
//! libraries.

use tonnage_engine::backend::{BackendEntry, BackendPart, BackendVariant};
use tonnage_engine::{EngineOption, Entry, Library, Lists, NameVariant};
use tonnage_units::names::nearest;
use tonnage_units::{Error, Result};

use crate::text::entry;

/// Indentation of entries.
const INDENT: usize = 2;

/// Space between a name and its description.
const GAP: usize = 2;

/// A list of one sort of entries.
struct Group {
    heading: &'static str,
    entries: Vec<Listed>,
}

/// An entry of a list.
struct Listed {
    /// Name without its variant.
    name: &'static str,
    /// Names as the command line accepts them, each with its description.
    names: Vec<(String, String)>,
    /// Why the engine cannot be used here.
    missing: Option<String>,
    /// Command-line option that sets the entry's own options.
    asked_by: &'static str,
    options: &'static [EngineOption],
    libraries: &'static [Library],
}

/// Lists the engines, memories and backends of this program, each with its description. `missing` returns the reason
/// why an engine for files cannot be used here.
pub fn list(lists: &Lists, missing: impl Fn(&str) -> Option<String>) -> String {
    let mut page = String::new();
    for group in groups(lists, missing) {
        page += &drawn(group.heading, &group.entries, false);
    }
    page += "\nOptions and libraries of one of them: tonnage engines NAME\n";
    page.trim_start().to_owned()
}

/// Lists one engine, memory or backend with its options and libraries. If entries of several sorts share the name,
/// lists all of them.
///
/// # Errors
/// `Usage` for an unknown name, suggesting the nearest one.
pub fn options(
    lists: &Lists,
    name: &str,
    missing: impl Fn(&str) -> Option<String>,
) -> Result<String> {
    let groups = groups(lists, missing);
    let known: Vec<&str> = groups
        .iter()
        .flat_map(|group| group.entries.iter().map(|entry| entry.name))
        .collect();
    let base = name.split_once(':').map_or(name, |(base, _)| base);
    if !known.contains(&base) {
        return Err(Error::Usage(match nearest(base, &known) {
            Some(near) => {
                format!("there is no engine, memory or backend {name:.40?}: did you mean {near}?")
            }
            None => format!(
                "there is no engine, memory or backend {name:.40?}: `tonnage engines` lists them"
            ),
        }));
    }
    let mut page = String::new();
    for Group { heading, entries } in groups {
        let matching: Vec<Listed> = entries.into_iter().filter(|it| it.name == base).collect();
        if !matching.is_empty() {
            page += &drawn(heading, &matching, true);
        }
    }
    Ok(page.trim_start().to_owned())
}

fn drawn(heading: &str, entries: &[Listed], with_options: bool) -> String {
    let names = entries.iter().flat_map(|one| &one.names);
    let width = names.map(|(name, _)| name.chars().count()).max();
    let width = INDENT + width.unwrap_or(0) + GAP;
    let mut page = format!("\n{heading}\n");
    for one in entries {
        for (name, about) in &one.names {
            page += &entry(&format!("{:INDENT$}{name}", ""), width, about);
        }
        if let Some(why) = &one.missing {
            page += &entry("", width, &format!("missing: {why}"));
        }
        if !with_options {
            continue;
        }
        if one.options.is_empty() && one.libraries.is_empty() {
            page += &entry("", width, "It has no options of its own.");
        }
        let options = one.options.iter();
        page.extend(options.map(|option| option_lines((one.asked_by, option), width)));
        let libraries = one.libraries.iter();
        page.extend(libraries.map(|library| library_lines(library, width)));
    }
    page
}

fn groups(lists: &Lists, missing: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let engines = lists.engines.iter().map(|one| Listed {
        name: one.name,
        names: vec![(with_variant(one.name, one.variant), about(one))],
        missing: None,
        asked_by: "engine-option",
        options: one.options,
        libraries: one.libraries,
    });
    let file_engines = lists.file_engines.iter().map(|one| Listed {
        name: one.name,
        names: vec![(one.name.to_owned(), one.about.to_owned())],
        missing: missing(one.name),
        asked_by: "engine-option",
        options: one.options,
        libraries: one.libraries,
    });
    let memories = lists.memories.iter().map(|one| Listed {
        name: one.name,
        names: vec![(with_variant(one.name, one.variant), one.about.to_owned())],
        missing: None,
        asked_by: "memory-option",
        options: one.options,
        libraries: one.libraries,
    });
    let backends = lists.backends.iter().map(|one| Listed {
        name: one.name,
        names: backend_rows(one),
        missing: None,
        asked_by: "",
        options: &[],
        libraries: one.libraries,
    });
    vec![
        Group {
            heading: "Engines between memories (--engine)",
            entries: engines.collect(),
        },
        Group {
            heading: "Engines for files (--engine of `tonnage file`)",
            entries: file_engines.collect(),
        },
        Group {
            heading: "Memories (--memory)",
            entries: memories.collect(),
        },
        Group {
            heading: "Backends of collectives (--backend)",
            entries: backends.collect(),
        },
    ]
}

/// Names of a backend as `--backend` accepts them, with description and requirements.
fn backend_rows(entry: &BackendEntry) -> Vec<(String, String)> {
    let BackendEntry {
        name, about, needs, ..
    } = entry;
    let whole = format!("{about}. Needs {needs}");
    match entry.variant {
        BackendVariant::Nothing => vec![(name.to_string(), whole)],
        BackendVariant::Engine => vec![(format!("{name}:ENGINE"), whole)],
        BackendVariant::OneOf(parts) => {
            let row = |part: &BackendPart| {
                let body = format!("{about}: {}. Needs {needs}{}", part.about, part.needs);
                (format!("{name}:{}", part.name), body)
            };
            parts.iter().map(row).collect()
        }
    }
}

fn with_variant(name: &str, variant: Option<NameVariant>) -> String {
    match variant {
        Some(variant) if variant.required => format!("{name}:{}", variant.what),
        Some(variant) => format!("{name}[:{}]", variant.what),
        None => name.to_owned(),
    }
}

fn about(entry: &Entry) -> String {
    let Some(variant) = entry.variant else {
        return entry.about.to_owned();
    };
    let list = |where_, values: &[&str]| {
        let names: Vec<String> = values
            .iter()
            .map(|value| format!("{}:{value}", entry.name))
            .collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(". {where_}: {}", names.join(", ")),
        }
    };
    let everywhere = list("Everywhere", variant.everywhere);
    let with_device = list("With a device for it", variant.with_device);
    format!("{}{everywhere}{with_device}", entry.about)
}

/// An option below its engine or memory, with the default first among its values.
fn option_lines((asked_by, option): (&str, &EngineOption), width: usize) -> String {
    let (values, default) = (option.values(), option.default());
    let asked = format!("{:width$}--{asked_by} {}={values}", "", option.name);
    let body = format!("{} [default: {default}]", option.about);
    format!("{asked}\n{}", entry("", width + INDENT, &body))
}

/// A library below its engine, with its default.
fn library_lines(library: &Library, width: usize) -> String {
    let asked = format!("{:width$}--library {}=PATH", "", library.name);
    let body = format!(
        "a library to load; {} names it too [default: {}]",
        library.variable, library.about
    );
    format!("{asked}\n{}", entry("", width + INDENT, &body))
}

#[cfg(test)]
mod tests {
    use tonnage_engines::{FILE_ENGINES, LISTS};

    use super::*;
    use crate::text::WIDTH;

    fn fits(page: &str) -> bool {
        page.lines().all(|line| line.chars().count() <= WIDTH)
    }

    #[test]
    fn all_entries_are_listed_with_their_descriptions() {
        let page = list(&LISTS, |_| None);
        assert!(fits(&page), "{page}");
        insta::assert_snapshot!(page);
    }

    #[test]
    fn every_entry_is_shown_with_its_options_and_libraries() {
        let mut all = String::new();
        for group in groups(&LISTS, |_| None) {
            for entry in &group.entries {
                let page = options(&LISTS, entry.name, |_| None).unwrap();
                assert!(fits(&page), "{page}");
                for (name, _) in &entry.names {
                    assert!(page.contains(&format!("\n  {name}  ")), "{name}: {page}");
                }
                for option in entry.options {
                    let asked = format!("--{} {}={}", entry.asked_by, option.name, option.values());
                    assert!(page.contains(&asked), "no {asked} in {page}");
                }
                for library in entry.libraries {
                    let asked = format!("--library {}=PATH", library.name);
                    assert!(page.contains(&asked), "no {asked} in {page}");
                }
                all += &page;
            }
        }
        insta::assert_snapshot!(all);
    }

    #[test]
    fn a_name_with_a_variant_is_its_entry_and_an_unknown_one_is_refused() {
        let page = |name: &str| options(&LISTS, name, |_| None);
        assert_eq!(page("fabric:tcp").unwrap(), page("fabric").unwrap());
        let refused = page("fabrik").unwrap_err().to_string();
        assert!(refused.ends_with("did you mean fabric?"), "{refused}");
        let refused = page("zzz").unwrap_err().to_string();
        assert!(refused.contains("`tonnage engines`"), "{refused}");
    }

    #[test]
    fn a_missing_engine_for_files_has_its_reason() {
        let first = FILE_ENGINES[0].name;
        let missing = |name: &str| (name == first).then(|| "the kernel refuses it".to_owned());
        assert!(list(&LISTS, missing).contains("missing: the kernel refuses it"));
        assert!(!list(&LISTS, |_| None).contains("missing:"));
    }
}

//! Lists the engines, memories and backends of this program: how to select each, its options and libraries. It ends the
//! page.

use tonnage_engine::backend::{BackendEntry, BackendPart, BackendVariant};
use tonnage_engine::calls::FileEntry;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{EngineOption, Entry, Library, Variant};

use crate::text::entry;

/// Indentation of entries.
const INDENT: usize = 2;

/// Space between a name and its description.
const GAP: usize = 2;

/// An entry of a list.
struct Listed {
    names: Vec<(String, String)>,
    /// Why it cannot be used here.
    missing: Option<String>,
    /// Command-line option that takes its own options.
    asked_by: &'static str,
    options: &'static [EngineOption],
    libraries: &'static [Library],
}

fn list(heading: &str, all: impl Iterator<Item = Listed>) -> String {
    let all: Vec<Listed> = all.collect();
    let names = all.iter().flat_map(|one| &one.names);
    let width = names.map(|(name, _)| name.chars().count()).max();
    let width = INDENT + width.unwrap_or(0) + GAP;
    let mut page = format!("\n{heading}\n");
    for one in &all {
        for (name, about) in &one.names {
            page += &entry(&format!("{:INDENT$}{name}", ""), width, about);
        }
        if let Some(why) = &one.missing {
            page += &entry("", width, &format!("missing: {why}"));
        }
        let options = one.options.iter();
        page.extend(options.map(|option| option_lines((one.asked_by, option), width)));
        let libraries = one.libraries.iter();
        page.extend(libraries.map(|library| library_lines(library, width)));
    }
    page
}

/// Lists the engines that transfer data.
pub fn engines(entries: &[Entry]) -> String {
    let listed = entries.iter().map(|one| Listed {
        names: vec![(with_variant(one.name, one.variant), about(one))],
        missing: None,
        asked_by: "engine-option",
        options: one.options,
        libraries: one.libraries,
    });
    list("Engines of this program", listed)
}

/// Lists the engines for files. `missing` returns the reason why an engine cannot be used here.
pub fn file_engines(entries: &[FileEntry], missing: impl Fn(&str) -> Option<String>) -> String {
    let listed = entries.iter().map(|one| Listed {
        names: vec![(one.name.to_owned(), one.about.to_owned())],
        missing: missing(one.name),
        asked_by: "engine-option",
        options: one.options,
        libraries: one.libraries,
    });
    list("Engines for files", listed)
}

/// Lists the kinds of memory.
pub fn memories(entries: &[MemoryEntry]) -> String {
    let listed = entries.iter().map(|one| Listed {
        names: vec![(with_variant(one.name, one.variant), one.about.to_owned())],
        missing: None,
        asked_by: "memory-option",
        options: one.options,
        libraries: one.libraries,
    });
    list("Memories", listed)
}

/// Lists the backends for collectives.
pub fn backends(entries: &[BackendEntry]) -> String {
    let listed = entries.iter().map(|one| Listed {
        names: backend_rows(one),
        missing: None,
        asked_by: "",
        options: &[],
        libraries: one.libraries,
    });
    list("Backends of collectives", listed)
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

fn with_variant(name: &str, variant: Option<Variant>) -> String {
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
    use tonnage_engines::memory::MEMORIES;
    use tonnage_engines::{BACKENDS, ENGINES, FILE_ENGINES};

    use super::*;
    use crate::text::WIDTH;

    /// Checks that a page shows each name with its options and libraries, and fits the screen width.
    fn check(page: &str, one: (&str, &str), options: &[EngineOption], libraries: &[Library]) {
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH));
        let (name, asked_by) = one;
        assert!(page.contains(&format!("\n  {name}  ")), "{name}: {page}");
        for option in options {
            let asked = format!("--{asked_by} {}={}", option.name, option.values());
            assert!(page.contains(&asked), "no {asked} in {page}");
        }
        for library in libraries {
            let asked = format!("--library {}=PATH", library.name);
            assert!(page.contains(&asked), "no {asked} in {page}");
        }
    }

    #[test]
    fn every_engine_and_memory_is_listed_with_its_options() {
        let page = engines(ENGINES);
        for it in ENGINES {
            let name = with_variant(it.name, it.variant);
            check(&page, (&name, "engine-option"), it.options, it.libraries);
        }
        insta::assert_snapshot!("every_engine_and_option_is_listed_within_the_width", page);
        let page = memories(MEMORIES);
        for it in MEMORIES {
            let name = with_variant(it.name, it.variant);
            check(&page, (&name, "memory-option"), it.options, it.libraries);
            assert!(page.contains(&it.about[..20]), "{page}");
        }
    }

    #[test]
    fn every_backend_is_listed_within_the_width() {
        let page = backends(BACKENDS);
        let fits = |line: &str| line.chars().count() <= WIDTH;
        assert!(page.lines().all(fits), "{page}");
        insta::assert_snapshot!(page);
    }

    #[test]
    fn every_engine_for_files_is_listed_and_one_that_is_missing_with_the_reason() {
        let page = file_engines(FILE_ENGINES, |_| None);
        for it in FILE_ENGINES {
            check(&page, (it.name, "engine-option"), it.options, it.libraries);
        }
        assert!(!page.contains("missing"), "{page}");
        let missing = file_engines(FILE_ENGINES, |name| {
            (name == FILE_ENGINES[0].name).then(|| "the kernel refuses it".to_owned())
        });
        assert!(missing.contains("missing: the kernel refuses it"));
    }
}

//! The engines, memories and backends of this program, which end the page: how each is asked for, its options and its
//! libraries.

use tonnage_engine::backend::{BackendEntry, BackendPart, BackendVariant};
use tonnage_engine::calls::FileEntry;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{EngineOption, Entry, Library, Variant};

use crate::text::entry;

/// Columns before everything.
const INDENT: usize = 2;

/// Between a name and what it is.
const GAP: usize = 2;

/// Lists the engines that move bytes.
pub fn engines(entries: &[Entry]) -> String {
    let width = entries.iter().map(|entry| name(entry).chars().count());
    let width = INDENT + width.max().unwrap_or(0) + GAP;
    let mut page = "\nEngines of this program\n".to_owned();
    for one in entries {
        page += &entry(&format!("{:INDENT$}{}", "", name(one)), width, &about(one));
        for option in one.options {
            page += &option_lines(("engine-option", option), width);
        }
        for library in one.libraries {
            page += &library_lines(library, width);
        }
    }
    page
}

/// Lists the engines that read and write files; `missing` has the reason why one cannot be used here.
pub fn file_engines(entries: &[FileEntry], missing: impl Fn(&str) -> Option<String>) -> String {
    let width = entries.iter().map(|entry| entry.name.chars().count());
    let width = INDENT + width.max().unwrap_or(0) + GAP;
    let mut page = "\nEngines for files\n".to_owned();
    for one in entries {
        let head = format!("{:INDENT$}{}", "", one.name);
        page += &entry(&head, width, one.about);
        if let Some(why) = missing(one.name) {
            page += &entry("", width, &format!("missing: {why}"));
        }
        for option in one.options {
            page += &option_lines(("engine-option", option), width);
        }
        for library in one.libraries {
            page += &library_lines(library, width);
        }
    }
    page
}

/// Lists the memories that bytes can be in.
pub fn memories(entries: &[MemoryEntry]) -> String {
    let names = entries
        .iter()
        .map(|one| with_variant(one.name, one.variant));
    let names: Vec<String> = names.collect();
    let width = names.iter().map(|name| name.chars().count()).max();
    let width = INDENT + width.unwrap_or(0) + GAP;
    let mut page = "\nMemories\n".to_owned();
    for (one, name) in entries.iter().zip(names) {
        page += &entry(&format!("{:INDENT$}{name}", ""), width, one.about);
        for option in one.options {
            page += &option_lines(("memory-option", option), width);
        }
        for library in one.libraries {
            page += &library_lines(library, width);
        }
    }
    page
}

/// Lists the backends of collectives.
pub fn backends(entries: &[BackendEntry]) -> String {
    let rows: Vec<(String, String)> = entries.iter().flat_map(backend_rows).collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max();
    let width = INDENT + width.unwrap_or(0) + GAP;
    let mut page = "\nBackends of collectives\n".to_owned();
    for one in entries {
        for (name, about) in backend_rows(one) {
            page += &entry(&format!("{:INDENT$}{name}", ""), width, &about);
        }
        for library in one.libraries {
            page += &library_lines(library, width);
        }
    }
    page
}

/// Names of a backend as `--backend` takes them, each with its meaning and its needs.
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

/// Name as `--engine` takes it.
fn name(entry: &Entry) -> String {
    with_variant(entry.name, entry.variant)
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

/// An option below its engine or memory, the default first among its values.
fn option_lines((asked_by, option): (&str, &EngineOption), width: usize) -> String {
    let (values, default) = (option.values(), option.default());
    let asked = format!("{:width$}--{asked_by} {}={values}", "", option.name);
    let body = format!("{} [default: {default}]", option.about);
    format!("{asked}\n{}", entry("", width + INDENT, &body))
}

/// A library below its engine, and the one that is taken where nobody names one.
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

    #[test]
    fn every_engine_and_option_is_listed_within_the_width() {
        let page = engines(ENGINES);
        assert!(
            page.lines().all(|line| line.chars().count() <= WIDTH),
            "{page}"
        );
        for entry in ENGINES {
            assert!(page.contains(&format!("\n  {}  ", name(entry))), "{page}");
            for option in entry.options {
                let asked = format!("--engine-option {}={}", option.name, option.values());
                assert!(page.contains(&asked), "no {asked} in {page}");
            }
            for library in entry.libraries {
                let asked = format!("--library {}=PATH", library.name);
                assert!(page.contains(&asked), "no {asked} in {page}");
            }
        }
        insta::assert_snapshot!(page);
    }

    #[test]
    fn every_backend_is_listed_within_the_width() {
        let page = backends(BACKENDS);
        let fits = |line: &str| line.chars().count() <= WIDTH;
        assert!(page.lines().all(fits), "{page}");
        insta::assert_snapshot!(page);
    }

    #[test]
    fn every_memory_is_listed_within_the_width() {
        let page = memories(MEMORIES);
        let fits = |line: &str| line.chars().count() <= WIDTH;
        assert!(page.lines().all(fits), "{page}");
        for entry in MEMORIES {
            let begin = format!(
                "\n  {:11}  {}",
                with_variant(entry.name, entry.variant),
                &entry.about[..20]
            );
            assert!(page.contains(&begin), "{page}");
            for option in entry.options {
                let asked = format!("--memory-option {}={}", option.name, option.values());
                assert!(page.contains(&asked), "no {asked} in {page}");
            }
            for library in entry.libraries {
                let asked = format!("--library {}=PATH", library.name);
                assert!(page.contains(&asked), "no {asked} in {page}");
            }
        }
    }

    #[test]
    fn every_engine_for_files_is_listed_within_the_width() {
        let page = file_engines(FILE_ENGINES, |_| None);
        let missing = file_engines(FILE_ENGINES, |name| {
            (name == FILE_ENGINES[0].name).then(|| "the kernel refuses it".to_owned())
        });
        assert!(missing.contains("missing: the kernel refuses it"));
        assert!(!page.contains("missing"), "{page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= WIDTH),
            "{page}"
        );
        for entry in FILE_ENGINES {
            let begin = format!("\n  {}  ", entry.name);
            assert!(page.contains(&begin), "{page}");
            for option in entry.options {
                assert!(page.contains(&format!("--engine-option {}=", option.name)));
            }
        }
    }
}

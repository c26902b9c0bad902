//! Lists of everything that a program can measure with. The program passes these lists down; code that receives them
//! knows no row by name.

use tonnage_units::names::{nearest, quote, unknown_name_error};
use tonnage_units::{Error, Result};

use crate::backend::{self, BackendEntry, BackendVariant};
use crate::calls::FileEntry;
use crate::memory::MemoryEntry;
use crate::name::{NameVariant, split_name};
use crate::{Entry, Library, Lifecycle};

/// The engines, memories and backends of a program.
#[derive(Clone, Copy)]
pub struct Lists {
    /// Engines that move bytes between memories.
    pub engines: &'static [Entry],
    /// Engines that read and write files.
    pub file_engines: &'static [FileEntry],
    /// Memories; the first is the default.
    pub memories: &'static [MemoryEntry],
    /// Backends of collectives.
    pub backends: &'static [BackendEntry],
}

impl Lists {
    /// Finds the row of an engine by its name in a plan, with or without a variant.
    ///
    /// # Errors
    /// `Usage` for a name that is not in the list, or for a variant that is missing or not allowed.
    pub fn engine(&self, engine: &str) -> Result<&'static Entry> {
        find(self.engines, engine)
    }

    /// Finds the row of an engine for files by its name in a plan.
    ///
    /// # Errors
    /// `Usage` for a name that is not in the list, suggesting the nearest one.
    pub fn file_engine(&self, engine: &str) -> Result<&'static FileEntry> {
        let names: Vec<_> = self.file_engines.iter().map(|entry| entry.name).collect();
        let mut entries = self.file_engines.iter();
        let known = entries.find(|entry| entry.name == engine);
        known.ok_or_else(|| unknown_name_error("engine", engine, &names))
    }

    /// Finds the row of a backend of collectives by its name in a plan, and returns it with the text after the colon.
    ///
    /// # Errors
    /// `Usage` for a name that is not in the list, or for a variant that is missing, unknown or not allowed.
    pub fn backend<'a>(&self, name: &'a str) -> Result<(&'static BackendEntry, &'a str)> {
        backend::find(self.backends, name)
    }

    /// Names of the backends that can run over this engine. The engine need not be in the list of engines.
    pub fn native_backends(&self, engine: &str) -> Vec<String> {
        let all = self.backends.iter();
        all.filter(|entry| entry.variant == BackendVariant::Engine)
            .map(|entry| format!("{}:{engine}", entry.name))
            .collect()
    }

    /// Backends to try if the user names none: backends over an engine, with every engine that exists on all machines;
    /// backends of a single library; and the usual variants of backends with several libraries.
    ///
    /// Backends that need a launcher are included only if `launched` is true. It means that a launcher started the
    /// ranks and informed each of them about the others. A listed backend may still be missing on this machine.
    pub fn usual_backends(&self, launched: bool) -> Vec<String> {
        let engines = || {
            let all = self.engines.iter();
            all.filter(|engine| engine.carries_collectives())
                .flat_map(Entry::names_everywhere)
        };
        let of = |entry: &BackendEntry| {
            let behind = |text: String| format!("{}:{text}", entry.name);
            match entry.variant {
                BackendVariant::Nothing => vec![entry.name.to_owned()],
                BackendVariant::Engine => engines().map(behind).collect(),
                BackendVariant::OneOf(_) => {
                    let usual = entry.usual.iter();
                    usual.map(|text| behind((*text).to_owned())).collect()
                }
            }
        };
        let all = self.backends.iter();
        all.filter(|entry| launched || !entry.needs_launcher)
            .flat_map(of)
            .collect()
    }

    /// Finds the row of a memory by its name in a plan, with or without a variant.
    ///
    /// # Errors
    /// `Usage` for a name that is not in the list, or for a variant that is missing or not allowed.
    pub fn memory(&self, memory: &str) -> Result<&'static MemoryEntry> {
        find_named("memory", self.memories, memory, |entry| {
            (entry.name, entry.variant)
        })
    }

    /// Whether a name in a plan is neither in the list of memories nor a likely typo of a listed name.
    pub fn lacks_memory(&self, memory: &str) -> bool {
        let (name, _) = split_name(memory);
        let names: Vec<_> = self.memories.iter().map(|entry| entry.name).collect();
        !name.is_empty() && !names.contains(&name) && nearest(name, &names).is_none()
    }

    /// Finds the row of a memory by its name in a point. The name may be missing from this list: optional experiments
    /// can use memories that only some versions have.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a name that is not in the list.
    pub fn memory_of_point(&self, memory: &str) -> Result<&'static MemoryEntry> {
        if self.lacks_memory(memory) {
            let names: Vec<_> = self.memories.iter().map(|entry| entry.name).collect();
            return Err(Error::Unavailable {
                what: format!("memory {}", quote(memory)),
                why: "this version of tonnage has no memory of that name".to_owned(),
                how: format!("It has {}", names.join(", ")),
            });
        }
        self.memory(memory)
    }

    /// Lifecycle hooks of all engines and backends.
    pub fn lifecycles(&self) -> impl Iterator<Item = &'static Lifecycle> {
        let engines = self.engines.iter().map(|entry| &entry.lifecycle);
        let file_engines = self.file_engines.iter().map(|entry| &entry.lifecycle);
        let backends = self.backends.iter().map(|entry| &entry.lifecycle);
        engines.chain(file_engines).chain(backends)
    }

    /// Libraries that `--library` can choose, each once.
    pub fn libraries(&self) -> impl Iterator<Item = &'static Library> {
        let engines = self.engines.iter().flat_map(|entry| entry.libraries);
        let file_engines = self.file_engines.iter().flat_map(|entry| entry.libraries);
        let memories = self.memories.iter().flat_map(|entry| entry.libraries);
        let backends = self.backends.iter().flat_map(|entry| entry.libraries);
        let mut names = Vec::new();
        let all = engines.chain(file_engines).chain(memories).chain(backends);
        all.filter(move |library| {
            let is_new = !names.contains(&library.name);
            names.push(library.name);
            is_new
        })
    }

    /// The environment variables that choose the libraries' files.
    pub fn variables(&self) -> Vec<&'static str> {
        self.libraries().map(|library| library.variable).collect()
    }

    /// The error for an experiment that names no engine.
    pub fn no_engine(&self) -> Error {
        let names: Vec<_> = self.engines.iter().map(|entry| entry.name).collect();
        Error::Usage(format!(
            "engine is missing: choose one of {}",
            names.join(", ")
        ))
    }

    /// The memory that is used if none is named.
    pub fn default_memory(&self) -> &'static str {
        self.memories.first().map_or("", |entry| entry.name)
    }
}

/// Finds the row of an engine by its name in a plan.
///
/// # Errors
/// `Usage` for a name that is not in the list, or for a variant that is missing or not allowed.
pub fn find<'a>(engines: &'a [Entry], engine: &str) -> Result<&'a Entry> {
    find_named("engine", engines, engine, |entry| {
        (entry.name, entry.variant)
    })
}

fn find_named<'a, E>(
    what: &str,
    entries: &'a [E],
    asked: &str,
    of: impl Fn(&E) -> (&'static str, Option<NameVariant>),
) -> Result<&'a E> {
    let (name, variant) = split_name(asked);
    let Some(entry) = entries.iter().find(|entry| of(entry).0 == name) else {
        let names: Vec<_> = entries.iter().map(|entry| of(entry).0).collect();
        return Err(unknown_name_error(what, asked, &names));
    };
    match (of(entry).1, variant) {
        (None, "") if !asked.contains(':') => Ok(entry),
        (None, _) => Err(Error::Usage(format!(
            "{what} {name} takes nothing after a colon: use --{what} {name}"
        ))),
        (Some(kind), "") if kind.required => Err(Error::Usage(format!(
            "{what} {name} needs a {} after a colon, such as {}; `tonnage devices` lists this machine's",
            kind.what.to_lowercase(),
            kind.examples(name).join(" or ")
        ))),
        (Some(_), _) => Ok(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Request;
    use crate::{Lifecycle, Verb};

    const fn engine(name: &'static str, variant: Option<NameVariant>) -> Entry {
        Entry {
            name,
            about: "",
            variant,
            options: &[],
            has_devices: false,
            libraries: &[],
            lifecycle: Lifecycle::NONE,
            device_memory: None,
            one_process: false,
            verbs: &Verb::ALL,
            ordered_writes: true,
            moves_bytes: true,
            open: |_| Ok(Vec::new()),
        }
    }

    const fn memory(name: &'static str, variant: Option<NameVariant>) -> MemoryEntry {
        MemoryEntry {
            name,
            about: "",
            variant,
            host_addressable: true,
            takes_gpu: false,
            options: &[],
            allocate: |_: &Request<'_>| Err(Error::Failed("only a name".to_owned())),
            available: |_| None,
            device: |_| None,
            libraries: &[],
        }
    }

    const MANY: NameVariant = NameVariant {
        what: "KIND",
        everywhere: &["a", "b;c"],
        with_device: &[],
        one_sided: &[],
        required: true,
    };

    const DEVICE: NameVariant = NameVariant {
        what: "DEVICE",
        everywhere: &[],
        with_device: &[],
        one_sided: &[],
        required: false,
    };

    static LISTS: Lists = Lists {
        engines: &[engine("plain", None), engine("many", Some(MANY))],
        file_engines: &[],
        memories: &[memory("host", None), memory("gpu", Some(DEVICE))],
        backends: &[],
    };

    #[test]
    fn a_variant_is_accepted_if_the_engine_has_them() {
        assert_eq!(LISTS.engine("plain").unwrap().name, "plain");
        assert_eq!(LISTS.engine("many:b;c").unwrap().name, "many");
        assert_eq!(split_name("many:b;c"), ("many", "b;c"));
        let refused = |engine: &str| LISTS.engine(engine).err().unwrap().to_string();
        assert!(refused("plain:x").contains("use --engine plain"));
        assert!(refused("plain:").contains("use --engine plain"));
        assert!(refused("many").contains("many:a or many:b;c"));
        assert!(refused("many:").contains("many:a"));
        assert!(refused("manny").contains("many"));
    }

    #[test]
    fn memory_names_work_like_engine_names() {
        assert_eq!(LISTS.default_memory(), "host");
        assert_eq!(LISTS.memory("gpu").unwrap().name, "gpu");
        assert_eq!(LISTS.memory("gpu:1").unwrap().name, "gpu");
        let refused = |memory: &str| LISTS.memory(memory).err().unwrap().to_string();
        assert!(refused("host:0").contains("use --memory host"));
        assert!(refused("hots").contains("did you mean \"host\"?"));
    }

    #[test]
    fn an_unknown_memory_is_distinguished_from_a_typo() {
        for (name, lacks) in [
            ("cuda", true),
            ("cuda:1", true),
            ("hots", false),
            ("host:0", false),
            ("", false),
        ] {
            assert_eq!(LISTS.lacks_memory(name), lacks, "{name}");
            let found = LISTS.memory_of_point(name).err();
            let lacking = matches!(found, Some(Error::Unavailable { .. }));
            assert_eq!(lacking, lacks, "{name}");
        }
        assert_eq!(LISTS.memory_of_point("gpu:1").unwrap().name, "gpu");
    }
}

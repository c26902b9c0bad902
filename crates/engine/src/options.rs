//! Options of engines and memories: the accepted values, and checks before any rank starts.

use std::collections::BTreeMap;

use tonnage_units::names::{nearest, quote};
use tonnage_units::{Error, Result};

/// Options of an engine or of memories, by name. Points and records hold only the values that differ from the defaults.
pub type EngineOptions = BTreeMap<String, String>;

/// One option of an engine, set by `--engine-option NAME=VALUE`, or of a memory, set by `--memory-option`.
#[derive(Debug, Clone, Copy)]
pub struct EngineOption {
    /// Name on the command line and in plans.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: OptionKind,
    /// The engine variants on which the option has an effect; empty for all. Always empty for a memory.
    pub variants: &'static [&'static str],
    /// One line for help.
    pub about: &'static str,
}

/// The values that an option accepts.
#[derive(Debug, Clone, Copy)]
pub enum OptionKind {
    /// One of these values, the default first.
    Choice(&'static [&'static str]),
    /// One of these values, the default first. All but the default are specific to GPU memory: they are refused if
    /// neither end has GPU memory. `tune` does not try them unless asked to.
    OfGpuMemory(&'static [&'static str]),
    /// A whole number within inclusive bounds.
    Number {
        /// The default value.
        default: u64,
        /// Lower bound.
        min: u64,
        /// Upper bound.
        max: u64,
    },
    /// A whole number within inclusive bounds, or one of several words.
    NumberOr {
        /// The accepted words.
        words: &'static [&'static str],
        /// The default value: a number, or the first word if `None`.
        default: Option<u64>,
        /// Lower bound.
        min: u64,
        /// Upper bound.
        max: u64,
    },
}

impl EngineOption {
    /// An option with these values, the default first, on all variants.
    pub const fn choice(
        name: &'static str,
        values: &'static [&'static str],
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind: OptionKind::Choice(values),
            variants: &[],
            about,
        }
    }

    /// An option with a whole number within inclusive bounds, on all variants.
    pub const fn bounded(
        name: &'static str,
        default: u64,
        [min, max]: [u64; 2],
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind: OptionKind::Number { default, min, max },
            variants: &[],
            about,
        }
    }

    /// Restricts the option to these variants.
    pub const fn on(self, variants: &'static [&'static str]) -> Self {
        Self { variants, ..self }
    }

    /// The default value.
    pub fn default(&self) -> String {
        match self.kind {
            OptionKind::Choice(values) | OptionKind::OfGpuMemory(values) => {
                values.first().copied().unwrap_or_default().to_owned()
            }
            OptionKind::Number { default, .. }
            | OptionKind::NumberOr {
                default: Some(default),
                ..
            } => default.to_string(),
            OptionKind::NumberOr { words, .. } => {
                words.first().copied().unwrap_or_default().to_owned()
            }
        }
    }

    /// The requested value, or the default.
    pub fn value(&self, asked: &EngineOptions) -> String {
        asked
            .get(self.name)
            .cloned()
            .unwrap_or_else(|| self.default())
    }

    /// The requested number, or the default; 0 if the option has no number.
    pub fn number(&self, asked: &EngineOptions) -> u64 {
        self.value(asked).parse().unwrap_or(0)
    }

    /// Whether the requested value is specific to GPU memory.
    pub fn needs_gpu_memory(&self, asked: &EngineOptions) -> bool {
        matches!(self.kind, OptionKind::OfGpuMemory(_)) && self.value(asked) != self.default()
    }

    /// The accepted values for help and messages: "auto|off", or "1 to 128".
    pub fn values(&self) -> String {
        match self.kind {
            OptionKind::Choice(values) | OptionKind::OfGpuMemory(values) => values.join("|"),
            OptionKind::Number { min, max, .. } => format!("{min} to {max}"),
            OptionKind::NumberOr {
                words, min, max, ..
            } => format!("{}|{min} to {max}", words.join("|")),
        }
    }

    /// Returns the value in its canonical form, if the option accepts it.
    fn checked(&self, value: &str) -> Option<String> {
        match self.kind {
            OptionKind::Choice(values) | OptionKind::OfGpuMemory(values) => {
                values.contains(&value).then(|| value.to_owned())
            }
            OptionKind::NumberOr { words, .. } if words.contains(&value) => Some(value.to_owned()),
            OptionKind::Number { min, max, .. } | OptionKind::NumberOr { min, max, .. } => {
                let number: u64 = value.parse().ok()?;
                (min..=max).contains(&number).then(|| number.to_string())
            }
        }
    }
}

/// The owner of the checked options, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionsOwner<'a> {
    /// An engine of this name.
    Engine(&'a str),
    /// A memory of this name.
    Memory(&'a str),
}

impl OptionsOwner<'_> {
    /// The name of the command-line option.
    fn option(self) -> &'static str {
        match self {
            Self::Engine(_) => "engine-option",
            Self::Memory(_) => "memory-option",
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Engine(name) | Self::Memory(name) => name,
        }
    }
}

impl std::fmt::Display for OptionsOwner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(name) => write!(f, "engine {name}"),
            Self::Memory(name) => write!(f, "memory {name}"),
        }
    }
}

pub(crate) fn find_option<'a>(known: &'a [EngineOption], name: &str) -> Option<&'a EngineOption> {
    known.iter().find(|option| option.name == name)
}

/// Checks options against those of an engine or of a memory; see [`Entry::check_options`](crate::Entry::check_options).
///
/// # Errors
/// The same as [`Entry::check_options`](crate::Entry::check_options).
pub fn check_options(
    of: OptionsOwner<'_>,
    known: &[EngineOption],
    asked: &EngineOptions,
    variant: &str,
) -> Result<EngineOptions> {
    let mut options = EngineOptions::new();
    for (name, value) in asked {
        let option = find_option(known, name).ok_or_else(|| unknown_option(of, known, name))?;
        let Some(value) = option.checked(value) else {
            return Err(Error::Usage(format!(
                "--{} {name}={value}: {of} takes {name}={}",
                of.option(),
                option.values()
            )));
        };
        let lowest = variant.split(';').next().unwrap_or(variant);
        if !option.variants.is_empty() && !option.variants.contains(&lowest) {
            let engine = of.name();
            return Err(Error::Usage(format!(
                "--engine-option {name}={value} is for {engine}:{} and has no effect on {engine}:{variant}: leave it out",
                option.variants.join(&format!(" and {engine}:"))
            )));
        }
        if value != option.default() {
            options.insert(name.clone(), value);
        }
    }
    Ok(options)
}

fn unknown_option(of: OptionsOwner<'_>, known: &[EngineOption], name: &str) -> Error {
    let names: Vec<_> = known.iter().map(|option| option.name).collect();
    let hint = match (nearest(name, &names), names.as_slice()) {
        (_, []) => format!("it has none: leave --{} out", of.option()),
        (Some(near), _) => format!("did you mean {near}? it has {}", names.join(", ")),
        (None, _) => format!("it has {}", names.join(", ")),
    };
    Error::Usage(format!("{of} has no option {}: {hint}", quote(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[EngineOption] = &[
        EngineOption {
            name: "path",
            kind: OptionKind::Choice(&["slow", "fast"]),
            variants: &["a", "c"],
            about: "",
        },
        EngineOption {
            name: "retry",
            kind: OptionKind::Number {
                default: 3,
                min: 0,
                max: 6,
            },
            variants: &[],
            about: "",
        },
    ];

    fn on(variant: &str, name: &str, value: &str) -> Result<EngineOptions> {
        let options = EngineOptions::from([(name.to_owned(), value.to_owned())]);
        check_options(OptionsOwner::Engine("many"), OPTIONS, &options, variant)
    }

    #[test]
    fn options_are_checked_and_defaults_left_out() {
        let asked = |name: &str, value: &str| on("a", name, value);
        assert!(asked("path", "slow").unwrap().is_empty());
        assert_eq!(asked("path", "fast").unwrap()["path"], "fast");
        assert_eq!(on("a;x", "path", "fast").unwrap()["path"], "fast");
        let wrong = on("b;a", "path", "fast").unwrap_err().to_string();
        assert!(
            wrong.contains("is for many:a and many:c and has no effect on many:b;a"),
            "{wrong}"
        );
        let wrong = asked("path", "other").unwrap_err().to_string();
        assert!(wrong.contains("slow|fast"), "{wrong}");
        let wrong = asked("pat", "fast").unwrap_err().to_string();
        assert!(wrong.contains("did you mean path"), "{wrong}");
    }

    #[test]
    fn a_default_value_never_needs_gpu_memory() {
        let option = EngineOption {
            kind: OptionKind::OfGpuMemory(&["auto", "file"]),
            ..OPTIONS[0]
        };
        let asked = |value: &str| EngineOptions::from([("path".to_owned(), value.to_owned())]);
        assert!(option.needs_gpu_memory(&asked("file")));
        assert!(!option.needs_gpu_memory(&asked("auto")));
        assert!(!option.needs_gpu_memory(&EngineOptions::new()));
        assert!(!OPTIONS[0].needs_gpu_memory(&asked("fast")));
    }

    #[test]
    fn messages_about_memory_options_name_the_memory() {
        let asked = |name: &str, value: &str| {
            let options = EngineOptions::from([(name.to_owned(), value.to_owned())]);
            let known = &OPTIONS[1..];
            check_options(OptionsOwner::Memory("far"), known, &options, "").unwrap_err()
        };
        let message = asked("retry", "7").to_string();
        assert_eq!(
            message,
            "--memory-option retry=7: memory far takes retry=0 to 6"
        );
        let message = asked("rety", "1").to_string();
        assert!(
            message.starts_with("memory far has no option \"rety\": did"),
            "{message}"
        );
    }

    #[test]
    fn a_number_may_be_a_word() {
        let option = |default| EngineOption {
            name: "times",
            kind: OptionKind::NumberOr {
                words: &["forever", "never"],
                default,
                min: 1,
                max: 6,
            },
            variants: &[],
            about: "",
        };
        assert_eq!(option(None).default(), "forever");
        assert_eq!(option(Some(3)).default(), "3");
        assert_eq!(option(None).values(), "forever|never|1 to 6");
        let known = [option(Some(3))];
        let asked = |value: &str| {
            let options = EngineOptions::from([("times".to_owned(), value.to_owned())]);
            check_options(OptionsOwner::Engine("many"), &known, &options, "")
        };
        assert_eq!(asked("never").unwrap()["times"], "never");
        assert_eq!(asked("05").unwrap()["times"], "5");
        assert!(asked("3").unwrap().is_empty());
        let wrong = asked("7").unwrap_err().to_string();
        assert!(
            wrong.contains("takes times=forever|never|1 to 6"),
            "{wrong}"
        );
    }

    #[test]
    fn numbers_have_bounds_and_a_canonical_form() {
        assert!(on("", "retry", "3").unwrap().is_empty());
        assert!(on("", "retry", "03").unwrap().is_empty());
        let six = on("", "retry", "06").unwrap();
        assert_eq!((six["retry"].as_str(), OPTIONS[1].number(&six)), ("6", 6));
        assert_eq!(OPTIONS[1].number(&EngineOptions::new()), 3);
        for wrong in ["7", "-1", "many", ""] {
            let message = on("", "retry", wrong).unwrap_err().to_string();
            assert!(message.contains("takes retry=0 to 6"), "{message}");
        }
    }
}

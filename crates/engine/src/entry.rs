//! The row of the list of engines: what can be known of an engine before it is opened, and what it is opened with.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::{Domain, Verb};
use tonnage_units::names::{nearest, quote};
use tonnage_units::{Error, Result};

/// Options of an engine by name, as a point and its record hold them: what differs from the defaults.
pub type EngineOptions = BTreeMap<String, String>;

/// The devices of an engine that were opened on one host.
pub type Domains = Vec<Arc<dyn Domain>>;

/// One row of the list of engines (`tonnage_engines::ENGINES`).
pub struct Entry {
    /// The name that `--engine` takes, up to a colon.
    pub name: &'static str,
    /// One line for `--help` and `tonnage devices`.
    pub about: &'static str,
    /// Part that must follow the name after a colon, such as "PROVIDER" in `fabric:PROVIDER`; `None` when nothing may.
    pub variant: Option<Variant>,
    /// Options of its own, which `--engine-option NAME=VALUE` sets.
    pub options: &'static [EngineOption],
    /// True when `--devices` means something to it.
    pub has_devices: bool,
    /// Libraries that it loads at run time and that the command line can choose, such as "libfabric".
    pub libraries: &'static [&'static str],
    /// The verbs it knows, so that a wrong request is refused before any rank starts.
    pub verbs: &'static [Verb],
    /// True when `--op write --ping-pong` can be asked for (see [`super::Caps::ordered_writes`]).
    pub ordered_writes: bool,
    /// True when bytes really move, so that they can be verified.
    pub moves_bytes: bool,
    /// Opens its domains on this machine: one for each device that was asked for, or one that it chooses itself.
    pub open: fn(&OpenRequest<'_>) -> Result<Domains>,
}

/// The part of an engine's or a memory's name after a colon.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// Its meaning, in capitals, for help and messages.
    pub what: &'static str,
    /// Values that every machine has.
    pub everywhere: &'static [&'static str],
    /// True when the name means nothing without one.
    pub required: bool,
}

/// One option of an engine.
#[derive(Debug, Clone, Copy)]
pub struct EngineOption {
    /// Name on the command line and in plans.
    pub name: &'static str,
    /// The values that it takes, the default first.
    pub values: &'static [&'static str],
    /// The variants of the engine on which it has an effect; empty for all.
    pub variants: &'static [&'static str],
    /// One line for help.
    pub about: &'static str,
}

/// Arguments for opening an engine on one rank.
#[derive(Debug, Clone)]
pub struct OpenRequest<'a> {
    /// The part of `--engine` after the colon; empty when there is none.
    pub variant: &'a str,
    /// Options that differ from the defaults; checked against [`Entry::options`].
    pub options: &'a EngineOptions,
    /// `--devices`; empty when the engine is to choose.
    pub devices: &'a [String],
    /// `--libfabric`.
    pub libfabric: Option<&'a Path>,
    /// True when all ranks reach each other by the loopback.
    pub one_host: bool,
    /// This host's address on the control channel, where there are several ranks.
    pub address: Option<IpAddr>,
    /// The verbs that the points need.
    pub verbs: &'a [Verb],
}

impl Default for OpenRequest<'_> {
    /// Returns a request for an engine that can do everything.
    fn default() -> Self {
        static NO_OPTIONS: EngineOptions = EngineOptions::new();
        Self {
            variant: "",
            options: &NO_OPTIONS,
            devices: &[],
            libfabric: None,
            one_host: true,
            address: None,
            verbs: &Verb::ALL,
        }
    }
}

impl OpenRequest<'_> {
    /// The value of one of the entry's options: what was asked for, or its default.
    pub fn option<'b>(&'b self, entry: &Entry, name: &str) -> &'b str {
        let default = entry
            .options
            .iter()
            .find(|option| option.name == name)
            .and_then(|option| option.values.first());
        let asked = self.options.get(name).map(String::as_str);
        asked.or(default.copied()).unwrap_or_default()
    }
}

impl Entry {
    /// Checks options against what the engine knows, and returns those that differ from the defaults. `variant` is what
    /// followed the engine's name; of a layered one ("tcp;ofi_rxm") the lowest layer counts.
    ///
    /// # Errors
    /// `Usage` for an unknown name or value, with those that there are, and for one that has no effect on this variant.
    pub fn check_options(&self, asked: &EngineOptions, variant: &str) -> Result<EngineOptions> {
        check_options(self.name, self.options, asked, variant)
    }
}

/// Checks options against those of an engine; see [`Entry::check_options`].
///
/// # Errors
/// As there.
pub fn check_options(
    engine: &str,
    known: &[EngineOption],
    asked: &EngineOptions,
    variant: &str,
) -> Result<EngineOptions> {
    let mut options = EngineOptions::new();
    for (name, value) in asked {
        let option = known.iter().find(|option| option.name == name);
        let option = option.ok_or_else(|| unknown_option(engine, known, name))?;
        if !option.values.contains(&value.as_str()) {
            return Err(Error::Usage(format!(
                "engine-option {name}={value}: engine {engine} takes {name}={}",
                option.values.join("|")
            )));
        }
        let lowest = variant.split(';').next().unwrap_or(variant);
        if !option.variants.is_empty() && !option.variants.contains(&lowest) {
            return Err(Error::Usage(format!(
                "engine-option {name}={value} is for {engine}:{} and has no effect on {engine}:{variant}: leave it out",
                option.variants.join(&format!(" and {engine}:"))
            )));
        }
        if option.values.first() != Some(&value.as_str()) {
            options.insert(name.clone(), value.clone());
        }
    }
    Ok(options)
}

fn unknown_option(engine: &str, known: &[EngineOption], name: &str) -> Error {
    let names: Vec<_> = known.iter().map(|option| option.name).collect();
    let hint = match (nearest(name, &names), names.as_slice()) {
        (_, []) => "it has none: leave engine-option out".to_owned(),
        (Some(near), _) => format!("did you mean {near}? it has {}", names.join(", ")),
        (None, _) => format!("it has {}", names.join(", ")),
    };
    Error::Usage(format!(
        "engine {engine} has no option {}: {hint}",
        quote(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[EngineOption] = &[EngineOption {
        name: "path",
        values: &["slow", "fast"],
        variants: &["a", "c"],
        about: "",
    }];

    #[test]
    fn options_are_checked_and_defaults_left_out() {
        let on = |variant: &str, name: &str, value: &str| {
            let options = EngineOptions::from([(name.to_owned(), value.to_owned())]);
            check_options("many", OPTIONS, &options, variant)
        };
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
}

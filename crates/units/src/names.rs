//! Enums with names for options, declared with [`names!`](crate::names!). Also finds the nearest match for an unknown
//! name, and quotes user text in messages.

use std::fmt;

use serde::de::{self, Visitor};

use crate::{Error, Result};

/// An enum declared with [`names!`](crate::names!).
pub trait Named: Copy + Sized + 'static {
    /// The kind of thing, for messages.
    const WHAT: &'static str;
    /// Every choice with its name and a one-line description, in the order of the help.
    const CHOICES: &'static [(Self, &'static str, &'static str)];
    /// The names of the choices.
    const NAMES: &'static [&'static str];
    /// Other names of each choice, which are read but not listed.
    const ALIASES: &'static [&'static [&'static str]];
}

/// Returns the index of `text` in `names` or `aliases`, or an error that suggests the nearest name.
pub fn index_of_name(what: &str, names: &[&str], aliases: &[&[&str]], text: &str) -> Result<usize> {
    let place = names.iter().position(|name| *name == text);
    let place = place.or_else(|| aliases.iter().position(|other| other.contains(&text)));
    place.ok_or_else(|| unknown_name_error(what, text, names))
}

/// Deserializes a name to its index. Shared by all types, because each type's own visitor would add kilobytes of code
/// per format.
#[doc(hidden)]
pub struct NameVisitor {
    pub what: &'static str,
    pub names: &'static [&'static str],
    pub aliases: &'static [&'static [&'static str]],
}

impl Visitor<'_> for NameVisitor {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a {}", self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<usize, E> {
        index_of_name(self.what, self.names, self.aliases, text).map_err(E::custom)
    }
}

/// Declares an enum with named values for the command line, plans and records. You write the kind (for messages), each
/// value's name and each value's doc comment once. A `|` separates aliases, which are accepted but not listed. A
/// default, if there is one, follows the kind.
///
/// The macro generates `ALL`, `name`, `FromStr` (which suggests the nearest name), `Display`, both serde traits, and
/// [`Named`] for help. The crate that uses the macro needs serde.
///
/// ```
/// tonnage_units::names! {
///     /// The order of things.
///     pub enum Order: "order" {
///         /// One after the other.
///         Sequential = "sequential",
///         /// Each once, in any order.
///         Shuffled = "shuffled",
///     }
/// }
/// assert_eq!("shuffled".parse::<Order>().unwrap(), Order::Shuffled);
/// assert_eq!(Order::ALL.map(Order::name), ["sequential", "shuffled"]);
/// assert!("suffled".parse::<Order>().unwrap_err().to_string().contains("did you mean \"shuffled\"?"));
/// ```
#[macro_export]
macro_rules! names {
    ($(#[doc = $about_all:literal])+ $vis:vis enum $type:ident: $what:literal $(, default $default:ident)? {
        $($(#[doc = $about:literal])+ $choice:ident = $name:literal $(| $alias:literal)*),+ $(,)?
    }) => {
        $(#[doc = $about_all])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $type {
            $($(#[doc = $about])+ $choice),+
        }

        $crate::names_schema!($type, concat!($($about_all, "\n"),+), $($name, concat!($($about, "\n"),+)),+);

        impl $type {
            /// All values, in listing order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$choice),+];

            /// The name on the command line, in plans and in records.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$choice => $name),+
                }
            }
        }

        $(impl Default for $type {
            fn default() -> Self {
                Self::$default
            }
        })?

        impl $crate::names::Named for $type {
            const WHAT: &'static str = $what;
            const CHOICES: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$choice, $name, concat!($($about),+))),+];
            const NAMES: &'static [&'static str] = &[$($name),+];
            const ALIASES: &'static [&'static [&'static str]] = &[$(&[$($alias),*]),+];
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                let names = <Self as $crate::names::Named>::NAMES;
                let aliases = <Self as $crate::names::Named>::ALIASES;
                $crate::names::index_of_name($what, names, aliases, text).map(|place| Self::ALL[place])
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                let names = <Self as $crate::names::Named>::NAMES;
                let aliases = <Self as $crate::names::Named>::ALIASES;
                let visitor = $crate::names::NameVisitor { what: $what, names, aliases };
                deserializer.deserialize_str(visitor).map(|place| Self::ALL[place])
            }
        }
    };
}

/// Implements `JsonSchema` for a type of [`names!`].
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! names_schema {
    ($type:ident, $about_all:expr, $($name:literal, $about:expr),+) => {
        impl $crate::schemars::JsonSchema for $type {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::names::schema($about_all, &[$(($name, $about)),+])
            }
        }
    };
}

/// Without the feature `schema`, there is no trait to implement.
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! names_schema {
    ($($ignored:tt)*) => {};
}

/// Returns the schema that schemars derives for an enum with these names and doc comments.
#[cfg(feature = "schema")]
#[doc(hidden)]
pub fn schema(about: &str, choices: &[(&str, &str)]) -> schemars::Schema {
    let joined = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let one_of: Vec<_> = choices
        .iter()
        .map(|(name, about)| {
            schemars::json_schema!({ "description": joined(about), "type": "string", "const": name })
        })
        .collect();
    schemars::json_schema!({ "description": joined(about), "oneOf": one_of })
}

/// Quotes a user's text for a message: control characters escaped, and cut if absurdly long.
pub fn quote(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

/// Returns the choice that the user probably meant: the nearest one if it differs by few typos, or else the first one
/// that begins with `text`.
pub fn nearest<'a>(text: &str, choices: &[&'a str]) -> Option<&'a str> {
    // The cost is the product of both lengths, and all names are shorter than this.
    if text.len() > 64 {
        return None;
    }
    let text = text.to_lowercase().replace('_', "-");
    let beginning = choices
        .iter()
        .find(|choice| text.len() > 1 && choice.starts_with(&text));
    let distance = |choice: &&&str| strsim::damerau_levenshtein(&text, choice);
    let near = choices.iter().min_by_key(distance).filter(|choice| {
        let slips = distance(choice);
        // "nere" may be "near", but "udp" is not "cuda".
        let begins_alike = choice.starts_with(text.chars().take(1).collect::<String>().as_str());
        let slips_max = if begins_alike { 2 } else { 1 };
        slips <= slips_max.min(choice.len() / 2) || slips * 3 <= choice.len()
    });
    near.or(beginning).copied()
}

/// Error for a name that is not one of `choices`: `unknown op "writ": did you mean "write"? ops: write, read`. If
/// several choices continue `text` after a dash, all of them are suggested.
pub fn unknown_name_error(what: &str, text: &str, choices: &[&str]) -> Error {
    let begin = format!("{text}-");
    let mut near: Vec<_> = (choices.iter().copied())
        .filter(|choice| choice.starts_with(&begin))
        .collect();
    if near.len() < 2 {
        near = nearest(text, choices).into_iter().collect();
    }
    let near: Vec<_> = near.iter().map(|choice| format!("{choice:?}")).collect();
    let hint = if near.is_empty() {
        String::new()
    } else {
        format!("did you mean {}? ", near.join(" or "))
    };
    Error::Usage(format!(
        "unknown {what} {}: {hint}{}: {}",
        quote(text),
        plural(what),
        choices.join(", ")
    ))
}

/// Plural of a kind: `ops`, `memories`, `rails`, `ways of waiting`.
fn plural(what: &str) -> String {
    if let Some((head, rest)) = what.split_once(" of ") {
        return format!("{} of {rest}", plural(head));
    }
    match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if what.ends_with('s') => what.to_owned(),
        _ => format!("{what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::unknown_name_error;

    #[test]
    fn every_name_that_begins_with_the_unknown_one_is_named() {
        let choices = ["send-recv-pairs", "send-recv-ring", "scatter"];
        let message = |text| unknown_name_error("op", text, &choices).to_string();
        let both = message("send-recv");
        assert!(
            both.contains(r#"did you mean "send-recv-pairs" or "send-recv-ring"?"#),
            "{both}"
        );
        let one = message("send-recv-rin");
        assert!(one.contains(r#"did you mean "send-recv-ring"?"#), "{one}");
    }

    #[test]
    fn choices_are_named_in_the_plural() {
        let message = |what| unknown_name_error(what, "x", &["one", "two"]).to_string();
        for (what, all) in [
            ("op", "ops"),
            ("memory", "memories"),
            ("rails", "rails"),
            ("way of waiting", "ways of waiting"),
        ] {
            assert_eq!(
                message(what),
                format!("unknown {what} \"x\": {all}: one, two")
            );
        }
    }
}

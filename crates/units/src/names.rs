//! Names that options take: declared once with [`names!`](crate::names!), the nearest one to a name that is unknown,
//! and how a user's text is quoted in messages.

use std::fmt;

use serde::de::{self, Visitor};

use crate::{Error, Result};

/// A choice between names, declared with [`names!`](crate::names!).
pub trait Named: Copy + Sized + 'static {
    /// The kind of thing that is named, for messages.
    const WHAT: &'static str;
    /// Every choice with its name and one line about it, in the order in which help lists them.
    const CHOICES: &'static [(Self, &'static str, &'static str)];
    /// The names of the choices.
    const NAMES: &'static [&'static str];
}

/// The place of one of these names, or an error with the nearest one.
pub fn place(what: &str, names: &[&str], text: &str) -> Result<usize> {
    let place = names.iter().position(|name| *name == text);
    place.ok_or_else(|| unknown(what, text, names))
}

/// Reads the place of a name. One for all types: each format would compile kilobytes of code for each of them.
#[doc(hidden)]
pub struct NameVisitor {
    pub what: &'static str,
    pub names: &'static [&'static str],
}

impl Visitor<'_> for NameVisitor {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a {}", self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<usize, E> {
        place(self.what, self.names, text).map_err(E::custom)
    }
}

/// Declares an enum whose values have names: on the command line, in plans and in records. Its name for messages, each
/// value's name and each value's doc comment are written once; from them come `ALL`, `name`, `FromStr` with the nearest
/// name, `Display`, serde's two, and [`Named`] for help. The default, if there is one, comes
/// after the name for messages. The crate that uses it needs serde.
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
        $($(#[doc = $about:literal])+ $choice:ident = $name:literal),+ $(,)?
    }) => {
        $(#[doc = $about_all])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $type {
            $($(#[doc = $about])+ $choice),+
        }

        $crate::names_schema!($type, concat!($($about_all, "\n"),+), $($name, concat!($($about, "\n"),+)),+);

        impl $type {
            /// All of them, in the order in which they are listed.
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
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                let names = <Self as $crate::names::Named>::NAMES;
                $crate::names::place($what, names, text).map(|place| Self::ALL[place])
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
                let visitor = $crate::names::NameVisitor { what: $what, names };
                deserializer.deserialize_str(visitor).map(|place| Self::ALL[place])
            }
        }
    };
}

/// Derives the JSON schema of a type of [`names!`].
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

/// Without the feature there is no schema.
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! names_schema {
    ($($ignored:tt)*) => {};
}

/// The schema that schemars derives for an enum with these names and doc comments.
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

/// A user's text for a message: quoted, control characters escaped, and cut when it is absurdly long.
pub fn quote(text: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

/// The choice that `text` was probably meant to be, if one is near: a slip or two of the hand, or its beginning.
pub fn nearest<'a>(text: &str, choices: &[&'a str]) -> Option<&'a str> {
    // The distance takes the product of both lengths, and nothing that long is near any name.
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
        slips <= 2.min(choice.len() / 2) || slips * 3 <= choice.len()
    });
    near.or(beginning).copied()
}

/// `unknown op "writ": did you mean "write"? ops: write, read`, for a name that is none of `choices`. All that begin
/// with it as a word of its own are named.
pub fn unknown(what: &str, text: &str, choices: &[&str]) -> Error {
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

/// `ops`, `memories`, `rails`, `ways of waiting`: the plural of what is named.
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
    use super::unknown;

    #[test]
    fn every_name_that_begins_with_the_unknown_one_is_named() {
        let choices = ["send-recv-pairs", "send-recv-ring", "scatter"];
        let message = |text| unknown("op", text, &choices).to_string();
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
        let message = |what| unknown(what, "x", &["one", "two"]).to_string();
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

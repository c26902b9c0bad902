//! Options, one field each. A field's doc comment is the option's help. Its name is the key in a plan and the long name
//! on the command line. clap and serde derive the rest.
//!
//! Options that belong together are a struct, a *group*, under one heading of the help. A kind of experiment is a
//! struct of groups, declared with `groups!`. Several kinds can use the same group.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `table` | groups of options, read from and written to the tables of a plan |
//! | `many` | lists: `a,b` and `["a", "b"]` |
//! | `repeated` | lists that are repeated on the command line |
//! | `pairs` | `NAME=VALUE` on the command line, tables in plans |
//! | `text`, `one_or_many` | values and lists with a special text form |
//! | [`command_line`] | an experiment as the arguments of its command |
//! | `help` | names and defaults in the help, taken from the declarations |
//!
//! When a kind expands to points, it checks combinations of options.

pub mod command_line;
mod help;
mod many;
pub mod one_or_many;
pub mod pairs;
mod repeated;
mod table;
pub mod text;

pub use help::{SWEEP, many_of, on_off, one_of, one_of_these, with_default};
pub use many::Many;
pub(crate) use many::several;
pub use pairs::Pair;
pub use repeated::from_command_line;
pub use table::{Group, Parsed, Source, Tables, given_options, keys_of};

/// Makes a kind of experiment from a struct of groups. Options are printed in the order in which the groups are listed.
macro_rules! groups {
    ($kind:ty: $key:literal, $name:literal, needs $needs:expr; $($group:ident),+ $(,)?) => {
        impl $crate::options::Tables for $kind {
            const KEY: &'static str = $key;
            const NAME: &'static str = $name;
            const NEEDS: &'static [(&'static str, &'static str)] = $needs;

            fn keys() -> Vec<&'static str> {
                let mut keys = Vec::new();
                $(keys.extend_from_slice($crate::options::keys_of(|it: &Self| &it.$group));)+
                keys
            }

            fn read(mut source: $crate::options::Source<'_>) -> $crate::options::Parsed<Self> {
                Ok(Self { $($group: source.group()?),+ })
            }

            fn write(&self) -> ::std::result::Result<::toml::Table, ::toml::ser::Error> {
                let mut table = ::toml::Table::new();
                $(table.extend($crate::options::given_options(&self.$group, Self::NEEDS)?);)+
                Ok(table)
            }
        }
    };
}
pub(crate) use groups;

//! Groups of options, and reading them from the tables of a plan.

use std::ops::Range;

use serde::Serialize;
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::DeTable;
use toml::{Spanned, Table};

/// Options that belong together, under one heading of the help.
pub trait Group: clap::Args + Default + Serialize + DeserializeOwned {
    /// Returns the default values, for help and for expansion. Defaults that depend on other options are in the doc
    /// comment instead.
    fn defaults() -> Self {
        Self::default()
    }
}

/// A parsed value. An error has its position in the text.
pub type Parsed<T> = Result<T, toml::de::Error>;

/// A struct of groups that is read from the tables under one key of a plan.
pub trait Tables: Sized {
    /// Key of these tables in a plan.
    const KEY: &'static str;
    /// Name of one experiment with its article, for messages.
    const NAME: &'static str;
    /// Required keys, each with an example of its value.
    const NEEDS: &'static [(&'static str, &'static str)];

    /// Every key that a table may have.
    fn keys() -> Vec<&'static str>;

    /// Reads a table after its keys were checked.
    fn read(source: Source<'_>) -> Parsed<Self>;

    /// Writes only the given options.
    fn write(&self) -> Result<Table, toml::ser::Error>;
}

/// A table from which each group takes its options. It keeps positions in the text, which `#[serde(flatten)]` would
/// lose.
#[derive(Debug)]
pub struct Source<'i> {
    span: Range<usize>,
    table: DeTable<'i>,
}

impl<'i> Source<'i> {
    /// Creates a source from a table and its position in the text.
    pub fn new(span: Range<usize>, table: DeTable<'i>) -> Self {
        Self { span, table }
    }

    /// Takes the options of one group out of the table.
    pub fn group<T: Group>(&mut self) -> Parsed<T> {
        let mut own = DeTable::new();
        for &key in keys::<T>() {
            own.extend(self.table.remove_entry(key));
        }
        let own = Spanned::new(self.span.clone(), own);
        T::deserialize(toml::de::Deserializer::from(own))
    }
}

/// Returns a group's given options as the table of a plan: values that differ from those of an empty group, and
/// required keys. Without the required keys, the table could not be read back.
pub fn given_options<T: Group>(
    group: &T,
    needs: &[(&str, &str)],
) -> Result<Table, toml::ser::Error> {
    let unsaid = Table::try_from(T::default())?;
    let mut table = Table::try_from(group)?;
    let is_needed = |name: &str| needs.iter().any(|(key, _)| *key == name);
    table.retain(|key, value| is_needed(key) || unsaid.get(key) != Some(value));
    Ok(table)
}

/// Returns the keys of a group: the names of its fields, as serde knows them.
pub fn keys<T: Group>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // No value is read: serde passes the field names first, and the deserializer then fails.
    let _ = T::deserialize(FieldNames(&mut keys));
    keys
}

/// Returns the keys of the group in a field.
pub fn keys_of<S, T: Group>(_field: fn(&S) -> &T) -> &'static [&'static str] {
    keys::<T>()
}

/// A deserializer that stores the names of a struct's fields and returns no value.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = NoValue;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("only names are asked for"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

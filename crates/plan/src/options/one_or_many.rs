//! Lists that may be written without brackets if they have a single item, by `#[serde(with = "one_or_many")]`. Items
//! are tables, or texts that may contain commas.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::ser::{Serialize, Serializer};

/// An item of a list that may be written without brackets.
pub trait Listed {
    /// The key and its accepted forms, for messages.
    const EXPECTED: &'static str;
    /// True for texts, false for tables.
    const IS_TEXT: bool;
}

impl Listed for String {
    const EXPECTED: &'static str = "path as a text or a list of texts";
    const IS_TEXT: bool = true;
}

/// Writes a single item as it is, and several as a list.
pub fn serialize<S: Serializer, T: Serialize>(all: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    match all {
        [one] => one.serialize(serializer),
        several => several.serialize(serializer),
    }
}

/// Reads a single item or a list.
pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de> + Listed>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let of = PhantomData;
    deserializer.deserialize_any(OneOrMany { is_item: false, of })
}

/// A list, or a single item of a list.
struct OneOrMany<T> {
    is_item: bool,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de> + Listed> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        if !T::IS_TEXT {
            return Err(E::invalid_type(Unexpected::Str(text), &self));
        }
        T::deserialize(StrDeserializer::new(text)).map(|one| vec![one])
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        if T::IS_TEXT {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        if self.is_item {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        let (is_item, of) = (true, PhantomData);
        let one = || items.next_element_seed(Self { is_item, of }).transpose();
        let all: Vec<_> = std::iter::from_fn(one).collect::<Result<_, _>>()?;
        Ok(all.into_iter().flatten().collect())
    }
}

impl<'de, T: Deserialize<'de> + Listed> DeserializeSeed<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

//! Lists of which one may stand for itself, by `#[serde(with = "one_or_many")]`: texts that may hold commas, and tables.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// What is in such a list.
pub trait Listed {
    /// One of it or a list, for messages.
    const EXPECTED: &'static str;
}

impl Listed for String {
    const EXPECTED: &'static str = "a text or a list of texts";
}

/// Writes one as it is, several as a list.
pub fn serialize<S: Serializer, T: Serialize>(all: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    match all {
        [one] => one.serialize(serializer),
        several => several.serialize(serializer),
    }
}

/// Reads one, or a list.
pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de> + Listed>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(OneOrMany(PhantomData))
}

struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Listed> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(StrDeserializer::new(text)).map(|one| vec![one])
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        std::iter::from_fn(|| items.next_element().transpose()).collect()
    }
}

//! Wraps values that need a self-describing format, such as engine reports and parts of records. These values travel
//! between ranks as JSON text, all others in binary form.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is sent as JSON text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Json<T>(pub T);

impl<T: Serialize> Serialize for Json<T> {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(&self.0).map_err(S::Error::custom)?;
        into.serialize_str(&text)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Json<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        serde_json::from_str(&text)
            .map(Self)
            .map_err(D::Error::custom)
    }
}

//! Binary encoding of values sent between ranks.
//!
//! The format (postcard) does not describe its own types. Both sides have the same types, because ranks of another
//! version are refused when they join. Messages that must be readable across versions are text; see [`super::message`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use tonnage_units::{Error, Result};

/// Encodes a value.
pub fn pack<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value)
        .map_err(|error| Error::Failed(format!("cannot encode a rank's values: {error}")))
}

/// Decodes a value that must use all of the bytes.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match unpack_first(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Error::Failed(
            "a rank's values are followed by more bytes".into(),
        )),
    }
}

/// Decodes a value at the start of the bytes, and returns the rest.
pub(crate) fn unpack_first<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes)
        .map_err(|error| Error::Failed(format!("cannot decode a rank's values: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Figures = (u64, Option<String>, Vec<u32>);

    #[test]
    fn truncated_or_trailing_bytes_are_refused() {
        let figures: Figures = (7, Some("x".into()), vec![1, 2]);
        let bytes = pack(&figures).unwrap();
        assert_eq!(unpack::<Figures>(&bytes).unwrap(), figures);
        assert!(unpack::<Figures>(&bytes[1..]).is_err());
        assert!(unpack::<Figures>(&[&bytes[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack::<Figures>(&bytes);
        }
    }
}

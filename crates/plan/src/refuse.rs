//! Refusing what cannot be measured, before a rank starts.

use tonnage_units::{Error, Result};

/// An error that says what is wrong and what to write instead.
///
/// # Errors
/// Always `Usage`.
pub(crate) fn usage<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Usage(message.into()))
}

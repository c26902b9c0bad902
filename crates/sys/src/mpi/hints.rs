//! Hints: advice to MPI about a file, and the values that MPI reports back.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int};

use super::World;
use super::calls::Handle;
use crate::error::LibraryError;

/// Hints by name, in alphabetical order.
pub type MpiHints = BTreeMap<String, String>;

/// Maximum number of keys to read, more than any library has.
const KEYS_MAX: c_int = 4096;

/// A set of hints in the library; freed when it is dropped.
pub(super) struct InfoObject<'a> {
    world: &'a World,
    handle: Handle,
}

impl<'a> InfoObject<'a> {
    /// Makes a set of these hints in the library. Without hints, uses MPI_INFO_NULL.
    pub(super) fn from_hints(world: &'a World, hints: &MpiHints) -> Result<Self, LibraryError> {
        world.here()?;
        let constants = world.loaded.constants;
        let mut info = Self {
            world,
            handle: constants.info_null,
        };
        if hints.is_empty() {
            return Ok(info);
        }
        let mut handle: Handle = 0;
        // SAFETY: MPI runs, and the result has a place that was zeroed.
        let code = unsafe { (world.loaded.functions.info_create)(&raw mut handle) };
        world.check("MPI_Info_create", code)?;
        info.handle = handle;
        for (name, value) in hints {
            let key = bounded(name, "name", name, constants.numbers.info_key_bytes)?;
            let value = bounded(name, "value", value, constants.numbers.info_value_bytes)?;
            // SAFETY: the handle is a set of this library, and both texts are NUL-terminated and outlive the call.
            let code =
                unsafe { (world.loaded.functions.info_set)(handle, key.as_ptr(), value.as_ptr()) };
            world.check("MPI_Info_set", code)?;
        }
        Ok(info)
    }

    /// Takes ownership of a set that an MPI function has made.
    pub(super) fn taken(world: &'a World, handle: Handle) -> Self {
        Self { world, handle }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// Reads the hints of the set.
    pub(super) fn read(&self) -> Result<MpiHints, LibraryError> {
        let (world, functions) = (self.world, &self.world.loaded.functions);
        let mut hints = MpiHints::new();
        if self.handle == world.loaded.constants.info_null {
            return Ok(hints);
        }
        world.here()?;
        let mut count: c_int = 0;
        // SAFETY: MPI runs, the handle is a set of this library, and the result has a valid place.
        let code = unsafe { (functions.info_get_nkeys)(self.handle, &raw mut count) };
        world.check("MPI_Info_get_nkeys", code)?;
        for index in 0..count.min(KEYS_MAX) {
            let mut key = vec![0u8; world.loaded.constants.numbers.info_key_bytes + 1];
            // SAFETY: the handle is a set of this library, which has more keys than `index`, and the text has room for
            // the longest key and its final zero byte.
            let code =
                unsafe { (functions.info_get_nthkey)(self.handle, index, key.as_mut_ptr().cast()) };
            world.check("MPI_Info_get_nthkey", code)?;
            hints.insert(text_until_nul(&key), self.value(&mut key)?);
        }
        Ok(hints)
    }

    /// Returns the value of a key. `key` is NUL-terminated.
    fn value(&self, key: &mut [u8]) -> Result<String, LibraryError> {
        let (world, functions) = (self.world, &self.world.loaded.functions);
        let longest = world.loaded.constants.numbers.info_value_bytes;
        let mut value = vec![0u8; longest + 1];
        let (mut found, longest): (c_int, c_int) = (0, longest as c_int);
        if let Some(last) = key.last_mut() {
            *last = 0;
        }
        // SAFETY: the handle is a set of this library, the key is NUL-terminated, and the value has room for `longest`
        // bytes and a final zero byte.
        let code = unsafe {
            (functions.info_get)(
                self.handle,
                key.as_ptr().cast(),
                longest,
                value.as_mut_ptr().cast(),
                &raw mut found,
            )
        };
        world.check("MPI_Info_get", code)?;
        Ok(text_until_nul(&value))
    }
}

impl Drop for InfoObject<'_> {
    fn drop(&mut self) {
        let world = self.world;
        if self.handle == world.loaded.constants.info_null || world.here().is_err() {
            return;
        }
        // SAFETY: MPI runs, and the handle is a set that this value owns. A failure to free it is harmless.
        let _ = unsafe { (world.loaded.functions.info_free)(&raw mut self.handle) };
    }
}

fn text_until_nul(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn bounded(hint: &str, what: &str, text: &str, bytes_max: usize) -> Result<CString, LibraryError> {
    if text.is_empty() || text.len() > bytes_max {
        return Err(LibraryError::argument(format!(
            "the {what} of hint {hint:?} has {} bytes, but this MPI accepts 1 to {bytes_max}",
            text.len()
        )));
    }
    CString::new(text).map_err(|_| {
        LibraryError::argument(format!("the {what} of hint {hint:?} contains a NUL byte"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded() {
        assert!(bounded("h", "value", "on", 2).is_ok());
        for wrong in ["", "off", "a\0"] {
            let why = bounded("h", "value", wrong, 2).unwrap_err();
            assert!(why.to_string().contains("value of hint \"h\""), "{why}");
        }
        assert_eq!(text_until_nul(b"ab\0cd"), "ab");
        assert_eq!(text_until_nul(b"ab"), "ab");
    }
}

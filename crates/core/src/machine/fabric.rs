//! Which libfabric this process uses.

use tonnage_sys::libfabric::Libfabric;

/// The environment variable that names the library to use instead of the installed one.
pub const LIBFABRIC_VARIABLE: &str = "TONNAGE_LIBFABRIC";

/// Loads libfabric: from the path in `TONNAGE_LIBFABRIC` alone where that is set and not empty, else from the places
/// of an EFA installation, else by the loader's own search.
///
/// # Errors
/// One line that says what was tried and why it could not be loaded.
pub fn load_libfabric() -> Result<Libfabric, String> {
    let Some(path) = std::env::var_os(LIBFABRIC_VARIABLE).filter(|path| !path.is_empty()) else {
        return Libfabric::load(None);
    };
    let path = path
        .to_str()
        .ok_or_else(|| format!("{LIBFABRIC_VARIABLE} is not UTF-8"))?;
    Libfabric::load(Some(path)).map_err(|why| format!("{why} ({LIBFABRIC_VARIABLE} is set)"))
}

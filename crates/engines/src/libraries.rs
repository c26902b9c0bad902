//! Paths of libraries that the user chose.

use std::ffi::OsString;

use tonnage_engine::{Libraries, OpenRequest};
use tonnage_units::{Error, Result};

/// Returns the path of a library from `--library`, otherwise from its environment variable; `None` if neither is set.
///
/// # Errors
/// `Usage` for a path that is not UTF-8.
pub(crate) fn requested_path(
    request: &OpenRequest<'_>,
    library: &str,
    variable: &str,
) -> Result<Option<String>> {
    let requested = requested_file(Some(request.libraries), library, variable);
    let requested = requested.map(OsString::into_string).transpose();
    requested.map_err(|path| {
        let by = match request.libraries.get(library) {
            Some(_) => format!("--library {library}"),
            None => variable.to_owned(),
        };
        Error::Usage(format!("{by}: {} is not UTF-8", path.display()))
    })
}

/// Like [`requested_path`], but the path need not be UTF-8.
pub(crate) fn requested_file(
    libraries: Option<&Libraries>,
    library: &str,
    variable: &str,
) -> Option<OsString> {
    let requested = libraries.and_then(|libraries| libraries.get(library));
    let requested = requested.map(|path| path.as_os_str().to_owned());
    requested.or_else(|| std::env::var_os(variable).filter(|path| !path.is_empty()))
}

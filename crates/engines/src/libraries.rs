//! Files of libraries that users name.

use std::ffi::OsString;

use tonnage_engine::{Libraries, OpenRequest};
use tonnage_units::{Error, Result};

/// The file of a library that the command line names, else its variable; `None` where neither does.
///
/// # Errors
/// `Usage` for a path that is not UTF-8.
pub(crate) fn named(
    request: &OpenRequest<'_>,
    library: &str,
    variable: &str,
) -> Result<Option<String>> {
    let asked = asked(Some(request.libraries), library, variable);
    let asked = asked.map(OsString::into_string).transpose();
    asked.map_err(|path| {
        let by = match request.libraries.get(library) {
            Some(_) => format!("--library {library}"),
            None => variable.to_owned(),
        };
        Error::Usage(format!("{by}: {} is not UTF-8", path.display()))
    })
}

/// The file that was asked for of a library, or that its environment variable names.
pub(crate) fn asked(
    libraries: Option<&Libraries>,
    library: &str,
    variable: &str,
) -> Option<OsString> {
    let asked = libraries.and_then(|libraries| libraries.get(library));
    let asked = asked.map(|path| path.as_os_str().to_owned());
    asked.or_else(|| std::env::var_os(variable).filter(|path| !path.is_empty()))
}

//! Files of libraries that users name.

use tonnage_engine::OpenRequest;
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
    let asked = request.library(library);
    let asked = asked.map(|path| path.as_os_str().to_owned());
    let asked = asked.or_else(|| std::env::var_os(variable).filter(|path| !path.is_empty()));
    let asked = asked.map(|path| path.into_string()).transpose();
    asked.map_err(|path| Error::Usage(format!("{library}: {} is not UTF-8", path.display())))
}

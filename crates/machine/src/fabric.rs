//! Chooses the libfabric that this process uses.

use tonnage_sys::libfabric::Libfabric;

/// The environment variable that names the library to use instead of the installed one.
pub const LIBFABRIC_VARIABLE: &str = "TONNAGE_LIBFABRIC";

/// Loads the libfabric that engines use unless the command line names one. If `TONNAGE_LIBFABRIC` is set and not empty,
/// its value decides: a path, or "embedded". If not, [`Libfabric::choose`] decides.
pub fn load_libfabric() -> Result<Libfabric, String> {
    let asked = std::env::var_os(LIBFABRIC_VARIABLE).filter(|path| !path.is_empty());
    let Some(asked) = asked else {
        return Ok(Libfabric::choose(None)?.0);
    };
    let asked = asked.to_str();
    let asked = asked.ok_or_else(|| format!("{LIBFABRIC_VARIABLE} is not UTF-8"))?;
    let chosen = Libfabric::choose(Some(asked));
    let (library, _) = chosen.map_err(|why| format!("{why} ({LIBFABRIC_VARIABLE} is set)"))?;
    Ok(library)
}

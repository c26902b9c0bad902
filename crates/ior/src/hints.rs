//! Hints for MPI-IO as IOR takes them: `IOR_HINT__MPI__NAME=VALUE` in the environment and in the file of `-U`.

use std::collections::BTreeMap;

use tonnage_units::{Error, Result};

/// Prefixes of hints. IOR gives both kinds to MPI-IO by their names alone.
const PREFIXES: [&str; 2] = ["IOR_HINT__MPI__", "IOR_HINT__GPFS__"];

/// The hints of the environment and then of a hints file, by their names; what the file says counts.
///
/// # Errors
/// `Usage` for a name that begins like a hint and is none, and when the file cannot be read; IOR goes on without them.
pub fn collect(
    environment: impl Iterator<Item = (String, String)>,
    file: Option<&str>,
) -> Result<BTreeMap<String, String>> {
    let mut hints = BTreeMap::new();
    for (variable, value) in environment.filter(|(name, _)| name.starts_with("IOR_HINT")) {
        let hint = name(&variable, "the environment")?;
        hints.insert(hint, whole(&variable, value.trim(), "the environment")?);
    }
    let Some(path) = file else {
        return Ok(hints);
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::Usage(format!(
            "the hints file {path} cannot be read: {error}. Name a file that is there, or leave it out"
        ))
    })?;
    for line in text.lines().map(str::trim) {
        // IOR reads hints and takes everything else for comments.
        if !line.starts_with("IOR_HINT") {
            continue;
        }
        let (variable, value) = line.split_once('=').unwrap_or((line, ""));
        let hint = name(variable.trim(), path)?;
        hints.insert(hint, whole(variable.trim(), value.trim(), path)?);
    }
    Ok(hints)
}

fn name(variable: &str, place: &str) -> Result<String> {
    let found = PREFIXES
        .iter()
        .find_map(|prefix| variable.strip_prefix(prefix));
    match found {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(Error::Usage(format!(
            "{variable:.60?} of {place} is no hint: write IOR_HINT__MPI__NAME=VALUE, such as \
             IOR_HINT__MPI__romio_cb_write=disable"
        ))),
    }
}

fn whole(variable: &str, value: &str, place: &str) -> Result<String> {
    match value.is_empty() {
        true => Err(Error::Usage(format!(
            "{variable:.60} of {place} has no value: write {variable:.60}=VALUE, or take it out"
        ))),
        false => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::collect;

    fn environment(pairs: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        pairs.into_iter()
    }

    #[test]
    fn hints_come_from_the_environment_and_then_from_the_file() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let text =
            "# a comment\nIOR_HINT__MPI__cb_nodes = 4\n  IOR_HINT__GPFS__x=y\nsomething else\n";
        std::fs::write(path.path(), text).unwrap();
        let given = environment(&[
            ("IOR_HINT__MPI__cb_nodes", "1"),
            ("IOR_HINT__MPI__romio_cb_write", "disable"),
            ("PATH", "/bin"),
        ]);
        let hints = collect(given, path.path().to_str()).unwrap();
        let hints: Vec<_> = hints
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            hints,
            [("cb_nodes", "4"), ("romio_cb_write", "disable"), ("x", "y")]
        );
        assert!(collect(environment(&[]), None).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_hint_is_an_error() {
        for (name, value, part) in [
            ("IOR_HINT__HDF5__x", "1", "is no hint"),
            ("IOR_HINT__MPI__", "1", "is no hint"),
            ("IOR_HINT__MPI__x", " ", "has no value"),
        ] {
            let error = collect(environment(&[(name, value)]), None).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = collect(environment(&[]), Some("/nowhere/hints")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/hints"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

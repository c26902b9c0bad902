//! MPI-IO hints in IOR's form: `IOR_HINT__MPI__NAME=VALUE` in the environment and in the file of `-U`.

use std::collections::BTreeMap;

use tonnage_units::{Error, Result};

/// Prefixes of hints. IOR passes both kinds to MPI-IO, without the prefix.
const PREFIXES: [&str; 2] = ["IOR_HINT__MPI__", "IOR_HINT__GPFS__"];

/// Hints by name, and a warning about a suspicious line of the hints file.
#[derive(Debug, Default)]
pub struct Hints {
    pub hints: BTreeMap<String, String>,
    /// Warning about the first line that looks like a hint although IOR treats it as a comment.
    pub suspicious_line: Option<String>,
}

/// Collects the hints of the environment and of a hints file; the file takes precedence.
pub fn collect(
    environment: impl Iterator<Item = (String, String)>,
    file: Option<&str>,
) -> Result<Hints> {
    let mut found = Hints::default();
    let hints = &mut found.hints;
    for (variable, value) in environment.filter(|(name, _)| name.starts_with("IOR_HINT")) {
        let hint = name(&variable, "the environment")?;
        hints.insert(hint, whole(&variable, value.trim(), "the environment")?);
    }
    let Some(path) = file else {
        return Ok(found);
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::Usage(format!(
            "cannot read the hints file {path}: {error}. Name an existing file, or leave out -U"
        ))
    })?;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        // IOR treats every line without this prefix as a comment.
        if !line.starts_with("IOR_HINT") {
            let is_meant = !line.starts_with('#') && line.to_ascii_uppercase().contains("IOR_HINT");
            found.suspicious_line = found
                .suspicious_line
                .or_else(|| is_meant.then(|| suspicious_line(path, number, line)));
            continue;
        }
        let Some((variable, value)) = line.split_once('=') else {
            return Err(no_equals(path, number, line));
        };
        let hint = name(variable.trim(), path)?;
        hints.insert(hint, whole(variable.trim(), value.trim(), path)?);
    }
    Ok(found)
}

fn suspicious_line(path: &str, number: usize, line: &str) -> String {
    format!(
        "{path}, line {number}: {line:.60?} is ignored as a comment: hints begin with IOR_HINT__MPI__, without export \
         or setenv, and comments with #"
    )
}

fn no_equals(path: &str, number: usize, line: &str) -> Error {
    let mut words = line.split_whitespace();
    let (variable, value) = (words.next(), words.next());
    Error::Usage(format!(
        "{path}, line {number}: {line:.60?} has no \"=\": use {:.60}={:.60}",
        variable.unwrap_or_default(),
        value.unwrap_or("VALUE")
    ))
}

fn name(variable: &str, place: &str) -> Result<String> {
    let found = PREFIXES
        .iter()
        .find_map(|prefix| variable.strip_prefix(prefix));
    match found {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(Error::Usage(format!(
            "{variable:.60?} in {place} is not a hint: hints are IOR_HINT__MPI__NAME=VALUE, e.g. \
             IOR_HINT__MPI__romio_cb_write=disable"
        ))),
    }
}

fn whole(variable: &str, value: &str, place: &str) -> Result<String> {
    if value.is_empty() {
        return Err(Error::Usage(format!(
            "{variable:.60} in {place} has no value: set {variable:.60}=VALUE, or remove it"
        )));
    }
    Ok(value.to_owned())
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
        let found = collect(given, path.path().to_str()).unwrap();
        assert_eq!(found.suspicious_line, None);
        let hints: Vec<_> = found
            .hints
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            hints,
            [("cb_nodes", "4"), ("romio_cb_write", "disable"), ("x", "y")]
        );
        let none = collect(environment(&[]), None).unwrap();
        assert!(none.hints.is_empty());
    }

    #[test]
    fn a_line_that_looks_like_a_hint_gets_a_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            collect(environment(&[]), file.path().to_str())
        };
        for line in [
            "export IOR_HINT__MPI__cb_nodes=8",
            "setenv IOR_HINT__MPI__cb_nodes 8",
            "ior_hint__mpi__cb_nodes=8",
        ] {
            let found = read(&format!("# IOR_HINT lines\n{line}\n")).unwrap();
            let suspicious_line = found.suspicious_line.unwrap();
            assert!(found.hints.is_empty());
            assert!(
                suspicious_line.contains("line 2") && suspicious_line.contains(line),
                "{suspicious_line}"
            );
        }
        let error = read("IOR_HINT__MPI__cb_nodes 8\n").unwrap_err().to_string();
        assert!(error.ends_with("use IOR_HINT__MPI__cb_nodes=8"), "{error}");
    }

    #[test]
    fn an_invalid_hint_is_an_error() {
        for (name, value, part) in [
            ("IOR_HINT__HDF5__x", "1", "is not a hint"),
            ("IOR_HINT__MPI__", "1", "is not a hint"),
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

//! Hints that were asked for, and what MPI makes of them.
//!
//! An MPI may ignore any hint, and says so by not listing it, or with another value, once a file is open. Open MPI lists what it
//! was given even where OMPIO has no such hint; for OMPIO those that are ROMIO's alone are therefore told apart by name.

use serde_json::{Value, json};
use tonnage_sys::mpi::{Dialect, Hints};

/// What OMPIO and its file systems look at, in Open MPI 4.1 and 5.0.
const OMPIO: [&str; 7] = [
    "cb_buffer_size",
    "cb_nodes",
    "collective_buffering",
    "stripe_size",
    "stripe_width",
    "striping_factor",
    "striping_unit",
];

/// What MPI said of the first file of a point.
#[derive(Debug, Default)]
pub(super) struct Shown {
    used: Option<Hints>,
}

impl Shown {
    pub(super) fn is_empty(&self) -> bool {
        self.used.is_none()
    }

    pub(super) fn note(&mut self, used: Hints) {
        self.used = Some(used);
    }

    /// For the record: all that MPI lists, and what was asked for in vain.
    pub(super) fn describe(&self, asked: &Hints, dialect: Dialect) -> Value {
        let Some(used) = &self.used else {
            return Value::Null;
        };
        let layer = layer(used, dialect);
        json!({
            "io_layer": layer,
            "hints": used,
            "hints_not_taken": not_taken(asked, used, layer),
        })
    }
}

/// Who carries the calls out, as the hints tell.
fn layer(used: &Hints, dialect: Dialect) -> &'static str {
    // ROMIO lists all its hints with their values; nobody sets this one.
    if used.contains_key("romio_filesystem_type") || used.contains_key("ind_rd_buffer_size") {
        "ROMIO"
    } else if dialect == Dialect::OpenMpi {
        "OMPIO"
    } else {
        "unknown"
    }
}

/// Each hint that has no effect, and why.
fn not_taken(asked: &Hints, used: &Hints, layer: &str) -> Hints {
    let mut vain = Hints::new();
    for (name, value) in asked {
        let why = match used.get(name) {
            None => Some("MPI does not list it, so that it has no effect".to_owned()),
            Some(other) if other != value => Some(format!("MPI uses {other} instead of {value}")),
            Some(_) if layer == "OMPIO" && !OMPIO.contains(&name.as_str()) => Some(
                "MPI lists it, but OMPIO does not know it: choose ROMIO by mpirun --mca io romio321 (Open MPI 4) or \
                 --mca io romio341 (Open MPI 5)"
                    .to_owned(),
            ),
            Some(_) => None,
        };
        vain.extend(why.map(|why| (name.clone(), why)));
    }
    vain
}

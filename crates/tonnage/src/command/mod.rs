//! The commands.
//!
//! | file | command |
//! | --- | --- |
//! | [`measure`] | `transfer`, `file`, `connect`, `run`, `verify`: a plan, ranks, records, a table |
//! | `checks` | checks before a rank starts |
//! | [`ior`] | `ior`: a command line of IOR, a plan, and IOR's result block |
//! | [`tour`] | `tour`: limits of this host, then a plan, then one page |
//! | [`limits`] | upper bounds of this host, for the tour |
//! | [`show`] | `show`, `explain`, `devices` |
//! | [`manual`] | `completions`, `man` |

mod checks;
pub mod ior;
pub mod limits;
pub mod manual;
pub mod measure;
mod observer;
pub mod show;
pub mod tour;

use std::io::Write;

use tonnage_units::{Error, Result};

/// Reads the environment; a value that is not Unicode is as good as none.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Writes to standard output.
///
/// # Errors
/// When nobody reads any more or the disk behind it is full.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Error::io("cannot write to standard output", error))
}

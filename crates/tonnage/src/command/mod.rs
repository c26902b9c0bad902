//! The commands.
//!
//! | file | command |
//! | --- | --- |
//! | [`measure`] | the commands of kinds, `run` and `verify`: a plan, ranks, records, a table |
//! | `job` | a plan with everything that a command needs to run it |
//! | `observer` | records as they come |
//! | `checks` | checks before a rank starts |
//! | [`ior`] | `ior`: a command line of IOR becomes a plan |
//! | `block` | IOR's result block |
//! | [`tour`] | `tour`: limits of this host, then a plan, then one page |
//! | [`limits`] | upper bounds of this host, for the tour |
//! | [`show`] | `show`, `explain`, `devices` |
//! | [`manual`] | `completions`, `man` |

mod block;
mod checks;
pub mod ior;
mod job;
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

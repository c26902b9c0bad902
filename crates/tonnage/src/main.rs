//! The binary: starts the commands and passes on the commit that it was built from. It contains nothing else, so that a
//! new commit recompiles only this file.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tonnage_commands::Build;

fn main() -> ExitCode {
    tonnage_commands::main(Build {
        revision: env!("TONNAGE_GIT_REVISION"),
        target: env!("TONNAGE_TARGET"),
    })
}

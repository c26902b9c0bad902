//! The binary: starts the commands and passes on the commit that it was built from. It holds nothing else, so that a
//! new commit recompiles nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tonnage_commands::Build;

fn main() -> ExitCode {
    tonnage_commands::main(Build {
        revision: env!("TONNAGE_GIT_REVISION"),
        target: env!("TONNAGE_TARGET"),
    })
}

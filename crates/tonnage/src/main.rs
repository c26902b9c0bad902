//! The program: the commands, told which commit this binary was built from. Nothing else is here, so that another commit
//! compiles nothing else.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use tonnage_commands::Build;

fn main() -> ExitCode {
    tonnage_commands::main(Build {
        revision: env!("TONNAGE_GIT_REVISION"),
        target: env!("TONNAGE_TARGET"),
    })
}

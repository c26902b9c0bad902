//! The agent of a host: this program, started on that host by ssh.

use std::path::PathBuf;
use std::process::ExitCode;

use tonnage_machine::HostFacts;
use tonnage_ranks::bootstrap::secret::content_hash;
use tonnage_ranks::spawn::remote::agent::{AgentProgram, serve};
use tonnage_ranks::spawn::remote::messages::ProgramBuild;
use tonnage_units::{Error, Result};

use super::leftovers::Leftovers;
use super::{print, program};
use crate::args::AgentArgs;

/// `tonnage host-agent`.
pub fn agent(args: &AgentArgs) -> Result<ExitCode> {
    let path = own_file()?;
    if args.build {
        print(&format!("{}\n", content_hash(&path)?.0))?;
        return Ok(ExitCode::SUCCESS);
    }
    let leftovers = Leftovers::new();
    serve(AgentProgram {
        build: build(),
        path,
        rank_command: "host-rank",
        describe: || HostFacts::read().to_json(),
        variables: vec![leftovers.variable()],
        clean_up: Box::new(move |ranks, lost| leftovers.remove(ranks, lost)),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of this program's file.
pub fn own_file() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::io("cannot find this program's own file", error))
}

/// Returns this program's build.
pub fn build() -> ProgramBuild {
    let program = program();
    ProgramBuild {
        version: program.version,
        revision: program.git_revision,
    }
}

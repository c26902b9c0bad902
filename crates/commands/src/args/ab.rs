//! `tonnage ab`: two sides that alternate, each a command line of tonnage.

use std::path::PathBuf;

use clap::Args;
use tonnage_units::{Error, Nanos, Result};

use super::common::RUNS_MAX;
use super::values::{library, variable};

/// Default number of runs per side. If runs spread by 3 %, this number detects a difference of 10 %.
const RUNS_DEFAULT: u32 = 11;

/// `tonnage ab`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "Examples:\n  \
    tonnage ab -o ab.jsonl -- transfer --engine fabric:shm --op write --ranks 2 --sizes 64..1M*16 -- transfer \
    --engine shm --op write --ranks 2 --sizes 64..1M*16\n  \
    tonnage ab -o ab.jsonl --b-env FI_SHM_TX_SIZE=64 -- transfer --engine fabric:shm --op write --ranks 2 --sizes 64\n\
    Then: tonnage compare ab.jsonl --ignore engine")]
pub struct AbArgs {
    /// Number of runs of each side, in alternating order: A B, B A, A B, …
    #[arg(long, alias = "times", value_name = "N", default_value_t = RUNS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS_MAX)))]
    pub runs: u32,

    /// End within this time; a pair of runs that would take longer than the time left is not begun. Runs of this
    /// program also get the time left as their own limit.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Nanos>,

    /// Write the records of both sides to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace the file of --output if it is there.
    #[arg(long)]
    pub force: bool,

    /// Program to run as side A, such as the previous version; it gets side B's arguments. `tonnage compare` takes side
    /// A as the reference: *worse* means that side B is worse.
    #[arg(long, value_name = "PATH")]
    pub a_program: Option<PathBuf>,

    /// Program to run as side B, such as another version of tonnage; it gets side A's arguments.
    #[arg(long, value_name = "PATH")]
    pub b_program: Option<PathBuf>,

    /// An environment variable for side B; may be repeated. Both sides then have the same arguments.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub b_env: Vec<(String, String)>,

    /// A library that side B loads, such as libfabric=/opt/lib/libfabric.so.1; may be repeated. Both sides then have
    /// the same arguments.
    #[arg(long, value_name = "NAME=PATH", value_parser = library)]
    pub b_library: Vec<(String, PathBuf)>,

    /// Command and options of side A, then -- and those of side B. Possible commands are transfer, file, connect,
    /// stress, tune, collective, run and layers, without -o and --format.
    #[arg(
        last = true,
        required = true,
        value_name = "ARGS [-- ARGS]",
        num_args = 1..
    )]
    pub words: Vec<String>,
}

/// One side of `tonnage ab`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AbSide {
    /// Program to run; `None` for this program.
    pub program: Option<PathBuf>,
    /// Arguments of the side.
    pub arguments: Vec<String>,
    /// Environment variables that only this side has.
    pub variables: Vec<(String, String)>,
    /// Keys of the settings that differ on purpose.
    pub varied: Vec<String>,
}

impl AbArgs {
    /// Returns the two sides.
    pub fn sides(&self) -> Result<[AbSide; 2]> {
        let mut lines = self.words.split(|word| word == "--");
        let (first, second) = (lines.next().unwrap_or_default(), lines.next());
        if lines.next().is_some() {
            return Err(Error::Usage(
                "there are two sides: write -- ARGS -- ARGS, or -- ARGS and what differs by --a-program, --b-program, \
                 --b-env or --b-library"
                    .to_owned(),
            ));
        }
        let varied = self.varied();
        let a = AbSide {
            program: self.a_program.clone(),
            arguments: first.to_vec(),
            ..AbSide::default()
        };
        let b = match (second, varied.is_empty()) {
            (Some(second), true) => AbSide {
                arguments: second.to_vec(),
                ..AbSide::default()
            },
            (None, false) => {
                let libraries = self.b_library.iter();
                let libraries = libraries.flat_map(|(name, path)| {
                    ["--library".to_owned(), format!("{name}={}", path.display())]
                });
                AbSide {
                    program: self.b_program.clone(),
                    arguments: first.iter().cloned().chain(libraries).collect(),
                    variables: self.b_env.clone(),
                    varied,
                }
            }
            (Some(_), false) => {
                return Err(Error::Usage(
                    "side B has a command line of its own, and --a-program, --b-program, --b-env or --b-library as \
                     well: leave one of them out, so that one thing is compared"
                        .to_owned(),
                ));
            }
            (None, true) => {
                return Err(Error::Usage(
                    "both sides are the same: write a second command line after --, or what differs by --a-program, \
                     --b-program, --b-env or --b-library"
                        .to_owned(),
                ));
            }
        };
        Ok([a, b])
    }

    /// Returns the keys of the deliberate differences between the sides. A comparison accepts these differences.
    fn varied(&self) -> Vec<String> {
        let program = self.a_program.as_ref().or(self.b_program.as_ref());
        let program = program.iter().map(|_| "program".to_owned());
        let variables = self
            .b_env
            .iter()
            .map(|(name, _)| format!("variables.{name}"));
        let libraries = self
            .b_library
            .iter()
            .map(|(name, _)| format!("libraries.{name}"));
        program.chain(variables).chain(libraries).collect()
    }
}

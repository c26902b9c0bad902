//! One command for each kind of experiment. It runs one experiment, described by its options. `tonnage_plan::kinds`
//! lists the kinds, their options and their help.

use clap::builder::UnknownArgumentValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use tonnage_plan::{Experiment, KINDS, Plan};

use super::common::{RankArgs, ResultArgs};

/// The command of a kind.
#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentArgs {
    /// The experiment.
    pub experiment: Experiment,
    /// Placement of ranks.
    pub ranks: RankArgs,
    /// Destination and format of results.
    pub results: ResultArgs,
}

impl ExperimentArgs {
    /// Returns the plan of this command line, without `--scale` applied.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: self.experiment.kind().to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![self.experiment.clone()],
            ..Plan::default()
        }
    }
}

/// Options that are really separate commands, although users may look for them at another kind: the kind, the option,
/// and a hint.
const ELSEWHERE: &[(&str, &str, &str)] = &[(
    "transfer",
    "stress",
    "random transfers have a separate command: 'tonnage stress --engine NAME --ranks N --duration 30s'",
)];

/// A kind that is also a flag of the program: `tonnage --stress` means `tonnage stress`.
const FLAG: &str = "stress";

/// Declares an option that is refused like an unknown one, with a hint to the right command.
fn refused(name: &'static str, tip: &'static str) -> Arg {
    let refusal = UnknownArgumentValueParser::suggest(tip);
    let arg = Arg::new(name).long(name).hide(true);
    arg.action(ArgAction::SetTrue).value_parser(refusal)
}

/// Adds one command per kind. It is written by hand, because clap can derive only commands that are listed in the
/// source.
impl Subcommand for ExperimentArgs {
    fn augment_subcommands(command: Command) -> Command {
        KINDS.iter().fold(command, |command, kind| {
            let with_groups = ResultArgs::augment_args(RankArgs::augment_args((kind.command)()));
            let elsewhere = ELSEWHERE.iter().filter(|(key, ..)| *key == kind.key);
            let with_groups = with_groups.args(elsewhere.map(|(_, name, tip)| refused(name, tip)));
            // Without this, the comment of a flattened group would become the description of the command.
            let of_kind = with_groups.about(kind.about).long_about(None::<&str>);
            command.subcommand(match kind.key {
                FLAG => of_kind.long_flag(FLAG),
                _ => of_kind,
            })
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        KINDS.iter().any(|kind| kind.key == name)
    }
}

impl FromArgMatches for ExperimentArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let none = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(none)?;
        let kind = KINDS
            .iter()
            .find(|kind| kind.key == name)
            .ok_or_else(none)?;
        Ok(Self {
            experiment: (kind.asked)(matches)?,
            ranks: RankArgs::from_arg_matches(matches)?,
            results: ResultArgs::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

//! The commands of the kinds: one experiment, given on the command line. The kinds, their options and their help come
//! from the list in `tonnage_plan::kinds`.

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
    /// Returns the plan of this command line, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: self.experiment.kind().to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![self.experiment.clone()],
            ..Plan::default()
        }
    }
}

/// Options that users may look for at one kind although they are another kind: the kind, the option, and the command.
const ELSEWHERE: &[(&str, &str, &str)] = &[(
    "transfer",
    "stress",
    "random transfers have a separate command: 'tonnage stress --engine NAME --ranks N --duration 30s'",
)];

/// A kind that is also a flag of the program: `tonnage --stress` means `tonnage stress`.
const FLAG: &str = "stress";

/// An option that is refused like an unknown one, with a hint to the equivalent command.
fn refused(name: &'static str, tip: &'static str) -> Arg {
    let refusal = UnknownArgumentValueParser::suggest(tip);
    let arg = Arg::new(name).long(name).hide(true);
    arg.action(ArgAction::SetTrue).value_parser(refusal)
}

/// One command per kind. Written by hand, because clap derives only commands that are listed in the source.
impl Subcommand for ExperimentArgs {
    fn augment_subcommands(command: Command) -> Command {
        KINDS.iter().fold(command, |command, kind| {
            let with_groups = ResultArgs::augment_args(RankArgs::augment_args((kind.command)()));
            let elsewhere = ELSEWHERE.iter().filter(|(key, ..)| *key == kind.key);
            let with_groups = with_groups.args(elsewhere.map(|(_, name, tip)| refused(name, tip)));
            // Without this, each flattened group would set its own comment as the description.
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

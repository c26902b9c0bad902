//! Commands of kinds: one experiment, said on the command line. Which kinds there are, their options and their help
//! come from the list in `tonnage_plan::kinds`.

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
    /// The plan that this command line stands for, before `--scale`.
    pub fn to_plan(&self) -> Plan {
        Plan {
            name: self.experiment.kind().to_owned(),
            ranks: self.ranks.ranks,
            experiments: vec![self.experiment.clone()],
            ..Plan::default()
        }
    }
}

/// Options that some look for at one kind and that are another kind here: the kind, the option, and the command.
const ELSEWHERE: &[(&str, &str, &str)] = &[(
    "transfer",
    "stress",
    "drawn transfers are a command of their own: 'tonnage stress --engine NAME --ranks N --duration 30s'",
)];

/// A kind that is also a flag of the program: `tonnage --stress` is `tonnage stress`.
const FLAG: &str = "stress";

/// An option that is refused as any unknown one, with the command that does the same.
fn refused(name: &'static str, tip: &'static str) -> Arg {
    let refusal = UnknownArgumentValueParser::suggest(tip);
    let arg = Arg::new(name).long(name).hide(true);
    arg.action(ArgAction::SetTrue).value_parser(refusal)
}

/// A command for each kind; clap can derive only those that are written out.
impl Subcommand for ExperimentArgs {
    fn augment_subcommands(command: Command) -> Command {
        KINDS.iter().fold(command, |command, kind| {
            let with_groups = ResultArgs::augment_args(RankArgs::augment_args((kind.command)()));
            let elsewhere = ELSEWHERE.iter().filter(|(key, ..)| *key == kind.key);
            let with_groups = with_groups.args(elsewhere.map(|(_, name, tip)| refused(name, tip)));
            // Each group would put its own comment there.
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

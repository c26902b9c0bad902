//! The number of ranks, and advice about it if `--ranks` does not set the number.
//!
//! A plan knows nothing about hosts and launchers, so its errors recommend a value for `--ranks`. This module changes
//! that advice to name the option or program that sets the number in this run.

use tonnage_plan::Plan;
use tonnage_ranks::spawn::remote::list::HostPlacement;
use tonnage_units::identity::Identity;
use tonnage_units::{Error, Result};

use crate::args::common::RankArgs;

/// The option's name and the blank before its value.
const OPTION: &str = "--ranks ";

/// Returns the number of ranks: the launcher's if there is one, else the command line's, else the plan's, else one.
pub(super) fn how_many(ranks: &RankArgs, plan: &Plan, identity: Option<&Identity>) -> Result<u32> {
    let asked = ranks.asked()?.or(plan.ranks);
    match (identity, ranks.ranks) {
        (Some(identity), Some(asked)) if asked != identity.size => Err(Error::Usage(format!(
            "--ranks {asked} does not fit the {} ranks that {} gives: leave --ranks out, or {} where it is left over from \
             another job or this is a shell inside of one (srun --pty)",
            identity.size,
            identity.source,
            unset(&identity.source)
        ))),
        (Some(identity), _) => Ok(identity.size),
        (None, _) => Ok(asked.unwrap_or(1)),
    }
}

/// Returns advice to unset a launcher's variables.
fn unset(source: &str) -> String {
    // A Slurm step sets many more variables than the one that identified it.
    if source.starts_with("SLURM_") {
        "run `unset ${!SLURM_*}` in bash".to_owned()
    } else {
        format!("run `unset {}`", source.replace('/', " "))
    }
}

/// Source of the number of ranks.
pub enum CountSource<'a> {
    /// `--ranks`, or its default.
    Option,
    /// The list of hosts.
    Hosts(&'a HostPlacement),
    /// A launcher, which has started the ranks.
    Launcher(&'a Identity),
}

impl<'a> CountSource<'a> {
    /// Returns the launcher if there is one, else the hosts if any are named, else the option.
    pub fn of(identity: Option<&'a Identity>, placement: Option<&'a HostPlacement>) -> Self {
        match (identity, placement) {
            (Some(identity), _) => Self::Launcher(identity),
            (None, Some(placement)) => Self::Hosts(placement),
            (None, None) => Self::Option,
        }
    }

    /// Adapts the advice of an error about the number of ranks. Returns all other errors unchanged.
    pub fn advise(&self, error: Error) -> Error {
        let Error::Usage(text) = &error else {
            return error;
        };
        let next = match self {
            Self::Option => return error,
            Self::Hosts(placement) => format!(
                "the hosts make {}: name more or fewer of them, give each its number as in h0:2, or use --per-host N",
                placement.size()
            ),
            Self::Launcher(identity) => format!(
                "{} gives {}: let the launcher start another number",
                identity.source, identity.size
            ),
        };
        match counted(text) {
            Some(text) => Error::Usage(format!("{text}; {next}")),
            None => error,
        }
    }
}

/// Replaces "--ranks 4" by "4 ranks". Returns `None` if the text has no such advice.
fn counted(text: &str) -> Option<String> {
    let mut parts = text.split(OPTION);
    let mut written = parts.next()?.to_owned();
    let mut found = false;
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (count, rest) = part.split_at(digits);
        let unit = if count == "1" { "rank" } else { "ranks" };
        written += &match count {
            "" => format!("{OPTION}{rest}"),
            _ => format!("{count} {unit}{rest}"),
        };
        found |= !count.is_empty();
    }
    found.then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_ranks::spawn::remote::list::HostSlots;
    use tonnage_units::identity::Meeting;

    fn placement() -> HostPlacement {
        let host = |name: &str| HostSlots {
            name: name.into(),
            slots: None,
        };
        HostPlacement::new(&[host("h0"), host("h1"), host("h2")], None).unwrap()
    }

    #[test]
    fn advice_names_the_source_of_the_number() {
        let told = |source: &CountSource<'_>, text: &str| {
            source.advise(Error::Usage(text.to_owned())).to_string()
        };
        let odd =
            "pair traffic needs an even number: use --ranks 4, initiators 1, or another traffic";
        let placement = placement();
        let hosts = CountSource::Hosts(&placement);
        let text = told(&hosts, odd);
        assert!(text.contains("use 4 ranks, initiators 1"), "{text}");
        assert!(text.contains("; the hosts make 3:"), "{text}");
        assert!(
            text.contains("--per-host N") && !text.contains("--ranks"),
            "{text}"
        );
        let text = told(&hosts, "no: use --ranks 1 to --ranks 65536");
        assert!(text.contains("use 1 rank to 65536 ranks;"), "{text}");
        // A text without such advice stays unchanged.
        for other in ["--ranks N is not it", "no such file"] {
            assert_eq!(told(&hosts, other), other);
        }
        assert_eq!(told(&CountSource::Option, odd), odd);
        let failed = hosts.advise(Error::Failed(odd.to_owned()));
        assert_eq!(failed.to_string(), odd);
        let identity = Identity {
            rank: 0,
            size: 3,
            local_rank: 0,
            local_size: None,
            source: "SLURM_PROCID".into(),
            meeting: Meeting::Alone,
        };
        let text = told(&CountSource::Launcher(&identity), odd);
        assert!(text.contains("; SLURM_PROCID gives 3:"), "{text}");
    }
}

//! Chooses an experiment's engines: its own, or the ones on the command line.

use crate::options::{Many, Pair, pairs};
use tonnage_engine::{EngineOptions, Entry, Lists, split_name};
use tonnage_units::Result;

/// An engine of an experiment.
pub(crate) struct ChosenEngine<'a> {
    pub(crate) entry: &'static Entry,
    /// The engine's name with its variant.
    pub(crate) name: &'a str,
    /// The engine's options that differ from their defaults.
    pub(crate) options: EngineOptions,
}

/// The engines that an experiment names, one or more.
pub(crate) fn chosen<'a>(
    names: &'a Option<Many<String>>,
    options: &[Pair],
    lists: &Lists,
) -> Result<Vec<ChosenEngine<'a>>> {
    let names = Many::all(names);
    if names.is_empty() {
        return Err(lists.no_engine());
    }
    let asked = pairs::map(options);
    let one = |name: &'a String| {
        let entry = lists.engine(name)?;
        Ok(ChosenEngine {
            entry,
            name,
            options: entry.check_options(&asked, split_name(name).1)?,
        })
    };
    names.iter().map(one).collect()
}

/// Replaces an experiment's own engines or backends by the `asked` ones. Returns whether any engine is left. An
/// optional experiment with engine options keeps only those `asked` engines that it names itself, because other engines
/// lack the options. All other experiments keep every `asked` engine.
pub(crate) fn choose(
    own: &mut Option<Many<String>>,
    asked: Vec<String>,
    options: &[Pair],
    is_optional: bool,
) -> bool {
    let named = own.take().map_or(Vec::new(), |own| own.0);
    let mut chosen = asked;
    if is_optional && !options.is_empty() && !named.is_empty() {
        chosen.retain(|engine| named.contains(engine));
    }
    let is_about_some = !chosen.is_empty();
    *own = Some(chosen.into());
    is_about_some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_optional_one_with_options_stays_with_the_engines_that_it_names() {
        let options = [("signalling".to_owned(), "first".to_owned())];
        for (own, options, is_optional, left) in [
            (&["a", "b"][..], &options[..], true, &["b"][..]),
            (&["a"], &options, true, &[]),
            // An experiment that names no engine uses every requested one.
            (&[], &options, true, &["b", "c"]),
            (&["a"], &[], true, &["b", "c"]),
            (&["a"], &options, false, &["b", "c"]),
        ] {
            let mut engines = (!own.is_empty()).then(|| names(own).into());
            let is_about_some = choose(&mut engines, names(&["b", "c"]), options, is_optional);
            assert_eq!(engines.unwrap().0, names(left), "{own:?} {is_optional}");
            assert_eq!(is_about_some, !left.is_empty());
        }
    }

    #[test]
    fn every_kind_with_options_keeps_to_it_and_says_what_is_left_out() {
        let text = "name = 'p'\n\
            [[transfer]]\nlabel = 'mine'\nengine = 'verbs:kernel'\nengine-options = { signalling = 'first' }\n\
            optional = true\nop = 'read'\nsizes = 8\n\
            [[connect]]\nengine = 'verbs:rc'\nengine-options = { connect = 'cm' }\noptional = true\n\
            [[file]]\npath = 'f'\nengine = 'uring'\nengine-options = { polling = 'on' }\noptional = true\n\
            [[collective]]\nbackend = 'native:shm'\nengine-options = { write = 'nt' }\noptional = true\n\
            op = 'barrier'\n\
            [[stress]]\nengine = 'shm'\nengine-options = { write = 'nt' }\n\
            [[file]]\npath = 'g'\nengine-options = { polling = 'on' }\noptional = true\n";
        let left_out = |engine: &str| {
            let mut plan = Plan::from_toml(text, "p").unwrap();
            plan.use_engines(&names(&[engine])).unwrap()
        };
        let all = ["transfer 1 (mine)", "connect 2", "file 3", "collective 4"];
        let but = |kept: usize| {
            let left = all.iter().enumerate().filter(|(at, _)| *at != kept);
            left.map(|(_, name)| (*name).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(left_out("null"), names(&all));
        for (kept, engine) in ["verbs:kernel", "verbs:rc", "uring", "shm"]
            .iter()
            .enumerate()
        {
            assert_eq!(left_out(engine), but(kept), "{engine}");
        }
    }
}

//! Kinds of memory of both ends: what `memory` and `target-memory` mean together.

use super::options::Transfer;
use crate::options::Many;
use crate::point::Traffic;
use crate::refuse::usage;
use crate::roles::Roles;
use crate::skipping;
use tonnage_engine::memory::MemoryEntry;
use tonnage_engine::{Lists, Verb};
use tonnage_units::Result;

/// Memories of both ends, by their names with the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndMemories<'a> {
    /// Of those who initiate.
    pub(super) own: &'a str,
    /// Of those who are initiated to, where it is another one.
    pub(super) target: Option<&'a str>,
}

/// The memories to measure in, each of `memory` with each of `target-memory`.
///
/// # Errors
/// `Usage` for names that are not in the list, for memory that an operation cannot use, and for targets that there are
/// none of.
pub(super) fn memories<'a>(
    transfer: &'a Transfer,
    ops: &[Verb],
    roles: &[Roles],
    lists: &Lists,
) -> Result<Vec<EndMemories<'a>>> {
    let own = named(transfer, "memory", &transfer.memory.memory, ops, lists)?;
    let own = own.unwrap_or_else(|| vec![lists.default_memory()]);
    let asked = &transfer.memory.target_memory;
    let Some(targets) = named(transfer, "target-memory", asked, ops, lists)? else {
        let alike = |own| EndMemories { own, target: None };
        return Ok(own.into_iter().map(alike).collect());
    };
    if let Some(Roles { traffic, .. }) = roles.iter().find(|roles| roles.all_initiate()) {
        return usage(format!(
            "target-memory {} is about ranks that are initiated to, and with traffic {} every rank is both: leave \
             target-memory out, or use traffic {}",
            targets.join(","),
            traffic.name(),
            Traffic::Pair.name()
        ));
    }
    let of = |own| {
        let with = move |&target: &&'a str| EndMemories {
            own,
            target: Some(target).filter(|&target| target != own),
        };
        targets.iter().map(with)
    };
    Ok(own.into_iter().flat_map(of).collect())
}

/// The memories that an option names, checked; `None` where it is left out.
fn named<'a>(
    transfer: &Transfer,
    option: &str,
    asked: &'a Option<Many<String>>,
    ops: &[Verb],
    lists: &Lists,
) -> Result<Option<Vec<&'a str>>> {
    let names = match asked.as_ref().map(Many::values) {
        None => return Ok(None),
        Some([]) => {
            return usage(format!(
                "{option} is empty: leave it out, or write {option} host"
            ));
        }
        Some(names) => names,
    };
    for name in names {
        // One that is not here is skipped in an optional experiment.
        if let Some(entry) = skipping::memory(lists, name, &transfer.skipping)? {
            check_visible(transfer, entry, ops)?;
        }
    }
    Ok(Some(names.iter().map(String::as_str).collect()))
}

/// A plain write under ping-pong is seen by its last byte, at which the CPU has to look, at both ends.
fn check_visible(transfer: &Transfer, memory: &MemoryEntry, ops: &[Verb]) -> Result<()> {
    if memory.host_addressable || !ops.contains(&Verb::Write) || !transfer.pacing.ping_pong {
        return Ok(());
    }
    usage(format!(
        "ping-pong with op write waits for the last byte to appear, and the CPU cannot look at memory {}: use op \
         write-imm or send",
        memory.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::fixture::{Expand, LISTS};
    use crate::transfer::MemoryOptions;

    fn found(memory: &[&str], target: Option<&[&str]>, traffic: Traffic) -> Result<Vec<String>> {
        let names = |names: &[&str]| Many(names.iter().map(|name| (*name).to_owned()).collect());
        let transfer = Transfer {
            memory: MemoryOptions {
                memory: Some(names(memory)),
                target_memory: target.map(names),
                ..MemoryOptions::default()
            },
            ..Transfer::default()
        };
        let all = memories(&transfer, &[Verb::Write], &[Roles::new(traffic, 4)], &LISTS)?;
        let words = |one: &EndMemories<'_>| format!("{} {}", one.own, one.target.unwrap_or("-"));
        Ok(all.iter().map(words).collect())
    }

    #[test]
    fn each_memory_is_measured_with_each_of_the_targets() {
        let both = found(&["host", "huge"], Some(&["huge", "host"]), Traffic::FanIn);
        assert_eq!(
            both.unwrap(),
            ["host huge", "host -", "huge -", "huge host"]
        );
        let alike = found(&["huge"], None, Traffic::AllToAll);
        assert_eq!(alike.unwrap(), ["huge -"]);
    }

    #[test]
    fn targets_that_nobody_is_and_names_of_nothing_are_refused() {
        let message = |target: &[&str], traffic| {
            found(&["host"], Some(target), traffic)
                .unwrap_err()
                .to_string()
        };
        let all = message(&["huge"], Traffic::AllToAll);
        assert!(
            all.contains("every rank is both: leave target-memory out"),
            "{all}"
        );
        let none = message(&[], Traffic::Pair);
        assert!(none.contains("write target-memory host"), "{none}");
        let unknown = message(&["hug"], Traffic::Pair);
        assert!(unknown.contains("huge"), "{unknown}");
    }

    /// Two of the four clients initiate; the others are idle, and no targets.
    #[test]
    fn only_ranks_that_somebody_initiates_to_have_the_targets_memory() {
        let text = "name = 'n'\n[[transfer]]\nengine = 'shm'\nop = 'write'\nsizes = 8\nmemory = 'host'\ntarget-memory = \
                    'huge'\ntraffic = 'fan-in'\ninitiators = 2";
        let plan = Plan::from_toml(text, "n.toml").unwrap();
        let point = plan.transfer_points(5).unwrap().remove(0);
        let kinds: Vec<&str> = (0..5).map(|rank| point.memory_of(rank)).collect();
        assert_eq!(kinds, ["huge", "host", "host", "host", "host"]);
        let options: Vec<&str> = (0..3).map(|rank| point.memory_option(rank)).collect();
        assert_eq!(options, ["--target-memory", "--memory", "--memory"]);
    }
}

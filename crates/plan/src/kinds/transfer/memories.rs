//! Kinds of memory at both ends: the combined meaning of `memory` and `target-memory`, and which ends `memory-option`
//! applies to.

use serde::{Deserialize, Serialize};

use super::options::Transfer;
use super::point::{Pacing, TransferPoint};
use crate::options::pairs;
use crate::point::Traffic;
use crate::refuse::usage_error;
use crate::roles::Roles;
use crate::skipping;
use tonnage_engine::{EngineOptions, Lists, OptionsOwner, Verb, check_options};
use tonnage_units::Result;

/// Kinds of memory of both ends of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memories {
    /// Kind of memory.
    pub memory: String,
    /// Kind of memory of the target ranks, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_memory: Option<String>,
    /// Memory options that differ from their defaults. Each applies to every end with a memory that has this option.
    #[serde(default, skip_serializing_if = "EngineOptions::is_empty")]
    pub memory_options: EngineOptions,
}

impl Memories {
    /// Names of the kinds of memory: the initiators' kind, then the targets' if it differs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let target = self.target_memory.as_deref();
        [Some(&*self.memory), target].into_iter().flatten()
    }

    /// Kind of memory of a rank.
    pub fn memory_of(&self, rank: u32, roles: Roles) -> &str {
        self.target_memory_of(rank, roles).unwrap_or(&self.memory)
    }

    /// The option that names a rank's kind of memory.
    pub fn memory_option(&self, rank: u32, roles: Roles) -> &'static str {
        match self.target_memory_of(rank, roles) {
            Some(_) => "--target-memory",
            None => "--memory",
        }
    }

    /// The kind of memory of a target rank, if it differs from the initiators' kind.
    pub fn target_memory_of(&self, rank: u32, roles: Roles) -> Option<&str> {
        let target = self.target_memory.as_deref();
        target.filter(|_| roles.is_target_side(rank) && !roles.initiators_of(rank).is_empty())
    }
}

/// Returns the memories to measure: each combination of `memory` and `target-memory`.
pub(super) fn memories(
    transfer: &Transfer,
    roles: &[Roles],
    lists: &Lists,
) -> Result<Vec<Memories>> {
    let (options, skipping) = (&transfer.memory, &transfer.skipping);
    let own = skipping::memories(lists, "memory", &options.memory, skipping)?;
    let own: Vec<&str> = match own {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => vec![lists.default_memory()],
    };
    let targets = skipping::memories(lists, "target-memory", &options.target_memory, skipping)?;
    let ends = |own: &str, target: Option<&str>| -> Result<Memories> {
        Ok(Memories {
            memory: own.to_owned(),
            target_memory: target.map(str::to_owned),
            memory_options: memory_options(transfer, (own, target), lists)?,
        })
    };
    let Some(targets) = targets else {
        return own.into_iter().map(|own| ends(own, None)).collect();
    };
    if let Some(Roles { traffic, .. }) = roles.iter().find(|roles| roles.all_initiate()) {
        return usage_error(format!(
            "--target-memory {} is about target ranks, and with --traffic {} every rank is initiator and target: \
             leave --target-memory out, or use --traffic {}",
            targets.join(","),
            traffic.name(),
            Traffic::Pair.name()
        ));
    }
    let with_targets = |own| targets.iter().map(move |target| (own, target.as_str()));
    let pairs = own.into_iter().flat_map(with_targets);
    pairs
        .map(|(own, target)| ends(own, Some(target).filter(|&target| target != own)))
        .collect()
}

/// Returns the memory options at both ends that differ from the defaults. Each applies to every end with a memory that
/// has this option.
fn memory_options(
    transfer: &Transfer,
    (own, target): (&str, Option<&str>),
    lists: &Lists,
) -> Result<EngineOptions> {
    let asked = pairs::map(&transfer.memory.memory_options);
    let names = [Some(own), target];
    let mut entries = Vec::new();
    for name in names.into_iter().flatten() {
        match lists.memory(name) {
            Ok(entry) => entries.push(entry),
            // The point will be skipped, so its options are not checked.
            Err(_) if lists.lacks_memory(name) => return Ok(asked),
            Err(error) => return Err(error),
        }
    }
    let mut options = EngineOptions::new();
    for entry in &entries {
        options.extend(entry.check_options(&entry.known_options(&asked))?);
    }
    let mut unknown = asked.clone();
    unknown.retain(|name, _| {
        let mut known = entries.iter().flat_map(|entry| entry.options);
        !known.any(|option| option.name == name)
    });
    if unknown.is_empty() {
        return Ok(options);
    }
    let all: Vec<_> = entries
        .iter()
        .flat_map(|entry| entry.options)
        .copied()
        .collect();
    let both: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    check_options(OptionsOwner::Memory(&both.join(" or ")), &all, &unknown, "")
}

/// Refuses memory that the CPU cannot read in a ping-pong of plain writes, which waits until the last byte appears.
pub(super) fn check_visible(point: &TransferPoint, lists: &Lists) -> Result<()> {
    if point.op != Verb::Write || point.pacing != Pacing::PingPong {
        return Ok(());
    }
    // A missing memory is no error here, because an optional experiment skips it.
    let is_far = |name: &&str| {
        lists
            .memory(name)
            .is_ok_and(|entry| !entry.host_addressable)
    };
    match point.memories.names().find(is_far) {
        Some(name) => usage_error(format!(
            "--ping-pong with --op write waits for the last byte to appear, and the CPU cannot read memory {name}: \
             use --op write-imm, or --op send"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Holds, LISTS, transfers};
    use crate::options::Many;
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
        let all = memories(&transfer, &[Roles::new(traffic, 4)], &LISTS)?;
        let words = |one: &Memories| {
            let target = one.target_memory.as_deref().unwrap_or("-");
            format!("{} {target}", one.memory)
        };
        Ok(all.iter().map(words).collect())
    }

    /// Returns the options of transfers with these memories.
    fn options(text: &str, own: &str, target: Option<&str>) -> Result<EngineOptions> {
        let transfer = Transfer {
            memory: MemoryOptions {
                memory_options: vec![pairs::memory_option(text).unwrap()],
                ..MemoryOptions::default()
            },
            ..Transfer::default()
        };
        memory_options(&transfer, (own, target), &LISTS)
    }

    #[test]
    fn an_option_is_for_the_ends_that_know_it() {
        let parts = EngineOptions::from([("alloc".to_owned(), "parts".to_owned())]);
        for (own, target) in [
            ("cuda", None),
            ("host", Some("cuda")),
            ("cuda", Some("host")),
            ("cuda", Some("far")),
            ("gpu", Some("host")),
        ] {
            assert_eq!(options("alloc=parts", own, target).unwrap(), parts);
        }
        assert!(options("alloc=whole", "cuda", None).unwrap().is_empty());
    }

    #[test]
    fn an_option_that_no_end_knows_is_refused_by_name() {
        let said = |text, own, target| options(text, own, target).unwrap_err().to_string();
        let none = said("alloc=parts", "host", None);
        assert_eq!(
            none,
            "memory host has no option \"alloc\": it has none: leave --memory-option out"
        );
        let both = said("alloc=parts", "host", Some("huge"));
        assert!(both.starts_with("memory host or huge has no"), "{both}");
        let near = said("aloc=parts", "host", Some("cuda"));
        assert!(near.contains("did you mean alloc?"), "{near}");
        let value = said("alloc=all", "cuda", None);
        assert!(value.contains("takes alloc=whole|parts"), "{value}");
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
    fn target_memory_without_targets_and_unknown_names_are_refused() {
        let message = |target: &[&str], traffic| {
            found(&["host"], Some(target), traffic)
                .unwrap_err()
                .to_string()
        };
        let all = message(&["huge"], Traffic::AllToAll);
        all.holds("every rank is initiator and target: leave --target-memory out");
        let none = message(&[], Traffic::Pair);
        assert!(none.contains("use --target-memory host"), "{none}");
        let unknown = message(&["hug"], Traffic::Pair);
        assert!(unknown.contains("huge"), "{unknown}");
    }

    /// Two of the four clients initiate. The other two are idle, so they are not targets either.
    #[test]
    fn only_target_ranks_have_the_targets_memory() {
        let lines = "engine = 'shm'\nop = 'write'\nsizes = 8\nmemory = 'host'\ntarget-memory = 'huge'\n\
                     traffic = 'fan-in'\ninitiators = 2";
        let point = transfers(lines, 5).unwrap().remove(0);
        let kinds: Vec<&str> = (0..5)
            .map(|rank| point.memories.memory_of(rank, point.roles))
            .collect();
        assert_eq!(kinds, ["huge", "host", "host", "host", "host"]);
        let options: Vec<&str> = (0..3)
            .map(|rank| point.memories.memory_option(rank, point.roles))
            .collect();
        assert_eq!(options, ["--target-memory", "--memory", "--memory"]);
    }
}

//! Effective configuration of each rank and its CPUs, for the record.

use crate::kinds::kind::group_equal;
use crate::opening::engine::OpenEngine;
use tonnage_engine::{Facts, fact_names};
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Distinct, Rank};
use tonnage_record::Effective;
use tonnage_record::grouping::by_answer;
use tonnage_units::number_list;

/// Returns the effective configuration of all ranks. `chosen` has choices that engines made while bytes moved.
pub fn effective(open: &OpenEngine, chosen: &Distinct<Facts>) -> Vec<Effective> {
    let (all, places) = (open.opened.all.iter(), open.opened.places.iter());
    group_equal(
        (0u32..)
            .zip(all.zip(places))
            .map(|(rank, (opened, places))| {
                let mut engine = opened.engine.clone();
                if let Some(choices) = chosen.get(rank) {
                    engine.facts.extend(choices.clone());
                }
                Effective {
                    engine,
                    memory: places.memory.clone().into(),
                    cpus: places.cpus.clone(),
                    sockets: places.sockets.clone(),
                    yielding: opened.yielding,
                    ..Effective::default()
                }
            }),
    )
}

/// Returns the remarks of engines that cast doubt on the measurement. Each remark appears once, with all ranks to which
/// it applies.
pub fn remarks(all: &[Effective]) -> Vec<String> {
    let each = all.iter().flat_map(|effective| {
        let texts = effective.engine.facts.texts(fact_names::REMARKS);
        texts.into_iter().map(|text| (&effective.ranks, text))
    });
    let lines = by_answer(each).into_iter().map(|(text, lists)| {
        let numbers = lists.iter().map(|list| number_list::parse(list));
        let numbers: Vec<u32> = numbers.flatten().flatten().collect();
        let ranks = number_list::format(&numbers);
        let is_one = numbers.iter().all(|number| Some(number) == numbers.first());
        let plural = if is_one { "" } else { "s" };
        format!("rank{plural} {ranks}: {text}")
    });
    lines.collect()
}

/// Returns the CPUs of the first pair of workers that exchange bytes, if both are on rank 0's host.
pub fn canary_cpus(
    point: &TransferPoint,
    open: &OpenEngine,
    rank: &Rank,
    allowed: &[u32],
) -> Result<[u32; 2], String> {
    let (from, to) = (0..point.roles.ranks)
        .find_map(|from| {
            let targets = point.roles.targets(from);
            targets.first().map(|&to| (from, to))
        })
        .ok_or("no ranks exchange bytes")?;
    let hosts = rank.hosts();
    if !hosts.share_machine(from, 0) || !hosts.share_machine(to, 0) {
        return Err(format!(
            "ranks {from} and {to} are not both on rank 0's host"
        ));
    }
    let cpu = |rank: u32| {
        let places = open.opened.places.get(rank);
        places.and_then(|places| *places.cpus.first()?)
    };
    match (cpu(from), cpu(to)) {
        (Some(from), Some(to)) => Ok([from, to]),
        // The workers are not pinned, so any two CPUs will do.
        _ => match *allowed {
            [first, second, ..] => Ok([first, second]),
            _ => Err("this process may use only one CPU".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use tonnage_engine::{EngineReport, Fact};

    use super::*;

    /// Ranks with different CPUs are in different groups. A rank with several paths can be in several groups.
    #[test]
    fn a_doubt_of_many_ranks_is_one_remark() {
        let doubts = |texts: &[&str]| {
            Facts::default().with_fact(
                fact_names::REMARKS,
                texts.iter().copied().map(Fact::from).collect::<Vec<_>>(),
            )
        };
        let of = |ranks: &str, facts: Facts| Effective {
            ranks: ranks.to_owned(),
            engine: EngineReport {
                facts,
                ..EngineReport::default()
            },
            ..Effective::default()
        };
        let paths: Vec<_> = (0u32..2)
            .map(|path| Fact::from(doubts(&["lost"]).with_fact("path", path)))
            .collect();
        let all = [
            of("0", Facts::default()),
            of("1,4-5", doubts(&["lost"])),
            of("2", Facts::default().with_fact("paths", paths)),
            of("3", doubts(&["lost", "late"])),
        ];
        assert_eq!(remarks(&all), ["ranks 1-5: lost", "rank 3: late"]);
        // A rank appears once, even if two of its paths have the same remark.
        assert_eq!(remarks(&all[2..3]), ["rank 2: lost"]);
    }
}

//! Real choices of each rank, and on which CPUs.

use crate::kinds::kind::together;
use crate::opening::engine::OpenEngine;
use tonnage_engine::Facts;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::{Alike, Rank};
use tonnage_record::Effective;

/// Effective configuration of all ranks; `chosen` is what each engine decided by itself while the bytes moved.
pub fn effective(open: &OpenEngine, chosen: &Alike<Facts>) -> Vec<Effective> {
    let (all, places) = (open.opened.all.iter(), open.opened.places.iter());
    together(
        (0u32..)
            .zip(all.zip(places))
            .map(|(rank, (opened, places))| {
                let mut engine = opened.engine.clone();
                if let Some(choices) = chosen.get(rank) {
                    engine.facts.extend(choices.clone());
                }
                Effective {
                    ranks: String::new(),
                    engine,
                    memory: places.memory.clone().into(),
                    cpus: places.cpus.clone(),
                    sockets: places.sockets.clone(),
                    yielding: opened.yielding,
                }
            }),
    )
}

/// The CPUs of the first pair of workers that exchange bytes, if they share a host, for rank 0.
pub fn canary_cpus(
    point: &TransferPoint,
    open: &OpenEngine,
    rank: &Rank,
    allowed: &[u32],
) -> Result<[u32; 2], String> {
    let (from, to) = (0..point.ranks)
        .find_map(|from| {
            let targets = point.roles().targets(from);
            targets.first().map(|&to| (from, to))
        })
        .ok_or("nobody exchanges bytes")?;
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
        // Not pinned: any two CPUs tell as much.
        _ => match *allowed {
            [first, second, ..] => Ok([first, second]),
            _ => Err("this process may use only one CPU".into()),
        },
    }
}

//! Ranks on several hosts, which are network namespaces of this machine.

use std::path::Path;

use tempfile::tempdir;
use tonnage_core::record::Outcome;
use tonnage_hosts::{Error, Hosts, HostsSpec, Rate};

use super::support::{BRIEF, Ended, records, tonnage_in};

/// Ports are the hosts' own, so any will do.
const PORT: &str = "29500";

/// Hosts, or `None` with the reason printed where this machine cannot have any.
fn hosts(count: usize, rate: Option<Rate>) -> Option<Hosts> {
    match Hosts::new(HostsSpec { count, rate }) {
        Ok(hosts) => Some(hosts),
        Err(Error::Unavailable(why)) => {
            println!("skip: no hosts in network namespaces: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs the program as `ranks_per_host` ranks in each host, in the order of the hosts. All ranks share a secret as hosts
/// with a common home would.
fn launch(hosts: &Hosts, ranks_per_host: usize, dir: &Path, arguments: &str) -> Vec<Ended> {
    let size = hosts.count() * ranks_per_host;
    let started: Vec<_> = (0..size)
        .map(|rank| {
            tonnage_in(hosts, rank / ranks_per_host, dir, arguments)
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", hosts.address(0).to_string())
                .env("MASTER_PORT", PORT)
                .env("TONNAGE_SECRET", "correct-horse-battery-staple")
                .start()
        })
        .collect();
    started.into_iter().map(|run| run.end()).collect()
}

fn all_good(runs: &[Ended]) {
    for run in runs {
        assert!(run.code == Some(0) && run.stderr.is_empty(), "{runs:#?}");
    }
}

#[test]
fn the_record_lists_the_hosts() {
    for (count, ranks_per_host, expected) in [
        (2, 1, [("h0", "0"), ("h1", "1")]),
        (2, 2, [("h0", "0-1"), ("h1", "2-3")]),
    ] {
        let Some(hosts) = hosts(count, None) else {
            return;
        };
        let dir = tempdir().unwrap();
        let arguments = format!("transfer --engine null --op write --sizes 64 {BRIEF} -o r.jsonl");
        all_good(&launch(&hosts, ranks_per_host, dir.path(), &arguments));
        let records = records::read(&dir.path().join("r.jsonl"));
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].outcome, Outcome::Measured);
        let mut found: Vec<_> = records[0]
            .environment
            .iter()
            .flat_map(|part| {
                part.hosts
                    .iter()
                    .map(|host| (host.as_str(), part.ranks.as_str()))
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{:#?}", records[0].environment);
    }
}

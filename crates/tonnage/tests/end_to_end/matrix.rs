//! Matrices: every ordered pair of ranks is measured alone, and deliberately slow hosts must be found.

use std::collections::BTreeSet;
use std::path::Path;

use tempfile::tempdir;
use tonnage_record::transfer::{MatrixVerdict, Unclear};
use tonnage_testbed::{Hosts, LinkRates, Rate};

use super::check::last_line;
use super::hosts::{end, hosts_with_links, measured_in, start};
use super::support::records::{measured, summary, transfer};
use super::support::{BRIEF, has, tonnage};

/// If two ranks copy at the same time, the bound must be that of two copiers. If they copy one after the other, it must
/// be that of one.
#[test]
fn the_copy_bound_is_of_the_ranks_that_initiate_at_once() {
    for (traffic, said) in [
        ("matrix", "1 copier"),
        ("matrix --matrix disjoint", "1 copier"),
        ("shift --shift 1", "2 copiers at once"),
        ("all-to-all", "2 copiers at once"),
        ("pair --bidirectional", "2 copiers at once"),
    ] {
        let brief = BRIEF.replace("--bound none", "");
        let line = format!("--engine shm --op write --ranks 2 --sizes 64k --traffic {traffic}");
        let (run, records) = transfer(&format!("{line} {brief}"));
        // If ranks share a CPU, there is no bound.
        let Some(bound) = &records[0].bound else {
            println!("skip: no copy bound, as threads yield: {}", run.stdout);
            continue;
        };
        assert!(bound.what.contains(said), "{traffic}: {bound:?}");
    }
}

/// Every ordered pair must occur once, and the pairs' bytes must add up to the total. Each byte must be in the right
/// place.
#[test]
fn pairs_add_up_and_none_is_missing() {
    for (engine, op, rounds, ranks) in [
        ("shm", "write", "alone", 4),
        ("shm", "write-imm", "disjoint", 4),
        ("shm", "read", "disjoint", 5),
        ("fabric:tcp", "send", "disjoint", 3),
        ("fabric:tcp", "read", "alone", 3),
    ] {
        let line = format!(
            "--engine {engine} --op {op} --ranks {ranks} --traffic matrix --matrix {rounds} --sizes 3000 --depth 4 \
             --threads 2 --verify"
        );
        let (records, table) = measured(&line);
        let summary = summary(&records[0]);
        let pairs = &summary.pairs;
        let ends = pairs.iter().map(|pair| (pair.initiator, pair.target));
        let ends: BTreeSet<_> = ends.collect();
        let count = ranks * (ranks - 1);
        assert_eq!((pairs.len(), ends.len()), (count, count), "{line}");
        let bytes: u64 = pairs.iter().map(|pair| pair.payload_bytes).sum();
        assert_eq!(bytes, summary.payload_bytes, "{line}");
        let operations = 2 * 40 * 2 * count as u64;
        assert_eq!(summary.operations, operations, "{line}");
        for pair in pairs {
            let is_most = pair.bandwidth_bytes_per_s_max >= pair.bandwidth_bytes_per_s;
            assert!(is_most && pair.latency_ns_mean > Some(0.0), "{pair:?}");
        }
        let unclear = summary.matrix.as_ref().unwrap().unclear;
        assert_eq!(unclear == Some(Unclear::FewRanks), ranks < 4);
        assert!(table.contains("rows send, columns receive"), "{table}");
    }
}

#[test]
fn every_rank_has_one_target_and_one_initiator_when_shifted() {
    for (shift, title) in [
        (1, "each of 3 ranks to the next one at once"),
        (
            2,
            "each rank r of 3 to rank r + 2 at once, the last ones to the first",
        ),
    ] {
        let (records, table) = measured(&format!(
            "--engine shm --op write --ranks 3 --traffic shift --shift {shift} --sizes 3000 --depth 4 --verify"
        ));
        assert_eq!(summary(&records[0]).operations, 2 * 40 * 3);
        assert!(table.contains(title), "{table}");
    }
}

/// Measures a matrix of all hosts with its record in `dir`, and returns the verdict. A write completes only when its
/// data has arrived. Otherwise data in socket buffers would have to drain over a slow link after each trial.
fn judged(dir: &Path, hosts: &Hosts, op: &str) -> MatrixVerdict {
    let _ = std::fs::remove_file(dir.join("r.jsonl"));
    let line = format!(
        "transfer --engine fabric:tcp --engine-option completion=delivery --devices eth0 --traffic matrix --matrix disjoint \
         --sizes 64k --depth 2 --trials 2 --trial-time 60ms --warmup 0 --bound none --cq event --op {op}"
    );
    let records = measured_in(dir, hosts, &line);
    summary(&records[0]).matrix.clone().unwrap()
}

/// Returns the slow senders, receivers and pairs.
fn marked(verdict: &MatrixVerdict) -> (Vec<u32>, Vec<u32>, Vec<(u32, u32)>) {
    let pairs = verdict.slow_pairs.iter();
    let senders = verdict.slow_senders.iter().map(|slow| slow.rank);
    let receivers = verdict.slow_receivers.iter().map(|slow| slow.rank);
    (
        senders.collect(),
        receivers.collect(),
        pairs.map(|pair| (pair.sender, pair.receiver)).collect(),
    )
}

/// Six hosts have links of 200 Mb/s. Only a host that sends or receives slowly must be marked, and only a pair that
/// uses a second, slow link.
#[test]
fn only_slow_hosts_and_pairs_of_a_matrix_are_marked() {
    let [fast, tenth] = ["200mbit", "20mbit"].map(|rate| rate.parse::<Rate>().ok());
    let Some(hosts) = hosts_with_links(6, 2, fast) else {
        return;
    };
    let link = hosts.link(2, 0);
    let dir = tempdir().unwrap();
    let even = judged(dir.path(), &hosts, "write");
    assert_eq!(marked(&even), (vec![], vec![], vec![]), "{even:#?}");
    // These records, with links at full speed, become the baseline.
    std::fs::rename(dir.path().join("r.jsonl"), dir.path().join("even.jsonl")).unwrap();
    for (send, receive, op, expected) in [
        (tenth, fast, "read", (vec![2], vec![], vec![])),
        (fast, tenth, "write", (vec![], vec![2], vec![])),
    ] {
        link.set_rates(LinkRates { send, receive }).unwrap();
        let verdict = judged(dir.path(), &hosts, op);
        assert_eq!(marked(&verdict), expected, "{op}: {verdict:#?}");
        let mut slow = verdict.slow_senders.iter().chain(&verdict.slow_receivers);
        let is_tenth = slow.all(|slow| (0.05..0.2).contains(&slow.of_median));
        assert!(is_tenth, "{verdict:#?}");
    }
    // The link is slow in both directions, and a check must find this host.
    link.set_rates(tenth.into()).unwrap();
    is_blamed(&hosts, dir.path(), "h2");
    link.set_rates(fast.into()).unwrap();
    reroute(&hosts, tenth);
    let verdict = judged(dir.path(), &hosts, "write");
    let expected = (vec![], vec![], vec![(1, 3)]);
    assert_eq!(marked(&verdict), expected, "{verdict:#?}");
}

/// Checks the hosts against a baseline from `even.jsonl`. The check must fail because of the slow host alone. The sum
/// over all hosts is still within the tolerance of the baseline.
fn is_blamed(hosts: &Hosts, dir: &Path, slow: &str) {
    let baseline = "baseline even.jsonl --min-runs 1 --warn 40% --fail 50% -o b.toml";
    tonnage(dir, baseline).run().with_code(0);
    let check =
        "check --baseline b.toml --devices eth0 --time-limit 50s --retest 0 --nodelist failed";
    let ended = end(start(hosts, dir, check));
    assert_eq!(ended[0].code, Some(1), "{ended:#?}");
    let reason = last_line(&ended[0]);
    let begin = format!("fail: fabric:tcp write 64k: {slow} ");
    assert!(reason.starts_with(&begin), "{ended:#?}");
    has(reason, &format!("{slow} sends at  | {slow} receives at "));
    let failed = std::fs::read_to_string(dir.join("failed")).unwrap();
    assert_eq!(failed, format!("{slow}\n"), "{ended:#?}");
}

/// Routes traffic from host 1 to host 3 over host 1's second link, and gives this link this rate.
fn reroute(hosts: &Hosts, rate: Option<Rate>) {
    hosts.link(1, 1).set_rates(rate.into()).unwrap();
    let (from, to) = (hosts.address(1), hosts.address(3));
    let run = |host, program: &str, arguments: &[&str]| {
        let done = hosts.command(host, program).args(arguments).status();
        assert!(done.unwrap().success(), "{program} {arguments:?}");
    };
    let route = format!("route add {to}/32 dev eth1 src {from} table 50");
    run(1, "ip", &route.split(' ').collect::<Vec<_>>());
    let rule = format!("rule add from {from} to {to} lookup 50 priority 50");
    run(1, "ip", &rule.split(' ').collect::<Vec<_>>());
    // Host 3's second interface must answer for the address of its first one.
    let answer = "echo 0 > /proc/sys/net/ipv4/conf/all/arp_ignore";
    run(3, "sh", &["-c", answer]);
}

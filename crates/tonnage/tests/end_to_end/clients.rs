//! Several clients of one server over links of known speed: whose link holds them up, and that their shares are all of
//! it. Hosts are network namespaces.

use tempfile::tempdir;
use tonnage_record::transfer::Trial;
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{HostsSpec, LinkRates, Rate};

use super::hosts::{all_good, end, hosts_of, start};
use super::support::records::{self, body, summary};

/// Three clients of rank 0, each on a host of its own.
struct Clients {
    op: &'static str,
    /// Rates of the server's link and of each client's.
    server: LinkRates,
    client: LinkRates,
    /// Rate that all clients together must have.
    expected: Rate,
}

const CLIENTS: usize = 3;

impl Clients {
    /// Runs them; `None`, with the reason printed, where this machine cannot have hosts.
    fn measured(&self) -> Option<Record> {
        let hosts = hosts_of(HostsSpec {
            count: CLIENTS + 1,
            rates: self.client,
            ..HostsSpec::default()
        })?;
        hosts.link(0, 0).set_rates(self.server).unwrap();
        let dir = tempdir().unwrap();
        let arguments = format!(
            "transfer --engine fabric:tcp --op {} --traffic fan-in --sizes 256k --window 8 --trials 2 --trial-time 500ms \
             --warmup 200ms --limit none --per-rank -o r.jsonl",
            self.op
        );
        let ended = end(start(&hosts, 1, dir.path(), &arguments, |rank| rank));
        all_good(&ended);
        let mut records = records::read(&dir.path().join("r.jsonl"));
        let record = records.remove(0);
        assert_eq!(record.outcome, Outcome::Measured, "{record:#?}");
        Some(record)
    }

    fn check(&self) {
        let Some(record) = self.measured() else {
            return;
        };
        let (body, summary) = (body(&record), summary(&record));
        let shares = &summary.initiators;
        let ranks: Vec<u32> = shares.iter().map(|share| share.rank).collect();
        assert_eq!(ranks, [1, 2, 3]);
        let sum: u64 = shares.iter().map(|share| share.payload_bytes).sum();
        assert_eq!(sum, summary.payload_bytes, "{shares:#?}");
        assert!(shares.iter().all(|share| share.payload_bytes > 0));
        let rate = |trial: &&Trial| trial.bandwidth_bytes_per_s;
        let best = body
            .trials
            .iter()
            .max_by(|one, other| rate(one).total_cmp(&rate(other)));
        let best = best.unwrap();
        let part = best.bandwidth_bytes_per_s / self.expected.tcp_payload_bytes_per_s();
        let cpus = best.initiator_cpu_ns as f64 / best.window_ns as f64;
        if part < 0.95 && cpus < 0.9 {
            println!(
                "skip: {} carried {:.0} % of {} where all clients together had {:.0} % of a CPU",
                self.op,
                100.0 * part,
                self.expected,
                100.0 * cpus
            );
            return;
        }
        assert!((part - 1.0).abs() < 0.05, "{part}: {record:#?}");
    }
}

fn sends(rate: Rate) -> LinkRates {
    LinkRates {
        send: Some(rate),
        receive: None,
    }
}

fn receives(rate: Rate) -> LinkRates {
    LinkRates {
        send: None,
        receive: Some(rate),
    }
}

#[test]
fn reads_of_three_clients_are_what_their_server_sends() {
    Clients {
        op: "read",
        server: sends(Rate::GBIT_1),
        client: LinkRates::UNSHAPED,
        expected: Rate::GBIT_1,
    }
    .check();
}

#[test]
fn writes_of_three_clients_are_what_their_server_receives() {
    Clients {
        op: "write",
        server: receives(Rate::GBIT_1),
        client: LinkRates::UNSHAPED,
        expected: Rate::GBIT_1,
    }
    .check();
}

/// Slower links than elsewhere, so that two CPUs carry three of them.
#[test]
fn writes_of_three_clients_into_a_wide_server_are_three_links() {
    Clients {
        op: "write",
        server: LinkRates::UNSHAPED,
        client: sends("300mbit".parse().unwrap()),
        expected: "900mbit".parse().unwrap(),
    }
    .check();
}

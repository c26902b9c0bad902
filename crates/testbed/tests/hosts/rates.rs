//! Each link limits what its host sends and what it receives, regardless of the number of peers and of other links.
//!
//! The tests read the interfaces' byte counters. The upper bound always holds, because the shaper lets no more bytes
//! through. The lower bound depends on the load of the machine, so it is measured several times.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tonnage_testbed::{Hosts, HostsSpec, LinkRates, Rate};

use super::support::{connect, listen, printed, some_hosts};

/// Time over which a counter is measured, and the maximum number of such measurements.
const MEASUREMENT_TIME: Duration = Duration::from_millis(1000);
const MEASUREMENTS_MAX: usize = 8;

/// Size of the shaper's bucket, which may be full when a measurement begins.
const BUCKET_BYTES: f64 = 131_072.0;

/// A stream from one host to another on a rail. It runs at full speed until it is dropped.
struct Stream {
    into: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Stream {
    fn start(hosts: &Hosts, rail: usize, from: usize, to: usize) -> Self {
        let (listener, address) = listen(hosts, to, rail);
        let mut out = connect(hosts, from, address).unwrap();
        let (into, _) = listener.accept().unwrap();
        let mut reader = into.try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            let block = vec![0u8; 1 << 18];
            while out.write_all(&block).is_ok() {}
        });
        let receiver = std::thread::spawn(move || {
            let mut block = vec![0u8; 1 << 18];
            while reader.read(&mut block).is_ok_and(|bytes| bytes > 0) {}
        });
        Self {
            into,
            threads: vec![sender, receiver],
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // `shutdown` and `join` fail only if the stream has already ended.
        let _ = self.into.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts one stream for each pair of hosts.
fn streams(hosts: &Hosts, rail: usize, pairs: &[(usize, usize)]) -> Vec<Stream> {
    let start = |&(from, to): &(usize, usize)| Stream::start(hosts, rail, from, to);
    pairs.iter().map(start).collect()
}

fn sent(hosts: &Hosts, host: usize, rail: usize) -> u64 {
    hosts.link(host, rail).counters().unwrap().sent_bytes
}

fn received(hosts: &Hosts, host: usize, rail: usize) -> u64 {
    hosts.link(host, rail).counters().unwrap().received_bytes
}

/// Asserts that a counter never grows faster than `rate` allows, and reaches at least half of this rate once.
fn assert_bounded(what: &str, rate: Rate, counter: impl Fn() -> u64) {
    let bytes_per_s = rate.bits_per_s() as f64 / 8.0;
    let mut found = Vec::new();
    for _ in 0..MEASUREMENTS_MAX {
        let begun = Instant::now();
        let before = counter();
        std::thread::sleep(MEASUREMENT_TIME);
        let bytes = (counter() - before) as f64;
        let most = bytes_per_s * begun.elapsed().as_secs_f64() + BUCKET_BYTES;
        assert!(
            bytes <= 1.01 * most,
            "{what} should be at most {rate}: {bytes} bytes of {most}"
        );
        found.push(bytes / most);
        if bytes > 0.5 * most {
            return;
        }
    }
    panic!("{what} should come close to {rate}: {found:?} of it");
}

/// Asserts that a counter grows by more than 1.5 times a rate at least once.
fn assert_faster(what: &str, rate: Rate, counter: impl Fn() -> u64) {
    let bytes_per_s = rate.bits_per_s() as f64 / 8.0;
    let mut found = Vec::new();
    for _ in 0..MEASUREMENTS_MAX {
        let before = counter();
        let begun = Instant::now();
        std::thread::sleep(MEASUREMENT_TIME);
        let bytes = (counter() - before) as f64;
        found.push(bytes / (bytes_per_s * begun.elapsed().as_secs_f64()));
        if found.last().is_some_and(|&part| part > 1.5) {
            return;
        }
    }
    panic!("{what} should be faster than {rate}: {found:?} of it");
}

/// A rate that a stream reaches even if other programs use the CPUs.
fn slow() -> Rate {
    "100mbit".parse().unwrap()
}

/// Pairs of hosts for a server and three clients: one stream per pair, from the first host to the second.
const READS: [(usize, usize); 3] = [(0, 1), (0, 2), (0, 3)];
const WRITES: [(usize, usize); 3] = [(1, 0), (2, 0), (3, 0)];

#[test]
fn streams_of_three_clients_are_bounded_by_the_server_in_each_direction() {
    let rate = slow();
    let of_clients = |hosts: &Hosts| (1..4).map(|client| received(hosts, client, 0)).sum();
    let Some(hosts) = some_hosts(HostsSpec {
        count: 4,
        ..HostsSpec::default()
    }) else {
        return;
    };
    let server = hosts.link(0, 0);
    server
        .set_rates(LinkRates {
            send: Some(rate),
            receive: None,
        })
        .unwrap();
    let reads = streams(&hosts, 0, &READS);
    assert_bounded("three reads", rate, || of_clients(&hosts));
    drop(reads);
    let writes = streams(&hosts, 0, &WRITES);
    assert_faster("the unshaped receiving direction", rate, || {
        received(&hosts, 0, 0)
    });
    server
        .set_rates(LinkRates {
            send: None,
            receive: Some(rate),
        })
        .unwrap();
    assert_bounded("three writes", rate, || received(&hosts, 0, 0));
    drop(writes);
    let _reads = streams(&hosts, 0, &READS);
    assert_faster("the unshaped sending direction", rate, || {
        sent(&hosts, 0, 0)
    });
}

#[test]
fn one_rate_applies_to_each_host_and_direction_independently() {
    let rate = slow();
    let Some(hosts) = some_hosts(HostsSpec {
        count: 4,
        rates: rate.into(),
        ..HostsSpec::default()
    }) else {
        return;
    };
    let both: Vec<_> = READS.into_iter().chain(WRITES).collect();
    let all = streams(&hosts, 0, &both);
    assert_bounded("the server's outgoing traffic", rate, || sent(&hosts, 0, 0));
    assert_bounded("what it receives", rate, || received(&hosts, 0, 0));
    drop(all);
    let _apart = streams(&hosts, 0, &[(0, 1), (2, 3)]);
    assert_faster("two links together", rate, || {
        sent(&hosts, 0, 0) + sent(&hosts, 2, 0)
    });
}

#[test]
fn each_link_is_shaped_independently() {
    let rate = slow();
    let faster: Rate = "180mbit".parse().unwrap();
    let Some(hosts) = some_hosts(HostsSpec {
        links: 2,
        ..HostsSpec::default()
    }) else {
        return;
    };
    hosts.link(0, 0).set_rates(faster.into()).unwrap();
    hosts.link(0, 1).set_rates(rate.into()).unwrap();
    // Three streams each way, because on a busy machine one stream may stay below half of the rate: the shaper's queue
    // holds few packets.
    let pairs = [(0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (1, 0)];
    let _all = [streams(&hosts, 0, &pairs), streams(&hosts, 1, &pairs)];
    for (rail, rate) in [(0, faster), (1, rate)] {
        let what = format!("outgoing traffic of rail {rail}");
        assert_bounded(&what, rate, || sent(&hosts, 0, rail));
        let what = format!("incoming traffic of rail {rail}");
        assert_bounded(&what, rate, || received(&hosts, 0, rail));
    }
    assert_faster("the other rail", rate, || sent(&hosts, 0, 0));
    hosts.link(0, 1).set_rates(LinkRates::UNSHAPED).unwrap();
    assert_faster("a link that is no longer shaped", rate, || {
        sent(&hosts, 0, 1)
    });
}

#[test]
fn options_of_the_command_reach_all_links() {
    if some_hosts(HostsSpec::default()).is_none() {
        return;
    }
    let script =
        "echo $HOST1_RAIL1; on 1 tc qdisc show dev eth1; on switch tc qdisc show dev h1-rail1";
    let shown = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tonnage-testbed"));
        command.args(["--links", "2"]).args(options.split(' '));
        let lines = printed(command.args(["--", "sh", "-c", script]));
        let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
        let [address, send, receive] = lines.try_into().unwrap();
        assert_eq!(address, "10.77.1.2");
        [send, receive]
    };
    for (options, rates) in [
        ("--rate 80mbit", ["rate 80Mbit ", "rate 80Mbit "]),
        ("--send-rate 70mbit", ["rate 70Mbit ", "noqueue"]),
        (
            "--rate 80mbit --receive-rate 60mbit",
            ["rate 80Mbit ", "rate 60Mbit "],
        ),
    ] {
        for (line, part) in shown(options).into_iter().zip(rates) {
            assert!(line.contains(part), "{options}: no {part:?} in {line}");
        }
    }
}

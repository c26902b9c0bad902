//! Collectives with results that are known in advance, because the links have known speeds. The hosts are namespaces of
//! this machine.

use tempfile::tempdir;
use tonnage_record::collective::{BackendResult, CollectiveSummary};
use tonnage_record::{Outcome, Record};
use tonnage_testbed::{Hosts, Rate};

use super::collective_torch::python;
use super::hosts::{all_good, end, hosts, start};
use super::support::cpu_share::taken_by_others;
use super::support::records;

/// Tolerance of the bandwidth between two ranks, compared with theory.
const TOLERANCE: f64 = 0.03;

/// Tolerance below and above theory for calls in which ranks often wait for each other.
const RING_TOLERANCE: (f64, f64) = (0.05, 0.02);

/// Tolerance between the times of a sender and its receiver.
const BOTH_ENDS: f64 = 0.02;

/// If other programs take a larger share of the CPUs, any call may be slow.
const TAKEN_MAX: f64 = 0.08;

/// The shortest measurement: a first call, a warm-up and two trials.
const SHORT: &str = "--warmup 0s --trials 2 --iters 1 --timeout 20s -o c.jsonl";

/// A point measured over hosts, and the share of CPU time that other programs took meanwhile.
struct Known {
    record: Record,
    taken: f64,
}

impl Known {
    /// Runs one rank on each host. All ranks must succeed.
    fn measure(hosts: &Hosts, arguments: &str) -> Self {
        let dir = tempdir().unwrap();
        let line = format!("collective {arguments} {SHORT}");
        let mut runs = start(hosts, dir.path(), &line);
        let taken = taken_by_others(&mut runs);
        all_good(&end(runs));
        let record = records::read(&dir.path().join("c.jsonl")).remove(0);
        assert_eq!(record.outcome, Outcome::Measured);
        Self { record, taken }
    }

    fn summaries(&self) -> impl Iterator<Item = (&BackendResult, &CollectiveSummary)> {
        let backends = self.record.collective().unwrap().backends.iter();
        backends.map(|it| (it, it.summary.as_ref().unwrap()))
    }

    /// Requires a condition. If other programs took the CPUs, only prints the failure.
    fn hold(&self, is_true: bool, said: &str) {
        if is_true {
            return;
        }
        let taken = 100.0 * self.taken;
        assert!(
            self.taken > TAKEN_MAX,
            "{said}, and others took only {taken:.0} % of the CPUs: {:#?}",
            self.summaries().collect::<Vec<_>>()
        );
        println!("skip: {said}, while others took {taken:.0} % of the CPUs");
    }

    /// Checks that no trial is faster than the link, and that the fastest trial is nearly as fast as the link.
    fn reads_the_link(&self, link_bytes_per_s: f64, (below, above): (f64, f64)) {
        for (backend, summary) in self.summaries() {
            let busbw = summary.busbw_bytes_per_s.unwrap();
            let name = &backend.backend;
            let [least, most, link] = [busbw.min, busbw.max, link_bytes_per_s].map(|it| it / 1e6);
            let said = format!("{name} reads {least:.2} to {most:.2} MB/s of a link's {link:.2}");
            assert!(busbw.max < link_bytes_per_s * (1.0 + above), "{said}");
            self.hold(busbw.max > link_bytes_per_s * (1.0 - below), &said);
        }
    }

    /// Checks that the sender's call takes as long as the receiver's call.
    fn both_ends_agree(&self) {
        for (backend, summary) in self.summaries() {
            let [sender, receiver] = &summary.rank_times[..] else {
                panic!("{summary:#?}")
            };
            let (sent_ns, received_ns) = (sender.call_ns_mean, receiver.call_ns_mean);
            let (name, sent, received) = (&backend.backend, sent_ns / 1e6, received_ns / 1e6);
            let said =
                format!("{name}: calls take the sender {sent:.2} ms, the other {received:.2}");
            let off = sent_ns / received_ns - 1.0;
            self.hold(off.abs() < BOTH_ENDS, &said);
        }
    }
}

/// Limits the socket buffers of a host. A sender's call returns when its socket has taken the last bytes. By default, a
/// socket takes up to 4 MB, which are 4 % of a call.
fn bound_sockets(hosts: &Hosts, host: usize) {
    let write = || std::fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 1048576");
    hosts.within(host, write).unwrap().unwrap();
}

/// Sends 100 MB from one host to the other, with torch if it is installed, and with this program.
#[test]
fn send_recv_takes_836_milliseconds_over_1_gigabit_and_335_over_2_5() {
    let Some(hosts) = hosts(2, Some(Rate::GBIT_1)) else {
        return;
    };
    bound_sockets(&hosts, 0);
    let backends = match python() {
        Some(python) => format!("--backend torch:gloo,native:fabric:tcp --python {python}"),
        None => "--backend native:fabric:tcp".to_owned(),
    };
    for rate in [Rate::GBIT_1, "2500mbit".parse().unwrap()] {
        for host in 0..2 {
            hosts.link(host, 0).set_rates(rate.into()).unwrap();
        }
        let line = format!("{backends} --op send-recv-pairs --sizes 100MB --chunk 1M");
        let known = Known::measure(&hosts, &line);
        known.reads_the_link(rate.tcp_payload_bytes_per_s(), (TOLERANCE, TOLERANCE));
        known.both_ends_agree();
    }
}

/// In this ring all-reduce, each rank sends 2 (4 - 1) / 4 of the size to the next rank.
#[test]
fn all_reduce_of_four_hosts_reads_the_slowest_of_their_links() {
    let Some(hosts) = hosts(4, Some(Rate::GBIT_1)) else {
        return;
    };
    for (rate, size) in [(Rate::GBIT_1, "64MB"), ("100mbit".parse().unwrap(), "8MB")] {
        hosts.link(2, 0).set_rates(rate.into()).unwrap();
        let way = "--backend native:fabric:tcp --algorithm ring --chunk 256k";
        let known = Known::measure(&hosts, &format!("{way} --op all-reduce --sizes {size}"));
        for (_, summary) in known.summaries() {
            let rates = summary.algbw_bytes_per_s.zip(summary.busbw_bytes_per_s);
            let (algbw, busbw) = rates.unwrap();
            assert!((busbw.mean / algbw.mean - 1.5).abs() < 1e-9);
            let size_bytes = known.record.collective().unwrap().point.size_bytes;
            let by_time = size_bytes as f64 * 1e9 / summary.call_ns_rank_max;
            assert!((algbw.mean / by_time - 1.0).abs() < 1e-6, "{summary:#?}");
        }
        known.reads_the_link(rate.tcp_payload_bytes_per_s(), RING_TOLERANCE);
    }
}

//! Hosts can reach each other, and a link carries its configured rate.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tonnage_testbed::{Error, Hosts, HostsSpec, LinkRates, Rate};

use super::support::{connect, listen, printed, two_hosts};

/// Time over which a stream is measured, and the maximum number of such measurements.
const MEASUREMENT_TIME: Duration = Duration::from_millis(1500);
const MEASUREMENTS_MAX: usize = 8;

#[test]
fn a_program_sees_only_its_own_host() {
    let Some(hosts) = two_hosts(None) else { return };
    let folder = printed(hosts.command(1, "pwd").current_dir("/usr"));
    assert_eq!(folder, "/usr");
    let shell = |host: usize, script: &str| {
        printed(
            hosts
                .command(host, "sh")
                .args(["-c", script, "sh", "two words"]),
        )
    };
    assert_eq!(shell(1, "cat /proc/sys/kernel/hostname"), "h1");
    assert_eq!(shell(0, "echo \"$1\""), "two words");
    let mut interfaces: Vec<_> = shell(0, "ls /sys/class/net")
        .lines()
        .map(str::to_owned)
        .collect();
    // The kernel puts interfaces for tunnels into every namespace if their modules are loaded.
    interfaces.retain(|name| ["eth0", "lo"].contains(&name.as_str()) || name.starts_with("veth"));
    assert_eq!(interfaces, ["eth0", "lo"]);
    assert!(shell(0, "cat /etc/hosts").contains("10.77.0.2 h1"));
    assert!(printed(&mut hosts.switch_command("hostname")) == "switch");
    let missing = hosts
        .command(0, "program-that-is-not-there")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    let mut ours = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    ours.truncate(ours.trim_end().len());
    assert!(
        !["h0", "h1", "switch"].contains(&ours.as_str()),
        "the machine was renamed"
    );
}

/// Measures how many bytes per second one stream from host 0 delivers to host 1. Repeats until `enough` returns true,
/// at most [`MEASUREMENTS_MAX`] times.
fn stream(hosts: &Hosts, mut enough: impl FnMut(f64) -> bool) -> Vec<f64> {
    let (listener, address) = listen(hosts, 1, 0);
    let mut out = connect(hosts, 0, address).unwrap();
    let (mut into, _) = listener.accept().unwrap();
    // The buffer is small: after a pause of this process, a large buffer would be drained faster than the link
    // delivers.
    rustix::net::sockopt::set_socket_recv_buffer_size(&into, 1 << 20).unwrap();
    let sender = std::thread::spawn(move || {
        let block = vec![0u8; 1 << 20];
        // The write fails when the receiver closes the connection.
        while out.write_all(&block).is_ok() {}
    });
    let mut block = vec![0u8; 1 << 20];
    let mut look = |length: Duration| {
        let begun = Instant::now();
        let mut bytes = 0;
        while begun.elapsed() < length {
            bytes += into.read(&mut block).unwrap();
        }
        bytes as f64 / begun.elapsed().as_secs_f64()
    };
    look(Duration::from_millis(300));
    let mut found = Vec::new();
    while found.len() < MEASUREMENTS_MAX {
        let bytes_per_s = look(MEASUREMENT_TIME);
        found.push(bytes_per_s);
        if enough(bytes_per_s) {
            break;
        }
    }
    drop(into);
    sender.join().unwrap();
    found
}

fn assert_never_above(rate: Rate, found: &[f64]) {
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    let theory = rate.tcp_payload_bytes_per_s();
    assert!(
        mean < 1.03 * theory,
        "{rate} should carry {theory}: {found:?}"
    );
}

/// Any machine can fill a slow link. For fast links, the test checks only that no traffic bypasses the shaper.
#[test]
fn a_link_carries_its_theoretical_rate() {
    let Some(hosts) = two_hosts(None) else { return };
    let slow: Rate = "80mbit".parse().unwrap();
    let theory = slow.tcp_payload_bytes_per_s();
    let is_right = |found: f64| (found / theory - 1.0).abs() < 0.03;
    set_rates(&hosts, slow.into());
    let found = stream(&hosts, is_right);
    assert_never_above(slow, &found);
    assert!(found.into_iter().any(is_right), "{theory} expected");
    for rate in [Rate::GBIT_1, Rate::GBIT_10] {
        set_rates(&hosts, rate.into());
        assert_never_above(rate, &stream(&hosts, |_| true));
        assert_shaped(&hosts, rate);
    }
}

fn set_rates(hosts: &Hosts, rates: LinkRates) {
    for host in 0..hosts.count() {
        hosts.link(host, 0).set_rates(rates).unwrap();
    }
}

/// Asserts that the kernel shapes host 0's link at `rate`, and that traffic passed through the shaper.
fn assert_shaped(hosts: &Hosts, rate: Rate) {
    let space = hosts.namespace(0);
    let shown =
        printed(Command::new("tc").args(["-n", &space, "-s", "qdisc", "show", "dev", "eth0"]));
    let gbit = format!("rate {}Gbit", rate.bits_per_s() / 1_000_000_000);
    assert!(shown.contains("tbf") && shown.contains(&gbit), "{shown}");
    let sent = shown.split_once("Sent ").unwrap().1;
    let bytes: u64 = sent.split(' ').next().unwrap().parse().unwrap();
    assert!(
        bytes > 100_000_000,
        "the stream bypassed the shaper: {shown}"
    );
}

#[test]
fn sets_of_hosts_do_not_see_each_other() {
    let Some(one) = two_hosts(None) else { return };
    let other = std::thread::spawn(|| two_hosts(None))
        .join()
        .unwrap()
        .unwrap();
    assert_ne!(one.folder(), other.folder());
    let (_listener, address) = listen(&one, 1, 0);
    assert!(connect(&one, 0, address).is_ok());
    assert!(
        TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err(),
        "the machine itself is not on the switch"
    );
    let error = connect(&other, 0, address).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::ConnectionRefused,
        "same address, other host"
    );
}

#[test]
fn a_wrong_number_of_hosts_or_links_is_refused() {
    for (count, links, range) in [
        (0, 1, "1 to 250"),
        (251, 1, "1 to 250"),
        (2, 0, "1 to 32"),
        (2, 33, "1 to 32"),
    ] {
        let refused = Hosts::new(HostsSpec {
            count,
            links,
            ..HostsSpec::default()
        });
        assert!(matches!(refused, Err(Error::Failed(why)) if why.contains(range)));
    }
}

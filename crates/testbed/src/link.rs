//! One link of a host: its interface, its port of the switch, and what can be done to both; and keeping the links of a
//! host apart.

use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::slot::Slot;
use crate::tool::{probe, run, within};
use crate::{Error, LinkRates, Rate, Result};

/// Longest time that a link may take to come up; a second is usual on some kernels.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// Tables of routes that nobody else uses: a new namespace has only those of 253 to 255.
const FIRST_TABLE: usize = 100;

/// Answers for an address only on the interface that has it, so that no rail leads to another's addresses.
const ARP_IGNORE: &str = "/proc/sys/net/ipv4/conf/all/arp_ignore";

/// A cable from an interface of a host to a port of the switch. Links of the same number are a rail: they share a
/// bridge of the switch and a subnet, and reach no others.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    slot: &'a Slot,
    host: usize,
    rail: usize,
}

/// Bytes that an interface has counted since it was made, headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes that the host has sent.
    pub sent_bytes: u64,
    /// Bytes that the host has received.
    pub received_bytes: u64,
}

impl<'a> Link<'a> {
    pub(crate) fn new(slot: &'a Slot, host: usize, rail: usize) -> Self {
        Self { slot, host, rail }
    }

    /// The number of the link, which is that of its rail.
    pub fn rail(&self) -> usize {
        self.rail
    }

    /// The interface's name in the host: `eth0` for link 0, `eth1` for link 1, and so on.
    pub fn interface(&self) -> String {
        format!("eth{}", self.rail)
    }

    /// The interface's address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.host, self.rail)
    }

    /// The addresses of the rail, as a route is written.
    pub(crate) fn subnet(&self) -> String {
        let [one, two, rail, _] = self.address().octets();
        format!("{one}.{two}.{rail}.0/24")
    }

    /// The name that programs in the hosts find the address by: `h0`, and `h0-rail1` for link 1. The port has it too.
    pub fn name(&self) -> String {
        let Self { host, rail, .. } = self;
        if *rail == 0 {
            format!("h{host}")
        } else {
            format!("h{host}-rail{rail}")
        }
    }

    pub(crate) fn space(&self) -> String {
        self.slot.host_space(self.host)
    }

    /// Makes both ends, and puts the port on the rail's bridge.
    pub(crate) fn lay(&self) -> Result<()> {
        let (space, switch) = (self.space(), self.slot.switch_space());
        let (interface, port, bridge) = (self.interface(), self.name(), bridge(self.rail));
        let address = self.address();
        for step in [
            format!("-n {switch} link add {port} type veth peer name {interface} netns {space}"),
            format!("-n {switch} link set {port} master {bridge} up"),
            format!("-n {space} address add {address}/24 broadcast + dev {interface}"),
            format!("-n {space} link set {interface} up"),
        ] {
            run("ip", &step)?;
        }
        Ok(())
    }

    /// Cuts the cable: the interface stays as it is, but has no carrier. The host's other links go on.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn cut(&self) -> Result<()> {
        self.set_port("down")
    }

    /// Mends the cable, and waits until it carries.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn mend(&self) -> Result<()> {
        self.set_port("up")?;
        self.wait()
    }

    fn set_port(&self, state: &str) -> Result<()> {
        let (switch, port) = (self.slot.switch_space(), self.name());
        run("ip", &format!("-n {switch} link set {port} {state}")).map(drop)
    }

    /// The kernel looks at changed links once a second at most, and a port of the switch forwards only after that.
    pub(crate) fn wait(&self) -> Result<()> {
        let (space, switch, name) = (self.space(), self.slot.switch_space(), self.name());
        let since = Instant::now();
        loop {
            let port = run("ip", &format!("-n {switch} -o -d link show {name}"))?;
            let interface = run(
                "ip",
                &format!("-n {space} -o link show {}", self.interface()),
            )?;
            if port.contains("state forwarding") && interface.contains("state UP") {
                return Ok(());
            }
            if since.elapsed() > LINK_PATIENCE {
                return Err(Error::Failed(format!(
                    "the link of {name} does not come up; look at\n{port}{interface}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Changes both rates. What a host sends is held back before it leaves the host, what it receives at its port of
    /// the switch, where traffic from several others comes together and may be dropped.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the kernel cannot shape; [`Error::Failed`] when the system refuses.
    pub fn set_rates(&self, rates: LinkRates) -> Result<()> {
        shape(&self.space(), &self.interface(), rates.send)?;
        shape(&self.slot.switch_space(), &self.name(), rates.receive)
    }

    /// Reads what the interface has counted.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn counters(&self) -> Result<LinkCounters> {
        // Of this thread: that of the process are counters of the machine's own interfaces.
        let path = "/proc/thread-self/net/dev";
        let table = within(&self.space(), || fs::read_to_string(path))?
            .map_err(|error| Error::Failed(format!("cannot read {path}: {error}")))?;
        counters_in(&table, &self.interface()).ok_or_else(|| {
            let interface = self.interface();
            Error::Failed(format!("{path} has no counters of {interface}:\n{table}"))
        })
    }
}

/// Keeps the links of a host apart. By itself Linux gives addresses to hosts, not to interfaces: it answers for all of
/// them on every interface, and sends a packet by the interface of its destination, whatever address it is from.
///
/// Sees to it that a packet from the address of a link leaves by this link or not at all: other rails are "no route
/// to host". `links` are all of one host.
///
/// # Errors
/// [`Error::Unavailable`] when the kernel has no rules for routes, or does not let itself be set.
pub(crate) fn keep_apart(links: &[Link<'_>]) -> Result<()> {
    let Some(first) = links.first() else {
        return Ok(());
    };
    within(&first.space(), || fs::write(ARP_IGNORE, "1"))?.map_err(|error| {
        let why = format!("cannot write {ARP_IGNORE}: {error}");
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::Unavailable(why),
            _ => Error::Failed(why),
        }
    })?;
    for link in links {
        let (space, interface, address) = (link.space(), link.interface(), link.address());
        let (subnet, table) = (link.subnet(), FIRST_TABLE + link.rail());
        for step in [
            format!("route add {subnet} dev {interface} src {address} table {table}"),
            format!("route add unreachable default table {table}"),
            format!("rule add from {address} lookup {table}"),
        ] {
            probe("ip", &format!("-n {space} {step}"))?;
        }
    }
    Ok(())
}

/// The address of link `rail` of a host. There is a subnet for each rail, and in it a byte tells hosts apart.
pub(crate) fn address(host: usize, rail: usize) -> Ipv4Addr {
    // No more hosts and links are made than fit in a byte.
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 77, byte(rail), byte(host + 1))
}

/// The bridge of a rail, in the switch.
pub(crate) fn bridge(rail: usize) -> String {
    if rail == 0 {
        "bridge".to_owned()
    } else {
        format!("bridge-rail{rail}")
    }
}

fn shape(space: &str, interface: &str, rate: Option<Rate>) -> Result<()> {
    let qdisc = match rate {
        Some(rate) => format!(
            "tbf rate {}bit burst {} latency 20ms",
            rate.bits_per_s(),
            rate.burst()
        ),
        None => "noqueue".to_owned(),
    };
    let step = format!("-n {space} qdisc replace dev {interface} root {qdisc}");
    probe("tc", &step).map(drop)
}

/// Finds an interface in the text of /proc/net/dev: a line `NAME: ` with eight counters of what was received, bytes
/// first, and eight of what was sent.
fn counters_in(table: &str, interface: &str) -> Option<LinkCounters> {
    let line = table.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    })?;
    let counters: Vec<u64> = line
        .split_whitespace()
        .map(|counter| counter.parse().ok())
        .collect::<Option<_>>()?;
    Some(LinkCounters {
        received_bytes: *counters.first()?,
        sent_bytes: *counters.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_have_subnets_and_the_first_keeps_its_addresses() {
        assert_eq!(address(0, 0), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(address(249, 0), Ipv4Addr::new(10, 77, 0, 250));
        assert_eq!(address(1, 2), Ipv4Addr::new(10, 77, 2, 2));
    }

    #[test]
    fn counters_are_those_of_the_interface() {
        let table = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       5       1    0    0    0     0          0         0        6       1    0    0    0     0       0          0
 eth10:       7       1    0    0    0     0          0         0        8       1    0    0    0     0       0          0
  eth1: 1234567      11    0    0    0     0          0         0       90       2    0    0    0     0       0          0
";
        let expected = LinkCounters {
            sent_bytes: 90,
            received_bytes: 1_234_567,
        };
        assert_eq!(counters_in(table, "eth1"), Some(expected));
        assert_eq!(counters_in(table, "eth0"), None);
        assert_eq!(counters_in("eth0: 1 2 3", "eth0"), None);
        assert_eq!(counters_in("eth0: x", "eth0"), None);
    }
}

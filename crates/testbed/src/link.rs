//! One link of a host: its interface, its port of the switch, and operations on both. Also separates the links of a
//! host from each other.

use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::tool::{probe, run, within};
use crate::workspace::Workspace;
use crate::{Error, LinkRates, Rate, Result};

/// Longest wait for a link to come up. On some kernels a link usually needs one second.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// First routing table to use. A new namespace uses only tables 253 to 255.
const FIRST_TABLE: usize = 100;

/// Makes an interface answer ARP requests only for its own address, so that the addresses of one rail cannot be reached
/// over another.
const ARP_IGNORE: &str = "/proc/sys/net/ipv4/conf/all/arp_ignore";

/// A cable from an interface of a host to a port of the switch. Links of the same number form a rail: they share a
/// bridge of the switch and a subnet, and cannot reach other rails.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    workspace: &'a Workspace,
    host: usize,
    rail: usize,
}

/// Byte counters of an interface since its creation, headers included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes sent by the host.
    pub sent_bytes: u64,
    /// Bytes received by the host.
    pub received_bytes: u64,
}

impl<'a> Link<'a> {
    pub(crate) fn new(workspace: &'a Workspace, host: usize, rail: usize) -> Self {
        Self {
            workspace,
            host,
            rail,
        }
    }

    /// Returns the number of the link and of its rail.
    pub fn rail(&self) -> usize {
        self.rail
    }

    /// Returns the interface's name in the host: `eth0` for link 0, `eth1` for link 1, and so on.
    pub fn interface(&self) -> String {
        format!("eth{}", self.rail)
    }

    /// Returns the interface's address.
    pub fn address(&self) -> Ipv4Addr {
        address(self.host, self.rail)
    }

    /// Returns the subnet of the rail in the notation of routes.
    pub(crate) fn subnet(&self) -> String {
        let [one, two, rail, _] = self.address().octets();
        format!("{one}.{two}.{rail}.0/24")
    }

    /// Returns the name by which programs in the hosts look up this link's address: `h0` for link 0, `h0-rail1` for
    /// link 1. The port of the switch has the same name.
    pub fn name(&self) -> String {
        let Self { host, rail, .. } = self;
        if *rail == 0 {
            format!("h{host}")
        } else {
            format!("h{host}-rail{rail}")
        }
    }

    pub(crate) fn space(&self) -> String {
        self.workspace.host_space(self.host)
    }

    /// Creates both ends of the cable, and attaches the switch's end to the rail's bridge.
    pub(crate) fn create(&self) -> Result<()> {
        let (space, switch) = (self.space(), self.workspace.switch_space());
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

    /// Cuts the cable: the interface stays up, but loses its carrier. The host's other links are not affected.
    ///
    /// # Errors
    /// [`Error::Failed`] if the system refuses.
    pub fn cut(&self) -> Result<()> {
        self.set_port("down")
    }

    /// Restores the cable, and waits until it carries traffic.
    ///
    /// # Errors
    /// [`Error::Failed`] if the system refuses.
    pub fn mend(&self) -> Result<()> {
        self.set_port("up")?;
        self.wait()
    }

    fn set_port(&self, state: &str) -> Result<()> {
        let (switch, port) = (self.workspace.switch_space(), self.name());
        run("ip", &format!("-n {switch} link set {port} {state}")).map(drop)
    }

    /// Waits until the link carries traffic. The kernel checks changed links at most once a second, and the port of the
    /// switch forwards only after this check.
    pub(crate) fn wait(&self) -> Result<()> {
        let (space, switch, name) = (self.space(), self.workspace.switch_space(), self.name());
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
            if since.elapsed() > LINK_TIMEOUT {
                return Err(Error::Failed(format!(
                    "the link of {name} does not come up; its port and interface are:\n{port}{interface}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Changes both rates. The host's interface delays outgoing traffic. The host's port of the switch shapes incoming
    /// traffic; this port may drop packets, because traffic from several hosts meets there.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the kernel cannot shape traffic; [`Error::Failed`] if the system refuses.
    pub fn set_rates(&self, rates: LinkRates) -> Result<()> {
        shape(&self.space(), &self.interface(), rates.send)?;
        shape(&self.workspace.switch_space(), &self.name(), rates.receive)
    }

    /// Reads the interface's counters.
    ///
    /// # Errors
    /// [`Error::Failed`] if the system refuses.
    pub fn counters(&self) -> Result<LinkCounters> {
        // The file must be this thread's own, because the one of the process shows the machine's interfaces.
        let path = "/proc/thread-self/net/dev";
        let table = within(&self.space(), || fs::read_to_string(path))?
            .map_err(|error| Error::Failed(format!("cannot read {path}: {error}")))?;
        counters_in(&table, &self.interface()).ok_or_else(|| {
            let interface = self.interface();
            Error::Failed(format!("{path} has no counters of {interface}:\n{table}"))
        })
    }
}

/// Separates the links of a host. By default, Linux assigns addresses to hosts, not to interfaces: every interface
/// answers for all addresses of the host. It also chooses the outgoing interface by the destination, not by the source
/// address.
///
/// Afterwards a packet from the address of a link leaves through this link or not at all: destinations on other rails
/// fail with "no route to host". `links` are all links of one host.
///
/// # Errors
/// [`Error::Unavailable`] if the kernel has no routing rules, or does not allow the setting.
pub(crate) fn separate_links(links: &[Link<'_>]) -> Result<()> {
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

/// Returns the address of link `rail` of a host. Each rail has its own subnet, and the last byte numbers the hosts.
pub(crate) fn address(host: usize, rail: usize) -> Ipv4Addr {
    // [`Hosts::new`](crate::Hosts::new) limits both numbers to the range of a byte.
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 77, byte(rail), byte(host + 1))
}

/// Returns the name of a rail's bridge in the switch.
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

/// Finds an interface in the text of /proc/net/dev: a line `NAME: ` with eight receive counters, bytes first, and eight
/// transmit counters.
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

//! Creates hosts and runs programs in them. Operations on their links are in `link.rs`.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::link::{Link, bridge, separate_links};
use crate::tool::{probe, require, run, within};
use crate::workspace::Workspace;
use crate::{Error, LinkRates, Result};

/// Maximum number of hosts. One byte of an address numbers the hosts, and the switch has 254 in this byte.
const COUNT_MAX: usize = 250;

/// Maximum number of links of a host: the number of NICs in the largest real machines.
const LINKS_MAX: usize = 32;

/// Properties of the hosts to create.
#[derive(Debug, Clone, Copy)]
pub struct HostsSpec {
    /// Number of hosts, 1 to 250.
    pub count: usize,
    /// Number of links of each host, 1 to 32. Links with the same number form a rail: they can reach each other, but no
    /// link of another rail.
    pub links: usize,
    /// Rates of each link; [`Link::set_rates`] changes those of one link.
    pub rates: LinkRates,
}

impl Default for HostsSpec {
    fn default() -> Self {
        Self {
            count: 2,
            links: 1,
            rates: LinkRates::UNSHAPED,
        }
    }
}

/// One or more hosts on one switch. When this value is dropped, or its process ends in any way, all programs in the
/// hosts are killed and the hosts are removed.
#[derive(Debug)]
pub struct Hosts {
    count: usize,
    links: usize,
    workspace: Workspace,
}

impl Hosts {
    /// Creates hosts named h0, h1, …, and enters these names in their /etc/hosts. Before that, removes hosts if both
    /// their owner and their guardian were killed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without root, `ip`, `tc` or the kernel features that these need. [`Error::Failed`] if the
    /// number of hosts or links is out of range, and for any other failure.
    pub fn new(spec: HostsSpec) -> Result<Self> {
        for (number, what, most) in [
            (spec.count, "hosts", COUNT_MAX),
            (spec.links, "links of a host", LINKS_MAX),
        ] {
            if !(1..=most).contains(&number) {
                return Err(Error::Failed(format!(
                    "{number} {what} cannot be made: ask for 1 to {most}"
                )));
            }
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable(
                "only root can make network namespaces".into(),
            ));
        }
        require(&["ip", "tc", "nsenter", "unshare", "mount"])?;
        let hosts = Self {
            count: spec.count,
            links: spec.links,
            workspace: Workspace::claim()?,
        };
        hosts.write_scripts()?;
        hosts.make_switch()?;
        for host in 0..spec.count {
            hosts.make_host(host, spec.rates)?;
        }
        for host in 0..spec.count {
            for link in hosts.links_of(host) {
                link.wait()?;
            }
        }
        Ok(hosts)
    }

    /// Number of hosts; they are numbered from 0.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of links of each host; they are numbered from 0.
    pub fn links(&self) -> usize {
        self.links
    }

    /// Returns the address of a host, which is that of its first link.
    ///
    /// # Panics
    /// If no host has this number. Every function that takes a host's number panics in this case.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        self.link(host, 0).address()
    }

    /// Returns a link of a host by its number.
    ///
    /// # Panics
    /// If the host or the link does not exist.
    pub fn link(&self, host: usize, rail: usize) -> Link<'_> {
        assert!(
            rail < self.links,
            "there is no link {rail}, only {} from 0 on",
            self.links
        );
        Link::new(&self.workspace, self.number(host), rail)
    }

    fn links_of(&self, host: usize) -> impl Iterator<Item = Link<'_>> {
        (0..self.links).map(move |rail| self.link(host, rail))
    }

    /// Returns the address of the switch, the network namespace for programs that belong to no host. The address is on
    /// rail 0, the rail of the first links.
    pub fn switch_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 254)
    }

    /// Returns the name of a host's network namespace, as `ip netns` lists it.
    pub fn namespace(&self, host: usize) -> String {
        self.workspace.host_space(self.number(host))
    }

    /// Returns a folder that belongs to the hosts and is removed with them.
    pub fn folder(&self) -> &Path {
        self.workspace.folder()
    }

    /// Returns the path of the script `on`, which runs a program in a host: `on HOST PROGRAM [ARGUMENT…]`. HOST is 0,
    /// 1, … or "switch".
    pub fn on(&self) -> PathBuf {
        self.folder().join("bin/on")
    }

    /// Returns a command for a program in a host. The child process executes the program itself, so that signals reach
    /// the program. Standard streams, environment and working directory are inherited.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        self.command_on(&self.number(host).to_string(), program)
    }

    /// Returns a command for a program at the switch, which reaches all hosts through their first links. Only the
    /// hosts' receive rates limit its outgoing traffic.
    pub fn switch_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_on("switch", program)
    }

    fn command_on(&self, place: &str, program: impl AsRef<OsStr>) -> Command {
        // `sh` runs the script. Executing the script directly could fail, because a child that another thread is
        // starting may still have the script open for writing.
        let mut command = Command::new("sh");
        command.arg(self.on()).arg(place).arg(program);
        command
    }

    /// Runs `work` in a thread that has entered a host's network, so that its sockets belong to the host.
    ///
    /// # Errors
    /// [`Error::Failed`] if the thread cannot enter the network, or the work panicked.
    pub fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
        within(&self.namespace(host), work)
    }

    /// Kills all programs in the hosts and removes the hosts. Dropping does the same, but only prints errors.
    ///
    /// # Errors
    /// [`Error::Failed`] if something could not be removed.
    pub fn close(mut self) -> Result<()> {
        self.workspace.remove()
    }

    fn number(&self, host: usize) -> usize {
        assert!(
            host < self.count,
            "there is no host {host}, only {} from 0 on",
            self.count
        );
        host
    }

    fn write_scripts(&self) -> Result<()> {
        let folder = self.folder();
        let failed = |error: std::io::Error| {
            Error::Failed(format!("cannot write in {}: {error}", folder.display()))
        };
        // A host's /sys gets the control groups through this mount point.
        fs::create_dir(folder.join("cgroup")).map_err(failed)?;
        fs::create_dir(folder.join("bin")).map_err(failed)?;
        fs::write(self.on(), include_str!("on.sh")).map_err(failed)?;
        fs::set_permissions(self.on(), fs::Permissions::from_mode(0o755)).map_err(failed)?;
        fs::write(folder.join("bin/inside"), include_str!("inside.sh")).map_err(failed)?;
        let mut names = String::from("127.0.0.1 localhost\n");
        for link in (0..self.count).flat_map(|host| self.links_of(host)) {
            // Writing into a string cannot fail.
            let _ = writeln!(names, "{} {}", link.address(), link.name());
        }
        let _ = writeln!(names, "{} switch", self.switch_address());
        // The machine's own entries come last, so that they cannot override the names of hosts.
        names += &fs::read_to_string("/etc/hosts").unwrap_or_default();
        fs::write(folder.join("hosts"), names).map_err(failed)
    }

    fn make_switch(&self) -> Result<()> {
        let switch = self.workspace.switch_space();
        probe("ip", &format!("netns add {switch}"))?;
        let ip = |step: &str| run("ip", &format!("-n {switch} {step}"));
        ip("link set lo up")?;
        for bridge in (0..self.links).map(bridge) {
            ip(&format!("link add {bridge} type bridge"))?;
            ip(&format!("link set {bridge} up"))?;
        }
        // The bridges of the other rails have no address, so that the switch does not connect rails.
        let (address, first) = (self.switch_address(), bridge(0));
        ip(&format!("address add {address}/24 dev {first}")).map(drop)
    }

    fn make_host(&self, host: usize, rates: LinkRates) -> Result<()> {
        let space = self.namespace(host);
        run("ip", &format!("netns add {space}"))?;
        run("ip", &format!("-n {space} link set lo up"))?;
        let links: Vec<_> = self.links_of(host).collect();
        for link in &links {
            link.create()?;
            if rates != LinkRates::UNSHAPED {
                link.set_rates(rates)?;
            }
        }
        // A single link needs no separation.
        if links.len() > 1 {
            separate_links(&links)?;
        }
        Ok(())
    }
}

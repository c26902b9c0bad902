//! Making hosts, running programs in them, cutting and shaping their links.

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::slot::Slot;
use crate::tool::{probe, require, run};
use crate::{Error, Rate, Result};

/// One byte of the address tells hosts apart, and the switch has the last one.
const COUNT_MAX: usize = 250;

/// Longest time that a link may take to come up; a second is usual on some kernels.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// Properties of the hosts to make.
#[derive(Debug, Clone, Copy)]
pub struct HostsSpec {
    /// Number of hosts, 1 to 250.
    pub count: usize,
    /// Rate at which each host's link carries what it sends; `None` is as fast as the CPU.
    pub rate: Option<Rate>,
}

impl Default for HostsSpec {
    fn default() -> Self {
        Self {
            count: 2,
            rate: None,
        }
    }
}

/// Some hosts on one switch. When this is dropped, or its process ends in whatever way, all programs in them are ended
/// and everything is removed.
#[derive(Debug)]
pub struct Hosts {
    count: usize,
    slot: Slot,
}

impl Hosts {
    /// Makes them. Their names are h0, h1, …, and each finds the others' addresses by these names. Leftovers of
    /// processes that were killed together with their guardians are removed first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without root, `ip`, `tc` or what they need of the kernel; [`Error::Failed`] for a count
    /// that is out of range and everything else.
    pub fn new(spec: HostsSpec) -> Result<Self> {
        if !(1..=COUNT_MAX).contains(&spec.count) {
            return Err(Error::Failed(format!(
                "{} hosts cannot be made: ask for 1 to {COUNT_MAX}",
                spec.count
            )));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable(
                "only root can make network namespaces".into(),
            ));
        }
        require(&["ip", "tc", "nsenter", "unshare", "mount"])?;
        let hosts = Self {
            count: spec.count,
            slot: Slot::claim()?,
        };
        hosts.write_scripts()?;
        hosts.make_switch()?;
        for host in 0..spec.count {
            hosts.make_host(host)?;
            if spec.rate.is_some() {
                hosts.set_rate(host, spec.rate)?;
            }
        }
        for host in 0..spec.count {
            hosts.wait_for_link(host)?;
        }
        Ok(hosts)
    }

    /// Number of hosts; the first is number 0.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The address of a host.
    ///
    /// # Panics
    /// Like all that take the number of a host, when there is none of this number.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        address(self.number(host))
    }

    /// The address of the switch, where programs run that belong to no host.
    pub fn switch_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 254)
    }

    /// The name of a host's network namespace, as `ip netns` lists it.
    pub fn namespace(&self, host: usize) -> String {
        format!("{}h{}", self.slot.prefix(), self.number(host))
    }

    fn switch_namespace(&self) -> String {
        format!("{}switch", self.slot.prefix())
    }

    /// A folder of the hosts' own, which is removed with them.
    pub fn folder(&self) -> &Path {
        self.slot.folder()
    }

    /// The program that runs others in a host: `on HOST PROGRAM [ARGUMENT…]`, where HOST is 0, 1, … or "switch".
    pub fn on(&self) -> PathBuf {
        self.folder().join("bin/on")
    }

    /// A program in a host, to be given arguments and started. The process that starts becomes the program, so that
    /// signals reach it; standard streams, environment and working directory are as usual.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        self.command_on(&self.number(host).to_string(), program)
    }

    /// A program at the switch, which reaches all hosts over links that are never shaped on its side.
    pub fn switch_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_on("switch", program)
    }

    fn command_on(&self, place: &str, program: impl AsRef<OsStr>) -> Command {
        // Not the script itself: a child that another thread is just starting may still have it open for writing.
        let mut command = Command::new("sh");
        command.arg(self.on()).arg(place).arg(program);
        command
    }

    /// Does some work in a thread that is in a host's network: what it connects and listens to is the host's.
    ///
    /// # Errors
    /// [`Error::Failed`] when the thread cannot go there, or the work panicked.
    pub fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = Path::new("/run/netns").join(self.namespace(host));
        let failed = |error: String| Error::Failed(format!("cannot work in host {host}: {error}"));
        let space = File::open(&path).map_err(|error| failed(error.to_string()))?;
        let done = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok::<T, Errno>(work())
            });
            thread.join()
        });
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the work panicked".into())),
        }
    }

    /// Lays a cable between two hosts beside their links to the switch, and waits until it carries: `eth1` at both
    /// ends, `10.254.0.1` at the first.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn lay_cable(&self, one: usize, other: usize) -> Result<()> {
        let ends = [self.namespace(one), self.namespace(other)];
        let pair = "eth1 type veth peer name eth1";
        run(
            "ip",
            &format!("-n {} link add {pair} netns {}", ends[0], ends[1]),
        )?;
        for (last, space) in (1..).zip(&ends) {
            run(
                "ip",
                &format!("-n {space} address add 10.254.0.{last}/24 dev eth1"),
            )?;
            run("ip", &format!("-n {space} link set eth1 up"))?;
        }
        let since = Instant::now();
        for space in &ends {
            while !run("ip", &format!("-n {space} -o link show eth1"))?.contains("state UP") {
                if since.elapsed() > LINK_PATIENCE {
                    return Err(Error::Failed(format!(
                        "the cable in {space} does not come up"
                    )));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Cuts a cable that was laid from this host.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn cut_cable(&self, host: usize) -> Result<()> {
        let space = self.namespace(host);
        run("ip", &format!("-n {space} link set eth1 down")).map(drop)
    }

    /// Cuts a host's cable to the switch: its interface stays as it is, but has no carrier.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn link_down(&self, host: usize) -> Result<()> {
        self.set_port(host, "down")
    }

    /// Mends a host's cable to the switch, and waits until it carries.
    ///
    /// # Errors
    /// [`Error::Failed`] when the system refuses.
    pub fn link_up(&self, host: usize) -> Result<()> {
        self.set_port(host, "up")?;
        self.wait_for_link(host)
    }

    /// The kernel looks at changed links once a second at most, and a port of the switch forwards only after that.
    fn wait_for_link(&self, host: usize) -> Result<()> {
        let (space, switch) = (self.namespace(host), self.switch_namespace());
        let since = Instant::now();
        loop {
            let port = run("ip", &format!("-n {switch} -o -d link show h{host}"))?;
            let interface = run("ip", &format!("-n {space} -o link show eth0"))?;
            if port.contains("state forwarding") && interface.contains("state UP") {
                return Ok(());
            }
            if since.elapsed() > LINK_PATIENCE {
                return Err(Error::Failed(format!(
                    "the link of h{host} does not come up; look at\n{port}{interface}"
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn set_port(&self, host: usize, state: &str) -> Result<()> {
        let (host, switch) = (self.number(host), self.switch_namespace());
        run("ip", &format!("-n {switch} link set h{host} {state}")).map(drop)
    }

    /// Changes the rate at which a host's link carries what the host sends; `None` is as fast as the CPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the kernel cannot shape; [`Error::Failed`] when the system refuses.
    pub fn set_rate(&self, host: usize, rate: Option<Rate>) -> Result<()> {
        let qdisc = match rate {
            Some(rate) => format!(
                "tbf rate {}bit burst {} latency 20ms",
                rate.bits_per_s(),
                rate.burst()
            ),
            None => "noqueue".to_owned(),
        };
        let space = self.namespace(host);
        probe(
            "tc",
            &format!("-n {space} qdisc replace dev eth0 root {qdisc}"),
        )
        .map(drop)
    }

    /// Ends all programs in the hosts and removes everything; dropping does the same, but only prints what went wrong.
    ///
    /// # Errors
    /// [`Error::Failed`] when something could not be removed.
    pub fn close(mut self) -> Result<()> {
        self.slot.remove()
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
        // Control groups pass through here on their way into a host's /sys.
        fs::create_dir(folder.join("cgroup")).map_err(failed)?;
        fs::create_dir(folder.join("bin")).map_err(failed)?;
        fs::write(self.on(), include_str!("on.sh")).map_err(failed)?;
        fs::set_permissions(self.on(), fs::Permissions::from_mode(0o755)).map_err(failed)?;
        fs::write(folder.join("bin/inside"), include_str!("inside.sh")).map_err(failed)?;
        let mut names = String::from("127.0.0.1 localhost\n");
        for host in 0..self.count {
            // Writing into a string cannot fail.
            let _ = writeln!(names, "{} h{host}", address(host));
        }
        let _ = writeln!(names, "{} switch", self.switch_address());
        // What the machine itself knows comes later, so that it cannot hide the hosts.
        names += &fs::read_to_string("/etc/hosts").unwrap_or_default();
        fs::write(folder.join("hosts"), names).map_err(failed)
    }

    fn make_switch(&self) -> Result<()> {
        let switch = self.switch_namespace();
        probe("ip", &format!("netns add {switch}"))?;
        for step in [
            "link set lo up".to_owned(),
            "link add bridge type bridge".to_owned(),
            format!("address add {}/24 dev bridge", self.switch_address()),
            "link set bridge up".to_owned(),
        ] {
            run("ip", &format!("-n {switch} {step}"))?;
        }
        Ok(())
    }

    fn make_host(&self, host: usize) -> Result<()> {
        let (space, switch) = (self.namespace(host), self.switch_namespace());
        for step in [
            format!("netns add {space}"),
            format!("-n {space} link set lo up"),
            format!("-n {switch} link add h{host} type veth peer name eth0 netns {space}"),
            format!("-n {switch} link set h{host} master bridge up"),
            format!(
                "-n {space} address add {}/24 broadcast + dev eth0",
                address(host)
            ),
            format!("-n {space} link set eth0 up"),
        ] {
            run("ip", &step)?;
        }
        Ok(())
    }
}

fn address(host: usize) -> Ipv4Addr {
    // No more hosts are made than fit in a byte.
    Ipv4Addr::new(10, 77, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
}

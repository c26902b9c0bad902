//! Hosts on this machine for real: they reach each other, their links can be cut and shaped, and nothing of them stays
//! behind, however their owner ends.
//!
//! Without root, `ip` or `tc` these tests print why they skip themselves.

#[cfg(test)]
mod links;
#[cfg(test)]
mod rails;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod removal;
#[cfg(test)]
mod slurm;

#[cfg(test)]
mod support {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use rustix::io::Errno;
    use rustix::net::{self, AddressFamily, SocketType, sockopt::Timeout};
    use tonnage_testbed::{Error, Hosts, HostsSpec, Rate};

    /// Time in which a peer that is there has answered, and one that is not has failed to.
    const ANSWER: Duration = Duration::from_secs(5);

    /// Two hosts with links of this rate both ways, or `None` with the reason printed where this machine cannot have
    /// any.
    pub fn two_hosts(rate: Option<Rate>) -> Option<Hosts> {
        some_hosts(HostsSpec {
            rates: rate.into(),
            ..HostsSpec::default()
        })
    }

    /// Hosts as they are asked for, or `None` with the reason printed.
    pub fn some_hosts(spec: HostsSpec) -> Option<Hosts> {
        match Hosts::new(spec) {
            Ok(hosts) => Some(hosts),
            Err(Error::Unavailable(why)) => {
                println!("skip: no hosts in network namespaces: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A listener at the address of a link.
    pub fn listen(hosts: &Hosts, host: usize, rail: usize) -> (TcpListener, SocketAddr) {
        let address = hosts.link(host, rail).address();
        let listener = hosts
            .within(host, || TcpListener::bind((address, 0)).unwrap())
            .unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A connection from a host, by the route that it chooses.
    pub fn connect(hosts: &Hosts, from: usize, to: SocketAddr) -> std::io::Result<TcpStream> {
        hosts
            .within(from, || {
                TcpStream::connect_timeout(&to, Duration::from_millis(500))
            })
            .unwrap()
    }

    /// A connection from the address of a link.
    pub fn connect_from(
        hosts: &Hosts,
        from: usize,
        rail: usize,
        to: SocketAddr,
    ) -> Result<TcpStream, Errno> {
        let address = SocketAddr::from((hosts.link(from, rail).address(), 0));
        hosts
            .within(from, || {
                let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
                net::bind(&socket, &address)?;
                // What nobody answers would be tried again for minutes.
                net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(ANSWER))?;
                net::connect(&socket, &to)?;
                net::sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
                Ok(TcpStream::from(socket))
            })
            .unwrap()
    }

    /// Returns the output of a command; it must succeed.
    pub fn printed(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Looks again and again until `ready`; panics with `what` after two minutes, however busy the machine is.
    pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
        let since = Instant::now();
        while !ready() {
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "waited in vain until {what}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The network namespaces of the hosts with this folder.
    pub fn spaces(folder: &Path) -> Vec<PathBuf> {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let prefix = format!("tonnage-{name}-");
        let Ok(entries) = std::fs::read_dir("/run/netns") else {
            return Vec::new();
        };
        let mut found: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().unwrap().starts_with(&prefix))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// Neither folder nor namespaces are there.
    pub fn is_gone(folder: &Path) -> bool {
        !folder.exists() && spaces(folder).is_empty()
    }

    /// The processes with this text in their command line, zombies left out.
    pub fn processes_with(text: &str) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|&pid| command_line(pid).contains(text))
            .collect()
    }

    /// A process's command line, a blank after each argument; empty when it has ended.
    pub fn command_line(pid: i32) -> String {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    }
}

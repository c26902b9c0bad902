//! Tests with real hosts on this machine: hosts can reach each other, links can be cut and shaped, and nothing is left
//! behind however the owner ends.
//!
//! Without root, `ip` or `tc` these tests skip themselves and print why.

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

    /// A peer that has not answered after this time never will.
    const ANSWER: Duration = Duration::from_secs(5);

    /// Creates two hosts with links of this rate both ways. If this machine cannot have hosts, prints the reason and
    /// returns `None`.
    pub fn two_hosts(rate: Option<Rate>) -> Option<Hosts> {
        some_hosts(HostsSpec {
            rates: rate.into(),
            ..HostsSpec::default()
        })
    }

    /// Creates hosts. If this machine cannot have any, prints the reason and returns `None`.
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

    /// Opens a listener at the address of a link.
    pub fn listen(hosts: &Hosts, host: usize, rail: usize) -> (TcpListener, SocketAddr) {
        let address = hosts.link(host, rail).address();
        let listener = hosts
            .within(host, || TcpListener::bind((address, 0)).unwrap())
            .unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Connects from a host, over the interface that its routes select.
    pub fn connect(hosts: &Hosts, from: usize, to: SocketAddr) -> std::io::Result<TcpStream> {
        hosts
            .within(from, || {
                TcpStream::connect_timeout(&to, Duration::from_millis(500))
            })
            .unwrap()
    }

    /// Connects from a host with the source address of one of its links.
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
                // Without a limit, the kernel would retry an unanswered connection for minutes.
                net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(ANSWER))?;
                net::connect(&socket, &to)?;
                net::sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
                Ok(TcpStream::from(socket))
            })
            .unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn printed(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Polls until `ready` returns true. Panics with `what` after two minutes, which suffices on any busy machine.
    pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
        let since = Instant::now();
        while !ready() {
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "timed out waiting until {what}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the network namespaces of the hosts with this folder.
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

    /// Returns whether both the folder and the namespaces are gone.
    pub fn is_gone(folder: &Path) -> bool {
        !folder.exists() && spaces(folder).is_empty()
    }

    /// Returns the processes with this text in their command line, except zombies.
    pub fn processes_with(text: &str) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|&pid| command_line(pid).contains(text))
            .collect()
    }

    /// Returns a process's command line, with a blank after each argument; empty if it has ended.
    pub fn command_line(pid: i32) -> String {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    }
}

//! The meeting place of ranks that plain `srun` started. Rank 0 listens on an address of the first host's name, and the
//! other ranks connect to that name.
//!
//! The other ranks do not know which address rank 0 has chosen, so they rely on the name to resolve to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};

use super::slurm;
use crate::join::address::{interface_address, interface_addresses, listen_on};
use tonnage_units::identity::{AddressSource, Identity};
use tonnage_units::{Error, Result};

/// Returns the name or address that the other ranks connect to, and rank 0's listening socket. If the step has a single
/// host, rank 0 listens on loopback or the chosen interface.
///
/// # Errors
/// [`Error::Usage`] when the name has no address that other hosts can reach, or no address of the chosen interface.
/// Also any error of listening.
pub(crate) fn first_host(
    host: &str,
    port: u16,
    others: bool,
    identity: &Identity,
    interface: Option<&str>,
) -> Result<(String, Option<TcpListener>)> {
    if !others {
        let ip = match interface {
            Some(name) => interface_address(name, None)?,
            None => Ipv4Addr::LOCALHOST.into(),
        };
        let text = ip.to_string();
        let is_root = identity.rank == 0;
        let listener = is_root
            .then(|| listen_on(SocketAddr::new(ip, port), &text, AddressSource::Step))
            .transpose()?;
        return Ok((text, listener));
    }
    let mut name = host.to_owned();
    let mut addresses = reachable_addresses(&name, port);
    if addresses.is_empty() {
        name = slurm::node_address(host)?;
        addresses = reachable_addresses(&name, port);
        log::info!("the name {host} has no usable address; Slurm reports {name}");
    }
    if identity.rank > 0 {
        return Ok((name, None));
    }
    if let Some(interface) = interface {
        addresses = keep_interface_addresses(&name, &addresses, interface)?;
    }
    let mut last = None;
    for ip in addresses {
        match listen_on(SocketAddr::new(ip, port), host, AddressSource::Step) {
            Ok(listener) => return Ok((name, Some(listener))),
            Err(error) => last = Some(error.into()),
        }
    }
    Err(last.unwrap_or_else(|| {
        Error::Usage(format!(
            "rank 0 on {} finds no address under the name {name} that other hosts can reach: start with --mpi=pmix or \
             --mpi=pmi2, or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            tonnage_sys::host::name()
        ))
    }))
}

/// Returns the non-loopback addresses of a name. Debian's /etc/hosts maps a host's own name to 127.0.1.1, which other
/// hosts cannot use.
fn reachable_addresses(name: &str, port: u16) -> Vec<IpAddr> {
    let found = (name, port).to_socket_addrs().into_iter().flatten();
    found
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback())
        .collect()
}

/// Returns the addresses of the name that belong to the interface.
fn keep_interface_addresses(
    name: &str,
    addresses: &[IpAddr],
    interface: &str,
) -> Result<Vec<IpAddr>> {
    let own = interface_addresses(interface)?;
    let both = own.iter().copied().filter(|ip| addresses.contains(ip));
    let both: Vec<IpAddr> = both.collect();
    if !both.is_empty() {
        return Ok(both);
    }
    let listed = |ips: &[IpAddr]| {
        let texts: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
        texts.join(", ")
    };
    Err(Error::Usage(format!(
        "--control-interface {interface} of rank 0 on {} has {}, but the other ranks dial {name}, which is {}: start \
         with --mpi=pmix or --mpi=pmi2, which pass on rank 0's address, or export RANK, WORLD_SIZE, MASTER_ADDR (the \
         interface's address) and MASTER_PORT",
        tonnage_sys::host::name(),
        listed(&own),
        listed(addresses)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::says;

    fn identity(rank: u32) -> Identity {
        crate::testing::identity(rank, 2, "127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn the_interface_must_have_the_address_that_the_others_dial() {
        let error = first_host("192.0.2.7", 1, true, &identity(0), Some("lo")).unwrap_err();
        let text = error.to_string();
        says(
            &text,
            &[
                "--control-interface lo",
                "127.0.0.1",
                "192.0.2.7",
                "--mpi=pmix",
                "MASTER_ADDR",
            ],
        );
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let elsewhere: IpAddr = "192.0.2.7".parse().unwrap();
        assert_eq!(
            keep_interface_addresses("n1", &[elsewhere, lo], "lo").unwrap(),
            [lo]
        );
        let (name, listener) = first_host("192.0.2.7", 1, true, &identity(1), Some("lo")).unwrap();
        assert!(name == "192.0.2.7" && listener.is_none());
    }

    #[test]
    fn on_one_host_all_take_the_interface_or_loopback() {
        for interface in [None, Some("lo")] {
            let (name, listener) = first_host("n1", 0, false, &identity(0), interface).unwrap();
            assert_eq!(name, "127.0.0.1");
            let address = listener.unwrap().local_addr().unwrap();
            assert_eq!(address.ip().to_string(), name);
            let (dialled, listener) = first_host("n1", 0, false, &identity(1), interface).unwrap();
            assert!(dialled == name && listener.is_none());
        }
    }
}

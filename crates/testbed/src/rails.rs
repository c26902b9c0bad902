//! Keeping the links of a host apart. By itself Linux gives addresses to hosts, not to interfaces: it answers for all
//! of them on every interface, and sends a packet by the interface of its destination, whatever address it is from.

use std::fs;
use std::io::ErrorKind;

use crate::link::Link;
use crate::space::within;
use crate::tool::probe;
use crate::{Error, Result};

/// Tables of routes that nobody else uses: a new namespace has only those of 253 to 255.
const FIRST_TABLE: usize = 100;

/// Answers for an address only on the interface that has it, so that no rail leads to another's addresses.
const ARP_IGNORE: &str = "/proc/sys/net/ipv4/conf/all/arp_ignore";

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

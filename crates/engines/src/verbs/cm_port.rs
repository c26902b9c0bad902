//! The prerequisites of rdma_cm: its library, and an IP address of the port. Connecting is in `cm`.

use std::net::IpAddr;
use std::sync::Arc;

use tonnage_engine::OpenRequest;
use tonnage_sys::interfaces;
use tonnage_sys::verbs::{CmChannel, Librdmacm, LinkLayer};
use tonnage_units::Result;

use super::choose::{ChosenPort, unavailable};
use super::options::{Asked, LIBRDMACM, LIBRDMACM_VARIABLE};
use crate::libraries;

/// The library, and the IP address from which the port's queue pairs connect.
pub(super) struct CmPort {
    pub(super) library: Arc<Librdmacm>,
    pub(super) address: IpAddr,
}

/// Finds the library and the address, if the user requested rdma_cm.
pub(super) fn cm_port(
    request: &OpenRequest<'_>,
    asked: &Asked,
    chosen: &ChosenPort,
) -> Result<Option<CmPort>> {
    if !asked.by_cm {
        return Ok(None);
    }
    let library = Arc::new(load(request)?);
    // Opened and dropped as a check, so that a missing device is reported before any rank connects.
    CmChannel::open(&library).map_err(|why| {
        let how = "Load rdma_ucm, and check that this user may open /dev/infiniband/rdma_cm (in a container: --device \
                   /dev/infiniband); or leave out connect=cm";
        unavailable(format!("connect=cm: {why}"), how)
    })?;
    let address = address(chosen)?;
    Ok(Some(CmPort { library, address }))
}

fn load(request: &OpenRequest<'_>) -> Result<Librdmacm> {
    let named = libraries::requested_path(request, LIBRDMACM, LIBRDMACM_VARIABLE)?;
    Librdmacm::load(named.as_deref()).map_err(|why| {
        let how = "Install librdmacm1 (Debian, Ubuntu) or librdmacm (others), name a file with --library librdmacm=PATH, \
                   or leave out connect=cm";
        unavailable(format!("connect=cm: {why}"), how)
    })
}

/// Returns the port's IP address. For Ethernet, it is the address in packets. For InfiniBand, it is the address of the
/// port's network interface (IPoIB).
fn address(chosen: &ChosenPort) -> Result<IpAddr> {
    let at = || format!("{}:{}", chosen.context.name(), chosen.port.number);
    let how = "Give its network interface an IPv4 address (ip addr add), choose another by the engine-option gid, or \
               leave out connect=cm";
    if chosen.port.link_layer == LinkLayer::Ethernet {
        let address = chosen.gid.as_ref().map(|gid| gid.ip());
        return address.filter(|&ip| is_routed(ip)).ok_or_else(|| {
            let address = address.map_or("none".to_owned(), |ip| ip.to_string());
            let why = format!(
                "connect=cm needs a routable address, but that of {} is {address}",
                at()
            );
            unavailable(why, how)
        });
    }
    let network = chosen.state.network.as_deref();
    let all = interfaces::addresses().unwrap_or_default();
    let mut of_port = all
        .into_iter()
        .filter(|it| Some(it.name.as_str()) == network && is_routed(it.address));
    let found = of_port.next().map(|it| it.address);
    found.ok_or_else(|| {
        let interface = network.unwrap_or("none that the kernel names");
        let why = format!(
            "connect=cm needs an IP address, but the network interface (IPoIB) of {}, {interface}, has none",
            at()
        );
        unavailable(why, how)
    })
}

/// Whether the address is usable without naming an interface: it is specified, and not link-local.
fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_unspecified(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_need_an_interface_are_not_connected_to() {
        let routed = |text: &str| is_routed(text.parse().unwrap());
        assert!(routed("10.1.0.1") && routed("169.254.3.4") && routed("fd00::1"));
        for text in ["fe80::1", "0.0.0.0", "::"] {
            assert!(!routed(text), "{text}");
        }
    }
}

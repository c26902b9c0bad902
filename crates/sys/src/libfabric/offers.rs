//! Offers of a libfabric on this host: providers, domains, and the limits of each.
//!
//! Calls `fi_getinfo` without hints, and copies the list as text. Choosing and opening an offer are elsewhere.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};
use std::net::IpAddr;

use super::{INTERFACE_MAX, Libfabric, Release, abi};
use crate::error::LibraryError;
use crate::interfaces::ip_address;
use crate::library::text;
use crate::signal_actions::keeping;

/// Maximum number of entries that are read from the library's list, far above the offers of any host.
const OFFERS_MAX: usize = 1 << 16;

/// Names of the bits of mr_mode, which are a domain's requirements for memory registration.
const MR_MODES: [(c_int, &str); 10] = [
    (abi::FI_MR_LOCAL, "local"),
    (abi::FI_MR_RAW, "raw"),
    (abi::FI_MR_VIRT_ADDR, "virt-addr"),
    (abi::FI_MR_ALLOCATED, "allocated"),
    (abi::FI_MR_PROV_KEY, "prov-key"),
    (abi::FI_MR_MMU_NOTIFY, "mmu-notify"),
    (abi::FI_MR_RMA_EVENT, "rma-event"),
    (abi::FI_MR_ENDPOINT, "endpoint"),
    (abi::FI_MR_HMEM, "hmem"),
    (abi::FI_MR_COLLECTIVE, "collective"),
];

/// Names of the orders that a provider can keep. In "RAW", a read after a write is ordered.
const ORDERS: [(u64, &str); 13] = [
    (abi::FI_ORDER_RAR, "RAR"),
    (abi::FI_ORDER_RAW, "RAW"),
    (abi::FI_ORDER_RAS, "RAS"),
    (abi::FI_ORDER_WAR, "WAR"),
    (abi::FI_ORDER_WAW, "WAW"),
    (abi::FI_ORDER_WAS, "WAS"),
    (abi::FI_ORDER_SAR, "SAR"),
    (abi::FI_ORDER_SAW, "SAW"),
    (abi::FI_ORDER_SAS, "SAS"),
    (abi::FI_ORDER_RMA_RAR, "RMA-RAR"),
    (abi::FI_ORDER_RMA_RAW, "RMA-RAW"),
    (abi::FI_ORDER_RMA_WAR, "RMA-WAR"),
    (abi::FI_ORDER_RMA_WAW, "RMA-WAW"),
];

const CAPABILITIES: [(u64, &str); 2] = [(abi::FI_MSG, "msg"), (abi::FI_RMA, "rma")];

const ENDPOINTS: [(c_int, &str); 4] = [
    (0, "unspecified"),
    (abi::FI_EP_MSG, "msg"),
    (abi::FI_EP_DGRAM, "datagram"),
    (abi::FI_EP_RDM, "rdm"),
];

const PROGRESS_MODELS: [(c_int, &str); 4] = [
    (abi::FI_PROGRESS_UNSPEC, "unspecified"),
    (abi::FI_PROGRESS_AUTO, "auto"),
    (abi::FI_PROGRESS_MANUAL, "manual"),
    (abi::FI_PROGRESS_CONTROL_UNIFIED, "control-unified"),
];

const THREADING_LEVELS: [(c_int, &str); 6] = [
    (abi::FI_THREAD_UNSPEC, "unspecified"),
    (abi::FI_THREAD_SAFE, "safe"),
    (abi::FI_THREAD_FID, "fid"),
    (abi::FI_THREAD_DOMAIN, "domain"),
    (abi::FI_THREAD_COMPLETION, "completion"),
    (abi::FI_THREAD_ENDPOINT, "endpoint"),
];

/// Values of `addr_format` for socket addresses: of any family, of IPv4, of IPv6.
const SOCKADDR_FORMATS: [u32; 3] = [abi::FI_SOCKADDR, abi::FI_SOCKADDR_IN, abi::FI_SOCKADDR_IN6];

/// One way to communicate, with its limits. The limits granted to an endpoint can differ from the provider's general
/// limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer {
    /// Provider. A layered provider has a semicolon in its name, such as "tcp;ofi_rxm".
    pub provider: String,
    /// The provider's own version.
    pub provider_version: Release,
    /// Interface version that was agreed with the library.
    pub api_version: Release,
    /// Fabric (network) name; may be empty.
    pub fabric: String,
    /// Domain (device) name; may be empty.
    pub domain: String,
    /// The local address, if the provider uses Internet addresses.
    pub address: Option<IpAddr>,
    /// Kind of endpoint: "msg", "datagram", "rdm" (reliable datagram) or another kind's number.
    pub endpoint: String,
    /// Kinds of transfers: "msg" (send and receive), "rma" (write and read).
    pub transfers: Vec<&'static str>,
    /// Operations that can be queued for transmission.
    pub tx_depth: usize,
    /// Receives that can be posted.
    pub rx_depth: usize,
    /// Largest message that can be injected: its buffer may be reused as soon as the call returns.
    pub inject_bytes_max: usize,
    /// Size of the immediate data that an operation can carry to its target.
    pub immediate_bytes: usize,
    /// Largest message.
    pub message_bytes_max: usize,
    /// Largest write for which read-after-write order holds, if that order is granted.
    pub read_after_write_bytes_max: usize,
    /// Bits of mr_mode that the provider requires: "local", "virt-addr", "prov-key", …
    pub mr_mode: Vec<&'static str>,
    /// Orders between operations that the provider can keep: "WAW" is a write after a write; W write, R read, S send.
    pub ordering: Vec<&'static str>,
    /// Progress model of control operations, such as connecting: "auto" or "manual".
    pub control_progress: String,
    /// Progress model of data transfers.
    pub data_progress: String,
    /// Threading model: "safe", "domain", …
    pub threading: String,
    /// Link speed of the device, if the provider reports it.
    pub link_bits_per_s: Option<u64>,
}

/// A provider that is part of a library, with or without a device here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedProvider {
    /// The provider's name, such as "tcp", "verbs" or "ofi_rxm".
    pub provider: String,
    /// Version of the provider.
    pub version: Release,
}

impl Libfabric {
    /// Returns all offers of the providers on this host, sorted and unique; empty if none is usable. The providers look
    /// for their devices. This can take some tenths of a second.
    ///
    /// # Errors
    /// The library's own reason.
    pub fn offers(&self) -> Result<Vec<Offer>, LibraryError> {
        self.list(0, copy_offer)
    }

    /// Returns the providers that are part of the library, sorted and unique, including those without a device here.
    ///
    /// # Errors
    /// The library's own reason.
    pub fn parts(&self) -> Result<Vec<ListedProvider>, LibraryError> {
        self.list(abi::FI_PROV_ATTR_ONLY, copy_part)
    }

    /// Copies each entry by `copy`, sorted and unique.
    fn list<T: Ord>(
        &self,
        flags: u64,
        copy: unsafe fn(&abi::fi_info) -> Option<T>,
    ) -> Result<Vec<T>, LibraryError> {
        // SAFETY: hints may be null ("everything"); `copy` is one of the two functions below, which require a live
        // entry.
        let entries = unsafe { self.entries(flags, std::ptr::null(), |entry| copy(entry)) }?;
        Ok(BTreeSet::from_iter(entries).into_iter().collect())
    }

    /// Requests a list, and copies each entry by `copy`. Empty if no offer matches; without hints, this means that no
    /// provider is usable.
    ///
    /// # Safety
    /// The hints are null or a live fi_info of this library.
    pub(super) unsafe fn entries<T>(
        &self,
        flags: u64,
        hints: *const abi::fi_info,
        mut copy: impl FnMut(&abi::fi_info) -> Option<T>,
    ) -> Result<Vec<T>, LibraryError> {
        let version = self.release.0.min(INTERFACE_MAX);
        let mut list: *mut abi::fi_info = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: node and service may be null, the caller promises the hints; `list` is valid for the one write of a
        // pointer.
        let code = keeping(|| unsafe {
            (self.calls.getinfo)(version, none, none, flags, hints, &raw mut list)
        });
        if code == -abi::FI_ENODATA {
            return Ok(Vec::new());
        }
        if code != 0 {
            let reason = self.reason(code);
            let about = format_args!("of {} failed", self.path());
            return Err(LibraryError::call("fi_getinfo", code, reason).about(about));
        }
        let mut found = Vec::new();
        let mut next = list;
        for _ in 0..OFFERS_MAX {
            // SAFETY: null ends the list; every other entry is live until fi_freeinfo below.
            let Some(entry) = (unsafe { next.as_ref() }) else {
                break;
            };
            next = entry.next;
            found.extend(copy(entry));
        }
        if !list.is_null() {
            // SAFETY: the list came from this library's fi_getinfo, is freed once, and nothing points into it any more.
            unsafe { (self.calls.freeinfo)(list) };
        }
        Ok(found)
    }
}

/// Whether `name` is the provider `wanted`, or that provider under a layer.
pub(super) fn is_of(name: &str, wanted: &str) -> bool {
    let layer = name.strip_prefix(wanted);
    layer.is_some_and(|layer| layer.is_empty() || layer.starts_with(';'))
}

/// Copies the name and version of a provider; `None` for an entry without them.
///
/// # Safety
/// `info` is an entry that fi_getinfo made and that has not been freed.
unsafe fn copy_part(info: &abi::fi_info) -> Option<ListedProvider> {
    // SAFETY: null or a live attribute of this entry, by the caller's promise.
    let fabric = unsafe { info.fabric_attr.as_ref() }?;
    Some(ListedProvider {
        // SAFETY: null or NUL-terminated and unchanged while the list lives.
        provider: unsafe { text(fabric.prov_name) }?,
        version: Release(fabric.prov_version),
    })
}

/// Copies one offer; `None` for an entry that lacks a mandatory attribute.
///
/// # Safety
/// `info` is live, and its attributes are null or live.
pub(super) unsafe fn copy_offer(info: &abi::fi_info) -> Option<Offer> {
    // SAFETY: null or a live attribute of this entry, by the caller's promise; the same holds for the four below.
    let fabric = unsafe { info.fabric_attr.as_ref() }?;
    // SAFETY: as above.
    let domain = unsafe { info.domain_attr.as_ref() }?;
    // SAFETY: as above.
    let endpoint = unsafe { info.ep_attr.as_ref() }?;
    // SAFETY: as above.
    let tx = unsafe { info.tx_attr.as_ref() }?;
    // SAFETY: as above.
    let rx = unsafe { info.rx_attr.as_ref() }?;
    // SAFETY: names are null or NUL-terminated and unchanged while the entry lives.
    let name = |name: *mut c_char| unsafe { text(name) }.unwrap_or_default();
    let progress = |model| name_of(&PROGRESS_MODELS, "model", model);
    Some(Offer {
        provider: name(fabric.prov_name),
        provider_version: Release(fabric.prov_version),
        api_version: Release(fabric.api_version),
        fabric: name(fabric.name),
        domain: name(domain.name),
        // SAFETY: by the caller's promise.
        address: unsafe { internet_address(info) },
        endpoint: name_of(&ENDPOINTS, "kind", endpoint.type_),
        transfers: names(&CAPABILITIES, |bit| info.caps & bit != 0),
        tx_depth: tx.size,
        rx_depth: rx.size,
        inject_bytes_max: tx.inject_size,
        immediate_bytes: domain.cq_data_size,
        message_bytes_max: endpoint.max_msg_size,
        read_after_write_bytes_max: endpoint.max_order_raw_size,
        mr_mode: names(&MR_MODES, |bit| domain.mr_mode & bit != 0),
        ordering: names(&ORDERS, |bit| tx.msg_order & rx.msg_order & bit != 0),
        control_progress: progress(domain.control_progress),
        data_progress: progress(domain.data_progress),
        threading: name_of(&THREADING_LEVELS, "level", domain.threading),
        // SAFETY: by the caller's promise.
        link_bits_per_s: unsafe { link_bits_per_s(info) },
    })
}

/// # Safety
/// As for [`copy_offer`]: `src_addr` is null or holds `src_addrlen` bytes.
unsafe fn internet_address(info: &abi::fi_info) -> Option<IpAddr> {
    if !SOCKADDR_FORMATS.contains(&info.addr_format) {
        return None;
    }
    // SAFETY: by the caller's promise.
    unsafe { ip_address(info.src_addr, info.src_addrlen) }
}

/// Returns the link speed; `None` if the provider names no device, or does not know its speed.
///
/// # Safety
/// `info` is an entry that fi_getinfo made and that has not been freed.
unsafe fn link_bits_per_s(info: &abi::fi_info) -> Option<u64> {
    // SAFETY: null or a live object of this entry, by the caller's promise; the same holds for its attribute.
    let nic = unsafe { info.nic.as_ref() }?;
    // SAFETY: as above.
    let link = unsafe { nic.link_attr.as_ref() }?;
    u64::try_from(link.speed).ok().filter(|speed| *speed > 0)
}

/// Returns the names of the bits that are set.
fn names<B: Copy, const N: usize>(
    table: &[(B, &'static str); N],
    is_set: impl Fn(B) -> bool,
) -> Vec<&'static str> {
    let set = table.iter().filter(|(bit, _)| is_set(*bit));
    set.map(|(_, name)| *name).collect()
}

/// Returns the name of a number; an unknown number becomes `what` and the number.
fn name_of(table: &[(c_int, &str)], what: &str, number: c_int) -> String {
    let known = table.iter().find(|(known, _)| *known == number);
    known.map_or_else(
        || format!("{what} {number}"),
        |(_, name)| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_found_under_its_layers() {
        assert!(is_of("tcp", "tcp") && is_of("tcp;ofi_rxm", "tcp"));
        assert!(is_of("tcp;ofi_rxm", "tcp;ofi_rxm"));
        assert!(!is_of("tcp", "tcp;ofi_rxm") && !is_of("tcpx", "tcp") && !is_of("udp", "tcp"));
    }

    #[test]
    fn bits_and_numbers_have_names() {
        let bits = abi::FI_MR_VIRT_ADDR | abi::FI_MR_PROV_KEY;
        assert_eq!(
            names(&MR_MODES, |bit| bits & bit != 0),
            ["virt-addr", "prov-key"]
        );
        assert_eq!(name_of(&ENDPOINTS, "kind", abi::FI_EP_RDM), "rdm");
        assert_eq!(name_of(&ENDPOINTS, "kind", 9), "kind 9");
    }

    /// Checks the tcp offer, which every working library has, because sockets need no device.
    fn check(library: &Libfabric) {
        let offers = library.offers().unwrap();
        assert!(offers.is_sorted() && offers.iter().all(|offer| !offer.provider.is_empty()));
        assert_eq!(offers, library.offers().unwrap());
        let rdm = |offer: &&Offer| is_of(&offer.provider, "tcp") && offer.endpoint == "rdm";
        let tcp = offers.iter().find(rdm).expect("tcp");
        assert!(tcp.tx_depth > 0 && tcp.message_bytes_max > 1 << 20);
        assert_eq!(tcp.transfers, ["msg", "rma"]);
        assert_eq!(tcp.immediate_bytes, 8);
        let parts = library.parts().unwrap();
        let part = |name: &str| parts.iter().any(|part| part.provider == name);
        assert!(part("tcp") && part("ofi_rxm"), "{parts:?}");
    }

    #[test]
    fn the_embedded_library_offers_tcp_and_shared_memory() {
        let library = Libfabric::embedded();
        check(&library);
        let rdm = |offer: &Offer| offer.provider == "shm" && offer.endpoint == "rdm";
        assert!(library.offers().unwrap().iter().any(rdm));
        let parts = library.parts().unwrap();
        assert!(!parts.iter().any(|part| part.provider == "verbs"));
    }

    #[test]
    fn an_installed_library_lists_providers() {
        match Libfabric::load(None) {
            Ok(library) => check(&library),
            Err(why) => eprintln!("skip: no libfabric here: {why}"),
        }
    }
}

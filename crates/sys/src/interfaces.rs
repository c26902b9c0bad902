//! The network interfaces of this host and their addresses.
//!
//! The standard library cannot list interfaces. Other modules decide which interface is used.

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::library::outcome;

/// One address of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's name, such as "eth0".
    pub name: String,
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
}

/// Frees the system's list, also after an early return.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a successful getifaddrs and is freed nowhere else.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// Returns all IPv4 and IPv6 addresses of all interfaces that are up, in the system's order.
///
/// # Errors
/// If the system does not return the list.
pub fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first = ptr::null_mut();
    // SAFETY: the argument is a valid place for one pointer; the call writes it only when it returns 0.
    outcome(unsafe { libc::getifaddrs(&raw mut first) })?;
    let list = List(first);
    let mut found = Vec::new();
    let mut next = list.0;
    while !next.is_null() {
        // SAFETY: every non-null element of the list is a valid ifaddrs until the list is freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP.cast_unsigned() == 0 {
            continue;
        }
        // SAFETY: ifa_addr is null or a whole address of its family, for as long as the list lives.
        if let Some(address) = unsafe { ip_address(entry.ifa_addr.cast(), usize::MAX) } {
            // SAFETY: ifa_name is a string that ends in a zero byte, for as long as the list lives.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push(InterfaceAddress {
                name: name.to_string_lossy().into_owned(),
                address,
            });
        }
    }
    Ok(found)
}

/// Returns the index of an interface in this network namespace; `None` if it does not exist.
pub fn index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the argument is a string that ends in a zero byte, and lives until the call returns.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Returns the IP address in a socket address of `bytes` bytes; `None` for other families and truncated addresses.
///
/// # Safety
/// The pointer must be null, or point to a socket address with at least `bytes` bytes or the bytes that its family
/// requires.
pub(crate) unsafe fn ip_address(address: *const c_void, bytes: usize) -> Option<IpAddr> {
    if address.is_null() || bytes < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: by the promise above it has at least the family; it may lie at any address, so it is copied unaligned.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match i32::from(family) {
        libc::AF_INET if bytes >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: as above; the family says that it is this type, and the length was compared.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 if bytes >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address() {
        let found = addresses().unwrap();
        if !found.iter().any(|entry| entry.name == "lo") {
            println!("skip: this host has no interface named lo");
            return;
        }
        assert!(
            found
                .iter()
                .any(|entry| entry.name == "lo" && entry.address.is_loopback()),
            "{found:?}"
        );
        assert!(index("lo").is_some() && index("none\0").is_none() && index("").is_none());
    }
}

//! Network settings of this process's TCP sockets: interface, MTU, queueing discipline, congestion control and buffers.
//! All are read from the kernel, for the process's own network namespace.
//!
//! Libraries own most of these sockets, so the sockets are found among the process's open files. The interface is that
//! of the route to the peer. Routes and interfaces are queried by netlink, because /sys may show another namespace's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, ipproto, recv, send,
    socket_with, sockopt,
};
use tonnage_sys::descriptor::duplicate;

/// Maximum number of sockets to describe.
const SOCKETS_MAX: usize = 256;

/// The path of one connected TCP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath {
    /// Interface through which the kernel sends to the peer.
    pub interface: String,
    /// MTU of the interface.
    pub mtu_bytes: u32,
    /// MTU of the route, if the route sets its own.
    pub route_mtu_bytes: Option<u32>,
    /// Queueing discipline of the interface, at its root.
    pub qdisc: String,
    /// Congestion control of the socket.
    pub congestion_control: String,
    /// Size of the send buffer, to which the kernel has grown it so far.
    pub send_buffer_bytes: u64,
    /// Size of the receive buffer, to which the kernel has grown it so far.
    pub receive_buffer_bytes: u64,
}

/// Returns the inodes of all sockets of this process.
pub fn open_sockets() -> BTreeSet<u64> {
    numbered().into_iter().map(|(_, inode)| inode).collect()
}

/// Returns the paths of this process's connected TCP sockets, except those with inodes in `known`.
pub fn paths(known: &BTreeSet<u64>) -> Vec<SocketPath> {
    let (mut routes, mut links) = (BTreeMap::new(), BTreeMap::new());
    let sockets = numbered().into_iter();
    let sockets = sockets.filter(|(_, inode)| !known.contains(inode));
    let paths = sockets.filter_map(|(number, _)| {
        let socket = duplicate(number).ok()?;
        let peer = tcp_peer(&socket)?;
        let route: IpRoute = *routes.entry(peer).or_insert_with(|| route_to(peer));
        let index = route.interface?;
        let link: &Option<Link> = links.entry(index).or_insert_with(|| link_of(index));
        let link = link.as_ref()?;
        Some(SocketPath {
            interface: link.name.clone(),
            mtu_bytes: link.mtu_bytes,
            route_mtu_bytes: route.mtu_bytes,
            qdisc: link.qdisc.clone(),
            congestion_control: sockopt::tcp_congestion(&socket).ok()?,
            send_buffer_bytes: sockopt::socket_send_buffer_size(&socket).ok()? as u64,
            receive_buffer_bytes: sockopt::socket_recv_buffer_size(&socket).ok()? as u64,
        })
    });
    paths.take(SOCKETS_MAX).collect()
}

/// Returns the descriptor numbers and inodes of this process's sockets.
fn numbered() -> Vec<(i32, u64)> {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let socket = |file: std::fs::DirEntry| {
        let number = file.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(file.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        Some((number, inode.strip_suffix(']')?.parse().ok()?))
    };
    files.flatten().filter_map(socket).collect()
}

/// Returns the address of a TCP socket's peer; `None` if the socket is not connected, or not a TCP socket.
fn tcp_peer(socket: &OwnedFd) -> Option<IpAddr> {
    let family = sockopt::socket_domain(socket).ok()?;
    let is_ip = family == AddressFamily::INET || family == AddressFamily::INET6;
    let is_tcp = is_ip && sockopt::socket_protocol(socket).ok()? == Some(ipproto::TCP);
    let peer = is_tcp.then(|| getpeername(socket).ok().flatten())??;
    let peer = std::net::SocketAddr::try_from(peer).ok()?;
    Some(peer.ip().to_canonical())
}

/// The kernel's route to an IP address.
#[derive(Debug, Clone, Copy, Default)]
struct IpRoute {
    interface: Option<u32>,
    mtu_bytes: Option<u32>,
}

/// A network interface.
#[derive(Debug, Clone)]
struct Link {
    name: String,
    mtu_bytes: u32,
    qdisc: String,
}

/// Constants of Linux' rtnetlink.h and if_link.h.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;

/// Header sizes: of a netlink message (nlmsghdr), of a route (rtmsg), and of an interface (ifinfomsg).
const HEAD_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const LINK_BYTES: usize = 16;

fn route_to(peer: IpAddr) -> IpRoute {
    let (family, address) = match peer {
        IpAddr::V4(address) => (AddressFamily::INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::INET6, address.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_BYTES];
    body[0] = family.as_raw() as u8;
    body[1] = 8 * address.len() as u8;
    body.extend(((4 + address.len()) as u16).to_ne_bytes());
    body.extend(RTA_DST.to_ne_bytes());
    body.extend(address);
    let answer = ask(RTM_GETROUTE, RTM_NEWROUTE, &body).unwrap_or_default();
    route(&answer)
}

fn route(answer: &[u8]) -> IpRoute {
    let mut found = IpRoute::default();
    for (kind, value) in attributes(answer.get(ROUTE_BYTES..).unwrap_or_default()) {
        match kind {
            RTA_OIF => found.interface = number(value),
            RTA_METRICS => {
                let mut metrics = attributes(value);
                let mtu = metrics.find(|(kind, _)| *kind == RTAX_MTU);
                found.mtu_bytes = mtu.and_then(|(_, value)| number(value));
            }
            _ => {}
        }
    }
    found
}

fn link_of(index: u32) -> Option<Link> {
    let mut body = vec![0; LINK_BYTES];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    link(&ask(RTM_GETLINK, RTM_NEWLINK, &body)?)
}

fn link(answer: &[u8]) -> Option<Link> {
    let all: BTreeMap<u16, &[u8]> = attributes(answer.get(LINK_BYTES..)?).collect();
    let text = |kind: u16| {
        let bytes = all.get(&kind)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    };
    Some(Link {
        name: text(IFLA_IFNAME)?,
        mtu_bytes: number(all.get(&IFLA_MTU)?)?,
        qdisc: text(IFLA_QDISC)?,
    })
}

/// Sends a netlink request, and returns the answer without its header.
fn ask(kind: u16, answer_kind: u16, body: &[u8]) -> Option<Vec<u8>> {
    const REQUEST: u16 = 1;
    let mut message = Vec::with_capacity(HEAD_BYTES + body.len());
    message.extend(((HEAD_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()?;
    send(&socket, &message, SendFlags::empty()).ok()?;
    // The kernel has answered by the time that `send` returns.
    let mut answer = vec![0; 64 << 10];
    let (bytes, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    answer.truncate(bytes);
    let got = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    (got == answer_kind).then(|| answer.split_off(HEAD_BYTES.min(answer.len())))
}

/// Iterates over a message's attributes as (kind, value). A malformed attribute ends the iteration.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let half = |at: usize| Some(u16::from_ne_bytes(rest.get(at..at + 2)?.try_into().ok()?));
        // The two highest bits are flags.
        let (bytes, kind) = (usize::from(half(0)?), half(2)? & 0x3fff);
        let value = rest.get(4..bytes)?;
        rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_stream_over_loopback_has_the_settings_that_the_kernel_shows() {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
            println!("skip: this host has no loopback");
            return;
        };
        let known = open_sockets();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sockopt::set_socket_send_buffer_size(&stream, 50_000).unwrap();
        let (_accepted, _) = listener.accept().unwrap();
        let _unconnected = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Other tests have sockets open too, so the test looks for its own.
        let wanted = sockopt::socket_send_buffer_size(&stream).unwrap() as u64;
        let all = paths(&known);
        let found = all.iter().find(|path| path.send_buffer_bytes == wanted);
        let Some(found) = found else {
            panic!("no path of {wanted} B: {all:?}");
        };
        assert_eq!(found.interface, "lo");
        let congestion_control = sockopt::tcp_congestion(&stream).unwrap();
        assert_eq!(found.congestion_control, congestion_control);
        if let Ok(mtu) = std::fs::read_to_string("/sys/class/net/lo/mtu") {
            assert_eq!(found.mtu_bytes.to_string(), mtu.trim());
        }
        assert!(!found.qdisc.is_empty());
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut all = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        all.extend(kind.to_ne_bytes());
        all.extend(value);
        all.resize(all.len().next_multiple_of(4), 0);
        all
    }

    #[test]
    fn routes_and_links_are_read() {
        let metrics = attribute(RTAX_MTU, &1400u32.to_ne_bytes());
        let answer = [
            vec![0; ROUTE_BYTES],
            attribute(RTA_METRICS, &metrics),
            attribute(RTA_OIF, &3u32.to_ne_bytes()),
        ]
        .concat();
        let found = route(&answer);
        assert_eq!((found.interface, found.mtu_bytes), (Some(3), Some(1400)));
        let answer = [
            vec![0; LINK_BYTES],
            attribute(IFLA_IFNAME, b"eth0\0"),
            attribute(IFLA_QDISC, b"tbf\0"),
            attribute(IFLA_MTU, &9000u32.to_ne_bytes()),
        ]
        .concat();
        let found = link(&answer).unwrap();
        assert_eq!(
            (&*found.name, &*found.qdisc, found.mtu_bytes),
            ("eth0", "tbf", 9000)
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_taken(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (route(&answer), link(&answer));
        }
    }
}

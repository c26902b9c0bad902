//! An open device: its limits, its ports and their addresses.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi::{
    IBV_ATOMIC_NONE, IBV_LINK_LAYER_ETHERNET, ibv_async_event, ibv_context, ibv_device_attr,
    ibv_port_attr,
};
use super::loaded::Libibverbs;
use super::{check, failed, last_error};
use crate::error::{LibraryError, LibraryErrorKind};
use crate::library::text;

/// Maximum number of events per read.
const EVENTS_MAX: usize = 64;

/// Numbers of events that do not indicate a fault: communication established, send queue drained, path migrated, port
/// active, SRQ limit reached, last work request of a queue pair reached, and client reregistration.
const HARMLESS: [u32; 7] = [4, 5, 6, 9, 15, 16, 17];

/// Numbers of events of ports.
const OF_PORTS: [u32; 5] = [10, 11, 12, 13, 18];

/// An address of a port, 16 bytes in network byte order.
pub type Gid = [u8; 16];

/// An open device. It is closed when this value is dropped.
pub struct Context {
    pub(super) library: Arc<Libibverbs>,
    pub(super) raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: the library's calls on a device may be made from any thread.
unsafe impl Send for Context {}
// SAFETY: as above: the library locks the device.
unsafe impl Sync for Context {}

/// Limits of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Firmware version; empty if there is none.
    pub firmware: String,
    /// Maximum bytes of one registration.
    pub region_bytes: u64,
    /// Maximum queue pairs of all processes together.
    pub queue_pairs: u32,
    /// Maximum work requests per queue.
    pub work_requests: u32,
    /// Maximum local ranges of a work request.
    pub stretches: u32,
    /// Maximum entries of a completion queue.
    pub completions: u32,
    /// Maximum reads in flight per queue pair, as initiator.
    pub reads_as_initiator: u8,
    /// Maximum reads in flight per queue pair, as target.
    pub reads_as_target: u8,
    /// Whether the device supports atomic operations.
    pub atomics: bool,
}

/// Link layer of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// RoCE, or iWARP.
    Ethernet,
}

/// State of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortState {
    /// Port number, from 1.
    pub number: u8,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// Largest message.
    pub message_bytes_max: u32,
    /// Size of the table of partition keys.
    pub pkeys: u16,
    /// Local identifier (LID) of InfiniBand; 0 otherwise.
    pub lid: u16,
    /// Link layer of the port.
    pub link_layer: LinkLayer,
}

impl Context {
    /// Opens a device by its name.
    ///
    /// # Errors
    /// If no device has this name, the error lists the existing ones. Otherwise the library's reason; most often, a
    /// permission for /dev/infiniband is missing.
    pub fn open(library: &Arc<Libibverbs>, name: &str) -> Result<Self, LibraryError> {
        let list = library.list()?;
        let Some((_, device)) = list.iter().find(|(other, _)| other == name) else {
            return Err(LibraryErrorKind::NoDevice {
                device: name.to_owned(),
                known: list.iter().map(|(name, _)| name).collect(),
            }
            .into());
        };
        // SAFETY: the device belongs to a live list.
        let raw = unsafe { (library.calls.open_device)(device.as_ptr()) };
        let context = Self {
            library: Arc::clone(library),
            raw: NonNull::new(raw).ok_or_else(|| last_error("ibv_open_device"))?,
            name: name.to_owned(),
        };
        // SAFETY: the device is open, and so is the descriptor of its events.
        let events = unsafe { BorrowedFd::borrow_raw((*context.raw.as_ptr()).async_fd) };
        unblock(events)?;
        Ok(context)
    }

    /// Returns faults of the device and its objects since the last call, by the library's names: for example, a port
    /// that went down, or a queue pair that failed. Other events are left out.
    pub fn take_events(&self) -> Vec<String> {
        let calls = &self.library.calls;
        let mut words = Vec::new();
        let mut event = ibv_async_event::default();
        for _ in 0..EVENTS_MAX {
            // SAFETY: the device is open, and its descriptor does not block; the struct is valid for writes.
            let code = unsafe { (calls.get_async_event)(self.raw.as_ptr(), &raw mut event) };
            if code != 0 {
                break;
            }
            // SAFETY: the call takes any number and returns a constant NUL-terminated string, which is copied at once.
            let name = unsafe { text((calls.event_type_str)(event.event_type)) };
            let name = name.unwrap_or_else(|| format!("event {}", event.event_type));
            match event.event_type {
                number if HARMLESS.contains(&number) => {}
                number if OF_PORTS.contains(&number) => {
                    words.push(format!("{name} (port {})", event.element as u32));
                }
                _ => words.push(name),
            }
            // SAFETY: the event came from the library and is acknowledged once.
            unsafe { (calls.ack_async_event)(&raw mut event) };
        }
        words
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The library that opened the device.
    pub fn library(&self) -> &Libibverbs {
        &self.library
    }

    /// Returns the limits of the device.
    ///
    /// # Errors
    /// The library's reason.
    pub fn limits(&self) -> Result<DeviceLimits, LibraryError> {
        let mut attributes = ibv_device_attr::ZEROED;
        // SAFETY: the device is open; the struct is valid for writes.
        let code =
            unsafe { (self.library.calls.query_device)(self.raw.as_ptr(), &raw mut attributes) };
        check("ibv_query_device", code)?;
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let few = |value: i32| u8::try_from(value).unwrap_or(if value < 0 { 0 } else { u8::MAX });
        let last = attributes.fw_ver.last().copied();
        // SAFETY: the text lies in the struct and ends with a zero. This is checked here, because the library does not
        // promise it for all drivers.
        let firmware = (last == Some(0)).then(|| unsafe { text(attributes.fw_ver.as_ptr()) });
        Ok(DeviceLimits {
            firmware: firmware.flatten().unwrap_or_default(),
            // A driver that reports 0 states no limit, because every driver can register memory.
            region_bytes: match attributes.max_mr_size {
                0 => u64::MAX,
                bytes => bytes,
            },
            queue_pairs: count(attributes.max_qp),
            work_requests: count(attributes.max_qp_wr),
            stretches: count(attributes.max_sge),
            completions: count(attributes.max_cqe),
            reads_as_initiator: few(attributes.max_qp_init_rd_atom),
            reads_as_target: few(attributes.max_qp_rd_atom),
            atomics: attributes.atomic_cap != IBV_ATOMIC_NONE,
        })
    }

    /// Returns the state of a port.
    ///
    /// # Errors
    /// The library's reason, also for a port that the device does not have.
    pub fn port(&self, number: u8) -> Result<PortState, LibraryError> {
        let mut port = ibv_port_attr::default();
        // SAFETY: the device is open; the struct is valid for writes and has the size that the call expects.
        let code =
            unsafe { (self.library.calls.query_port)(self.raw.as_ptr(), number, &raw mut port) };
        check("ibv_query_port", code)?;
        Ok(PortState {
            number,
            mtu: 128 << port.active_mtu.clamp(1, 5),
            message_bytes_max: port.max_msg_sz,
            pkeys: port.pkey_tbl_len,
            lid: port.lid,
            link_layer: match port.link_layer {
                IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::InfiniBand,
            },
        })
    }
}

/// Makes reads of a descriptor of the library non-blocking.
pub(super) fn unblock(descriptor: BorrowedFd<'_>) -> Result<(), LibraryError> {
    fcntl_getfl(descriptor)
        .and_then(|flags| fcntl_setfl(descriptor, flags | OFlags::NONBLOCK))
        .map_err(|error| failed("fcntl", error.into()).about("of a descriptor of libibverbs"))
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the device is open, and everything opened on it keeps this value alive, so it was closed before.
        unsafe { (self.library.calls.close_device)(self.raw.as_ptr()) };
    }
}

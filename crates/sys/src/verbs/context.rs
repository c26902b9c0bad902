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

/// Events that are taken at once.
const EVENTS_MAX: usize = 64;

/// Numbers of events that come without any trouble: a connection, a drained queue, a path that moved, an active port, a
/// limit that was reached, the last work request of a queue pair, and a subnet that wants to be asked again.
const HARMLESS: [u32; 7] = [4, 5, 6, 9, 15, 16, 17];

/// Numbers of events of ports.
const OF_PORTS: [u32; 5] = [10, 11, 12, 13, 18];

/// An address of a port, 16 bytes in the order of the network.
pub type Gid = [u8; 16];

/// An open device. It is closed with this value.
pub struct Context {
    pub(super) library: Arc<Libibverbs>,
    pub(super) raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: the library's calls on a device may be made from any thread.
unsafe impl Send for Context {}
// SAFETY: as above: a device is the library's to lock.
unsafe impl Sync for Context {}

/// Limits of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Firmware version; empty where there is none.
    pub firmware: String,
    /// Bytes of one registration, at most.
    pub region_bytes: u64,
    /// Queue pairs, of all processes together.
    pub queue_pairs: u32,
    /// Work requests of one queue.
    pub work_requests: u32,
    /// Stretches of local bytes of a work request.
    pub stretches: u32,
    /// Entries of one completion queue.
    pub completions: u32,
    /// Reads in flight on a queue pair, as their initiator.
    pub reads_as_initiator: u8,
    /// Reads in flight on a queue pair, as their target.
    pub reads_as_target: u8,
    /// True where it changes words of its memory in one step.
    pub atomics: bool,
}

/// Protocol below a port.
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
    /// Number, from 1.
    pub number: u8,
    /// Largest payload of a packet.
    pub mtu: u32,
    /// Largest message.
    pub message_bytes_max: u32,
    /// Keys that it has room for.
    pub pkeys: u16,
    /// Local identifier of InfiniBand; 0 elsewhere.
    pub lid: u16,
    /// Protocol below it.
    pub link_layer: LinkLayer,
}

impl Context {
    /// Opens a device by its name.
    ///
    /// # Errors
    /// When there is none of that name, with those that there are; or the library's reason, of which a missing
    /// permission for /dev/infiniband is the most common.
    pub fn open(library: &Arc<Libibverbs>, name: &str) -> Result<Self, LibraryError> {
        let list = library.list()?;
        let Some((_, device)) = list.iter().find(|(other, _)| other == name) else {
            return Err(LibraryErrorKind::NoDevice {
                device: name.to_owned(),
                known: list.iter().map(|(name, _)| name).collect(),
            }
            .into());
        };
        // SAFETY: the device is of a live list.
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

    /// Events of the device and of what belongs to it since this was asked last, in the library's words: a port that
    /// went down, a queue pair that failed. What is no trouble is left out.
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

    /// The library that opened it.
    pub fn library(&self) -> &Libibverbs {
        &self.library
    }

    /// Limits of the device.
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
        // SAFETY: the text lies in the struct, and a zero ends it: looked at here, since the library promises it only
        // of itself.
        let firmware = (last == Some(0)).then(|| unsafe { text(attributes.fw_ver.as_ptr()) });
        Ok(DeviceLimits {
            firmware: firmware.flatten().unwrap_or_default(),
            // No driver registers nothing: one that does not say has no limit of its own.
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

    /// State of a port.
    ///
    /// # Errors
    /// The library's reason, also for a number that the device does not have.
    pub fn port(&self, number: u8) -> Result<PortState, LibraryError> {
        let mut port = ibv_port_attr::default();
        // SAFETY: the device is open; the struct is valid for writes and as large as the call knows it.
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

/// Makes reading from a descriptor of the library's return at once.
pub(super) fn unblock(descriptor: BorrowedFd<'_>) -> Result<(), LibraryError> {
    fcntl_getfl(descriptor)
        .and_then(|flags| fcntl_setfl(descriptor, flags | OFlags::NONBLOCK))
        .map_err(|error| failed("fcntl", error.into()).about("of a descriptor of libibverbs"))
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the device is open, and everything on it holds this value and was closed before it.
        unsafe { (self.library.calls.close_device)(self.raw.as_ptr()) };
    }
}

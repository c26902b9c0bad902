//! An event channel of librdmacm with its identifiers: listening, resolving, connecting and accepting. No call waits; a
//! later event reports the result of each.
//!
//! Makes the calls, and owns the identifiers. [`super::queues`] makes queue pairs, which this library knows only by
//! number. `tonnage_engines::verbs` determines the order of the steps.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::addr::SocketAddrArg as _;

use super::abi::{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, ibv_qp_attr};
use super::check;
use super::cm_abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, RDMA_PS_TCP, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    rdma_event_channel,
};
use super::cm_event::{CmEvent, CmEventKind, CmHandle};
use super::cm_loaded::Librdmacm;
use super::context::{Context, unblock};
use super::last_error;
use super::queue_pair::PathTo;
use crate::error::LibraryError;
use crate::library::text;
use crate::registrable::put;

/// Maximum pending connection requests: the kernel's own default.
const BACKLOG: c_int = 1024;

/// An event channel with its identifiers. Closing the channel closes the remaining identifiers.
pub struct CmChannel {
    /// Identifiers; the entry of a closed identifier is empty.
    ids: Vec<Option<NonNull<rdma_cm_id>>>,
    raw: NonNull<rdma_event_channel>,
    library: Arc<Librdmacm>,
}

// SAFETY: the pointees belong to this value alone; none is bound to a thread.
unsafe impl Send for CmChannel {}

/// One side's parameters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmTerms<'a> {
    /// Number of this side's queue pair.
    pub number: u32,
    /// Maximum reads in flight of this side.
    pub reads_out: u8,
    /// Maximum reads in flight of the other side.
    pub reads_in: u8,
    /// Number of retransmissions of a packet.
    pub retry: u8,
    /// Number of retries of a message that finds no receive.
    pub rnr_retry: u8,
    /// Bytes for the other side: at most 56 with a request, and at most 196 with an acceptance.
    pub private: &'a [u8],
}

impl CmTerms<'_> {
    fn parameters(&self) -> Result<rdma_conn_param, LibraryError> {
        let long = || {
            let bytes = self.private.len();
            LibraryError::argument(format!("{bytes} bytes of private data are too long"))
        };
        Ok(rdma_conn_param {
            private_data: self.private.as_ptr().cast(),
            private_data_len: u8::try_from(self.private.len()).map_err(|_| long())?,
            responder_resources: self.reads_in,
            initiator_depth: self.reads_out,
            flow_control: 1,
            retry_count: self.retry,
            rnr_retry_count: self.rnr_retry,
            srq: 0,
            qp_num: self.number,
        })
    }
}

impl CmChannel {
    /// Opens a channel.
    ///
    /// # Errors
    /// The library's reason; most often, /dev/infiniband/rdma_cm is missing.
    pub fn open(library: &Arc<Librdmacm>) -> Result<Self, LibraryError> {
        // SAFETY: the call takes nothing.
        let raw = unsafe { (library.calls.create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| last_error("rdma_create_event_channel"))?;
        let channel = Self {
            ids: Vec::new(),
            raw,
            library: Arc::clone(library),
        };
        unblock(channel.as_fd())?;
        Ok(channel)
    }

    /// Makes an identifier.
    ///
    /// # Errors
    /// The library's reason.
    pub fn create(&mut self) -> Result<CmHandle, LibraryError> {
        let mut id = std::ptr::null_mut();
        // SAFETY: the channel is open, and the place is valid for a pointer.
        let code = unsafe {
            let none = std::ptr::null_mut();
            (self.library.calls.create_id)(self.raw.as_ptr(), &raw mut id, none, RDMA_PS_TCP)
        };
        check("rdma_create_id", code)?;
        let id = NonNull::new(id)
            .ok_or_else(|| LibraryError::call("rdma_create_id", 0, "returned no identifier"))?;
        Ok(CmHandle(put(&mut self.ids, id)))
    }

    fn id(&self, handle: CmHandle) -> Result<*mut rdma_cm_id, LibraryError> {
        let id = self.ids.get(handle.0).copied().flatten();
        id.map(NonNull::as_ptr)
            .ok_or_else(|| LibraryError::argument("unknown connection identifier"))
    }

    /// Closes an identifier, and ends its connection.
    pub fn close(&mut self, handle: CmHandle) {
        let id = self.ids.get_mut(handle.0).and_then(Option::take);
        if let Some(id) = id {
            // SAFETY: the identifier is open, nothing refers to it any more, and every event of it was acknowledged.
            unsafe { (self.library.calls.destroy_id)(id.as_ptr()) };
        }
    }

    /// Lets an identifier listen at an address, and returns the port that the kernel chose.
    ///
    /// # Errors
    /// The library's reason, for example an address that no RDMA device has.
    pub fn listen(&mut self, handle: CmHandle, at: IpAddr) -> Result<u16, LibraryError> {
        let (id, calls) = (self.id(handle)?, &self.library.calls);
        let mut address = SocketAddr::new(at, 0).as_any();
        // SAFETY: the identifier is open; the address is valid for reads, and has the length of its family.
        let code = unsafe { (calls.bind_addr)(id, address.as_mut_ptr().cast()) };
        check("rdma_bind_addr", code).map_err(|error| error.about(format_args!("to {at}")))?;
        // SAFETY: the identifier is open.
        let code = unsafe { (calls.listen)(id, BACKLOG) };
        check("rdma_listen", code).map_err(|error| error.about(format_args!("at {at}")))?;
        // SAFETY: the identifier is open.
        Ok(u16::from_be(unsafe { (calls.get_src_port)(id) }))
    }

    /// Sets the traffic class of an identifier's packets, and of the path that it resolves.
    ///
    /// # Errors
    /// The library's reason.
    pub fn set_traffic_class(&mut self, handle: CmHandle, class: u8) -> Result<(), LibraryError> {
        let (id, mut class) = (self.id(handle)?, class);
        // SAFETY: the identifier is open; the option is one byte, which is valid for reads.
        let code = unsafe {
            let place: *mut c_void = (&raw mut class).cast();
            (self.library.calls.set_option)(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, place, 1)
        };
        check("rdma_set_option", code).map_err(|error| error.about("RDMA_OPTION_ID_TOS"))
    }

    /// Starts to resolve an address, from a local address. [`CmEventKind::AddressResolved`] reports success.
    ///
    /// # Errors
    /// The library's reason.
    pub fn start_resolving_address(
        &mut self,
        handle: CmHandle,
        (from, to): (IpAddr, SocketAddr),
        within: Duration,
    ) -> Result<(), LibraryError> {
        let id = self.id(handle)?;
        let mut source = SocketAddr::new(from, 0).as_any();
        let mut target = to.as_any();
        // SAFETY: the identifier is open; both addresses are valid for reads, and have the length of their family.
        let code = unsafe {
            let resolve = self.library.calls.resolve_addr;
            (resolve)(
                id,
                source.as_mut_ptr().cast(),
                target.as_mut_ptr().cast(),
                milliseconds(within),
            )
        };
        check("rdma_resolve_addr", code)
    }

    /// Starts to resolve the path to a resolved address. [`CmEventKind::RouteResolved`] reports success.
    ///
    /// # Errors
    /// The library's reason.
    pub fn resolve_route(
        &mut self,
        handle: CmHandle,
        within: Duration,
    ) -> Result<(), LibraryError> {
        let id = self.id(handle)?;
        // SAFETY: the identifier is open.
        let code = unsafe { (self.library.calls.resolve_route)(id, milliseconds(within)) };
        check("rdma_resolve_route", code)
    }

    /// Requests a connection. [`CmEventKind::Response`] reports the answer.
    ///
    /// # Errors
    /// The library's reason.
    pub fn connect(&mut self, handle: CmHandle, terms: &CmTerms<'_>) -> Result<(), LibraryError> {
        let (id, mut parameters) = (self.id(handle)?, terms.parameters()?);
        // SAFETY: the identifier is open; the terms are valid for reads, and so are the bytes that they point to.
        let code = unsafe { (self.library.calls.connect)(id, &raw mut parameters) };
        check("rdma_connect", code)
    }

    /// Accepts a request. [`CmEventKind::Established`] reports that the other side is ready.
    ///
    /// # Errors
    /// The library's reason.
    pub fn accept(&mut self, handle: CmHandle, terms: &CmTerms<'_>) -> Result<(), LibraryError> {
        let (id, mut parameters) = (self.id(handle)?, terms.parameters()?);
        // SAFETY: as for `connect`.
        let code = unsafe { (self.library.calls.accept)(id, &raw mut parameters) };
        check("rdma_accept", code)
    }

    /// Rejects a request, and closes its identifier.
    pub fn reject(&mut self, handle: CmHandle) {
        if let Ok(id) = self.id(handle) {
            // SAFETY: the identifier is open, and no private data are sent.
            unsafe { (self.library.calls.reject)(id, std::ptr::null(), 0) };
        }
        self.close(handle);
    }

    /// Notifies the other side, which has accepted, that this side is ready.
    ///
    /// # Errors
    /// The library's reason.
    pub fn establish(&mut self, handle: CmHandle) -> Result<(), LibraryError> {
        let id = self.id(handle)?;
        // SAFETY: the identifier is open.
        let code = unsafe { (self.library.calls.establish)(id) };
        check("rdma_establish", code)
    }

    /// Returns the name of the device that an identifier is bound to, as the library that opened `context` knows it.
    pub fn device(&self, handle: CmHandle, context: &Context) -> Option<String> {
        let id = self.id(handle).ok()?;
        // SAFETY: the identifier is open.
        let verbs = NonNull::new(unsafe { (*id).verbs })?;
        // SAFETY: the device stays open for as long as the library is loaded; its name is a NUL-terminated string in
        // it, copied at once.
        unsafe {
            text((context.library.calls.get_device_name)(
                (*verbs.as_ptr()).device,
            ))
        }
    }

    /// Returns the path to the other side, as the library knows it after a request or an answer of that side.
    ///
    /// # Errors
    /// The library's reason.
    pub fn path(&self, handle: CmHandle) -> Result<PathTo, LibraryError> {
        let beginning = self.attributes(handle, IBV_QPS_INIT, "INIT")?;
        let receiving = self.attributes(handle, IBV_QPS_RTR, "RTR")?;
        let sending = self.attributes(handle, IBV_QPS_RTS, "RTS")?;
        let (to, route) = (&receiving.ah_attr, &receiving.ah_attr.grh);
        let gid = || {
            let mut gid = [0; 16];
            gid[..8].copy_from_slice(&route.dgid[0].to_ne_bytes());
            gid[8..].copy_from_slice(&route.dgid[1].to_ne_bytes());
            (route.sgid_index, gid)
        };
        Ok(PathTo {
            port: beginning.port_num,
            pkey_index: beginning.pkey_index,
            number: receiving.dest_qp_num,
            first_packet_out: sending.sq_psn,
            first_packet_in: receiving.rq_psn,
            mtu: 128 << receiving.path_mtu.clamp(1, 5),
            gids: (to.is_global != 0).then(gid),
            lid: to.dlid,
            service_level: to.sl,
            traffic_class: route.traffic_class,
            flow_label: route.flow_label,
            reads_out: sending.max_rd_atomic,
            reads_in: receiving.max_dest_rd_atomic,
        })
    }

    fn attributes(
        &self,
        handle: CmHandle,
        state: u32,
        name: &str,
    ) -> Result<ibv_qp_attr, LibraryError> {
        let (id, mut mask) = (self.id(handle)?, 0);
        let mut attributes = ibv_qp_attr {
            qp_state: state,
            ..ibv_qp_attr::default()
        };
        // SAFETY: the identifier is open; both places are valid for writes.
        let code =
            unsafe { (self.library.calls.init_qp_attr)(id, &raw mut attributes, &raw mut mask) };
        check("rdma_init_qp_attr", code)
            .map_err(|error| error.about(format_args!("for {name}")))?;
        Ok(attributes)
    }

    /// Takes the next event; `None` if there is none now.
    ///
    /// # Errors
    /// The library's reason.
    pub fn next_event(&mut self) -> Result<Option<CmEvent>, LibraryError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the channel is open, and its descriptor does not block; the place is valid for a pointer.
        let code = unsafe { (self.library.calls.get_cm_event)(self.raw.as_ptr(), &raw mut event) };
        if code != 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
            return Ok(None);
        }
        check("rdma_get_cm_event", code)?;
        let event = NonNull::new(event)
            .ok_or_else(|| LibraryError::call("rdma_get_cm_event", 0, "returned no event"))?;
        // SAFETY: the event came from the library, and lives until it is acknowledged.
        let copied = self.copied(unsafe { event.as_ref() });
        // SAFETY: the event came from the library and is acknowledged once; nothing points to it any more.
        unsafe { (self.library.calls.ack_cm_event)(event.as_ptr()) };
        Ok(Some(copied))
    }

    /// Copies an event, and takes ownership of the identifier of a request.
    fn copied(&mut self, event: &rdma_cm_event) -> CmEvent {
        let kind = CmEventKind::from_number(event.event);
        // SAFETY: the call takes any number and returns a constant NUL-terminated string, which is copied at once.
        let name = unsafe { text((self.library.calls.event_str)(event.event)) };
        let about = NonNull::new(event.id).and_then(|id| {
            let known = self.ids.iter().position(|other| *other == Some(id));
            match known {
                Some(index) => Some(CmHandle(index)),
                None if kind == CmEventKind::Request => Some(CmHandle(put(&mut self.ids, id))),
                None => None,
            }
        });
        let (data, len) = (event.conn.private_data, event.conn.private_data_len);
        let has_data = matches!(
            kind,
            CmEventKind::Request | CmEventKind::Response | CmEventKind::Rejected
        );
        let mut private = Vec::new();
        if has_data && !data.is_null() {
            // SAFETY: for these kinds the library points to as many bytes as it states, which live as long as the
            // event.
            let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) };
            private.extend_from_slice(bytes);
        }
        CmEvent {
            kind,
            name: name.unwrap_or_else(|| format!("event {}", event.event)),
            status: event.status,
            about,
            private,
        }
    }
}

impl AsFd for CmChannel {
    /// Returns the descriptor that is readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open for as long as it is borrowed, and so is its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).fd) }
    }
}

impl Drop for CmChannel {
    fn drop(&mut self) {
        for index in 0..self.ids.len() {
            self.close(CmHandle(index));
        }
        // SAFETY: the channel is open, and has no identifiers any more. Events that were not taken are lost with the
        // channel, and the kernel closes the identifiers of requests among them.
        unsafe { (self.library.calls.destroy_event_channel)(self.raw.as_ptr()) };
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LibraryErrorKind;

    #[test]
    fn terms_are_this_sides_and_fit() {
        let terms = CmTerms {
            number: 0x1234,
            reads_out: 3,
            reads_in: 5,
            retry: 6,
            rnr_retry: 7,
            private: &[9; 32],
        };
        let given = terms.parameters().unwrap();
        assert_eq!((given.initiator_depth, given.responder_resources), (3, 5));
        assert_eq!((given.retry_count, given.rnr_retry_count), (6, 7));
        assert_eq!((given.qp_num, given.private_data_len), (0x1234, 32));
        let long = CmTerms {
            private: &[0; 256],
            ..terms
        };
        let error = long.parameters().unwrap_err();
        assert!(matches!(*error, LibraryErrorKind::Argument(_)), "{error}");
    }
}

//! Events of librdmacm, about identifiers.
//!
//! Contains a copy of an event's fields, and describes its status as text. [`super::cm`] takes events from the channel.

use std::ffi::c_uint;
use std::io;

/// Handle of an identifier, unique within its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CmHandle(pub(super) usize);

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmEventKind {
    /// The address is resolved, and the identifier is bound to a device.
    AddressResolved,
    /// The address has no route, or does not answer.
    AddressError,
    /// The path is known.
    RouteResolved,
    /// No path was found.
    RouteError,
    /// A request arrived at a listener, and has its own identifier.
    Request,
    /// The other side has accepted.
    Response,
    /// The connection failed while being established.
    ConnectError,
    /// Requests get no answer.
    Unreachable,
    /// The other side, or its device, has rejected the request.
    Rejected,
    /// The other side knows that this side is ready.
    Established,
    /// The other side has disconnected.
    Disconnected,
    /// The device was removed.
    DeviceRemoved,
    /// Anything else.
    Other,
}

impl CmEventKind {
    pub(super) fn from_number(number: c_uint) -> Self {
        // In the order of `enum rdma_cm_event_type`.
        const KINDS: [CmEventKind; 12] = [
            CmEventKind::AddressResolved,
            CmEventKind::AddressError,
            CmEventKind::RouteResolved,
            CmEventKind::RouteError,
            CmEventKind::Request,
            CmEventKind::Response,
            CmEventKind::ConnectError,
            CmEventKind::Unreachable,
            CmEventKind::Rejected,
            CmEventKind::Established,
            CmEventKind::Disconnected,
            CmEventKind::DeviceRemoved,
        ];
        KINDS.get(number as usize).copied().unwrap_or(Self::Other)
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CmEvent {
    /// Kind of the event.
    pub kind: CmEventKind,
    /// The library's name for the event.
    pub name: String,
    /// A negative error number, or the reason of a rejection; 0 if the event has neither.
    pub status: i32,
    /// The identifier; `None` if it is closed.
    pub about: Option<CmHandle>,
    /// Bytes that the other side has sent with the event, including padding.
    pub private: Vec<u8>,
}

impl CmEvent {
    /// Returns name and status as text, for example "RDMA_CM_EVENT_REJECTED (STALE_CONN)".
    pub fn in_words(&self) -> String {
        let status = match (self.kind, self.status) {
            (_, 0) => return self.name.clone(),
            (CmEventKind::Rejected, reason) if reason > 0 => {
                refusal_name(reason).map_or_else(|| format!("reason {reason}"), ToOwned::to_owned)
            }
            (_, error) if error < 0 => {
                io::Error::from_raw_os_error(error.saturating_neg()).to_string()
            }
            (_, status) => format!("status {status}"),
        };
        format!("{} ({status})", self.name)
    }
}

/// Returns the specification's name for the reason of a rejection.
fn refusal_name(reason: i32) -> Option<&'static str> {
    Some(match reason {
        1 => "NO_QP",
        3 => "NO_RESOURCES",
        4 => "TIMEOUT",
        5 => "UNSUPPORTED",
        6 => "INVALID_COMM_ID",
        8 => "INVALID_SERVICE_ID",
        10 => "STALE_CONN",
        12 => "INVALID_GID",
        13 => "INVALID_LID",
        14 => "INVALID_SL",
        15 => "INVALID_TRAFFIC_CLASS",
        26 => "INVALID_MTU",
        28 => "CONSUMER_DEFINED",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kind: CmEventKind, status: i32) -> String {
        let name = "RDMA_CM_EVENT_X".to_owned();
        let event = CmEvent {
            kind,
            name,
            status,
            about: None,
            private: Vec::new(),
        };
        event.in_words()
    }

    #[test]
    fn a_status_is_an_error_number_or_the_reason_of_a_refusal() {
        use CmEventKind::{AddressError, Rejected, Response, Unreachable};
        assert_eq!(words(Response, 0), "RDMA_CM_EVENT_X");
        assert_eq!(words(Rejected, 10), "RDMA_CM_EVENT_X (STALE_CONN)");
        assert_eq!(words(Rejected, 99), "RDMA_CM_EVENT_X (reason 99)");
        assert!(words(AddressError, -libc::EHOSTUNREACH).contains("No route to host"));
        assert!(words(Unreachable, -libc::ETIMEDOUT).contains("timed out"));
        assert!(words(Unreachable, i32::MIN).starts_with("RDMA_CM_EVENT_X ("));
        // A status of 10 is a reason only for rejections.
        assert_eq!(words(Unreachable, 10), "RDMA_CM_EVENT_X (status 10)");
    }
}

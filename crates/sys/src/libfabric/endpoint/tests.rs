//! Peers of an endpoint.

use super::super::{Action, Hints, Route};
use super::*;
use crate::mapping::{Pages, Sharing};

pub(super) fn endpoint() -> Endpoint {
    let library = Arc::new(Libfabric::embedded());
    let hints = Hints {
        provider: "shm",
        messages: false,
        ordered_writes: false,
        reads_after_writes: false,
        delivery: false,
        virtual_addresses: true,
        device_memory: false,
    };
    let info = Info::query(&library, &hints).unwrap().remove(0);
    let sizes = QueueSizes {
        operations: 8,
        receives: 8,
        peers: 2,
    };
    Endpoint::open(info, sizes, false).unwrap()
}

#[test]
fn a_peer_of_another_endpoint_is_refused() {
    let [mut one, mut other] = [endpoint(), endpoint()];
    let arena = Arena::allocate(4096, Pages::Normal, Sharing::Shared, None).unwrap();
    let local = one.register(Arc::new(arena), 1).unwrap();
    let name = one.name().to_vec();
    let peer = other.insert(&name).unwrap();
    let route = Route {
        action: Action::Write,
        peer,
        remote: one.remote(local).unwrap(),
        local,
        delivered: false,
        inject_bytes_max: 0,
    };
    let refused = one.post(&route, 0, 0, 8, 0, 5).unwrap_err();
    assert_eq!((refused.user, refused.code), (Some(5), libc::EFAULT));
}

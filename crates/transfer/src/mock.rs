//! Endpoints over a test engine that ends operations when a test requests it, and records its calls.

use std::time::Duration;

use tonnage_engine::testing::{CAPS, TestEngine, TestScript};
use tonnage_engine::{Caps, Descriptor, EndpointAddress, Peer, Verb};

use crate::address::{PeerAddress, RemoteMemory};
use crate::endpoint::{EndpointConfig, EngineParts, TransferEndpoint};
use crate::place::ProcessPlace;

/// Numbers of the endpoint and of its two peers.
pub(crate) const ME: Peer = 0;
pub(crate) const PEERS: [Peer; 2] = [5, 6];

pub(crate) const BYTES: u64 = 4096;
pub(crate) const SOON: Duration = Duration::from_millis(20);

/// Returns an endpoint over a test engine, connected to its peers, and the test's handle to the engine.
pub(crate) fn endpoint(operations_max: u32) -> (TransferEndpoint, TestEngine) {
    let remote = TestEngine::new(TestScript {
        failure: "RETRY_EXC".into(),
        needs_host_memory: true,
        posts_flushes: true,
        ..TestScript::default()
    })
    .sleeping();
    let parts = EngineParts {
        engine: Box::new(remote.clone()),
        domain: None,
        caps: Caps {
            verbs: &[Verb::Write, Verb::WriteImm, Verb::Read],
            message_bytes_max: 1 << 20,
            delivered: false,
            delivery_on_request: false,
            sends_taken: false,
            ordered_writes: false,
            ..CAPS
        },
        name: "mock".into(),
        device: Some("card0".into()),
        clean_up: |_| (),
    };
    let config = EndpointConfig {
        peers_max: 2,
        operations_max,
        arrivals_max: 4,
        ..EndpointConfig::new(ME)
    };
    let endpoint = TransferEndpoint::from_parts(parts, &config);
    endpoint.connect(&PEERS.map(address_from), SOON).unwrap();
    (endpoint, remote)
}

pub(crate) fn address_from(peer: Peer) -> PeerAddress {
    PeerAddress {
        engine: "mock".into(),
        from: peer,
        to: ME,
        place: ProcessPlace::own(),
        endpoint_address: EndpointAddress(Vec::new()),
    }
}

pub(crate) fn memory_of(peer: Peer) -> RemoteMemory {
    RemoteMemory {
        owner: peer,
        id: 3,
        bytes: BYTES,
        descriptor: Descriptor(vec![9]),
    }
}

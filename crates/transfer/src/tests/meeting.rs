//! Connecting: refused addresses, absent peers, and peers that end while connecting or later.

use std::process::Command;
use std::time::{Duration, Instant};

use tonnage_engine::testing::{TestEngine, arrival};
use tonnage_engine::{Ending, Peer};

use crate::error::TransferErrorKind;
use crate::mock::{self, BYTES, PEERS, SOON, address_from, memory_of};
use crate::place::ProcessPlace;

const LONG: Duration = Duration::from_secs(60);

fn connected(remote: &TestEngine) -> Vec<Peer> {
    let script = remote.lock();
    script.connected.iter().map(|known| known.peer).collect()
}

#[test]
fn a_wrong_card_leaves_the_others_unconnected() {
    let (endpoint, remote) = mock::endpoint(4);
    let mut wrong = address_from(9);
    wrong.to = 3;
    let addresses = [address_from(8), wrong];
    let error = endpoint.connect(&addresses, SOON).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::Usage);
    assert_eq!(connected(&remote), PEERS);
    let twice = [address_from(8), address_from(8)];
    assert!(endpoint.connect(&twice, SOON).is_err());
    endpoint.connect(&[address_from(8)], SOON).unwrap();
}

#[test]
fn a_peer_is_connected_once_although_another_cannot_be_reached() {
    let (endpoint, remote) = mock::endpoint(4);
    remote.lock().unreachable.push(9);
    let addresses = [address_from(8), address_from(9)];
    assert_eq!(
        endpoint.connect(&addresses, SOON).unwrap_err().peer(),
        Some(9)
    );
    endpoint.connect(&addresses[..1], SOON).unwrap();
    remote.lock().unreachable.clear();
    endpoint.connect(&addresses[1..], SOON).unwrap();
    assert_eq!(remote.lock().wrong, Vec::<String>::new());
    assert_eq!(connected(&remote), [PEERS[0], PEERS[1], 8, 9]);
}

#[test]
fn a_peer_that_came_too_late_can_be_met_later() {
    let (endpoint, remote) = mock::endpoint(4);
    let memory = endpoint.allocate("small", BYTES).unwrap();
    remote.lock().never_meets = true;
    let late = endpoint.connect(&[address_from(9)], SOON).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::Deadline);
    let session = endpoint.session(&memory, &memory_of(9)).unwrap_err();
    assert_eq!(session.kind(), TransferErrorKind::Usage);
    // A peer that was never reached sends nothing, so the endpoint does not wait for it.
    for peer in PEERS {
        endpoint.cell().borrow().lose_peer(peer);
    }
    let alone = endpoint.wait_arrival(LONG).unwrap_err();
    assert_eq!(alone.kind(), TransferErrorKind::PeerLost);
    remote.lock().never_meets = false;
    endpoint.connect(&[address_from(9)], SOON).unwrap();
    endpoint.session(&memory, &memory_of(9)).unwrap();
    assert_eq!(remote.lock().wrong, Vec::<String>::new());
}

#[test]
fn a_peer_that_ends_before_first_contact_is_not_waited_for() {
    let (endpoint, remote) = mock::endpoint(4);
    remote.lock().never_meets = true;
    let mut child = Command::new("sleep").arg("0.1").spawn().unwrap();
    let mut address = address_from(9);
    address.place = ProcessPlace::for_process(child.id());
    let begin = Instant::now();
    let error = endpoint.connect(&[address], LONG).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::PeerLost);
    assert_eq!(
        (error.operation(), error.peer()),
        (Some("connect"), Some(9))
    );
    assert!(begin.elapsed() < LONG / 2);
    child.wait().unwrap();
}

#[test]
fn operations_of_a_peer_before_its_end_are_not_lost() {
    let (endpoint, remote) = mock::endpoint(4);
    let memory = endpoint.allocate("small", BYTES).unwrap();
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let mut address = address_from(9);
    address.place = ProcessPlace::for_process(child.id());
    endpoint.connect(&[address], SOON).unwrap();
    for peer in PEERS {
        endpoint.cell().borrow().lose_peer(peer);
    }
    let session = endpoint.session(&memory, &memory_of(9)).unwrap();
    let done = session.write(0, 0, 8).unwrap();
    let never = session.read(0, 0, 8).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    remote.lock().end(1, Ending::Done);
    remote.lock().done.push_back(arrival(PEERS[0], 7, 0));
    assert!(!session.is_alive(), "the peer has ended");
    let late = session.write(0, 0, 8).unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::PeerLost);
    done.wait(LONG).unwrap();
    assert_eq!(endpoint.wait_arrival(LONG).unwrap().imm, 7);
    let lost = never.wait(LONG).unwrap_err();
    assert_eq!(lost.kind(), TransferErrorKind::PeerLost);
    session.wait_all(LONG).unwrap();
    let alone = endpoint.wait_arrival(LONG).unwrap_err();
    assert_eq!(alone.kind(), TransferErrorKind::PeerLost);
}

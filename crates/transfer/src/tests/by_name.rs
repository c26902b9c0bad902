//! Operations without a session: how often each lane source resolves memory and lanes, and that all are released.

use tonnage_engine::{Ending, Verb};

use super::opened;
use crate::LaneSource;
use crate::address::RemoteId;
use crate::error::TransferErrorKind;
use crate::extent::Extent;
use crate::mock::{self, BYTES, PEERS, SOON};

#[test]
fn each_source_resolves_as_often_as_documented() {
    for (source, lanes, regions) in [
        (LaneSource::LookUp, 3, 0),
        (LaneSource::Fresh, 5, 0),
        (LaneSource::Register, 5, 5),
    ] {
        let opened = opened(8);
        drop(opened.session);
        let (endpoint, remote) = (&opened.endpoint, &opened.remote);
        let asked = || {
            let script = remote.lock();
            (script.lanes_asked, script.regions_asked)
        };
        let far = endpoint.add_remote(&mock::memory_of(PEERS[1]));
        let names = (opened.memory.id(), far);
        let before = asked();
        for call in 0..5 {
            let extents = vec![Extent::new(0, 0, 8); 1 + call];
            let ticket = endpoint
                .transfer(source, Verb::Write, names, &extents)
                .unwrap();
            assert!(!ticket.poll().unwrap());
            remote.lock().end(1 + call, Ending::Done);
            ticket.wait(SOON).unwrap();
        }
        let after = asked();
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (lanes, regions),
            "{source:?}"
        );
        let left = remote.lock().lanes.len();
        assert_eq!(left, if source == LaneSource::LookUp { 3 } else { 0 });
        assert_eq!(remote.lock().regions.len(), 1);
        drop(opened.memory);
        let accounts = remote.lock();
        assert_eq!(accounts.left(), (0, 0));
        assert_eq!(accounts.wrong, Vec::<String>::new());
    }
}

#[test]
fn unknown_names_are_refused() {
    let opened = opened(8);
    let far = opened.endpoint.add_remote(&mock::memory_of(PEERS[0]));
    let sources = [LaneSource::LookUp, LaneSource::Fresh, LaneSource::Register];
    for source in sources {
        let call = |remote: RemoteId, verb, extent| {
            let names = (opened.memory.id(), remote);
            opened
                .endpoint
                .transfer(source, verb, names, &[extent])
                .unwrap_err()
        };
        let good = Extent::new(0, 0, 8);
        let stranger = RemoteId {
            peer: 5,
            memory: 99,
        };
        let error = call(stranger, Verb::Write, good);
        assert_eq!(
            (error.kind(), error.peer()),
            (TransferErrorKind::Usage, Some(5))
        );
        let error = call(far, Verb::Read, Extent::new(0, BYTES, 8));
        assert_eq!(error.kind(), TransferErrorKind::OutOfRange);
        assert_eq!((error.operation(), error.peer()), (Some("read"), Some(5)));
        assert_eq!(call(far, Verb::Send, good).kind(), TransferErrorKind::Usage);
        let names = (opened.memory.id(), far);
        assert!(
            opened
                .endpoint
                .transfer(source, Verb::Read, names, &[])
                .is_err()
        );
    }
    // Nothing was posted. Only the lanes and the memory of the open session are left.
    assert_eq!(opened.remote.lock().posts, 0);
    opened.endpoint.remove_remote(far);
    assert_eq!(opened.remote.lock().left(), (3, 1));
    assert_eq!(opened.endpoint.free_slots(), 8);
    assert_eq!(opened.remote.lock().wrong, Vec::<String>::new());
}

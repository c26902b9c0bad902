//! Error messages about operations that make no progress. They name the peers, and the device that carries the
//! operations.

use crate::opening::description::DeviceDescription;
use tonnage_engine::{Engine, RailLoad};
use tonnage_loops::flow::Flow;
use tonnage_loops::stall::Stall;
use tonnage_plan::transfer::TransferPoint;
use tonnage_ranks::RankInfo;
use tonnage_units::Error;

/// Maximum number of peers in a message.
const PEERS_NAMED_MAX: usize = 4;

/// Names of the peers and of the local devices of a worker's flows.
#[derive(Debug, Clone)]
pub struct FlowNames {
    /// Peers of the flows, each with a description that includes its host.
    peers: Vec<(u32, String)>,
    /// Interface and address of each rail on this rank; `None` if unknown.
    rails: Vec<Option<String>>,
}

impl FlowNames {
    /// Creates the names for the flows to `peers`.
    pub fn new(peers: &[u32], ranks: &[RankInfo], devices: &[DeviceDescription]) -> Self {
        let name = |&rank: &u32| match ranks.get(rank as usize) {
            Some(info) => (rank, format!("rank {rank} on {}", info.host)),
            None => (rank, format!("rank {rank}")),
        };
        Self {
            peers: peers.iter().map(name).collect(),
            rails: devices.iter().map(DeviceDescription::title).collect(),
        }
    }

    /// Returns the error for operations that make no progress. It names the flow to the stall's peer, if this is known.
    /// Otherwise it names the flows with indices in `waiting`, or, if this is empty, all flows that issued operations.
    /// Of several rails, it names those with operations in flight. Last come events that the device reported, which may
    /// be the cause.
    pub fn stall_error(
        &self,
        point: &TransferPoint,
        stall: &Stall,
        flows: &[Flow],
        waiting: &[u32],
        engine: &mut dyn Engine,
    ) -> Error {
        let is_meant = |(index, flow): &(usize, &Flow)| match stall.peer {
            Some(peer) => flow.peer == peer,
            None if waiting.is_empty() => flow.issued > 0,
            None => waiting.contains(&(*index as u32)),
        };
        let meant = flows.iter().enumerate().filter(is_meant);
        let peers: Vec<_> = meant
            .filter_map(|(_, flow)| self.peers.iter().find(|(rank, _)| *rank == flow.peer))
            .map(|(_, name)| name)
            .collect();
        let device = match &self.busy_rails(&engine.take_rail_loads())[..] {
            [] => String::new(),
            names => format!(" by {}", names.join(", ")),
        };
        let events = match &engine.take_device_events()[..] {
            [] => String::new(),
            events => format!("; the device reports: {}", events.join(", ")),
        };
        Error::Failed(format!(
            "{}: no {} with {} has ended for {:.1} s, with {} in flight{device}, while the ranks still hear of each other: \
             the path of the data is cut or stuck. Look at its links and counters; the control channel may go another way{events}",
            point.engine,
            point.op.name(),
            list_peers(&peers, stall.peer.is_some() || !waiting.is_empty()),
            stall.quiet_ns as f64 / 1e9,
            stall.in_flight,
        ))
    }

    /// Returns the titles of the rails with operations in flight. If there are none, returns the titles of all rails.
    fn busy_rails(&self, loads: &[RailLoad]) -> Vec<String> {
        let busy = |rail: usize| loads.get(rail).is_none_or(|load| load.in_flight > 0);
        let titles = self.rails.iter().enumerate();
        let stuck: Vec<String> = titles
            .filter(|(rail, _)| busy(*rail))
            .filter_map(|(_, title)| title.clone())
            .collect();
        if stuck.is_empty() {
            // Only an answer is missing. It could have come over any rail.
            return self.rails.iter().flatten().cloned().collect();
        }
        stuck
    }
}

/// Lists peers. If `all` is false, only one of these peers is known to be stuck, so a list of several begins with "one
/// of".
fn list_peers(peers: &[&String], all: bool) -> String {
    let named = peers.iter().take(PEERS_NAMED_MAX);
    let mut named: Vec<String> = named.map(|peer| (*peer).clone()).collect();
    if peers.len() > named.len() {
        named.push(format!("{} more", peers.len() - named.len()));
    }
    let one_of = if all || peers.len() < 2 {
        ""
    } else {
        "one of "
    };
    one_of.to_owned() + &named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::testing::{TestEngine, TestScript};
    use tonnage_loops::testing::flow;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::Access;

    fn names(peers: u32) -> FlowNames {
        FlowNames {
            peers: (0..peers)
                .map(|peer| (peer, format!("rank {peer} on h{peer}")))
                .collect(),
            rails: vec![Some("eth1 (10.0.0.1)".into())],
        }
    }

    fn message(stall_peer: Option<u32>, peers: u32, waiting: &[u32]) -> String {
        message_with(&mut TestEngine::default(), stall_peer, peers, waiting)
    }

    fn message_with(
        engine: &mut TestEngine,
        stall_peer: Option<u32>,
        peers: u32,
        waiting: &[u32],
    ) -> String {
        let flows: Vec<_> = (0..peers)
            .map(|peer| {
                let mut flow = flow(peer, peer);
                flow.next_op(0);
                flow
            })
            .collect();
        let stall = Stall {
            quiet_ns: 9_040_000_000,
            in_flight: 64,
            peer: stall_peer,
        };
        let point = point(Access::Sequential, 8);
        names(peers)
            .stall_error(&point, &stall, &flows, waiting, engine)
            .to_string()
    }

    #[test]
    fn waiting_peers_are_named() {
        let text = message(None, 3, &[1]);
        let wanted =
            " with rank 1 on h1 has ended for 9.0 s, with 64 in flight by eth1 (10.0.0.1), while";
        assert!(text.contains(wanted), "{text}");
        let text = message(Some(2), 3, &[]);
        assert!(text.contains(" with rank 2 on h2 has ended"), "{text}");
    }

    #[test]
    fn events_of_the_device_are_in_the_error() {
        let mut engine = TestEngine::new(TestScript {
            device_events: vec!["port error (port 1) of rxeA".into()],
            ..TestScript::default()
        });
        let text = message_with(&mut engine, None, 1, &[]);
        let wanted = "another way; the device reports: port error (port 1) of rxeA";
        assert!(text.ends_with(wanted), "{text}");
        let text = message_with(&mut engine, None, 1, &[]);
        assert!(text.ends_with("another way"), "{text}");
    }

    #[test]
    fn of_many_the_first_are_named() {
        let text = message(None, 9, &[]);
        assert!(
            text.contains("one of rank 0 on h0, ")
                && text.contains("rank 3 on h3, 5 more has ended"),
            "{text}"
        );
    }
}

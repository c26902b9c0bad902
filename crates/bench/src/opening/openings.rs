//! Combines the descriptions of all ranks' open engines on rank 0. Rank 0 then sends each rank the results. Thus the
//! messages to a rank don't grow with the number of ranks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::CommunicatingPairs;
use super::description::{OpenMessage, WorkerCpus};
use crate::deadlines::DEADLINES;
use crate::json::Json;
use crate::wire_proof::{RankRoutes, Routes};
use tonnage_engine::BoundKind;
use tonnage_plan::roles::Roles;
use tonnage_ranks::{Distinct, Hosts, Rank, pack, unpack};
use tonnage_record::Placed;
use tonnage_record::transfer::CpuSharing;
use tonnage_units::{Error, Result};

/// Properties of the open engines of all ranks.
pub struct Openings {
    /// This rank's description.
    pub own: OpenMessage,
    /// Descriptions of all ranks; empty on ranks other than 0.
    pub all: Distinct<OpenMessage>,
    /// Placement of all ranks' workers; empty on ranks other than 0.
    pub places: Distinct<WorkerCpus>,
    /// Properties that follow from the descriptions of all ranks.
    pub common: CommonOpening,
    /// Whether this rank copies when all simultaneous initiators measure their copies. If memory is on a device such as
    /// a GPU, only the device's first rank copies, because all of its ranks share the device's rate.
    pub shows_copies: bool,
}

/// Properties that follow from the engines of all ranks. They are the same on each rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommonOpening {
    /// Kind of bound that can be compared between the engines of all ranks.
    pub bound: BoundKind,
    /// Whether the workers of any rank yield their CPU while they wait.
    pub yields: bool,
    /// Whether bytes of any rank's memory cross a link between a device and the rest of its machine.
    pub crosses_memory_link: bool,
    /// CPU sockets of the workers that exchange bytes; `None` if unknown.
    pub placed: Option<Placed>,
    /// How the measuring workers share their CPUs, if other workers move a background load.
    pub measuring_cpus: CpuSharing,
    /// What the devices of initiators guarantee about delivery. Each distinct set of guarantees appears once.
    pub arrivals: Vec<DeliveryGuarantees>,
}

/// What a device guarantees about the delivery of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryGuarantees {
    /// Whether completed writes are visible to the peer: always, and on request.
    pub delivers: [bool; 2],
    /// Whether the sender knows when the receiver has taken a send.
    pub sends_taken: bool,
}

/// Rank 0's message to one rank.
#[derive(Serialize, Deserialize)]
struct OpeningReply {
    /// The [`CommonOpening`]. It is encoded only once for all ranks.
    common: Vec<u8>,
    route: RankRoutes,
    shows_copies: bool,
}

impl Openings {
    /// Combines the descriptions of all ranks. `own` is this rank's description. Also returns this rank's part in the
    /// proof of path. The first `measuring` workers of each rank measure.
    pub(crate) fn gather(
        rank: &mut Rank,
        (own, places): (OpenMessage, WorkerCpus),
        pairs: &CommunicatingPairs,
        measuring: u32,
    ) -> Result<(Self, RankRoutes)> {
        let own = Json(own);
        let all = rank.collect("describe the engines", &own, DEADLINES.step)?;
        let all = all.map(|Json(message)| message);
        let places = rank.collect("places of the threads", &Json(places), DEADLINES.step)?;
        let places = places.map(|Json(places)| places);
        let messages = match rank.id() {
            0 => {
                let common = CommonOpening::new((&all, &places), rank.hosts(), pairs, measuring);
                replies_to_ranks(rank, &all, common, pairs.roles)?
            }
            _ => Vec::new(),
        };
        let received = rank.exchange("what follows for all engines", messages, DEADLINES.step)?;
        let nothing =
            || Error::Failed("rank 0 did not send the common properties of the engines".into());
        let (_, reply) = received.first().ok_or_else(nothing)?;
        let OpeningReply {
            common,
            route,
            shows_copies,
        } = unpack(reply)?;
        let (Json(own), Json(common)) = (own, unpack(&common)?);
        let opened = Self {
            own,
            all,
            places,
            common,
            shows_copies,
        };
        Ok((opened, route))
    }
}

/// Encodes rank 0's replies to all ranks.
fn replies_to_ranks(
    rank: &Rank,
    all: &Distinct<OpenMessage>,
    common: CommonOpening,
    roles: Roles,
) -> Result<Vec<(u32, Vec<u8>)>> {
    let common = pack(&Json(common))?;
    let named: Vec<_> = all.iter().map(|one| one.wire_devices.as_ref()).collect();
    let routes = Routes::new(rank.rank_infos(), rank.hosts(), &named);
    let shows_copies = shows_copies(all, rank.hosts(), roles);
    let reply = |(to, shows_copies)| {
        let reply = OpeningReply {
            common: common.clone(),
            route: routes.of_rank(to),
            shows_copies,
        };
        Ok((to, pack(&reply)?))
    };
    (0..rank.size()).zip(shows_copies).map(reply).collect()
}

/// Returns for each rank whether it copies for a bound. Processes that share a device take turns on it, and each would
/// count its own best turn. Their sum would then be a multiple of the device's rate.
fn shows_copies(all: &Distinct<OpenMessage>, hosts: &Hosts, roles: Roles) -> Vec<bool> {
    let mut known = BTreeSet::new();
    let ranks = (0..).zip(all.iter());
    let shows = ranks.map(|(rank, opened)| {
        let device = opened.memory_device.as_ref();
        let place = device.map(|device| (hosts.machine(rank), &*device.pci_address, &*device.uuid));
        roles.counts_for_bound(rank) && place.is_none_or(|place| known.insert(place))
    });
    shows.collect()
}

impl CommonOpening {
    /// Derives the common properties from the descriptions of all ranks.
    pub(crate) fn new(
        (all, places): (&Distinct<OpenMessage>, &Distinct<WorkerCpus>),
        hosts: &Hosts,
        pairs: &CommunicatingPairs,
        measuring: u32,
    ) -> Self {
        let sockets: Vec<_> = places.iter().map(|places| &*places.sockets).collect();
        let ranks = (0u32..).zip(all.iter());
        let initiating = ranks.filter(|(rank, _)| pairs.roles.initiates(*rank));
        let devices = initiating.flat_map(|(_, opened)| opened.used_devices());
        let mut arrivals: Vec<DeliveryGuarantees> = devices
            .map(|device| DeliveryGuarantees {
                delivers: device.delivers,
                sends_taken: device.sends_taken,
            })
            .collect();
        arrivals.sort_unstable();
        arrivals.dedup();
        Self {
            bound: common_kind(all),
            yields: all.iter().any(|opened| opened.yielding),
            crosses_memory_link: all
                .iter()
                .any(|opened| opened.device_behind_link().is_some()),
            placed: pairs.placed(hosts, &sockets),
            measuring_cpus: measuring_cpus((all, places), hosts, measuring),
            arrivals,
        }
    }
}

/// Returns the kind of bound that all ranks with peers have in common. If only some engines know the speed of their
/// link, all of them are compared with socket streams.
fn common_kind(all: &Distinct<OpenMessage>) -> BoundKind {
    let is_link = |kind: BoundKind| matches!(kind, BoundKind::Link { .. });
    let kinds = || {
        let busy = all.iter().filter(|opened| !opened.idle);
        let devices = busy.flat_map(OpenMessage::used_devices);
        devices.map(|device| device.bound)
    };
    let Some(first) = kinds().next() else {
        return BoundKind::None;
    };
    let are_all = |fits: &dyn Fn(BoundKind) -> bool| kinds().all(fits);
    if are_all(&|kind| kind == first || is_link(kind) && is_link(first)) {
        first
    } else if are_all(&|kind| kind == BoundKind::SocketStream || is_link(kind)) {
        BoundKind::SocketStream
    } else {
        BoundKind::None
    }
}

/// Number of measuring and of loading workers on one CPU.
#[derive(Default)]
struct WorkerOnCpu {
    measuring: u32,
    loading: u32,
}

/// Returns how the measuring workers share their CPUs. These are the first `measuring` workers of each rank; others
/// move a background load.
fn measuring_cpus(
    (all, places): (&Distinct<OpenMessage>, &Distinct<WorkerCpus>),
    hosts: &Hosts,
    measuring: u32,
) -> CpuSharing {
    let ranks = all.iter().zip(places.iter()).zip(hosts.machines());
    let cpus = ranks.map(|((opened, places), &machine)| RankCpus {
        machine,
        cpus: &places.cpus,
        is_crowded: opened.yielding,
    });
    cpu_sharing_of(cpus, measuring)
}

/// Properties of a rank that determine how its workers share CPUs.
struct RankCpus<'a> {
    machine: u32,
    /// CPU of each worker; `None` for a worker that is not pinned.
    cpus: &'a [Option<u32>],
    /// Whether the host has more workers than CPUs.
    is_crowded: bool,
}

/// Returns how the first `measuring` workers of each rank share their CPUs.
fn cpu_sharing_of<'a>(ranks: impl Iterator<Item = RankCpus<'a>>, measuring: u32) -> CpuSharing {
    let mut cpus = BTreeMap::<(u32, u32), WorkerOnCpu>::new();
    for rank in ranks {
        for (worker, cpu) in (0u32..).zip(rank.cpus) {
            let Some(cpu) = *cpu else {
                // The CPU of a worker that is not pinned is unknown. If there are too few CPUs, it may share one with
                // any other worker.
                if rank.is_crowded {
                    return CpuSharing::Together;
                }
                continue;
            };
            let on_cpu = cpus.entry((rank.machine, cpu)).or_default();
            if worker < measuring {
                on_cpu.measuring += 1;
            } else {
                on_cpu.loading += 1;
            }
        }
    }
    let any = |is: fn(&WorkerOnCpu) -> bool| cpus.values().any(is);
    if any(|on_cpu| on_cpu.measuring > 1) {
        CpuSharing::Together
    } else if any(|on_cpu| on_cpu.measuring > 0 && on_cpu.loading > 0) {
        CpuSharing::WithLoad
    } else {
        CpuSharing::Own
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::opening::description::DeviceDescription;
    use tonnage_engine::memory::BusDevice;
    use tonnage_engine::{DeviceMemoryAccess, EngineReport};
    use tonnage_plan::point::Traffic;
    use tonnage_ranks::testing::rank_info;

    /// Returns hosts with one rank for each of these host names.
    pub(crate) fn hosts(names: &[&str]) -> Hosts {
        let ranks = (0..).zip(names);
        let infos: Vec<_> = ranks.map(|(rank, name)| rank_info(rank, name)).collect();
        Hosts::from_infos(&infos)
    }

    /// Returns a rank with one worker and one device.
    pub(crate) fn opened(bound: BoundKind, device: Option<(&str, [u8; 4])>) -> OpenMessage {
        OpenMessage {
            yielding: false,
            idle: false,
            engine: EngineReport::default(),
            memory_device: None,
            device_memory_by: DeviceMemoryAccess::Cards,
            devices: vec![vec![DeviceDescription {
                used: true,
                bound,
                link_stated: false,
                sends_taken: true,
                delivers: [true, true],
                address: device.map(|(_, address)| address.into()),
                interface: device.map(|(name, _)| name.into()),
                name: None,
                bound_place: None,
            }]],
            wire_devices: None,
        }
    }

    /// Returns a GPU with an unknown link.
    pub(crate) fn device() -> BusDevice {
        BusDevice {
            name: "cuda:0".into(),
            pci_address: "0000:1b:00.0".into(),
            uuid: "GPU-1b".into(),
            link: None,
            links_unknown: None,
            memory_bytes_per_s: None,
            shared_by: Some("a daemon".into()),
        }
    }

    /// Returns the open engines of these ranks, as rank 0 sees them.
    pub(crate) fn openings(all: &[OpenMessage], roles: Roles) -> Openings {
        let pairs = CommunicatingPairs { roles, asked: None };
        let places = all.iter().map(|_| WorkerCpus {
            cpus: Vec::new(),
            sockets: Vec::new(),
            memory: Vec::new(),
        });
        let (all, places): (Distinct<OpenMessage>, Distinct<_>) =
            (all.iter().cloned().collect(), places.collect());
        Openings {
            own: all.get(0).unwrap().clone(),
            common: CommonOpening::new((&all, &places), &Hosts::default(), &pairs, 1),
            shows_copies: true,
            all,
            places,
        }
    }

    const SLOW: BoundKind = BoundKind::Link { bytes_per_s: 1_000 };
    const FAST: BoundKind = BoundKind::Link { bytes_per_s: 5_000 };

    #[test]
    fn ranks_with_different_bounds_find_a_common_one() {
        use BoundKind::{MemoryCopy, None, SocketStream};
        for (kinds, expected) in [
            (vec![MemoryCopy, MemoryCopy], MemoryCopy),
            (vec![SLOW, FAST], SLOW),
            (vec![SLOW, SocketStream], SocketStream),
            (vec![SocketStream, FAST], SocketStream),
            (vec![MemoryCopy, SocketStream], None),
            (vec![MemoryCopy, SLOW], None),
            (vec![], None),
        ] {
            let kind = |&kind: &BoundKind| opened(kind, Option::None);
            let all: Distinct<OpenMessage> = kinds.iter().map(kind).collect();
            assert_eq!(common_kind(&all), expected, "{kinds:?}");
        }
    }

    /// A rank without peers does not affect the bound.
    #[test]
    fn ranks_without_peers_do_not_affect_the_bound() {
        let of = |kinds: &[(BoundKind, bool)]| {
            let one = |&(kind, idle): &(BoundKind, bool)| OpenMessage {
                idle,
                ..opened(kind, None)
            };
            common_kind(&kinds.iter().map(one).collect())
        };
        let (copy, none) = (BoundKind::MemoryCopy, BoundKind::None);
        assert_eq!(of(&[(SLOW, false), (FAST, false), (copy, true)]), SLOW);
        assert_eq!(of(&[(none, true), (copy, false), (copy, false)]), copy);
        assert_eq!(of(&[(SLOW, false), (copy, false)]), none);
        assert_eq!(of(&[(SLOW, true), (FAST, true)]), none);
    }

    #[test]
    fn only_initiators_report_arrivals() {
        let mut all = [opened(SLOW, None), opened(SLOW, None)];
        all[1].devices[0][0].delivers = [false, false];
        let arrivals = |traffic| {
            let common = openings(&all, Roles::new(traffic, 2)).common;
            let delivers = common.arrivals.iter().map(|arrivals| arrivals.delivers);
            delivers.collect::<Vec<_>>()
        };
        assert_eq!(arrivals(Traffic::Pair), [[true, true]]);
        assert_eq!(arrivals(Traffic::FanIn), [[false, false]]);
        assert_eq!(arrivals(Traffic::AllToAll), [[false, false], [true, true]]);
    }

    /// On each machine, the first initiator with memory on a GPU copies for this GPU. The numbers that ranks give to
    /// GPUs don't matter.
    #[test]
    fn one_rank_per_device_measures_copies() {
        let of = |slice: &str| OpenMessage {
            memory_device: Some(BusDevice {
                pci_address: "1b".into(),
                uuid: slice.into(),
                ..device()
            }),
            ..opened(BoundKind::MemoryCopy, None)
        };
        let host = opened(BoundKind::MemoryCopy, None);
        let all = [
            of("a"),
            of("a"),
            of("b"),
            host.clone(),
            host,
            of("a"),
            of("a"),
        ];
        let all: Distinct<OpenMessage> = all.into_iter().collect();
        let hosts = hosts(&["x", "x", "x", "x", "x", "y", "x"]);
        let shows = |traffic| shows_copies(&all, &hosts, Roles::new(traffic, 7));
        let of_all = [true, false, true, true, true, true, false];
        assert_eq!(shows(Traffic::AllToAll), of_all);
        // Rank 0 is the target, and does not copy.
        let to_first = [false, true, true, true, true, true, false];
        assert_eq!(shows(Traffic::FanIn), to_first);
        assert_eq!(
            shows(Traffic::FanOut),
            [true, false, false, false, false, false, false]
        );
    }

    /// Returns how measuring workers share CPUs. Each rank has two workers. The second one moves the load.
    fn cpu_sharing_of_first<'a>(cpus: &'a [[Option<u32>; 2]], machines: &[u32]) -> CpuSharing {
        let rank = |(cpus, machine): (&'a [Option<u32>; 2], &u32)| RankCpus {
            machine: *machine,
            cpus,
            is_crowded: true,
        };
        super::cpu_sharing_of(cpus.iter().zip(machines).map(rank), 1)
    }

    #[test]
    fn the_worst_sharing_of_any_cpu_counts() {
        let at = |cpus: [u32; 2]| cpus.map(Some);
        let one = [0, 0];
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 1]), at([2, 3])], &one),
            CpuSharing::Own
        );
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 2]), at([1, 2])], &one),
            CpuSharing::Own
        );
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 0]), at([1, 2])], &one),
            CpuSharing::WithLoad
        );
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 1]), at([1, 2])], &one),
            CpuSharing::WithLoad
        );
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 1]), at([0, 1])], &one),
            CpuSharing::Together
        );
        // Equal numbers on different machines stand for different CPUs.
        assert_eq!(
            cpu_sharing_of_first(&[at([0, 1]), at([0, 1])], &[0, 1]),
            CpuSharing::Own
        );
        assert_eq!(
            cpu_sharing_of_first(&[[None; 2]; 2], &one),
            CpuSharing::Together
        );
    }
}

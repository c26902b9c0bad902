//! Engines of all ranks once they are open: what each rank says of its own is put together at rank 0, which tells every
//! rank what follows from it. So what a rank gets does not depend on their number.

use serde::{Deserialize, Serialize};

use super::Pairs;
use super::description::{OpenMessage, WorkerPlaces};
use super::measuring_cpus;
use crate::deadlines::DEADLINES;
use crate::json::Json;
use crate::wire_proof::{RouteShare, Routes};
use tonnage_engine::LimitKind;
use tonnage_ranks::{Alike, Hosts, Rank, pack, unpack};
use tonnage_record::Placed;
use tonnage_record::transfer::MeasuringCpus;
use tonnage_units::{Error, Result};

/// Messages about the engines of a run.
pub struct Openings {
    /// This rank's.
    pub own: OpenMessage,
    /// Those of all ranks; rank 0 alone has them.
    pub all: Alike<OpenMessage>,
    /// Places of the workers of all ranks; rank 0 alone has them.
    pub places: Alike<WorkerPlaces>,
    /// Facts that follow from all of them.
    pub common: Common,
}

/// Facts about the engines of all ranks, the same on each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// Upper bound of bandwidth that all engines can be set beside.
    pub limit: LimitKind,
    /// True when the workers of some rank yield.
    pub yields: bool,
    /// Sockets of the workers that exchange bytes.
    pub placed: Option<Placed>,
    /// CPUs of the workers that measure beside a load.
    pub measuring_cpus: MeasuringCpus,
    /// Ways in which the devices of initiators say that bytes have arrived.
    pub arrivals: Vec<ArrivalSigns>,
}

/// A device's word on the arrival of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArrivalSigns {
    /// True when completed writes are visible to the peer: always, and where it is asked for.
    pub delivers: [bool; 2],
    /// True when a send is done only once its receiver has taken it.
    pub sends_taken: bool,
}

/// Rank 0's words to one rank.
#[derive(Serialize, Deserialize)]
struct Told {
    /// [`Common`], written once for all ranks.
    common: Vec<u8>,
    route: RouteShare,
}

impl Openings {
    /// Puts together what the engines of all ranks are, `own` among them, and returns this rank's part in the proof of
    /// path with it. Of each rank's workers the first `measuring` measure.
    ///
    /// # Errors
    /// When the run has ended.
    pub(crate) fn gather(
        rank: &mut Rank,
        (own, places): (OpenMessage, WorkerPlaces),
        pairs: &Pairs,
        measuring: u32,
    ) -> Result<(Self, RouteShare)> {
        let own = Json(own);
        let all = rank.collect("describe the engines", &own, DEADLINES.step)?;
        let all = all.map(|Json(message)| message);
        let places = rank.collect("places of the workers", &Json(places), DEADLINES.step)?;
        let places = places.map(|Json(places)| places);
        let told = match rank.id() {
            0 => {
                let common = Common::of((&all, &places), rank.hosts(), pairs, measuring);
                told(rank, &all, common)?
            }
            _ => Vec::new(),
        };
        let heard = rank.exchange("what follows for all engines", told, DEADLINES.step)?;
        let nothing = || Error::Failed("rank 0 did not say what the engines have in common".into());
        let (_, told) = heard.first().ok_or_else(nothing)?;
        let Told { common, route } = unpack(told)?;
        let (Json(own), Json(common)) = (own, unpack(&common)?);
        let opened = Self {
            own,
            all,
            places,
            common,
        };
        Ok((opened, route))
    }
}

/// Words of rank 0 to each rank.
fn told(rank: &Rank, all: &Alike<OpenMessage>, common: Common) -> Result<Vec<(u32, Vec<u8>)>> {
    let common = pack(&Json(common))?;
    let named: Vec<_> = all.iter().map(|one| one.wire_devices.as_ref()).collect();
    let routes = Routes::new(rank.infos(), rank.hosts(), &named);
    let tell = |to: u32| {
        let told = Told {
            common: common.clone(),
            route: routes.of_rank(to),
        };
        Ok((to, pack(&told)?))
    };
    (0..rank.size()).map(tell).collect()
}

impl Common {
    /// Facts that follow from the messages of all ranks.
    pub(crate) fn of(
        (all, places): (&Alike<OpenMessage>, &Alike<WorkerPlaces>),
        hosts: &Hosts,
        pairs: &Pairs,
        measuring: u32,
    ) -> Self {
        let sockets: Vec<_> = places.iter().map(|places| &*places.sockets).collect();
        let ranks = (0u32..).zip(all.iter());
        let initiating = ranks.filter(|(rank, _)| pairs.roles.initiates(*rank));
        let devices = initiating.flat_map(|(_, opened)| opened.used_devices());
        let mut arrivals: Vec<ArrivalSigns> = devices
            .map(|device| ArrivalSigns {
                delivers: device.delivers,
                sends_taken: device.sends_taken,
            })
            .collect();
        arrivals.sort_unstable();
        arrivals.dedup();
        Self {
            limit: common_kind(all),
            yields: all.iter().any(|opened| opened.yielding),
            placed: pairs.placed(hosts, &sockets),
            measuring_cpus: measuring_cpus::of_ranks((all, places), hosts, measuring),
            arrivals,
        }
    }
}

/// The kind that the engines of all ranks with peers agree on. Where only some know the speed of their link, sockets
/// tell for all.
fn common_kind(all: &Alike<OpenMessage>) -> LimitKind {
    let is_link = |kind: LimitKind| matches!(kind, LimitKind::Link { .. });
    let kinds = || {
        let busy = all.iter().filter(|opened| !opened.idle);
        let devices = busy.flat_map(OpenMessage::used_devices);
        devices.map(|device| device.limit)
    };
    let Some(first) = kinds().next() else {
        return LimitKind::None;
    };
    let are_all = |fits: &dyn Fn(LimitKind) -> bool| kinds().all(fits);
    if are_all(&|kind| kind == first || is_link(kind) && is_link(first)) {
        first
    } else if are_all(&|kind| kind == LimitKind::SocketStream || is_link(kind)) {
        LimitKind::SocketStream
    } else {
        LimitKind::None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::opening::description::Device;
    use tonnage_engine::EngineReport;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::roles::Roles;
    use tonnage_ranks::RankInfo;

    /// The hosts of ranks, each by its boot and name.
    pub(crate) fn hosts(boots: &[&str]) -> Hosts {
        let info = |(rank, boot): (u32, &&str)| RankInfo {
            rank,
            host: (*boot).into(),
            pid: 1,
            boot_id: (*boot).into(),
            network_namespace: "".into(),
            pid_namespace: "".into(),
            local_rank: 0,
            local_size: Some(1),
        };
        let infos: Vec<_> = (0..).zip(boots).map(info).collect();
        Hosts::of(&infos)
    }

    /// A rank with one worker and one device.
    pub(crate) fn opened(limit: LimitKind, device: Option<(&str, [u8; 4])>) -> OpenMessage {
        OpenMessage {
            yielding: false,
            idle: false,
            engine: EngineReport::default(),
            behind_cards: None,
            devices: vec![vec![Device {
                used: true,
                limit,
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

    /// Engines as rank 0 knows them.
    pub(crate) fn openings(all: &[OpenMessage], roles: Roles) -> Openings {
        let pairs = Pairs { roles, asked: None };
        let places = all.iter().map(|_| WorkerPlaces {
            cpus: Vec::new(),
            sockets: Vec::new(),
            memory: Vec::new(),
        });
        let (all, places): (Alike<OpenMessage>, Alike<_>) =
            (all.iter().cloned().collect(), places.collect());
        Openings {
            own: all.get(0).unwrap().clone(),
            common: Common::of((&all, &places), &Hosts::default(), &pairs, 1),
            all,
            places,
        }
    }

    const SLOW: LimitKind = LimitKind::Link { bytes_per_s: 1_000 };
    const FAST: LimitKind = LimitKind::Link { bytes_per_s: 5_000 };

    #[test]
    fn ranks_that_disagree_find_what_all_of_them_can_be_set_beside() {
        use LimitKind::{MemoryCopy, None, SocketStream};
        for (kinds, expected) in [
            (vec![MemoryCopy, MemoryCopy], MemoryCopy),
            (vec![SLOW, FAST], SLOW),
            (vec![SLOW, SocketStream], SocketStream),
            (vec![SocketStream, FAST], SocketStream),
            (vec![MemoryCopy, SocketStream], None),
            (vec![MemoryCopy, SLOW], None),
            (vec![], None),
        ] {
            let kind = |&kind: &LimitKind| opened(kind, Option::None);
            let all: Alike<OpenMessage> = kinds.iter().map(kind).collect();
            assert_eq!(common_kind(&all), expected, "{kinds:?}");
        }
    }

    /// A rank without peers does not say what bounds the others.
    #[test]
    fn ranks_without_peers_bound_nothing() {
        let of = |kinds: &[(LimitKind, bool)]| {
            let one = |&(kind, idle): &(LimitKind, bool)| OpenMessage {
                idle,
                ..opened(kind, None)
            };
            common_kind(&kinds.iter().map(one).collect())
        };
        let (copy, none) = (LimitKind::MemoryCopy, LimitKind::None);
        assert_eq!(of(&[(SLOW, false), (FAST, false), (copy, true)]), SLOW);
        assert_eq!(of(&[(none, true), (copy, false), (copy, false)]), copy);
        assert_eq!(of(&[(SLOW, false), (copy, false)]), none);
        assert_eq!(of(&[(SLOW, true), (FAST, true)]), none);
    }

    #[test]
    fn initiators_alone_say_when_bytes_have_arrived() {
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
}

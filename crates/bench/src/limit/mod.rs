//! The upper bound of a point's bandwidth: which kind of limit the engines of all ranks name, measuring it before and
//! after the trials, and the limit in the end. The measurements themselves are in [`crate::limit::memory_copy`] and
//! [`crate::limit::socket_stream`], and the nominal speed of links in `link`.

mod link;
pub mod memory_copy;
pub mod socket_stream;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::deadlines::DEADLINES;
use crate::kinds::transfer::crew::{Crew, CrewOrder};
use crate::kinds::transfer::work::Work;
use crate::limit::link::link_limit;
use crate::limit::memory_copy::{add, better, with_fastest};
use crate::limit::socket_stream::Carried;
use crate::opening::description::Device;
use crate::opening::openings::Openings;
use tonnage_engine::LimitKind;
use tonnage_engine::memory::CopyRate;
use tonnage_plan::point::LimitChoice;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_ranks::{Hosts, Rank};
use tonnage_record::{Limit, Links};
use tonnage_units::{Reduce, Result};

/// Upper bound of a point. All ranks measure alike; rank 0 knows the devices of all.
pub struct Bound<'a> {
    point: &'a TransferPoint,
    opened: &'a Openings,
    /// Addresses of each worker's rails.
    addresses: Vec<Vec<Option<IpAddr>>>,
}

/// One of the two measurements, before or after the trials.
pub enum Measurement {
    /// Copy rates of several workers together.
    Copies {
        /// Rates of each way.
        rates: Vec<CopyRate>,
        /// Number of copiers.
        copiers: u64,
    },
    /// Socket streams.
    Streams(Carried),
}

impl<'a> Bound<'a> {
    /// Makes the upper bound of a point on the open engines of all ranks.
    pub fn new(point: &'a TransferPoint, opened: &'a Openings) -> Self {
        let addresses = |rails: &Vec<Device>| rails.iter().map(|device| device.address).collect();
        Self {
            point,
            opened,
            addresses: opened.own.devices.iter().map(addresses).collect(),
        }
    }

    fn kind(&self) -> LimitKind {
        self.opened.common.limit
    }

    /// Measures, with all workers at once; `None` where bandwidth has no limit to be measured. All ranks call it.
    ///
    /// # Errors
    /// When memory or sockets fail.
    pub fn measure(
        &self,
        rank: &mut Rank,
        own: &mut Work,
        followers: &Crew,
    ) -> Result<Option<Measurement>> {
        if self.point.limit != LimitChoice::Auto || self.point.pacing == Pacing::PingPong {
            return Ok(None);
        }
        match self.kind() {
            LimitKind::None | LimitKind::Link { .. } => Ok(None),
            _ if self.why_no_limit().is_some() => Ok(None),
            // Workers that share CPUs each have their best turn alone when they copy, so that the sum would be more
            // than the host can do; and their streams measure the scheduler.
            _ if self.opened.common.yields => Ok(None),
            LimitKind::MemoryCopy => {
                let copies_too = self.point.roles().stands_for_a_round(rank.id());
                copies(rank, own, followers, copies_too).map(Some)
            }
            LimitKind::SocketStream => {
                let carried =
                    socket_stream::measure(rank, self.point, &self.addresses, |berths| {
                        followers.order(|_| CrewOrder::Stream(berths.clone()))?;
                        let mine = own.stream(berths);
                        let others = followers.collect()?;
                        let mut sum = mine?;
                        others
                            .iter()
                            .filter_map(|report| report.streamed.as_ref())
                            .for_each(|other| sum.merge(*other));
                        Ok(sum)
                    })?;
                Ok(carried.map(Measurement::Streams))
            }
        }
    }

    /// The reason why there is no limit to be measured, where one would look for it.
    pub fn why_no_limit(&self) -> Option<String> {
        let asked = self.point.limit == LimitChoice::Auto && self.point.pacing != Pacing::PingPong;
        if asked && self.point.loads.is_some() {
            return Some(
                "no limit: the file loads links unevenly, so that none bounds their sum; --limit states one"
                    .to_owned(),
            );
        }
        if asked && self.point.background.is_some() {
            return Some(
                "no limit: the background shares the path, so that none bounds what is measured alone; --limit states one"
                    .to_owned(),
            );
        }
        let copies = asked && self.kind() == LimitKind::MemoryCopy;
        // A worker has memory of its own kind only, and copies in it bound nothing between two kinds.
        let target = self.point.target_memory.as_ref().filter(|_| copies)?;
        Some(format!(
            "no limit: copies between memory {} and memory {target} are not measured",
            self.point.memory
        ))
    }

    /// Upper bound of the bandwidth, for rank 0: stated, nominal, or the better of what was measured before and after
    /// the trials.
    pub fn limit(
        &self,
        hosts: &Hosts,
        before: Option<Measurement>,
        after: Option<Measurement>,
    ) -> Option<Limit> {
        match self.point.limit {
            LimitChoice::None => return None,
            LimitChoice::Stated { bytes_per_s } => {
                return Some(Limit {
                    what: "stated by the user".into(),
                    bytes_per_s,
                    ci95_bytes_per_s: None,
                    links: self.links(hosts),
                });
            }
            LimitChoice::Auto if self.point.loads.is_some() || self.point.background.is_some() => {
                return None;
            }
            LimitChoice::Auto => {}
        }
        match (before, after) {
            (
                Some(Measurement::Copies {
                    rates: before,
                    copiers,
                }),
                Some(Measurement::Copies { rates: after, .. }),
            ) => {
                let slots = memory_copy::gaps(self.point);
                memory_copy::describe(&better(&before, &after), copiers, slots.as_deref())
            }
            _ if self.point.pacing == Pacing::PingPong => None,
            _ if matches!(self.kind(), LimitKind::Link { .. }) => {
                link_limit(self.point, &self.opened.all, hosts)
            }
            // One of the two may have brought nothing.
            (before, after) => {
                let best = Carried::better(carried(before), carried(after));
                best.as_ref().map(socket_stream::describe)
            }
        }
    }

    /// Speeds of the links beside a stated limit; of none where a file loads them unevenly.
    fn links(&self, hosts: &Hosts) -> Option<Links> {
        match self.point.loads {
            Some(_) => None,
            None => link_limit(self.point, &self.opened.all, hosts)?.links,
        }
    }
}

fn carried(measurement: Option<Measurement>) -> Option<Carried> {
    match measurement? {
        Measurement::Streams(carried) => Some(carried),
        Measurement::Copies { .. } => None,
    }
}

/// The copy rates of all workers that initiate at once together, of which this rank's are where it `copies_too`.
fn copies(
    rank: &mut Rank,
    own: &mut Work,
    followers: &Crew,
    copies_too: bool,
) -> Result<Measurement> {
    rank.barrier("copy limit", DEADLINES.step)?;
    let mut sum = Copies::default();
    if copies_too {
        followers.order(|_| CrewOrder::CopyLimit)?;
        let own = own.copy_limit();
        let others = followers.collect()?;
        let others = others.into_iter().filter_map(|report| report.rates);
        for rates in others.chain([own?]) {
            sum.add(with_fastest(rates));
        }
    }
    let Copies { rates, copiers } = rank.reduce("add up the copy limit", sum, DEADLINES.step)?;
    Ok(Measurement::Copies { rates, copiers })
}

/// Summed rates of each way, and how many copied.
#[derive(Default, Serialize, Deserialize)]
pub struct Copies {
    /// Rates of each way.
    pub rates: Vec<CopyRate>,
    /// Number of copiers.
    pub copiers: u64,
}

impl Copies {
    /// Adds one copier's rates.
    pub fn add(&mut self, rates: Vec<CopyRate>) {
        self.merge(Self { rates, copiers: 1 });
    }
}

impl Reduce for Copies {
    fn merge(&mut self, other: Self) {
        add(&mut self.rates, other.rates);
        self.copiers += other.copiers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::description::OpenMessage;
    use crate::opening::openings::tests::{opened, openings};
    use tonnage_plan::point::Traffic;
    use tonnage_plan::transfer::Addresses;
    use tonnage_ranks::RankInfo;

    fn of(hosts: &[&str]) -> Hosts {
        let info = |(rank, host): (u32, &&str)| RankInfo {
            rank,
            host: (*host).into(),
            pid: 1,
            boot_id: (*host).into(),
            network_namespace: "".into(),
            pid_namespace: "".into(),
            local_rank: 0,
            local_size: Some(1),
        };
        let infos: Vec<_> = (0..).zip(hosts).map(info).collect();
        Hosts::of(&infos)
    }

    const SLOW: LimitKind = LimitKind::Link { bytes_per_s: 1_000 };
    const FAST: LimitKind = LimitKind::Link { bytes_per_s: 5_000 };

    fn link(traffic: Traffic, all: &[OpenMessage], hosts: &[&str]) -> Limit {
        let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 16);
        (point.traffic, point.ranks) = (traffic, all.len() as u32);
        point.limit = LimitChoice::Auto;
        point.pacing = Pacing::Stream { window: 1 };
        let openings = openings(all, point.roles());
        let beside = Bound::new(&point, &openings);
        beside
            .limit(&of(hosts), Option::None, Option::None)
            .unwrap()
    }

    #[test]
    fn the_slower_side_of_a_link_is_the_limit() {
        let all = [
            opened(FAST, Some(("eth0", [10, 0, 0, 1]))),
            opened(SLOW, Some(("eth7", [10, 0, 0, 2]))),
        ];
        let limit = link(Traffic::Pair, &all, &["a", "b"]);
        assert_eq!(
            (limit.what.as_str(), limit.bytes_per_s),
            ("link speed of eth7", 1e3)
        );
    }

    fn both_ways(all: &[OpenMessage], hosts: &[&str], initiators: Option<u32>) -> (String, f64) {
        let mut point = crate::drive::walk::tests::point(Addresses::Sequential, 1 << 16);
        (point.bidirectional, point.initiators) = (true, initiators);
        (point.ranks, point.pacing) = (all.len() as u32, Pacing::Stream { window: 1 });
        point.limit = LimitChoice::Auto;
        let openings = openings(all, point.roles());
        let limit = Bound::new(&point, &openings).limit(&of(hosts), Option::None, Option::None);
        let limit = limit.unwrap();
        assert_eq!(limit.links.unwrap().used_bytes_per_s, limit.bytes_per_s);
        (limit.what, limit.bytes_per_s)
    }

    /// A link sends and receives at once, each at its speed.
    #[test]
    fn each_direction_has_the_speed_of_its_slower_side() {
        let eth = |speed, last| opened(speed, Some(("eth0", [10, 0, 0, last])));
        let pair = [eth(FAST, 1), eth(SLOW, 2)];
        let both = "link speed of eth0, both directions added up";
        assert_eq!(both_ways(&pair, &["a", "b"], None), (both.into(), 2e3));
        // Two hosts send to one, which receives no faster than it sends.
        let three = [eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3)];
        assert_eq!(
            both_ways(&three, &["a", "b", "c"], Some(2)),
            (both.into(), 2e3)
        );
        // What a device sends and receives crosses it once each, whichever rank it is for.
        let one = [eth(SLOW, 1), eth(SLOW, 1)];
        assert_eq!(
            both_ways(&one, &["a", "a"], None),
            ("link speed of eth0".into(), 1e3)
        );
        let two = [eth(SLOW, 1), eth(SLOW, 2), eth(SLOW, 3), eth(SLOW, 4)];
        assert_eq!(
            both_ways(&two, &["a", "b", "c", "d"], None),
            (
                "link speed of 2 devices together, both directions added up".into(),
                4e3
            )
        );
    }

    #[test]
    fn a_device_counts_once_for_all_ranks_of_its_host() {
        let eth = |last| opened(SLOW, Some(("eth0", [10, 0, 0, last])));
        let all = [eth(1), eth(1), eth(2), eth(3)];
        let limit = link(Traffic::Pair, &all, &["a", "a", "b", "c"]);
        assert_eq!(limit.bytes_per_s, 1e3, "{limit:?}");
        let limit = link(Traffic::AllToAll, &all, &["a", "a", "b", "c"]);
        assert_eq!(
            (limit.what.as_str(), limit.bytes_per_s),
            ("link speed of 3 devices together", 3e3)
        );
    }
}

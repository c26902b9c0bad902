//! The upper bound of a point's bandwidth. This module measures it before and after the trials, and determines the
//! result. `opening` selects the kind of bound that all engines have in common. The measurements are in
//! [`crate::bound::memory_copy`] and [`crate::bound::socket_stream`]. `link` has the nominal speeds of network links.
//! `memory_link` has the links of GPUs, for memory that is accessed by NICs or by staging. GPU links limit the bounds
//! by network links and by socket streams. If a bound by copies is not measured, GPU links alone are the bound.

mod link;
pub mod memory_copy;
mod memory_link;
pub mod socket_stream;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::bound::link::link_bound;
use crate::bound::memory_copy::{add_rates, agree_on_turns, join_turns, with_choice};
use crate::bound::memory_link::{
    limit_of_device_links, link_lacking, links_unknown, within_devices,
};
use crate::bound::socket_stream::StreamMeasurement;
use crate::deadlines::DEADLINES;
use crate::kinds::kind::LimitMoment;
use crate::kinds::transfer::transfer_worker::TransferWorker;
use crate::kinds::transfer::worker_threads::{ThreadOrder, Threads};
use crate::opening::description::DeviceDescription;
use crate::opening::openings::Openings;
use tonnage_engine::BoundKind;
use tonnage_engine::memory::CopyRate;
use tonnage_plan::point::BoundChoice;
use tonnage_plan::transfer::{Pacing, TransferPoint, TrialLength};
use tonnage_ranks::{Hosts, Rank};
use tonnage_record::{Bound, Links};
use tonnage_units::{Reduce, Result};

/// The upper bound of a point. All ranks measure it together, but only rank 0 knows the devices of all ranks.
pub struct BoundMeasurement<'a> {
    point: &'a TransferPoint,
    opened: &'a Openings,
    /// Addresses of each worker's rails.
    addresses: Vec<Vec<Option<IpAddr>>>,
    /// The measurement before the trials, and the one after them.
    measured: [Option<Measurement>; 2],
}

/// Result of one measurement, before or after the trials.
pub enum Measurement {
    /// Copy rates of several workers, added up.
    Copies(SummedCopies),
    /// Rates of socket streams.
    Streams(StreamMeasurement),
}

impl<'a> BoundMeasurement<'a> {
    /// Creates the bound of a point. The engines must be open on all ranks.
    pub fn new(point: &'a TransferPoint, opened: &'a Openings) -> Self {
        let addresses =
            |rails: &Vec<DeviceDescription>| rails.iter().map(|device| device.address).collect();
        Self {
            point,
            opened,
            addresses: opened.own.devices.iter().map(addresses).collect(),
            measured: [None, None],
        }
    }

    fn kind(&self) -> BoundKind {
        self.opened.common.bound
    }

    /// Measures with all workers at once, if the bound can be measured. All ranks call this together.
    pub fn measure(
        &mut self,
        when: LimitMoment,
        rank: &mut Rank,
        own: &mut TransferWorker,
        followers: &Threads,
    ) -> Result<()> {
        self.measured[usize::from(when == LimitMoment::After)] =
            self.measured(rank, own, followers)?;
        Ok(())
    }

    fn measured(
        &self,
        rank: &mut Rank,
        own: &mut TransferWorker,
        followers: &Threads,
    ) -> Result<Option<Measurement>> {
        if !is_requested(self.point) {
            return Ok(None);
        }
        match self.kind() {
            BoundKind::None | BoundKind::Link { .. } => Ok(None),
            _ if self.why_no_bound().is_some() => Ok(None),
            // Workers that share CPUs take turns, so copies or streams by all of them would measure the scheduler.
            _ if self.opened.common.yields => Ok(None),
            // Payload crosses the device's link to its machine, which is then the bound. Copies stay inside the device
            // and are no bound.
            BoundKind::MemoryCopy if self.opened.common.crosses_memory_link => Ok(None),
            BoundKind::MemoryCopy => measure_copies(rank, own, followers, self.copiers()).map(Some),
            BoundKind::SocketStream => {
                let carried =
                    socket_stream::measure(rank, self.point, &self.addresses, |shared| {
                        followers.order(|_| ThreadOrder::Stream(shared.clone()))?;
                        let mine = own.run_socket_streams(shared);
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

    /// Returns which workers of this rank copy. With device memory one worker suffices, because every worker would
    /// measure the same rate.
    fn copiers(&self) -> Copiers {
        match (self.opened.shows_copies, &self.opened.own.memory_device) {
            (false, _) => Copiers::None,
            (true, Some(_)) => Copiers::First,
            (true, None) => Copiers::All,
        }
    }

    /// Returns why no bound can be measured, if a user would expect one.
    pub fn why_no_bound(&self) -> Option<String> {
        let asked = is_requested(self.point);
        if asked && self.point.loads.is_some() {
            return Some(
                "no bound: the file loads links unevenly, so that none bounds their sum; --bound states one"
                    .to_owned(),
            );
        }
        if asked && self.point.background.is_some() {
            return Some(
                "no bound: the background shares the path, so that none bounds what is measured alone; --bound states one"
                    .to_owned(),
            );
        }
        let copies =
            self.kind() == BoundKind::MemoryCopy && !self.opened.common.crosses_memory_link;
        // A worker has only its own kind of memory. Copies inside it are no bound for transfers between two kinds.
        let target = self
            .point
            .memories
            .target_memory
            .as_ref()
            .filter(|_| asked && copies)?;
        Some(format!(
            "no bound: copies between memory {} and memory {target} are not measured",
            self.point.memories.memory
        ))
    }

    /// Returns the upper bound of the bandwidth, on rank 0: stated, nominal, or measured. It takes the measurements
    /// before and after the trials. Copies need both measurements; of two stream measurements, the better one counts.
    pub fn bound(&mut self, hosts: &Hosts) -> Option<Bound> {
        let [before, after] = std::mem::take(&mut self.measured);
        match self.point.bound {
            BoundChoice::None => return None,
            BoundChoice::Stated { bytes_per_s } => {
                return Some(Bound {
                    links: self.links(hosts),
                    ..Bound::new("stated by the user", bytes_per_s)
                });
            }
            BoundChoice::Auto if !is_requested(self.point) || is_uneven(self.point) => return None,
            BoundChoice::Auto => {}
        }
        match (before, after) {
            (Some(Measurement::Copies(before)), Some(Measurement::Copies(after))) => {
                let slots = memory_copy::describe_gaps(self.point);
                let rates = join_turns(&before.rates, &after.rates);
                memory_copy::describe(&rates, before.copiers, slots.as_deref())
            }
            _ if self.kind() == BoundKind::MemoryCopy => {
                limit_of_device_links(self.point, &self.opened.all, hosts)
            }
            _ if matches!(self.kind(), BoundKind::Link { .. }) => {
                let bound = link_bound(self.point, &self.opened.all, hosts);
                bound.map(|bound| within_devices(bound, self.point, &self.opened.all, hosts))
            }
            // Either measurement of streams may be missing.
            (before, after) => {
                let best = StreamMeasurement::better(
                    stream_measurement(before),
                    stream_measurement(after),
                );
                let bound = best.as_ref().map(socket_stream::describe);
                bound.map(|bound| within_devices(bound, self.point, &self.opened.all, hosts))
            }
        }
    }

    /// Returns the links that are recorded next to a stated bound; `None` if a file loads links unevenly.
    fn links(&self, hosts: &Hosts) -> Option<Links> {
        match self.point.loads {
            Some(_) => None,
            None => link_bound(self.point, &self.opened.all, hosts)?.links,
        }
    }
}

/// Whether the program is to determine the point's bound. A ping-pong measures latency, so it has no bound.
fn is_requested(point: &TransferPoint) -> bool {
    point.bound == BoundChoice::Auto && point.pacing != Pacing::PingPong
}

/// Whether no bound applies to the result: a file loads the links unevenly, or a background load shares them.
fn is_uneven(point: &TransferPoint) -> bool {
    point.loads.is_some() || point.background.is_some()
}

/// On rank 0, names links with unknown speed, which the bound therefore does not include. If such links would be the
/// only bound, explains why there is none.
pub fn unknown_links(point: &TransferPoint, opened: &Openings, has_bound: bool) -> Option<String> {
    let is_all = opened.common.bound == BoundKind::MemoryCopy
        && opened.common.crosses_memory_link
        && !is_uneven(point);
    match has_bound {
        _ if !is_requested(point) => None,
        true => links_unknown(&opened.all),
        false if is_all => link_lacking(&opened.all),
        false => None,
    }
}

/// Combines the rates of rounds as a trial does. Each rate comes with the round's number of flows. Rounds of equal
/// duration give the mean. With equal numbers of operations, slow rounds take longer and thus weigh more.
fn mean_over_rounds(trial: TrialLength, rounds: impl IntoIterator<Item = (f64, u64)>) -> f64 {
    let rounds = rounds.into_iter().map(|(rate, flows)| (rate, flows as f64));
    match trial {
        TrialLength::DurationNs(_) => {
            let (sum, count) = rounds.fold((0.0, 0.0), |(sum, count), (rate, _)| {
                (sum + rate, count + 1.0)
            });
            sum / count
        }
        TrialLength::Iterations(_) => {
            let (bytes, time) = rounds.fold((0.0, 0.0), |(bytes, time), (rate, flows)| {
                (bytes + flows, time + flows / rate)
            });
            bytes / time
        }
    }
}

fn stream_measurement(measurement: Option<Measurement>) -> Option<StreamMeasurement> {
    match measurement? {
        Measurement::Streams(carried) => Some(carried),
        Measurement::Copies(_) => None,
    }
}

/// Workers of a rank that take part in measuring the copy bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copiers {
    None,
    First,
    All,
}

/// Measures the copy rates of all workers simultaneously, and returns their sum.
fn measure_copies(
    rank: &mut Rank,
    own: &mut TransferWorker,
    followers: &Threads,
    copiers: Copiers,
) -> Result<Measurement> {
    let pass_bytes = match copiers {
        Copiers::None => 0,
        Copiers::First | Copiers::All => own.copy_stretch().pass_bytes(),
    };
    let turns = agree_on_turns(rank, pass_bytes)?;
    let mut sum = SummedCopies::default();
    match copiers {
        Copiers::None => {}
        Copiers::First => sum.add(with_choice(own.copy_bound(turns)?)),
        Copiers::All => {
            followers.order(|_| ThreadOrder::CopyBound(turns))?;
            let own = own.copy_bound(turns);
            let others = followers.collect()?;
            let others = others.into_iter().filter_map(|report| report.rates);
            for rates in others.chain([own?]) {
                sum.add(with_choice(rates));
            }
        }
    }
    let sum = rank.reduce("add up the copy bound", sum, DEADLINES.step)?;
    Ok(Measurement::Copies(sum))
}

/// Copy rates that are summed separately for each method and turn.
#[derive(Default, Serialize, Deserialize)]
pub struct SummedCopies {
    /// Summed rates of each method.
    pub rates: Vec<CopyRate>,
    /// Number of workers in the sum of rates.
    pub copiers: u64,
}

impl SummedCopies {
    /// Adds one copier's rates.
    pub fn add(&mut self, rates: Vec<CopyRate>) {
        self.merge(Self { rates, copiers: 1 });
    }
}

impl Reduce for SummedCopies {
    fn merge(&mut self, other: Self) {
        add_rates(&mut self.rates, other.rates);
        self.copiers += other.copiers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::description::OpenMessage;
    use crate::opening::openings::tests::{device, opened, openings};
    use tonnage_engine::memory::{BusDevice, BusLink};
    use tonnage_plan::transfer::Access;

    const COPIES: BoundKind = BoundKind::MemoryCopy;
    const LINK: BoundKind = BoundKind::Link { bytes_per_s: 1_000 };

    fn point(bound: BoundChoice) -> TransferPoint {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
        point.bound = bound;
        point
    }

    /// Opens two ranks with engines that ask for this kind of bound.
    fn engines(kind: BoundKind, point: &TransferPoint) -> Openings {
        openings(&[opened(kind, None), opened(kind, None)], point.roles)
    }

    fn bound_of(
        point: &TransferPoint,
        opened: &Openings,
        measured: [Option<Measurement>; 2],
    ) -> Option<Bound> {
        let mut bound = BoundMeasurement {
            measured,
            ..BoundMeasurement::new(point, opened)
        };
        bound.bound(&Hosts::default())
    }

    fn bound(
        kind: BoundKind,
        point: &TransferPoint,
        measured: [Option<Measurement>; 2],
    ) -> Option<(String, f64)> {
        let opened = engines(kind, point);
        let bound = bound_of(point, &opened, measured);
        bound.map(|bound| (bound.what, bound.bytes_per_s))
    }

    fn copies(bytes_per_s: f64) -> Option<Measurement> {
        let mut sum = SummedCopies::default();
        for _ in 0..2 {
            sum.add(vec![CopyRate {
                method: "memcpy".into(),
                is_choice: false,
                turns_bytes_per_s: vec![bytes_per_s],
            }]);
        }
        Some(Measurement::Copies(sum))
    }

    fn streams(bytes_per_s: f64) -> Option<Measurement> {
        Some(Measurement::Streams(StreamMeasurement {
            streamed: socket_stream::StreamedBytes {
                bytes_per_s,
                streams: 1,
                ..Default::default()
            },
            waiting: socket_stream::WaitMethod::Polling,
            measurements: 1,
        }))
    }

    #[test]
    fn the_better_of_before_and_after_is_the_bound() {
        let point = point(BoundChoice::Auto);
        let of_copies = |bytes_per_s| {
            Some((
                "memory copy by memcpy, 2 copiers at once".to_owned(),
                bytes_per_s,
            ))
        };
        let rates = |before, after| [copies(before), copies(after)];
        assert_eq!(bound(COPIES, &point, rates(1.0, 3.0)), of_copies(6.0));
        assert_eq!(bound(COPIES, &point, rates(4.0, 3.0)), of_copies(8.0));
        let streamed =
            |measured| bound(BoundKind::SocketStream, &point, measured).map(|(_, rate)| rate);
        assert_eq!(streamed([streams(5.0), streams(7.0)]), Some(7.0));
        assert_eq!(streamed([streams(9.0), streams(7.0)]), Some(9.0));
        // One or both of the two measurements may have no result.
        assert_eq!(streamed([None, streams(7.0)]), Some(7.0));
        assert_eq!(streamed([streams(5.0), None]), Some(5.0));
        assert_eq!(streamed([None, None]), None);
    }

    #[test]
    fn a_stated_bound_overrides_measurements_and_none_disables_them() {
        let stated = point(BoundChoice::Stated { bytes_per_s: 42.0 });
        let both = || [copies(1.0), copies(1.0)];
        let expected = Some(("stated by the user".to_owned(), 42.0));
        assert_eq!(bound(COPIES, &stated, both()), expected);
        assert_eq!(bound(COPIES, &point(BoundChoice::None), both()), None);
        // The speeds of links are recorded next to a stated bound, unless a file loads the links unevenly.
        let links = |point: &TransferPoint| {
            let opened = engines(LINK, point);
            let bound = bound_of(point, &opened, [None, None]);
            bound.unwrap().links.map(|links| links.used_bytes_per_s)
        };
        assert_eq!(links(&stated), Some(1e3));
        assert_eq!(links(&with_loads(stated)), None);
    }

    /// With equal numbers of operations, a round at a fifth of the speed takes five times as long. A round with two
    /// flows moves twice the bytes.
    #[test]
    fn rounds_are_combined_as_a_trial_combines_them() {
        let of = |trial, rounds: &[(f64, u64)]| mean_over_rounds(trial, rounds.iter().copied());
        let (time, operations) = (TrialLength::DurationNs(1), TrialLength::Iterations(1000));
        let rounds = [(1.0, 1), (5.0, 1)];
        assert_eq!(of(time, &rounds), 3.0);
        // Two units of bytes take 1 + 1/5 units of time.
        assert!((of(operations, &rounds) - 2.0 / 1.2).abs() < 1e-12);
        assert!((of(operations, &[(1.0, 1), (5.0, 2)]) - 3.0 / 1.4).abs() < 1e-12);
        assert_eq!(of(operations, &[(4.0, 3)]), 4.0);
        assert_eq!(of(operations, &[(0.0, 1), (5.0, 1)]), 0.0);
    }

    /// Each worker would measure the same rate of a device, so one is enough.
    #[test]
    fn one_worker_measures_a_device() {
        let point = point(BoundChoice::Auto);
        let copiers = |on_device: bool, shows_copies| {
            let mut opened = engines(COPIES, &point);
            opened.own.memory_device = on_device.then(device);
            opened.shows_copies = shows_copies;
            BoundMeasurement::new(&point, &opened).copiers()
        };
        assert_eq!(copiers(false, true), Copiers::All);
        assert_eq!(copiers(true, true), Copiers::First);
        assert_eq!(copiers(true, false), Copiers::None);
        assert_eq!(copiers(false, false), Copiers::None);
    }

    /// Device links limit link, socket-stream and copy bounds, but not a bound that the user states.
    #[test]
    fn device_links_apply_in_addition_to_other_bounds() {
        let with_link = |link_bytes_per_s: Option<u64>,
                         kind,
                         point: &TransferPoint,
                         measured: [Option<Measurement>; 2]| {
            let far = OpenMessage {
                memory_device: Some(BusDevice {
                    link: link_bytes_per_s.map(|bytes_per_s| BusLink {
                        kind: "PCIe".into(),
                        bytes_per_s,
                    }),
                    links_unknown: Some("a reason".into()),
                    ..device()
                }),
                ..opened(kind, None)
            };
            let opened = openings(&[opened(kind, None), far], point.roles);
            let bound = bound_of(point, &opened, measured);
            let lacking = unknown_links(point, &opened, bound.is_some()).is_some();
            (bound.map(|bound| bound.bytes_per_s), lacking)
        };
        let bound =
            |kind, point: &TransferPoint, measured| with_link(Some(5), kind, point, measured);
        let auto = point(BoundChoice::Auto);
        assert_eq!(bound(LINK, &auto, [None, None]), (Some(5.0), true));
        let streamed = [streams(7.0), streams(7.0)];
        let sockets = BoundKind::SocketStream;
        assert_eq!(bound(sockets, &auto, streamed), (Some(5.0), true));
        // Copies stay within the device, so they are not measured, and the device's link is the bound.
        assert_eq!(bound(COPIES, &auto, [None, None]), (Some(5.0), true));
        assert_eq!(with_link(None, COPIES, &auto, [None, None]), (None, true));
        assert_eq!(
            with_link(None, BoundKind::None, &auto, [None, None]),
            (None, false)
        );
        let slower = [streams(3.0), streams(4.0)];
        assert_eq!(bound(sockets, &auto, slower), (Some(4.0), true));
        let stated = point(BoundChoice::Stated { bytes_per_s: 42.0 });
        assert_eq!(bound(LINK, &stated, [None, None]), (Some(42.0), false));
    }

    fn with_loads(mut point: TransferPoint) -> TransferPoint {
        point.loads = Some(vec![vec![0, 8], vec![8, 0]].try_into().unwrap());
        point
    }

    #[test]
    fn round_trips_have_no_bound() {
        let mut point = point(BoundChoice::Auto);
        assert!(bound(LINK, &point, [None, None]).is_some());
        point.pacing = Pacing::PingPong;
        assert_eq!(bound(LINK, &point, [None, None]), None);
        assert_eq!(bound(BoundKind::SocketStream, &point, [None, None]), None);
        // Even if something was measured, there is no bound.
        let measured = [copies(1.0), copies(1.0)];
        assert_eq!(bound(COPIES, &point, measured), None);
    }

    #[test]
    fn points_without_a_bound_report_why() {
        let auto = || point(BoundChoice::Auto);
        let why = |kind, point: &TransferPoint| {
            BoundMeasurement::new(point, &engines(kind, point)).why_no_bound()
        };
        let loads = with_loads(auto());
        let (mut background, mut two_memories) = (auto(), auto());
        background.background = Some("op=write,size=1M,depth=8,pair=same".parse().unwrap());
        two_memories.memories.target_memory = Some("huge".into());
        for (point, part) in [
            (&loads, "the file loads links unevenly"),
            (&background, "the background shares the path"),
            (&two_memories, "copies between memory host and memory huge"),
        ] {
            let text = why(COPIES, point).unwrap();
            assert!(
                text.starts_with("no bound: ") && text.contains(part),
                "{text}"
            );
        }
        // Neither links nor copies bound the bandwidth of these points.
        for point in [&loads, &background] {
            assert_eq!(bound(LINK, point, [None, None]), None);
            assert_eq!(bound(COPIES, point, [copies(1.0), copies(1.0)]), None);
        }
        // No reason is reported if the bound needs no copies, or if no bound is requested.
        assert_eq!(why(COPIES, &auto()), None);
        assert_eq!(why(LINK, &two_memories), None);
        for mut point in [loads, background, two_memories] {
            point.pacing = Pacing::PingPong;
            assert_eq!(why(COPIES, &point), None);
            point.pacing = Pacing::Stream { depth: 1 };
            point.bound = BoundChoice::None;
            assert_eq!(why(COPIES, &point), None);
        }
    }
}

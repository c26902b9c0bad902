//! Background load during a latency measurement. The last workers of each rank move this load.

use std::borrow::Cow;

use super::layout::SliceLayout;
use super::summary::latency_kind;
use crate::opening::SizedBy;
use tonnage_engine::Peer;
use tonnage_plan::transfer::TransferPoint;
use tonnage_record::histogram::Latency;
use tonnage_record::transfer::{BackgroundSummary, CpuSharing, Trial};
use tonnage_units::histogram::LatencyHistogram;

/// The points that a rank's workers drive: the measured point, and the background's point if there is a background.
pub(super) struct WorkerPoints<'a> {
    pub(super) own: &'a TransferPoint,
    pub(super) background: Option<&'a TransferPoint>,
}

impl<'a> WorkerPoints<'a> {
    /// Returns the point that worker `worker` of this rank drives.
    pub(super) fn for_worker(&self, worker: usize) -> &'a TransferPoint {
        let background = self.background.filter(|_| self.is_background(worker));
        background.unwrap_or(self.own)
    }

    /// Returns whether worker `worker` moves the background load.
    fn is_background(&self, worker: usize) -> bool {
        worker >= self.own.measuring_threads() as usize
    }

    /// Returns the role of a worker. `measuring_cpus` has the CPUs of the measuring workers.
    pub(super) fn role_of_worker(&self, worker: u32, measuring_cpus: CpuSharing) -> WorkerRole {
        let measuring = self.own.measuring_threads();
        WorkerRole {
            is_background: self.is_background(worker as usize),
            place: worker.checked_sub(measuring).unwrap_or(worker),
            measuring_cpus: self.background.map(|_| measuring_cpus),
        }
    }
}

/// Role of a worker among the workers of its rank.
#[derive(Debug, Clone, Copy)]
pub struct WorkerRole {
    /// True if this worker moves the background load.
    pub is_background: bool,
    /// Index of this worker among the rank's workers that drive the same point.
    pub place: u32,
    /// CPUs of the measuring workers; `None` without a background.
    pub measuring_cpus: Option<CpuSharing>,
}

impl WorkerRole {
    /// Returns whether this worker yields its CPU when it is idle. `shares` is whether the rank's workers share CPUs. A
    /// worker yields only if another worker may need the CPU, because yielding takes longer than a short latency.
    pub(super) fn yields(&self, shares: bool, is_loaded: bool) -> bool {
        shares
            && match self.measuring_cpus {
                Some(_) if self.is_background => true,
                Some(CpuSharing::Own) => false,
                Some(CpuSharing::WithLoad) => is_loaded,
                Some(CpuSharing::Together) | None => true,
            }
    }
}

/// Returns the point itself, followed by its background's point if there is one.
pub(super) fn with_background(
    point: &TransferPoint,
) -> impl Iterator<Item = Cow<'_, TransferPoint>> {
    let background = point.background_point().map(Cow::Owned);
    std::iter::once(Cow::Borrowed(point)).chain(background)
}

/// Returns the ranks that exchange bytes with `rank`, including those of the background.
pub(super) fn all_peers(point: &TransferPoint, rank: u32) -> Vec<Peer> {
    let layouts = with_background(point).map(|point| SliceLayout::new(&point, rank));
    layouts.flat_map(|layout| layout.peers()).collect()
}

/// Returns how many bytes of memory each worker of a rank needs, including workers of the background.
pub(super) fn largest_memory_bytes(point: &TransferPoint, rank: u32) -> u64 {
    let layouts = with_background(point).map(|point| SliceLayout::new(&point, rank));
    layouts.map(|layout| layout.bytes()).max().unwrap_or(0)
}

/// Returns the option that determines the largest memory of these points: the footprint, or the background's depth and
/// size.
pub(super) fn sized_by(points: &[&TransferPoint]) -> SizedBy {
    let footprint = points.iter().map(|point| point.slots.footprint_bytes).max();
    let loads = points.iter().filter_map(|point| point.background_point());
    let load = loads.map(|load| load.slots.footprint_bytes).max();
    let (footprint, load) = (footprint.unwrap_or(0), load.unwrap_or(0));
    let (option, bytes) = if load > footprint {
        ("--background with depth times size of", load)
    } else {
        ("--footprint", footprint)
    };
    SizedBy { option, bytes }
}

/// Returns the maximum number of operations in flight on any lane, including the background's lanes.
pub(super) fn depth(point: &TransferPoint) -> u32 {
    with_background(point)
        .map(|point| point.depth())
        .max()
        .unwrap_or(1)
}

/// Returns a summary of the background load during the trials, and of the latency without load. `None` without a
/// background.
pub(super) fn background_summary(
    point: &TransferPoint,
    idle: Option<&LatencyHistogram>,
    trials: &[Trial],
) -> Option<BackgroundSummary> {
    let idle = Latency::summarize(idle?, latency_kind(point));
    let loads = trials.iter().filter_map(|trial| trial.background.as_ref());
    BackgroundSummary::from_trials(&loads.collect::<Vec<_>>(), idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::Verb;
    use tonnage_plan::point::Traffic;
    use tonnage_plan::roles::Roles;
    use tonnage_plan::testing::slots_point as point;
    use tonnage_plan::transfer::{Access, Background, BackgroundPair, Pacing};

    fn point_with_background() -> TransferPoint {
        let background = Background {
            op: Verb::Read,
            size_bytes: 4096,
            depth: 8,
            pair: BackgroundPair::Other,
            threads: 2,
            rate_per_s: None,
        };
        TransferPoint {
            roles: Roles::new(Traffic::Pair, 4),
            threads: 3,
            pacing: Pacing::PingPong,
            background: Some(background),
            ..point(Access::Sequential, 8)
        }
    }

    #[test]
    fn the_last_workers_move_the_background() {
        let point = point_with_background();
        let load = point.background_point().unwrap();
        let points = WorkerPoints {
            own: &point,
            background: Some(&load),
        };
        let sizes: Vec<_> = (0..3)
            .map(|at| points.for_worker(at).slots.size_bytes)
            .collect();
        assert_eq!(sizes, [point.slots.size_bytes, 4096, 4096]);
        let role = |at| points.role_of_worker(at, CpuSharing::Own);
        assert_eq!([0, 1, 2].map(|at| role(at).place), [0, 0, 1]);
        // Rank 0 measures towards rank 2, and loads the path to rank 3. Rank 1 measures towards rank 3, and loads the
        // path to rank 2.
        assert_eq!(load.roles.targets(0), [3]);
        assert_eq!(load.roles.targets(1), [2]);
        assert_eq!(all_peers(&point, 0), [2, 3]);
        assert_eq!(depth(&point), 8);
        assert!(largest_memory_bytes(&point, 0) >= 2 * 8 * 4096);
        let alone = TransferPoint {
            background: None,
            ..point
        };
        let points = WorkerPoints {
            own: &alone,
            background: None,
        };
        let role = points.role_of_worker(2, CpuSharing::Own);
        assert_eq!((role.is_background, role.measuring_cpus), (false, None));
    }

    #[test]
    fn a_worker_with_its_own_cpu_does_not_yield() {
        let yields = |is_background, cpus, is_loaded| {
            let role = WorkerRole {
                is_background,
                place: 0,
                measuring_cpus: cpus,
            };
            role.yields(true, is_loaded)
        };
        let measuring = |cpus| [false, true].map(|is_loaded| yields(false, Some(cpus), is_loaded));
        assert_eq!(measuring(CpuSharing::Own), [false, false]);
        assert_eq!(measuring(CpuSharing::WithLoad), [false, true]);
        assert_eq!(measuring(CpuSharing::Together), [true, true]);
        assert!(yields(true, Some(CpuSharing::Own), true));
        assert!(yields(false, None, true));
    }
}

//! Backgrounds of a transfer: which ranks they go to, at which rates, and what the workers of a point are then.

use super::background::{Background, BackgroundPair};
use super::background_options::BackgroundRate;
use super::batches::Batching;
use super::layout::{SlotLayout, check_memory, layout};
use super::options::{MemoryOptions, Transfer};
use super::pacing::{check_rate, checked_rate};
use super::point::{Addresses, CqMode, Pacing, TargetFootprint, TransferApi, TransferPoint};
use super::point_length::{PointLength, TrialLength};
use crate::options::Many;
use crate::point::Traffic;
use crate::refuse::usage;
use crate::roles::Roles;
use tonnage_engine::Entry;
use tonnage_units::{Bytes, Nanos, PerSecond, Result};

/// Rate that no path between two ranks has, in bytes each nanosecond.
const BYTES_PER_NS_MAX: u64 = 100;

/// The loads to measure beside, each with its rate; one `None` where none is asked for.
///
/// # Errors
/// `Usage` for a rate of nothing, and for transfers that have no latency to measure or no workers to spare.
pub(super) fn backgrounds(
    transfer: &Transfer,
    (roles, workers): (&[Roles], &[u32]),
    length: PointLength,
) -> Result<Vec<Option<Background>>> {
    let options = &transfer.background;
    let Some(background) = options.background else {
        return match &options.background_rate {
            None => Ok(vec![None]),
            Some(_) => usage(
                "background-rate is the rate of a background, and there is none: write background op=write,size=1M, or \
                 leave background-rate out"
                    .to_owned(),
            ),
        };
    };
    check_beside(transfer, length)?;
    check_in_flight(background, length.trial)?;
    check_workers(background, workers)?;
    for roles in roles {
        check_pairs(background, *roles)?;
    }
    let rates = match options.background_rate.as_ref().map(Many::values) {
        None => &[BackgroundRate::Full][..],
        Some([]) => return usage("background-rate is empty: leave it out".to_owned()),
        Some(rates) => rates,
    };
    let at = |rate: &BackgroundRate| {
        let rate_per_s = match rate {
            BackgroundRate::Full => None,
            BackgroundRate::PerSecond(rate) => Some(background_rate(transfer, *rate, length)?),
        };
        Ok(Some(Background {
            rate_per_s,
            ..background
        }))
    };
    rates.iter().map(at).collect()
}

fn background_rate(transfer: &Transfer, rate: PerSecond, length: PointLength) -> Result<f64> {
    let modes = transfer.pacing.cq.as_ref().map_or(&[][..], Many::values);
    if modes.contains(&CqMode::Event) {
        return usage(format!(
            "cq event and background-rate {rate} contradict each other, for whoever sleeps misses when the next operation \
             is due: leave background-rate out, or use cq busy"
        ));
    }
    let rate_per_s = checked_rate("background-rate", rate)?;
    check_rate(("background-rate", rate_per_s), length.trial)?;
    Ok(rate_per_s)
}

/// Refuses a background beside what has no latency of its own, or is not measured by time.
fn check_beside(transfer: &Transfer, length: PointLength) -> Result<()> {
    let pacing = &transfer.pacing;
    let refused = |why: &str| usage(format!("background {why}"));
    if !pacing.ping_pong && pacing.rate.is_none() {
        return refused(
            "loads the way of a latency, and a stream or batch loads it itself: add ping-pong, or a rate such as rate 1k",
        );
    }
    if length.interval_ns.is_some() {
        return refused(
            "and interval contradict each other, for each trial is once without the load and once with it: leave one of \
             them out",
        );
    }
    if matches!(length.trial, TrialLength::Iterations(_)) {
        return refused(
            "lasts as long as a trial, which iters leaves open: use trial-time or duration in place of iters",
        );
    }
    Ok(())
}

/// Refuses a background of which more is in flight than a trial can move anywhere: the trial would not end in its time.
fn check_in_flight(background: Background, trial: TrialLength) -> Result<()> {
    let TrialLength::DurationNs(trial_ns) = trial else {
        return Ok(());
    };
    let (size_bytes, window) = (background.size_bytes.into(), u64::from(background.window));
    let in_flight: u64 = size_bytes * window;
    let most = trial_ns.saturating_mul(BYTES_PER_NS_MAX);
    if in_flight <= most {
        return Ok(());
    }
    let enough_ms = in_flight.div_ceil(BYTES_PER_NS_MAX * 1_000_000);
    usage(format!(
        "background has window {window} of size {} in flight, and no path moves {} in a trial of {}: use a smaller window \
         or size, or trial-time {} or more",
        Bytes(size_bytes),
        Bytes(in_flight),
        Nanos(trial_ns),
        Nanos(enough_ms * 1_000_000)
    ))
}

fn check_workers(background: Background, workers: &[u32]) -> Result<()> {
    let least = background.workers + 1;
    match workers.iter().find(|&&workers| workers < least) {
        None => Ok(()),
        Some(workers) => usage(format!(
            "background takes {} of a rank's workers, and workers {workers} leaves none to measure with: write workers \
             {least} or more, or leave workers out",
            background.workers
        )),
    }
}

fn check_pairs(background: Background, roles: Roles) -> Result<()> {
    let name = roles.traffic.name();
    match (roles.traffic, background.pair) {
        (Traffic::InTurn | Traffic::Matrix | Traffic::File, _) => usage(format!(
            "background loads all pairs at once, and traffic {name} has rounds: use traffic pair, or another without them"
        )),
        (Traffic::Pair | Traffic::Shift, BackgroundPair::Other) => {
            let others = match roles.traffic {
                Traffic::Pair => roles.sides().1,
                _ => roles.ranks.saturating_sub(1),
            };
            match others {
                0 | 1 => usage(
                    "pair=other of a background needs a second target to go to: use more ranks (4 with traffic pair), or \
                     pair=same"
                        .to_owned(),
                ),
                _ => Ok(()),
            }
        }
        (_, BackgroundPair::Other) => usage(format!(
            "pair=other of a background goes to the target of the next initiator, and with traffic {name} there is no \
             such: use traffic pair or shift, or pair=same"
        )),
        (_, BackgroundPair::Same) => Ok(()),
    }
}

/// Refuses a background on an engine that has no such operation, or moves nothing.
pub(super) fn check_op(background: Option<Background>, entry: &Entry) -> Result<()> {
    if background.is_some() && !entry.moves_bytes {
        return usage(format!(
            "engine {} moves no bytes, so that a background on it is no load: use engine shm, or another one that does",
            entry.name
        ));
    }
    if let Some(background) = background.filter(|background| background.op.is_atomic()) {
        return usage(format!(
            "background op={} is no load, for it moves single words: use op=write",
            background.op.name()
        ));
    }
    let missing = background.filter(|background| !entry.verbs.contains(&background.op));
    let Some(Background { op, .. }) = missing else {
        return Ok(());
    };
    let verbs: Vec<_> = entry.verbs.iter().map(|verb| verb.name()).collect();
    usage(format!(
        "engine {} cannot do op={} of a background: use one of {}",
        entry.name,
        op.name(),
        verbs.join(", ")
    ))
}

/// Size of an operation, and the load beside it.
pub(super) type LoadedSize = (u32, Option<Background>);

/// Every size with every background, the last varying fastest.
pub(super) fn beside(sizes: &[u32], loads: &[Option<Background>]) -> Vec<LoadedSize> {
    let of_size = |&size| loads.iter().map(move |&load| (size, load));
    sizes.iter().flat_map(of_size).collect()
}

/// Refuses a background whose memory is more than a rank may be asked for, also where it is no point at all because its
/// memory cannot be laid out.
///
/// # Errors
/// `Usage`, as for the point's own memory.
pub(super) fn check_footprint(point: &TransferPoint) -> Result<()> {
    let Some(background) = point.background else {
        return Ok(());
    };
    let slots = slots(background)?;
    let roles = point.towards(background.pair).roles();
    check_memory(slots, TargetFootprint::Own, roles, background.workers)
}

fn slots(background: Background) -> Result<SlotLayout> {
    let options = MemoryOptions::default();
    layout(&options, background.size_bytes, background.window)
}

impl TransferPoint {
    /// Workers of a rank that measure: all but those of a background.
    pub fn measuring_workers(&self) -> u32 {
        let taken = self.background.map_or(0, |background| background.workers);
        self.workers.saturating_sub(taken)
    }

    /// The transfer that the workers of the background drive, as a point of its own.
    pub fn background_point(&self) -> Option<Self> {
        let background = self.background?;
        let window = background.window;
        let pacing = match background.rate_per_s {
            None => Pacing::Stream { window },
            Some(rate_per_s) => Pacing::Paced { window, rate_per_s },
        };
        // Where there is none, the plan was refused.
        let slots = slots(background).ok()?;
        Some(Self {
            op: background.op,
            size_bytes: background.size_bytes,
            pacing,
            workers: background.workers,
            background: None,
            footprint_bytes: slots.footprint_bytes,
            stride_bytes: slots.stride_bytes,
            target_footprint: TargetFootprint::Own,
            addresses: Addresses::Sequential,
            local_addresses: None,
            batching: Batching::default(),
            api: TransferApi::Engine,
            session: None,
            latency: false,
            ..self.towards(background.pair)
        })
    }

    /// This point among these pairs.
    fn towards(&self, pair: BackgroundPair) -> Self {
        let mut point = self.clone();
        if pair == BackgroundPair::Other {
            match self.traffic {
                Traffic::Shift => {
                    point.shift = self.shift % self.ranks.max(2).saturating_sub(1) + 1
                }
                _ => {
                    let (_, targets) = self.roles().sides();
                    point.target_shift = (self.target_shift + 1) % targets.max(1);
                }
            }
        }
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;
    use crate::fixture::Expand;
    use tonnage_engine::Verb;

    fn points(lines: &str) -> Vec<TransferPoint> {
        let text = format!(
            "name = \"test\"\n[[transfer]]\nengine = \"shm\"\nop = \"write\"\nsizes = 8\n{lines}"
        );
        let plan = Plan::from_toml(&text, "test.toml").unwrap();
        plan.transfer_points(6).unwrap()
    }

    #[test]
    fn each_rate_is_a_point_and_the_load_has_workers_of_its_own() {
        let all = points(
            "ping-pong = true\nbackground = \"op=read,workers=2\"\nbackground-rate = [\"1k\", \"full\"]\n",
        );
        let rates: Vec<_> = all
            .iter()
            .map(|point| point.background.unwrap().rate_per_s)
            .collect();
        assert_eq!(rates, [Some(1000.0), None]);
        assert!(
            all.iter()
                .all(|point| (point.workers, point.measuring_workers()) == (3, 1))
        );
        let load = all[0].background_point().unwrap();
        let paced = Pacing::Paced {
            window: 8,
            rate_per_s: 1000.0,
        };
        assert_eq!((load.op, load.workers, load.pacing), (Verb::Read, 2, paced));
        assert_eq!((load.size_bytes, load.footprint_bytes), (1 << 20, 8 << 20));
        assert_eq!((load.background, load.latency), (None, false));
        let alone = points("ping-pong = true\nworkers = 3\n");
        assert_eq!(
            (alone[0].measuring_workers(), alone[0].background_point()),
            (3, None)
        );
    }

    #[test]
    fn the_other_pair_is_that_of_the_next_initiator() {
        let targets = |point: &TransferPoint| -> Vec<_> {
            (0..6).map(|rank| point.roles().targets(rank)).collect()
        };
        for (lines, own, other) in [
            ("", [vec![3], vec![4], vec![5]], [vec![4], vec![5], vec![3]]),
            (
                "traffic = \"shift\"\nshift = 5\n",
                [vec![5], vec![0], vec![1]],
                [vec![1], vec![2], vec![3]],
            ),
        ] {
            let lines = format!("{lines}rate = \"1k\"\nbackground = \"pair=other\"\n");
            let point = points(&lines).remove(0);
            assert_eq!(targets(&point)[..3], own);
            assert_eq!(targets(&point.background_point().unwrap())[..3], other);
        }
    }
}

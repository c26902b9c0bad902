//! The conductor: takes the points of a plan through ranks, engine, samples and statistics to records.

use serde_json::Value;

use crate::canary;
use crate::deadlines::DEADLINES;
use crate::failure::{Failure, outcome};
use crate::kinds::files;
use crate::kinds::files::clean::Made;
use crate::kinds::transfer::point::{Measured, measure};
use crate::kinds::transfer::session::{Session, SessionKey};
use crate::kinds::transfer::{flows, summary};
use crate::observer::Observer;
use crate::run::Run;
use crate::settings::Settings;
use tonnage_plan::files::FilePoint;
use tonnage_plan::transfer::TransferPoint;
use tonnage_plan::{Planned, Point, Reading};
use tonnage_ranks::Rank;
use tonnage_record::{Canary, Effective, Outcome, Record, TransferBody};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// Runs the points in their order, of whatever kinds, as one run. Every rank calls it with the same points; rank 0's
/// observer gets the records.
///
/// # Errors
/// What ends the whole run; what fails only a point is in its record.
pub fn run(
    points: &[Planned],
    rank: &mut Rank,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<()> {
    if points.is_empty() {
        return Ok(());
    }
    let mut conductor = Conductor {
        run: Run::begin(rank, settings)?,
        made: Made::default(),
        of: points.len(),
    };
    let mut index = 0;
    while index < points.len() {
        match &points[index].point {
            Point::File(point) => {
                if rank.id() == 0 {
                    observer.begin(index, points.len(), &points[index].point);
                }
                let asked = (point, &points[index].reading);
                conductor.file(asked, rank, settings, observer)?;
                index += 1;
            }
            Point::Connect(point) => {
                return Err(Error::Failed(format!(
                    "connections of engine {} cannot be measured",
                    point.engine
                )));
            }
            Point::Transfer(first) => {
                let key = SessionKey::of(first);
                let stretch: Vec<&TransferPoint> = points[index..]
                    .iter()
                    .map_while(|planned| planned.point.as_transfer())
                    .take_while(|point| SessionKey::of(point) == key)
                    .collect();
                // After a failed point the engine is opened anew, because nobody knows what it left behind.
                index += conductor.stretch(&stretch, index, rank, settings, observer)?;
            }
        }
    }
    Ok(())
}

/// What lasts as long as the run.
struct Conductor {
    run: Run,
    /// Files of this run.
    made: Made,
    /// How many points there are.
    of: usize,
}

impl Conductor {
    /// One file experiment.
    fn file(
        &mut self,
        (point, reading): (&FilePoint, &Reading),
        rank: &mut Rank,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let (record, ended) = files::measure(
            (point, reading),
            rank,
            (settings, &self.run),
            &mut self.made,
            observer,
        );
        if rank.id() == 0 {
            observer.record(record)?;
        }
        ended
    }

    /// Runs points on one session; returns how many of them do not need another one.
    fn stretch(
        &mut self,
        stretch: &[&TransferPoint],
        first: usize,
        rank: &mut Rank,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<usize> {
        let entry = settings.lists.engine(&stretch[0].engine)?;
        let mut session = match Session::open(stretch, entry, rank, settings, &self.run.host) {
            Ok(session) => session,
            Err(error) => {
                if rank.why_stopped().is_some() {
                    return Err(error);
                }
                for point in stretch {
                    self.emit(rank, observer, self.blank(settings, point, outcome(&error)))?;
                }
                return Ok(stretch.len());
            }
        };
        for (index, point) in stretch.iter().enumerate() {
            if rank.id() == 0 {
                observer.begin(first + index, self.of, &Point::Transfer((*point).clone()));
            }
            match self.one(point, &mut session, rank, settings) {
                Ok(record) => self.emit(rank, observer, record)?,
                Err(Failure::Point(error)) => {
                    let mut record = self.blank(settings, point, outcome(&error));
                    record.effective = effective(&session, &[]);
                    self.emit(rank, observer, record)?;
                    return Ok(index + 1);
                }
                Err(Failure::Run(error)) => {
                    let error = rank.why_stopped().unwrap_or(error);
                    let mut record = self.blank(settings, point, outcome(&error));
                    record.effective = effective(&session, &[]);
                    self.emit(rank, observer, record)?;
                    return Err(error);
                }
            }
        }
        Ok(stretch.len())
    }

    /// One point with its canaries.
    fn one(
        &self,
        point: &TransferPoint,
        session: &mut Session,
        rank: &mut Rank,
        settings: &Settings,
    ) -> Result<Record, Failure> {
        let pair = canary_cpus(point, session, rank, &self.run.host.topology.allowed);
        let before = self.canary(rank, &pair, settings)?;
        let measured = measure(point, session, rank)?;
        let after = self.canary(rank, &pair, settings)?;
        let canary = match pair {
            Ok(cpus) => canary::compare(cpus, before, after),
            Err(why) => Canary::Skipped { why },
        };
        let mut record = self.blank(settings, point, Outcome::Measured);
        record.effective = effective(session, &measured.chosen);
        record.canary = Some(canary);
        record.limit.clone_from(&measured.limit);
        record.wire_proof.clone_from(&measured.wire_proof);
        let mut body = body(point, measured);
        let latency = body
            .summary
            .as_mut()
            .and_then(|summary| summary.latency.as_mut());
        if let Some(latency) = latency {
            latency.delivered = flows::delivered(point, &session.caps);
        }
        record.body = body.into();
        Ok(record)
    }

    /// Rank 0 measures the canary while all others wait without using a CPU.
    fn canary(
        &self,
        rank: &mut Rank,
        cpus: &Result<[u32; 2], String>,
        settings: &Settings,
    ) -> Result<Result<f64, String>> {
        rank.phase("canary");
        rank.barrier("before the canary", DEADLINES.step)?;
        let result = match (rank.id(), cpus) {
            (0, Ok(cpus)) => canary::one_way_ns(*cpus, &settings.clock),
            _ => Err("measured by rank 0".into()),
        };
        rank.barrier("after the canary", DEADLINES.step)?;
        Ok(result)
    }

    fn blank(&self, settings: &Settings, point: &TransferPoint, outcome: Outcome) -> Record {
        let body = TransferBody::new(point.clone());
        self.run.record(settings, body.into(), outcome)
    }

    /// Hands a record to rank 0's observer.
    fn emit(&self, rank: &Rank, observer: &mut dyn Observer, record: Record) -> Result<()> {
        if rank.id() == 0 {
            observer.record(record)
        } else {
            Ok(())
        }
    }
}

fn body(point: &TransferPoint, measured: Measured) -> TransferBody {
    TransferBody {
        summary: Some(summary::summarize(point, &measured)),
        histogram: (measured.histogram.count() > 0).then(|| measured.histogram.to_data()),
        trials: measured.trials,
        point: point.clone(),
    }
}

/// The CPUs of the first pair of workers that exchange bytes, if they share a host.
fn canary_cpus(
    point: &TransferPoint,
    session: &Session,
    rank: &Rank,
    allowed: &[u32],
) -> Result<[u32; 2], String> {
    let (from, to) = (0..point.ranks)
        .find_map(|from| {
            point
                .traffic
                .targets(from, point.ranks)
                .first()
                .map(|&to| (from, to))
        })
        .ok_or("nobody exchanges bytes")?;
    let hosts = rank.hosts();
    if !hosts.share_machine(from, 0) || !hosts.share_machine(to, 0) {
        return Err(format!(
            "ranks {from} and {to} are not both on rank 0's host"
        ));
    }
    let cpu = |rank: u32| {
        session
            .opened
            .get(rank as usize)
            .and_then(|opened| *opened.cpus.first()?)
    };
    match (cpu(from), cpu(to)) {
        (Some(from), Some(to)) => Ok([from, to]),
        // Not pinned: any two CPUs tell as much.
        _ => match *allowed {
            [first, second, ..] => Ok([first, second]),
            _ => Err("this process may use only one CPU".into()),
        },
    }
}

/// Ranks whose effective configuration is the same are listed together, so that a record of 44,000 ranks stays small.
fn effective(session: &Session, chosen: &[Value]) -> Vec<Effective> {
    let mut groups: Vec<(Vec<u32>, Effective)> = Vec::new();
    for (rank, opened) in (0u32..).zip(&session.opened) {
        let mut engine = opened.engine.clone();
        if let Some(Value::Object(choices)) = chosen.get(rank as usize)
            && let Some(engine) = engine.as_object_mut()
        {
            engine.extend(choices.clone());
        }
        let effective = Effective {
            ranks: String::new(),
            engine,
            memory: opened.memory_value(),
            cpus: opened.cpus.clone(),
            yielding: opened.yielding,
        };
        match groups.iter_mut().find(|(_, group)| *group == effective) {
            Some((ranks, _)) => ranks.push(rank),
            None => groups.push((vec![rank], effective)),
        }
    }
    groups
        .into_iter()
        .map(|(ranks, effective)| Effective {
            ranks: number_list::format(&ranks),
            ..effective
        })
        .collect()
}

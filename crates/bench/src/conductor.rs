//! The conductor: takes the points of a plan through ranks, engine, samples and statistics to records.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tonnage_sys::clock::Clock;

use crate::canary;
use crate::host::Host;
use crate::kinds::transfer::point::{Failure, Measured, measure};
use crate::kinds::transfer::session::{Session, SessionKey};
use crate::kinds::transfer::{flows, summary};
use tonnage_engine::Entry;
use tonnage_engine::memory::Memories;
use tonnage_machine::{Choice, Topology};
use tonnage_plan::point::Point;
use tonnage_ranks::{Rank, RankInfo};
use tonnage_record::{Canary, Effective, Environment, Outcome, Program, Record, SCHEMA_VERSION};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// How long ranks may take between two steps that all of them take.
pub(crate) const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// What steers a run and is not part of any point.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The plan's name, for the records.
    pub plan: String,
    /// Which CPUs workers are pinned to.
    pub cpus: Choice,
    /// Where memory comes from.
    pub numa: Numa,
    /// Devices that engines use; empty when each is to choose.
    pub devices: Vec<String>,
    /// The libfabric to load instead of the one that is found.
    pub libfabric: Option<PathBuf>,
    /// The MPI library to load instead of the one that fits the launcher.
    pub mpi: Option<PathBuf>,
    /// How memory is had.
    pub memories: &'static Memories,
    /// Calibrated once, before anything is timed.
    pub clock: Clock,
    /// The program that writes the records.
    pub program: Program,
}

/// The NUMA node that a worker's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numa {
    /// The node of the worker's CPU.
    Auto,
    /// Wherever the kernel takes it.
    None,
    /// This one.
    Node(u32),
}

impl Numa {
    /// The node for a worker on `cpu`; `None` leaves it to the kernel.
    ///
    /// # Errors
    /// [`Error::Usage`] for a node that this host does not have, with those that it has.
    pub fn node(self, topology: &Topology, cpu: Option<u32>) -> Result<Option<u32>> {
        match self {
            // With one node there is nothing to choose, and some containers forbid even asking.
            Self::Auto if topology.nodes.len() < 2 => Ok(None),
            Self::Auto => Ok(cpu.and_then(|cpu| topology.memory_node_of_cpu(cpu))),
            Self::None => Ok(None),
            Self::Node(node) => {
                let nodes: Vec<u32> = topology.nodes.iter().map(|node| node.id).collect();
                if nodes.contains(&node) {
                    return Ok(Some(node));
                }
                Err(Error::Usage(format!(
                    "this host has no NUMA node {node}: choose --numa among {}, auto or none",
                    number_list::format(&nodes)
                )))
            }
        }
    }
}

/// Who is told how a run goes. Called on rank 0 only.
pub trait Observer {
    /// A point begins: its index, how many there are, and what it is.
    fn begin(&mut self, index: usize, of: usize, point: &Point);
    /// A point ended, one way or another.
    ///
    /// # Errors
    /// What ends the run, such as a full disk.
    fn record(&mut self, record: Record) -> Result<()>;
}

/// Runs the points in their order. Every rank calls it with the same points; rank 0's observer gets the records.
///
/// # Errors
/// What ends the whole run; what fails only a point is in its record.
pub fn run(
    points: &[Point],
    rank: &mut Rank,
    engines: &[Entry],
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<()> {
    let mut conductor = Conductor::new(rank, settings)?;
    let mut index = 0;
    while index < points.len() {
        let key = SessionKey::of(&points[index]);
        let count = points[index..]
            .iter()
            .take_while(|point| SessionKey::of(point) == key)
            .count();
        let stretch = index..index + count;
        let mut done = stretch.start;
        // After a failed point the engine is opened anew, because nobody knows what it left behind.
        while done < stretch.end {
            done =
                conductor.stretch(points, done..stretch.end, rank, engines, settings, observer)?;
        }
        index = stretch.end;
    }
    Ok(())
}

/// What stays the same for all records of a run.
pub(crate) struct Conductor {
    pub(crate) run_id: String,
    pub(crate) environment: Vec<Environment>,
    pub(crate) host: Host,
}

impl Conductor {
    pub(crate) fn new(rank: &mut Rank, settings: &Settings) -> Result<Self> {
        rank.phase("describing the hosts");
        let environment = gather_environment(rank)?;
        let run_id = format!("{:016x}", getrandom::u64().unwrap_or_else(|_| unix_ns()));
        if rank.id() == 0 {
            log::info!("run {run_id} of plan {}", settings.plan);
        }
        Ok(Self {
            run_id,
            environment,
            host: Host::look(rank)?,
        })
    }

    /// Runs points on one session; returns the index of the first that still needs another one.
    fn stretch(
        &mut self,
        points: &[Point],
        range: std::ops::Range<usize>,
        rank: &mut Rank,
        engines: &[Entry],
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<usize> {
        let stretch: Vec<&Point> = points[range.clone()].iter().collect();
        let entry = tonnage_engine::find(engines, &stretch[0].engine)?;
        let mut session = match Session::open(&stretch, entry, rank, settings, &self.host) {
            Ok(session) => session,
            Err(error) => {
                if rank.why_stopped().is_some() {
                    return Err(error);
                }
                for point in stretch {
                    self.emit(rank, observer, self.blank(settings, point, outcome(&error)))?;
                }
                return Ok(range.end);
            }
        };
        for index in range.clone() {
            let point = &points[index];
            if rank.id() == 0 {
                observer.begin(index, points.len(), point);
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
        Ok(range.end)
    }

    /// One point with its canaries.
    fn one(
        &self,
        point: &Point,
        session: &mut Session,
        rank: &mut Rank,
        settings: &Settings,
    ) -> Result<Record, Failure> {
        let pair = canary_cpus(point, session, rank, &self.host.topology.allowed);
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
        fill(&mut record, point, measured);
        let latency = record
            .summary
            .as_mut()
            .and_then(|summary| summary.latency.as_mut());
        if let Some(latency) = latency {
            latency.delivered = flows::delivered(point, &session.caps);
        }
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
        rank.barrier("before the canary", STEP_DEADLINE)?;
        let result = match (rank.id(), cpus) {
            (0, Ok(cpus)) => canary::one_way_ns(*cpus, &settings.clock),
            _ => Err("measured by rank 0".into()),
        };
        rank.barrier("after the canary", STEP_DEADLINE)?;
        Ok(result)
    }

    fn blank(&self, settings: &Settings, point: &Point, outcome: Outcome) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            run_id: self.run_id.clone(),
            plan: settings.plan.clone(),
            time_unix_ns: unix_ns(),
            tonnage: settings.program.clone(),
            point: point.clone(),
            effective: Vec::new(),
            environment: self.environment.clone(),
            outcome,
            trials: Vec::new(),
            summary: None,
            histogram: None,
            canary: None,
            path: None,
        }
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

fn fill(record: &mut Record, point: &Point, measured: Measured) {
    record.summary = Some(summary::summarize(point, &measured));
    record.histogram = (measured.histogram.count() > 0).then(|| measured.histogram.to_data());
    record.path = measured.path;
    record.trials = measured.trials;
}

pub(crate) fn outcome(error: &Error) -> Outcome {
    match error {
        Error::Unavailable { .. } => Outcome::Skipped {
            why: error.to_string(),
        },
        _ => Outcome::Failed {
            why: error.to_string(),
        },
    }
}

/// The CPUs of the first pair of workers that exchange bytes, if they share a host.
fn canary_cpus(
    point: &Point,
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
    let infos = rank.infos();
    let boot = |rank: u32| infos.get(rank as usize).map(|info| info.boot_id.clone());
    if boot(from) != boot(0) || boot(to) != boot(0) {
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
            memory: opened.memory.clone(),
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

/// The ranks of the host of rank `of`, itself included, in rising order.
pub(crate) fn ranks_beside(infos: &[RankInfo], of: u32) -> Vec<u32> {
    let here = &infos[of as usize];
    infos
        .iter()
        .filter(|info| info.host == here.host && info.boot_id == here.boot_id)
        .map(|info| info.rank)
        .collect()
}

/// What every host is, told by the first rank of each.
fn gather_environment(rank: &mut Rank) -> Result<Vec<Environment>> {
    let offset = rank.clock_offset();
    let me = rank.identity().rank;
    // Not the first by `local_rank`: hosts by name that are one machine, such as containers, count those together.
    let mine = if ranks_beside(rank.infos(), me).first() == Some(&me) {
        json!({
            "machine": tonnage_machine::Environment::read(),
            "offset_ns": offset.offset_ns,
            "uncertainty_ns": offset.uncertainty_ns,
        })
        .to_string()
        .into_bytes()
    } else {
        Vec::new()
    };
    let all = rank.all_gather("describe the hosts", mine, STEP_DEADLINE)?;
    let launcher = rank.identity().source.clone();
    let mut hosts = Vec::new();
    for (from, bytes) in (0u32..).zip(&all) {
        if bytes.is_empty() {
            continue;
        }
        let unreadable = |error| {
            Error::Failed(format!(
                "rank {from} described its host unreadably: {error}"
            ))
        };
        let value: Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        hosts.push(Environment {
            hosts: vec![rank.infos()[from as usize].host.clone()],
            ranks: number_list::format(&ranks_beside(rank.infos(), from)),
            launcher: launcher.clone(),
            machine: serde_json::from_value(value["machine"].clone()).map_err(unreadable)?,
            clock_offset_ns: value["offset_ns"].as_i64().unwrap_or(0),
            clock_uncertainty_ns: value["uncertainty_ns"].as_u64().unwrap_or(0),
        });
    }
    Ok(hosts)
}

pub(crate) fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

//! Facts that all records of a run share: the run's ID, its hosts, and the CPUs of this host.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::deadlines::DEADLINES;
use crate::host::RankHost;
use crate::json::Json;
use crate::settings::Settings;
use tonnage_ranks::{ClockOffset, Distinct, Rank};
use tonnage_record::environment::{DescribedHost, HostEntry, OwnMemory};
use tonnage_record::{Body, HostGroup, Outcome, Record, SCHEMA_VERSION};
use tonnage_units::quantity::human::duration;
use tonnage_units::reduce::ReduceMax;
use tonnage_units::{Result, number_list};

/// Facts about a run that are collected once, before any point is measured.
pub struct RunContext {
    /// ID of this start of tonnage, which is the same in all records of the run.
    pub run_id: String,
    /// All hosts with their ranks; empty on ranks other than 0.
    pub environment: Vec<HostGroup>,
    /// This rank's host.
    pub host: RankHost,
    /// Whether all ranks read the same clock as rank 0. It is the same on all ranks.
    is_one_clock: bool,
}

impl RunContext {
    /// Collects the facts at the start of a run. All ranks call this.
    pub fn begin(rank: &mut Rank, settings: &Settings) -> Result<Self> {
        let run_id = format!("{:016x}", getrandom::u64().unwrap_or_else(|_| unix_ns()));
        if rank.id() == 0 {
            log::info!("run {run_id} of plan {}", settings.plan);
        }
        Self::join(rank, settings, &run_id)
    }

    /// Collects the facts for ranks that join a run in progress.
    pub(crate) fn join(rank: &mut Rank, settings: &Settings, run_id: &str) -> Result<Self> {
        rank.set_phase("describing the hosts");
        let environment = gather_environment(rank, settings)?;
        let differs = ReduceMax(u64::from(rank.clock_offset() != ClockOffset::default()));
        let ReduceMax(differs) = rank.reduce("clocks of the ranks", differs, DEADLINES.step)?;
        Ok(Self {
            is_one_clock: differs == 0,
            run_id: run_id.to_owned(),
            environment,
            host: RankHost::gather(rank, &settings.topology)?,
        })
    }

    /// Updates the clock offsets of hosts in a record. Clocks drift, so ranks renew these estimates during a run. If
    /// all ranks read one clock, nothing is exchanged.
    pub fn renew_clocks(&self, rank: &mut Rank, record: &mut Record) -> Result<()> {
        if self.is_one_clock {
            return Ok(());
        }
        let all = collect_clocks(rank)?;
        record.remarks.extend(shifted_clocks(rank, &all));
        let hosts = record.environment.iter_mut();
        for host in hosts.flat_map(|group| &mut group.hosts) {
            let ranks = number_list::parse(&host.ranks)?;
            let first = ranks.first().and_then(|&first| all.get(first));
            let estimate = first.copied().flatten();
            if let Some((offset_ns, uncertainty_ns)) = estimate {
                host.clock_offset_ns = offset_ns;
                host.clock_uncertainty_ns = uncertainty_ns;
            }
        }
        Ok(())
    }

    /// Creates a record with this body. Fields that only some kinds use are empty.
    pub fn record(&self, settings: &Settings, body: Body, outcome: Outcome) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            run_id: self.run_id.clone(),
            plan: settings.plan.clone(),
            time_unix_ns: unix_ns(),
            tonnage: settings.program.clone(),
            outcome,
            optional: false,
            out_of_time: false,
            body,
            effective: Vec::new(),
            environment: self.environment.clone(),
            placed: None,
            canary: None,
            bound: None,
            wire_proof: None,
            network_paths: Vec::new(),
            cpu_losses: Vec::new(),
            remarks: Vec::new(),
            published_rows: Vec::new(),
            repetition: settings.repetition,
            side: None,
            checksum: None,
        }
    }
}

/// Gathers descriptions of all hosts on rank 0. The first rank of each host sends one, and equal ones are sent once.
fn gather_environment(rank: &mut Rank, settings: &Settings) -> Result<Vec<HostGroup>> {
    let variables = settings.lists.variables();
    let read = || tonnage_machine::Environment::read(&variables, &settings.topology);
    let mut mine = is_first_of_host(rank).then(read);
    let own = mine.as_mut().map(OwnMemory::take);
    let all = rank.collect("describe the hosts", &Json(mine), DEADLINES.step)?;
    let memories = rank.collect("memory of the hosts", &own, DEADLINES.step)?;
    let clocks = collect_clocks(rank)?;
    let mut of_hosts = rank.hosts().ranks_by_host();
    let descriptions = all.iter().zip(memories.iter()).zip(clocks.iter());
    let mut hosts = Vec::new();
    for (from, ((Json(machine), own), clock)) in (0u32..).zip(descriptions) {
        let (Some(machine), Some(own)) = (machine, own) else {
            continue;
        };
        let Some((offset_ns, uncertainty_ns)) = clock else {
            continue;
        };
        let mut machine = machine.clone();
        own.put_back(&mut machine);
        let ranks = of_hosts.remove(&from).unwrap_or_default();
        let host = HostEntry {
            name: rank.rank_infos()[from as usize].host.to_string(),
            ranks: number_list::format(&ranks),
            clock_offset_ns: *offset_ns,
            clock_uncertainty_ns: *uncertainty_ns,
            memory_total_bytes: None,
            huge_pages_free: None,
        };
        hosts.push(DescribedHost {
            machine,
            ranks,
            host,
        });
    }
    Ok(HostGroup::group(hosts, &rank.identity().source))
}

fn is_first_of_host(rank: &Rank) -> bool {
    rank.hosts().host(rank.id()) == Some(rank.id())
}

/// Gathers offset and uncertainty of the hosts' clocks on rank 0. The first rank of each host sends them. Other ranks
/// send them if they have the same boot ID as rank 0, but a different clock.
fn collect_clocks(rank: &mut Rank) -> Result<Distinct<Option<(i64, u64)>>> {
    let clock = rank.clock_offset();
    let is_shifted = is_of_first_boot(rank, rank.id()) && clock != ClockOffset::default();
    let tells = is_first_of_host(rank) || is_shifted;
    let mine = tells.then_some((clock.offset_ns, clock.uncertainty_ns));
    rank.collect("the hosts' clocks", &mine, DEADLINES.step)
}

fn is_of_first_boot(rank: &Rank, other: u32) -> bool {
    let boot = |rank_id: u32| {
        rank.rank_infos()
            .get(rank_id as usize)
            .map(|info| &*info.boot_id)
    };
    boot(0).is_some_and(|first| !first.is_empty()) && boot(0) == boot(other)
}

/// Returns the remark about ranks that have the same boot ID as rank 0, but read a different clock.
fn shifted_clocks(rank: &Rank, all: &Distinct<Option<(i64, u64)>>) -> Option<String> {
    let each = (0u32..).zip(all.iter()).filter_map(|(id, clock)| {
        let (offset_ns, _) = (*clock).filter(|clock| *clock != (0, 0))?;
        is_of_first_boot(rank, id).then_some((id, offset_ns))
    });
    let each: Vec<(u32, i64)> = each.collect();
    let (first, offset_ns) = *each.first()?;
    let ranks: Vec<u32> = each.iter().map(|(id, _)| *id).collect();
    Some(format!(
        "ranks {} do not read rank 0's clock, though they run on the same boot (a time namespace, or a restored \
         snapshot). The clock of rank {first} is {} {}. Times are corrected by the measured offset",
        number_list::format(&ranks),
        duration(offset_ns.unsigned_abs() as f64),
        if offset_ns < 0 { "behind" } else { "ahead" },
    ))
}

/// Returns the nanoseconds since 1970, by this host's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

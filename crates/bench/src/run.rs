//! State that stays the same for all records of a run: its number, its hosts, and this host's CPUs.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::deadlines::DEADLINES;
use crate::host::RankHost;
use crate::settings::Settings;
use tonnage_ranks::{Rank, RankInfo};
use tonnage_record::environment::{Described, HostEntry};
use tonnage_record::{Body, HostGroup, Outcome, Record, SCHEMA_VERSION};
use tonnage_units::number_list;
use tonnage_units::{Error, Result};

/// One run, found out once, before anything is measured.
pub struct Run {
    /// Alike in all records that one start of tonnage writes.
    pub run_id: String,
    /// Every host with its ranks.
    pub environment: Vec<HostGroup>,
    /// This rank's host.
    pub host: RankHost,
}

impl Run {
    /// Asks all ranks about their hosts.
    ///
    /// # Errors
    /// When a rank does not answer, or unreadably.
    pub fn begin(rank: &mut Rank, settings: &Settings) -> Result<Self> {
        rank.phase("describing the hosts");
        let environment = gather_environment(rank, settings)?;
        let run_id = format!("{:016x}", getrandom::u64().unwrap_or_else(|_| unix_ns()));
        if rank.id() == 0 {
            log::info!("run {run_id} of plan {}", settings.plan);
        }
        Ok(Self {
            run_id,
            environment,
            host: RankHost::look(rank)?,
        })
    }

    /// Writes into a record how far the hosts' clocks are off now: they drift, and the estimates are renewed while
    /// ranks run. Ranks of one boot share one clock, and ask nobody.
    ///
    /// # Errors
    /// When a rank does not answer.
    pub fn renew_clocks(rank: &mut Rank, record: &mut Record) -> Result<()> {
        let boot = rank.infos().first().map(|info| info.boot_id.clone());
        let boot = boot.filter(|boot| !boot.is_empty());
        let is_of_it = |info: &RankInfo| Some(&info.boot_id) == boot.as_ref();
        if rank.infos().iter().all(is_of_it) {
            return Ok(());
        }
        let me = rank.identity().rank;
        let first_of_host = rank.hosts().host(me) == Some(me);
        let clock = rank.clock_offset();
        let mine = first_of_host.then_some((clock.offset_ns, clock.uncertainty_ns));
        let all = rank.gather("the hosts' clocks", &mine, DEADLINES.step)?;
        let hosts = record.environment.iter_mut();
        for host in hosts.flat_map(|group| &mut group.hosts) {
            let ranks = number_list::parse(&host.ranks)?;
            let first = ranks.first().and_then(|&first| all.get(first as usize));
            let told = first.copied().flatten();
            if let Some((offset_ns, uncertainty_ns)) = told {
                host.clock_offset_ns = offset_ns;
                host.clock_uncertainty_ns = uncertainty_ns;
            }
        }
        Ok(())
    }

    /// A record around a body, with nothing yet of what only some kinds have.
    pub fn record(&self, settings: &Settings, body: Body, outcome: Outcome) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            run_id: self.run_id.clone(),
            plan: settings.plan.clone(),
            time_unix_ns: unix_ns(),
            tonnage: settings.program.clone(),
            outcome,
            optional: false,
            body,
            effective: Vec::new(),
            environment: self.environment.clone(),
            placed: None,
            canary: None,
            limit: None,
            wire_proof: None,
            remarks: Vec::new(),
            published_rows: Vec::new(),
            repetition: settings.repetition,
            side: None,
            checksum: None,
        }
    }
}

/// Descriptions of all hosts, told by the first rank of each.
fn gather_environment(rank: &mut Rank, settings: &Settings) -> Result<Vec<HostGroup>> {
    let offset = rank.clock_offset();
    let me = rank.identity().rank;
    let mine = if rank.hosts().host(me) == Some(me) {
        json!({
            "machine": tonnage_machine::Environment::read(&settings.lists.variables()),
            "offset_ns": offset.offset_ns,
            "uncertainty_ns": offset.uncertainty_ns,
        })
        .to_string()
        .into_bytes()
    } else {
        Vec::new()
    };
    let all = rank.all_gather("describe the hosts", mine, DEADLINES.step)?;
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
        let ranks = rank.hosts().ranks_of_host(from);
        let host = HostEntry {
            name: rank.infos()[from as usize].host.clone(),
            ranks: number_list::format(&ranks),
            clock_offset_ns: value["offset_ns"].as_i64().unwrap_or(0),
            clock_uncertainty_ns: value["uncertainty_ns"].as_u64().unwrap_or(0),
            memory_total_bytes: None,
            huge_pages_free: None,
        };
        hosts.push(Described {
            machine: serde_json::from_value(value["machine"].clone()).map_err(unreadable)?,
            ranks,
            host,
        });
    }
    Ok(HostGroup::group(hosts, &rank.identity().source))
}

/// Nanoseconds since 1970 by this host's clock.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

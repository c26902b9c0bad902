//! Draws the page of `tonnage hosts`: facts that each host reported about itself.

use std::net::IpAddr;
use std::time::Duration;

use tonnage_machine::HostFacts;
use tonnage_units::quantity::human::{link_speed, size};

/// Clock differences below this do not matter when comparing logs.
const CLOCK_FINE: Duration = Duration::from_millis(100);

/// Maximum number of devices per line.
const DEVICES_MAX: usize = 8;

/// A host on the page.
#[derive(Debug, Clone, PartialEq)]
pub struct HostPage {
    /// Name used to reach the host.
    pub name: String,
    /// Whether the host can be used, with facts about it.
    pub state: HostState,
}

/// Whether a host can be used.
#[derive(Debug, Clone, PartialEq)]
pub enum HostState {
    /// The host cannot be used. The message starts with the host's name and ends with the next step to try.
    Lost(String),
    /// The program responds on the host.
    There {
        /// Version, revision and path of the program.
        program: String,
        /// Name that the host uses for itself.
        name: String,
        /// How far the host's clock is ahead of this host's clock, and the uncertainty; both in nanoseconds.
        clock: Option<(i64, u64)>,
        /// Facts about the host.
        facts: Box<HostFacts>,
    },
}

/// Draws the page. `meeting` is the address where ranks would meet. `twins` are pairs of names for the same machine.
pub fn text(hosts: &[HostPage], meeting: Option<IpAddr>, twins: &[(String, String)]) -> String {
    let mut page = String::new();
    for host in hosts {
        match &host.state {
            HostState::Lost(why) => {
                let opening = format!("{}: ", host.name);
                let why = why.strip_prefix(&opening).unwrap_or(why);
                page += &format!("{}\n  not reachable  {why}\n", host.name);
            }
            HostState::There {
                program,
                name,
                clock,
                facts,
            } => {
                page += &format!(
                    "{}\n  reachable      yes, as {name}\n  program        {program}\n",
                    host.name
                );
                page += &lines(facts);
                page += &format!("  clock          {}\n", clock_text(*clock));
            }
        }
    }
    if let Some(address) = meeting {
        let first = hosts
            .iter()
            .find(|host| matches!(host.state, HostState::There { .. }));
        let first = first.map_or("", |host| &host.name);
        page += &format!("\nRanks would meet at {address} of {first}.\n");
    }
    for (one, other) in twins {
        page += &format!(
            "\n{one} and {other} are one machine: name it once, with the ranks of both.\n"
        );
    }
    page
}

fn lines(facts: &HostFacts) -> String {
    let system = match &facts.c_library {
        Some(library) => format!("{}, {library}", facts.architecture),
        None => facts.architecture.clone(),
    };
    let locked = facts
        .lockable_bytes
        .map_or("without limit".to_owned(), size);
    let limit =
        |limit: Option<u64>| limit.map_or("without limit".to_owned(), |limit| limit.to_string());
    let files = match facts.open_files {
        (soft, hard) if soft == hard => limit(soft),
        (soft, hard) => format!("{}, can be raised to {}", limit(soft), limit(hard)),
    };
    let pools: Vec<String> = facts
        .huge_pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            format!(
                "{} of {} of {}",
                pool.free,
                pool.total,
                size(pool.page_bytes)
            )
        })
        .collect();
    let pools = match pools.is_empty() {
        true => "none".to_owned(),
        false => format!("free {}", pools.join(", ")),
    };
    let networks = facts.networks.iter().map(|(name, bits)| match bits {
        Some(bits) => format!("{name} {}", link_speed(*bits)),
        None => name.clone(),
    });
    let devices: Vec<String> = networks
        .chain(facts.rdma.iter().cloned())
        .chain(facts.gpus.iter().cloned())
        .collect();
    let mut shown: Vec<&str> = devices
        .iter()
        .take(DEVICES_MAX)
        .map(String::as_str)
        .collect();
    let more = devices.len().saturating_sub(DEVICES_MAX);
    let more = format!("{more} more");
    if devices.len() > DEVICES_MAX {
        shown.push(&more);
    }
    let devices = match shown.is_empty() {
        true => "none".to_owned(),
        false => shown.join(", "),
    };
    format!(
        "  system         {system}\n  locked memory  {locked}\n  open files     {files}\n  huge pages     {pools}\n  devices        \
         {devices}\n"
    )
}

fn clock_text(clock: Option<(i64, u64)>) -> String {
    let Some((before_ns, off_ns)) = clock else {
        return "unknown".to_owned();
    };
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let apart = before_ns.unsigned_abs();
    if apart <= off_ns {
        return format!("as here, within {}", ms(off_ns));
    }
    let direction = if before_ns > 0 { "before" } else { "behind" };
    let advice = match apart.saturating_sub(off_ns) > CLOCK_FINE.as_nanos() as u64 {
        true => "; set it by NTP",
        false => "",
    };
    format!(
        "{} {direction} this host's, give or take {}{advice}",
        ms(apart),
        ms(off_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_machine::HugePool;

    #[test]
    fn the_page_has_every_fact_and_every_fault() {
        let facts = HostFacts {
            architecture: "x86_64".into(),
            c_library: Some("glibc 2.36".into()),
            lockable_bytes: None,
            open_files: (Some(1024), Some(1 << 20)),
            huge_pools: vec![HugePool {
                page_bytes: 2 << 20,
                total: 512,
                free: 500,
            }],
            networks: vec![("eth0".into(), Some(10_000_000_000)), ("br0".into(), None)],
            rdma: vec!["mlx5_0".into()],
            gpus: Vec::new(),
        };
        let there = |name: &str, clock| HostPage {
            name: name.into(),
            state: HostState::There {
                program: "tonnage 0.1.0 (abc), /opt/tonnage".into(),
                name: name.into(),
                clock,
                facts: Box::new(facts.clone()),
            },
        };
        let lost = HostPage {
            name: "h2".into(),
            state: HostState::Lost("h2: ssh was refused: ssh-copy-id h2".into()),
        };
        let hosts = [
            there("h0", Some((20_000, 400_000))),
            there("h1", Some((-3_000_000_000, 400_000))),
            lost,
        ];
        let twins = [("h0".to_owned(), "h1".to_owned())];
        insta::assert_snapshot!(text(&hosts, "10.77.0.1".parse().ok(), &twins));
    }
}

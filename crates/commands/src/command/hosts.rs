//! `tonnage hosts`: reaches hosts as `--hosts` does, and prints facts about each host.

use std::process::ExitCode;

use tonnage_machine::HostFacts;
use tonnage_ranks::spawn::remote::list::HostPlacement;
use tonnage_report::hosts::{HostPage, HostState};
use tonnage_units::{Error, Result};

use super::remote::gather;
use super::{env, print};
use crate::args::hosts::{HostsArgs, listed};

/// `tonnage hosts`.
pub fn hosts(args: &HostsArgs) -> Result<ExitCode> {
    let all = listed(&args.hosts, args.hostfile.as_ref())?.unwrap_or_default();
    let placement = HostPlacement::new(&all, None)?;
    for host in &placement.repeated {
        log::warn!("{host} is listed more than once");
    }
    let mut party = gather(&placement.hosts, &args.ssh)?;
    let there: Vec<usize> = party.hellos().map(|(host, _)| host).collect();
    let meeting = if there.is_empty() {
        Ok(None)
    } else {
        party
            .find_meeting_address(&env, args.control_interface.as_deref())
            .map(|address| Some(address.ip()))
    };
    let clocks = party.measure_clocks(&there);
    let described = party.describe_hosts(&there);
    let mut pages: Vec<HostPage> = Vec::new();
    for (host, listed) in placement.hosts.iter().enumerate() {
        let state = match party.lost(host) {
            Some(why) => HostState::Lost(why.to_owned()),
            None => HostState::Lost("no answer".to_owned()),
        };
        pages.push(HostPage {
            name: listed.name.clone(),
            state,
        });
    }
    for (place, text) in described.into_iter().enumerate() {
        let host = there[place];
        let found = party.hellos().find(|(known, _)| *known == host);
        pages[host].state = match (text.and_then(|text| HostFacts::from_json(&text)), found) {
            (Ok(facts), Some((_, hello))) => HostState::There {
                program: format!(
                    "tonnage {} ({}), {}",
                    hello.build.version, hello.build.revision, hello.program
                ),
                name: hello.name.clone(),
                clock: clocks.get(place).copied().flatten(),
                facts: Box::new(facts),
            },
            (Err(error), _) => HostState::Lost(error.to_string()),
            (Ok(_), None) => HostState::Lost("it was lost".to_owned()),
        };
    }
    let twins = party.same_hosts();
    let named =
        |(one, other): &(usize, usize)| (pages[*one].name.clone(), pages[*other].name.clone());
    let twins: Vec<_> = twins.iter().map(named).collect();
    let lost = pages
        .iter()
        .filter(|page| matches!(page.state, HostState::Lost(_)))
        .count();
    print(&tonnage_report::hosts::text(
        &pages,
        meeting.as_ref().ok().copied().flatten(),
        &twins,
    ))?;
    match meeting {
        // The page has all other results, but not this error.
        Err(error) => Err(error),
        Ok(_) if lost == 0 && twins.is_empty() => Ok(ExitCode::SUCCESS),
        Ok(_) if lost == 0 => Err(Error::Failed(
            "two names are of one host: leave one of them out".to_owned(),
        )),
        Ok(_) => Err(Error::Failed(format!(
            "{lost} of {} hosts cannot be used: leave them out, or see above what each lacks",
            pages.len()
        ))),
    }
}

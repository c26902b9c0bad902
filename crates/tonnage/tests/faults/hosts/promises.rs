//! Promises for runs on several hosts, which hold in addition to those for one host.

use std::time::Duration;

use super::{Case, Fault, TIMEOUT_SECONDS};
use crate::promises::{LATE, Seen, is_done, traces};

impl Fault {
    /// Returns the time until other ranks can see the fault. A killed process closes its connections at once, but a
    /// silent one is noticed only by the heartbeat timeout.
    fn seen_after(self) -> Duration {
        match self {
            Self::Kill => Duration::ZERO,
            Self::DataCut | Self::HostCut | Self::Stop => Duration::from_secs(TIMEOUT_SECONDS),
        }
    }
}

/// Returns the broken promises. `seen` has the traces of all ranks together, and `ranks` has each rank's exit code and
/// output. `soon` is the time limit from when the fault becomes visible until all ranks have ended.
pub(super) fn broken(
    case: &Case,
    seen: &Seen,
    ranks: &[(i32, String)],
    soon: Duration,
) -> Vec<String> {
    // Runs are long enough to reach their fault. On busy CPUs, however, a heartbeat timeout may have ended the run
    // earlier.
    if seen.struck_pid.is_none() {
        return vec![format!("{LATE}longer for its fault than to end: {ranks:?}")];
    }
    let killed = case.fault == Fault::Kill;
    // A killed rank leaves its file, because no other process on its host could remove it. The next run does.
    let mut broken = traces(seen, |names| {
        killed && names.iter().all(|name| name.starts_with('t'))
    });
    if seen.took > case.fault.seen_after() + soon {
        broken.push(format!("{LATE}{:?} to end", seen.took));
    }
    let records = seen.records.as_deref().unwrap_or_default();
    let is_good = |(code, said): &(i32, String)| *code == 0 && said.is_empty();
    // The run may have ended before the fault had any effect.
    if is_done(records) && ranks.iter().all(is_good) {
        return broken;
    }
    broken.extend(wrong_codes(case, ranks));
    broken.extend(wrong_causes(case, ranks));
    broken
}

fn wrong_codes(case: &Case, ranks: &[(i32, String)]) -> Vec<String> {
    let of_hit = matches!(case.fault, Fault::Kill | Fault::Stop);
    let is_wrong = |(rank, (code, _)): &(usize, &(i32, String))| match of_hit {
        true if *rank == case.host as usize => *code == 0,
        _ => *code != 1,
    };
    let wrong = ranks.iter().enumerate().filter(is_wrong);
    wrong
        .map(|(rank, (code, _))| format!("rank {rank} ended with {code}"))
        .collect()
}

/// Requires exactly one error line about the fault. It must name the victim, or both ends of a cut data link.
fn wrong_causes(case: &Case, ranks: &[(i32, String)]) -> Vec<String> {
    let hit = case.host as usize;
    let errors = |rank: usize| -> Vec<&str> {
        let lines = ranks[rank].1.lines();
        lines.filter(|line| line.contains("error: ")).collect()
    };
    let names = |line: &str, rank: usize| line.contains(&format!("rank {rank} on h{rank}"));
    let others = || (0..ranks.len()).filter(|rank| *rank != hit);
    let names_other = |line: &str| others().any(|rank| names(line, rank));
    let of_others: Vec<_> = others().flat_map(errors).collect();
    let own = errors(hit);
    // If rank 0 is lost, every other rank reports it, because no rank is left to lead.
    let most = if hit == 0 { ranks.len() - 1 } else { 1 };
    let are_good = match case.fault {
        Fault::DataCut => {
            let mut all = of_others.iter().chain(&own);
            let names_pair = |line: &str| names(line, hit) && names_other(line);
            of_others.len() + own.len() == 1 && all.all(|line| names_pair(line))
        }
        _ => (1..=most).contains(&of_others.len()) && of_others.iter().all(|line| names(line, hit)),
    };
    let mut wrong = Vec::new();
    if !are_good {
        wrong.push(format!(
            "no rank, too many or a wrong one is named: {ranks:#?}"
        ));
    }
    // The stopped rank is resumed after the other ranks have reported it. It must not report anything itself.
    if case.fault == Fault::Stop && !own.is_empty() {
        wrong.push(format!("the rank that was stopped reports it too: {own:?}"));
    }
    // On a host that was cut off, the rank still runs, and it reports ranks from which it has heard nothing.
    if case.fault == Fault::HostCut && (own.len() != 1 || !names_other(own[0])) {
        wrong.push(format!("the host that was cut off names no rank: {own:?}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::{OPENING, PACINGS, Work};
    use super::*;
    use crate::promises::SOON;
    use crate::promises::tests::kept;

    fn case(fault: Fault, host: u32) -> Case {
        Case {
            work: Work::Transfer("write", "pair", PACINGS[0]),
            hosts: 3,
            fault,
            host,
            step: OPENING,
        }
    }

    fn seen(took: Duration) -> Seen {
        let stderr = String::new();
        Seen {
            took,
            stderr,
            ..kept()
        }
    }

    /// Parses exit codes of ranks, separated by commas. A code followed by names stands for one error about these
    /// ranks.
    fn ranks(all: &str) -> Vec<(i32, String)> {
        let rank = |text: &str| match text.trim().split_once(' ') {
            None => (text.trim().parse().unwrap(), String::new()),
            Some((code, named)) => (code.parse().unwrap(), format!("error: {named}: lost\n")),
        };
        all.split(',').map(rank).collect()
    }

    const PAIR: &str = "1 rank 0 on h0 and rank 1 on h1, 1, 1";

    #[test]
    fn each_broken_promise_to_hosts_is_found() {
        let second = Duration::from_secs(1);
        let (lost, twice) = (
            "1 rank 1 on h1, 137, 1",
            "1 rank 1 on h1, 137, 1 rank 1 on h1",
        );
        let by_others = "137, 1 rank 0 on h0, 1 rank 0 on h0";
        // These outputs keep the promises.
        for (fault, host, all) in [
            (Fault::DataCut, 1, PAIR),
            (Fault::Kill, 1, lost),
            (Fault::Kill, 0, by_others),
            (Fault::Stop, 1, "1 rank 1 on h1, 1, 1"),
            (Fault::HostCut, 1, "1 rank 1 on h1, 1 rank 0 on h0, 1"),
        ] {
            let found = broken(&case(fault, host), &seen(second), &ranks(all), SOON);
            assert_eq!(found, Vec::<String>::new(), "{fault:?} of {host}");
        }
        let both = PAIR.replacen(", 1,", ", 1 rank 0 on h0 and rank 1 on h1,", 1);
        for (expected, fault, host, all) in [
            ("is named", Fault::DataCut, 1, &*both),
            ("is named", Fault::DataCut, 1, "1 rank 1 on h1, 1, 1"),
            ("is named", Fault::DataCut, 2, PAIR),
            ("is named", Fault::Kill, 1, "1, 137, 1"),
            ("is named", Fault::Kill, 1, "1 rank 2 on h2, 137, 1"),
            ("is named", Fault::Kill, 1, twice),
            (
                "rank 2 ended with 0",
                Fault::Kill,
                1,
                "1 rank 1 on h1, 137, 0",
            ),
            (
                "rank 1 ended with 0",
                Fault::Stop,
                1,
                "1 rank 1 on h1, 0, 1",
            ),
            (
                "reports it too",
                Fault::Stop,
                0,
                "1 rank 0 on h0, 1 rank 0 on h0, 1",
            ),
            ("names no rank", Fault::HostCut, 1, "1 rank 1 on h1, 1, 1"),
        ] {
            let found = broken(&case(fault, host), &seen(second), &ranks(all), SOON);
            let is_found = found.len() == 1 && found[0].contains(expected);
            assert!(is_found, "{expected}, {fault:?}: {found:?}");
        }
    }

    #[test]
    fn times_and_traces_of_hosts_are_looked_at() {
        let late = SOON + Duration::from_millis(1);
        let killed = ranks("1 rank 1 on h1, 137, 1");
        let found = broken(&case(Fault::Kill, 1), &seen(late), &killed, SOON);
        assert!(found.len() == 1 && found[0].starts_with(LATE), "{found:?}");
        let cut = ranks(PAIR);
        let of_cut = |took| broken(&case(Fault::DataCut, 1), &seen(took), &cut, SOON).len();
        assert_eq!(
            [late, late + Duration::from_secs(TIMEOUT_SECONDS)].map(of_cut),
            [0, 1]
        );
        let mut seen = seen(SOON);
        seen.left_in_dir.push("t.1".to_owned());
        assert_eq!(
            broken(&case(Fault::Kill, 1), &seen, &killed, SOON),
            Vec::<String>::new()
        );
        assert_eq!(broken(&case(Fault::DataCut, 1), &seen, &cut, SOON).len(), 1);
        seen.left_in_dir.clear();
        seen.struck_pid = None;
        for all in [killed, ranks("0, 0, 0")] {
            let found = broken(&case(Fault::Kill, 1), &seen, &all, SOON);
            assert!(found.len() == 1 && found[0].starts_with(LATE), "{found:?}");
        }
    }
}

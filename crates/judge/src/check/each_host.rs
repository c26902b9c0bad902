//! Combines the verdicts of several hosts that were checked separately.

use serde::{Deserialize, Serialize};

use super::nodelist::fold_names;
use super::reason::truncate;
use super::{CHECK_FORMAT, CheckReport, CheckVerdict};

/// Verdict on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostVerdict {
    /// The host.
    pub host: String,
    /// Verdict of the host.
    pub verdict: CheckVerdict,
    /// One line, at most 80 bytes.
    pub reason: String,
    /// The host's own report; `None` if it produced none.
    pub report: Option<CheckReport>,
}

impl HostVerdict {
    /// Makes a verdict from a report.
    pub fn from_report(host: String, report: CheckReport) -> Self {
        Self {
            host,
            verdict: report.verdict,
            reason: report.reason.clone(),
            report: Some(report),
        }
    }

    /// Makes the verdict for a host without a report.
    pub fn error(host: String, why: &str) -> Self {
        Self {
            host,
            verdict: CheckVerdict::Error,
            reason: truncate(&format!("error: {why}")),
            report: None,
        }
    }

    /// Returns the reason without the verdict in front.
    pub fn why(&self) -> &str {
        let opening = format!("{}: ", self.verdict);
        self.reason.strip_prefix(&opening).unwrap_or(&self.reason)
    }
}

/// Results of checking several hosts separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EachHostReport {
    /// Version of this report format.
    pub format: u32,
    /// Version of the program.
    pub program: String,
    /// Path of the baseline.
    pub baseline: String,
    /// End of the check, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time budget, in seconds.
    pub budget_s: f64,
    /// Elapsed time, in seconds.
    pub took_s: f64,
    /// The most serious verdict of any host.
    pub verdict: CheckVerdict,
    /// One line, at most 80 bytes.
    pub reason: String,
    /// Hosts that failed.
    pub failed_hosts: Vec<String>,
    /// Verdicts, in host order.
    pub each: Vec<HostVerdict>,
}

/// Metadata of a check of several hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct EachHostFacts {
    /// Version of the program.
    pub program: String,
    /// Path of the baseline.
    pub baseline: String,
    /// End of the check, nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time budget, in seconds.
    pub budget_s: f64,
    /// Elapsed time, in seconds.
    pub took_s: f64,
}

impl EachHostReport {
    /// Builds the report from the hosts' verdicts.
    pub fn new(facts: EachHostFacts, each: Vec<HostVerdict>) -> Self {
        let verdict = CheckVerdict::combine(each.iter().map(|one| one.verdict));
        let failed = each.iter().filter(|one| one.verdict == CheckVerdict::Fail);
        let mut failed_hosts: Vec<String> = failed.map(|one| one.host.clone()).collect();
        failed_hosts.sort();
        failed_hosts.dedup();
        Self {
            format: CHECK_FORMAT,
            program: facts.program,
            baseline: facts.baseline,
            time_unix_ns: facts.time_unix_ns,
            budget_s: facts.budget_s,
            took_s: facts.took_s,
            verdict,
            reason: reason(verdict, &each),
            failed_hosts,
            each,
        }
    }

    /// Groups hosts by verdict and reason: worst verdict first, then the reason with the most hosts.
    pub fn grouped(&self) -> Vec<VerdictGroup<'_>> {
        let mut groups: Vec<(CheckVerdict, &str, Vec<&str>)> = Vec::new();
        for one in &self.each {
            let why = one.why();
            let known = groups.iter_mut();
            match { known }.find(|group| (group.0, group.1) == (one.verdict, why)) {
                Some(group) => group.2.push(&one.host),
                None => groups.push((one.verdict, why, vec![&one.host])),
            }
        }
        groups.sort_by_key(|(verdict, _, hosts)| {
            (
                std::cmp::Reverse(verdict.weight()),
                std::cmp::Reverse(hosts.len()),
            )
        });
        let groups = groups.into_iter();
        groups
            .map(|(verdict, why, hosts)| VerdictGroup {
                verdict,
                why,
                hosts: fold_names(hosts),
            })
            .collect()
    }
}

/// Hosts with the same verdict and reason.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictGroup<'a> {
    /// The verdict.
    pub verdict: CheckVerdict,
    /// Reason, without the verdict in front.
    pub why: &'a str,
    /// Folded host names.
    pub hosts: String,
}

fn reason(verdict: CheckVerdict, each: &[HostVerdict]) -> String {
    let own: Vec<&HostVerdict> = each.iter().filter(|one| one.verdict == verdict).collect();
    let hosts = fold_names(own.iter().map(|one| one.host.as_str()));
    match own.as_slice() {
        [] => truncate(&format!("{verdict}: no host was checked")),
        [one] => truncate(&format!("{verdict}: {hosts}: {}", one.why())),
        _ if verdict == CheckVerdict::Pass && own.len() == each.len() => truncate(&format!(
            "{verdict}: {} hosts within the baseline",
            own.len()
        )),
        [first, ..] => truncate(&format!(
            "{verdict}: {} of {} hosts: {hosts}: {}",
            own.len(),
            each.len(),
            first.why()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, verdict: CheckVerdict, why: &str) -> HostVerdict {
        HostVerdict {
            reason: format!("{verdict}: {why}"),
            verdict,
            ..HostVerdict::error(name.to_owned(), "")
        }
    }

    fn of(each: &[HostVerdict]) -> EachHostReport {
        let facts = EachHostFacts {
            program: "1".to_owned(),
            baseline: "f.toml".to_owned(),
            time_unix_ns: 1,
            budget_s: 20.0,
            took_s: 9.0,
        };
        EachHostReport::new(facts, each.to_vec())
    }

    #[test]
    fn the_worst_verdict_is_reported_with_its_hosts() {
        use CheckVerdict::{Error, Fail, Pass, Warn};
        let pass = |name: &str| host(name, Pass, "3 figures within the baseline");
        let all = of(&[pass("n1"), pass("n2")]);
        assert_eq!(all.reason, "pass: 2 hosts within the baseline");
        let slow = "shm write 1M 9.1 GB/s, fleet 13.4, least 12.1";
        let one = of(&[pass("n1"), host("n2", Fail, slow), pass("n3")]);
        assert_eq!(one.reason, format!("fail: n2: {slow}"));
        assert_eq!((one.verdict, one.failed_hosts.len()), (Fail, 1));
        let several = of(&[
            pass("n2"),
            host("n1", Fail, slow),
            host("n3", Fail, "eth1 is gone"),
            HostVerdict::error("n4".to_owned(), "no ssh"),
            host("n5", Warn, slow),
        ]);
        let reason = format!("fail: 2 of 5 hosts: n[1,3]: {slow}");
        assert_eq!(several.reason, truncate(&reason));
        assert_eq!(several.failed_hosts, ["n1", "n3"]);
        let errors = of(&[pass("n1"), HostVerdict::error("n2".to_owned(), "no ssh")]);
        assert_eq!(
            (errors.verdict, errors.reason.as_str()),
            (Error, "error: n2: no ssh")
        );
        assert!(errors.failed_hosts.is_empty());
        assert_eq!(of(&[]).verdict, CheckVerdict::Skip);
    }

    #[test]
    fn hosts_with_equal_verdicts_are_grouped_worst_first() {
        use CheckVerdict::{Fail, Pass};
        let all = of(&[
            host("n1", Pass, "1 figure"),
            host("n2", Fail, "slow"),
            host("n3", Pass, "1 figure"),
        ]);
        let rows = all.grouped();
        let rows: Vec<(&str, &str)> = rows.iter().map(|it| (it.hosts.as_str(), it.why)).collect();
        assert_eq!(rows, [("n2", "slow"), ("n[1,3]", "1 figure")]);
    }
}

//! Remarks on CPU time that ranks lost to a CPU quota or to other threads on their CPUs. All kinds of experiments print
//! them.

use std::collections::BTreeMap;

use tonnage_record::{CpuLoss, Record};
use tonnage_units::number_list;
use tonnage_units::quantity::human::whole_percent;

/// One cause of lost CPU time on one host, over all records of a table.
#[derive(Default)]
struct LossSummary {
    ranks: Vec<u32>,
    points: usize,
    /// Largest fraction of a rank's time.
    most: f64,
    /// Throttled and total periods of the rank and point with the most throttling.
    periods: (u64, u64),
}

impl LossSummary {
    fn add(&mut self, loss: &CpuLoss, part: f64, is_first_of_point: bool) {
        self.ranks.push(loss.rank);
        self.points += usize::from(is_first_of_point);
        self.most = self.most.max(part);
        if let Some(quota) = loss.quota {
            let periods = (quota.throttled_periods, quota.periods);
            self.periods = self.periods.max(periods);
        }
    }

    /// Formats text such as "ranks 0-1 on a" and "in 2 of 3 points".
    fn names(&self, host: &str, all: usize) -> (String, String) {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let plural = if ranks.len() == 1 { "" } else { "s" };
        let ranks = number_list::format(&ranks);
        let points = match all {
            1 => String::new(),
            _ => format!(" in {} of {all} points", self.points),
        };
        (format!("rank{plural} {ranks} on {host}"), points)
    }
}

/// Lines below the table of these records.
pub fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let mut points = 0;
    let mut quotas: BTreeMap<(&str, u64), LossSummary> = BTreeMap::new();
    let mut others: BTreeMap<&str, LossSummary> = BTreeMap::new();
    for record in records {
        points += 1;
        let (mut seen_quotas, mut seen_others) = (Vec::new(), Vec::new());
        for loss in &record.cpu_losses {
            let host = loss.host.as_str();
            if let Some((quota, part)) = loss.quota.zip(loss.lost_to_quota()) {
                let key = (host, quota.quota_millicpus);
                let is_first = !seen_quotas.contains(&key);
                seen_quotas.push(key);
                quotas.entry(key).or_default().add(loss, part, is_first);
            }
            if let Some(part) = loss.lost_to_others().filter(|_| loss.is_disturbed()) {
                let is_first = !seen_others.contains(&host);
                seen_others.push(host);
                others.entry(host).or_default().add(loss, part, is_first);
            }
        }
    }
    let quotas = quotas.into_iter().map(|((host, millicpus), lost)| {
        let (ranks, in_points) = lost.names(host, points);
        let (throttled, all) = lost.periods;
        format!(
            "CPU quota: the control group of {ranks} may use {} CPUs and was throttled{in_points}, in up to {throttled} \
             of {all} periods; the threads lost up to {} of their time to it",
            millicpus as f64 / 1000.0,
            whole_percent(lost.most)
        )
    });
    let others = others.into_iter().map(|(host, lost)| {
        let (ranks, in_points) = lost.names(host, points);
        format!(
            "busy CPUs: the threads of {ranks} waited up to {} of their time{in_points}, because their CPUs ran threads of \
             other programs or of the kernel",
            whole_percent(lost.most)
        )
    });
    quotas.chain(others).collect()
}

/// Cause of a record's largest CPU loss, then "at least" or "up to", then the loss as a fraction. `None` if no loss
/// deserves a remark.
pub fn cause(record: &Record) -> Option<(&'static str, &'static str, f64)> {
    let losses = record.cpu_losses.iter();
    let worst = losses.max_by(|one, other| one.fraction().total_cmp(&other.fraction()))?;
    let lost = record.worst_cpu_loss()?;
    let is_quota = worst.lost_to_quota().is_some_and(|part| part >= 0.01);
    let cause = match (is_quota, worst.is_disturbed()) {
        (true, true) => "a CPU quota and threads of other programs or of the kernel",
        (true, false) => "a CPU quota",
        _ => "threads of other programs or of the kernel",
    };
    // If the time lost to other threads is unknown, only the upper limit of the time lost to the quota remains.
    let bound = match worst.lost_to_others() {
        Some(_) => "at least",
        None => "up to",
    };
    Some((cause, bound, lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tonnage_record::cpu_loss::UsedQuota;

    fn lost(rank: u32, host: &str, wait_ns: u64, throttled_ns: Option<u64>) -> CpuLoss {
        CpuLoss {
            rank,
            host: host.into(),
            thread_ns: 1000,
            wait_ns: Some(wait_ns),
            shares_cpus: false,
            quota: throttled_ns.map(|throttled_ns| UsedQuota {
                quota_millicpus: 500,
                periods: 27,
                throttled_periods: 24,
                throttled_ns,
            }),
        }
    }

    fn with(losses: &[CpuLoss]) -> Record {
        Record {
            cpu_losses: losses.to_vec(),
            ..samples::streams()[0].clone()
        }
    }

    #[test]
    fn a_quota_alone_is_blamed() {
        let records = [with(&[lost(0, "a", 490, Some(500))]), with(&[])];
        let expected = "CPU quota: the control group of rank 0 on a may use 0.5 CPUs and was throttled in 1 of 2 points, in \
                        up to 24 of 27 periods; the threads lost up to 49 % of their time to it";
        assert_eq!(lines(records.iter()), [expected]);
        assert_eq!(cause(&records[0]), Some(("a CPU quota", "at least", 0.49)));
        assert_eq!(cause(&records[1]), None);
    }

    #[test]
    fn a_hog_at_the_target_is_remarked_on() {
        let records = [with(&[lost(1, "b", 490, None)])];
        let expected = "busy CPUs: the threads of rank 1 on b waited up to 49 % of their time, because their CPUs ran \
                        threads of other programs or of the kernel";
        assert_eq!(lines(records.iter()), [expected]);
        let others = "threads of other programs or of the kernel";
        assert_eq!(cause(&records[0]), Some((others, "at least", 0.49)));
    }

    #[test]
    fn both_causes_have_their_shares() {
        let records = [with(&[
            lost(0, "a", 700, Some(400)),
            lost(1, "a", 500, Some(400)),
        ])];
        let [quota, others] = &lines(records.iter())[..] else {
            panic!("{:?}", lines(records.iter()));
        };
        assert!(
            quota.contains("ranks 0-1 on a") && quota.contains("40 % of their time"),
            "{quota}"
        );
        assert!(
            others.contains("ranks 0-1 on a waited up to 30 %"),
            "{others}"
        );
        let both = "a CPU quota and threads of other programs or of the kernel";
        assert_eq!(cause(&records[0]), Some((both, "at least", 0.7)));
    }

    #[test]
    fn the_cause_is_of_the_rank_that_lost_the_most() {
        let losses = [lost(0, "a", 70, Some(70)), lost(1, "b", 490, None)];
        let others = "threads of other programs or of the kernel";
        assert_eq!(cause(&with(&losses)), Some((others, "at least", 0.49)));
        // Threads that share CPUs also wait for each other.
        let shared = CpuLoss {
            shares_cpus: true,
            ..lost(0, "a", 900, Some(400))
        };
        assert_eq!(cause(&with(&[shared])), Some(("a CPU quota", "up to", 0.4)));
    }

    /// Every kind of experiment must print these lines below its tables.
    #[test]
    fn every_kind_reports_a_loss() {
        let mut records = samples::all();
        records.extend(samples::files::all());
        records.extend(samples::connect::connections());
        records.extend(samples::stress::stresses());
        records.extend(samples::tune::searches());
        records.extend(samples::collective::collectives());
        for record in &mut records {
            record.cpu_losses = vec![lost(1, "b", 490, Some(500))];
        }
        for section in crate::sections(&records) {
            let is_told =
                |line: &String| line.starts_with("CPU quota: the control group of rank 1");
            assert!(section.footers.iter().any(is_told), "{section:?}");
        }
    }
}

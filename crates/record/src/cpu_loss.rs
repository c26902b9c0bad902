//! CPU time that ranks lost during their trials. Either a quota was used up, or their CPUs ran other threads.

use serde::{Deserialize, Serialize};

use crate::Record;

/// Maximum number of ranks in a record's list of CPU losses. The ranks that lost the most are kept.
pub const CPU_LOSSES_MAX: usize = 16;

/// A loss is recorded only if it exceeds this fraction. On any busy machine, threads wait for a CPU for up to about
/// this fraction of their time.
pub const LOSS_RECORDED: f64 = 0.05;

/// A loss of at least this fraction gets a remark.
pub const LOSS_REMARKED: f64 = 0.1;

/// CPU time that the threads of one rank did not get during its trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuLoss {
    /// The rank.
    pub rank: u32,
    /// Name of the rank's host.
    pub host: String,
    /// Time over which waits were counted in the trials, summed over the rank's threads.
    pub thread_ns: u64,
    /// Part of that time in which the threads were runnable but had no CPU, for any reason. Absent if the kernel does
    /// not count waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<u64>,
    /// True if threads of this run share CPUs, and so also wait for each other.
    pub shares_cpus: bool,
    /// The quota of the rank's control group, if it was used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<UsedQuota>,
}

/// A CPU quota that was used up during the trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsedQuota {
    /// CPU time that the group gets per second, in thousandths of a CPU.
    pub quota_millicpus: u64,
    /// Quota periods in which the group ran.
    pub periods: u64,
    /// Periods in which the group was throttled.
    pub throttled_periods: u64,
    /// Time for which the group was throttled, summed over CPUs.
    pub throttled_ns: u64,
}

impl CpuLoss {
    /// Returns an upper limit for the fraction of the threads' time that a quota cost; `None` if no quota was used up.
    pub fn lost_to_quota(&self) -> Option<f64> {
        let quota = self.quota?;
        let most_ns = self.wait_ns.unwrap_or(self.thread_ns).min(self.thread_ns);
        Some(quota.throttled_ns.min(most_ns) as f64 / self.thread_ns.max(1) as f64)
    }

    /// Returns a lower limit for the fraction of the threads' time in which their CPUs ran other programs or the
    /// kernel. `None` if the kernel does not count waits, or if threads of this run share CPUs.
    pub fn lost_to_others(&self) -> Option<f64> {
        let wait_ns = self.wait_ns.filter(|_| !self.shares_cpus)?;
        let throttled_ns = self.quota.map_or(0, |quota| quota.throttled_ns);
        let others_ns = wait_ns.min(self.thread_ns).saturating_sub(throttled_ns);
        Some(others_ns as f64 / self.thread_ns.max(1) as f64)
    }

    /// Returns the fraction lost to a quota and to other threads together.
    pub fn fraction(&self) -> f64 {
        let both = self.lost_to_quota().unwrap_or(0.0) + self.lost_to_others().unwrap_or(0.0);
        both.min(1.0)
    }

    /// Returns whether threads of other programs or the kernel took enough CPU time for a remark.
    pub fn is_disturbed(&self) -> bool {
        self.lost_to_others()
            .is_some_and(|part| part >= LOSS_REMARKED)
    }
}

impl Record {
    /// Returns the largest fraction that any rank lost, if it is large enough for a remark.
    pub fn worst_cpu_loss(&self) -> Option<f64> {
        let parts = self.cpu_losses.iter().map(CpuLoss::fraction);
        parts
            .reduce(f64::max)
            .filter(|worst| *worst >= LOSS_REMARKED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(wait_ns: Option<u64>, throttled_ns: Option<u64>) -> CpuLoss {
        CpuLoss {
            rank: 1,
            host: "b".into(),
            thread_ns: 1000,
            wait_ns,
            shares_cpus: false,
            quota: throttled_ns.map(|throttled_ns| UsedQuota {
                quota_millicpus: 500,
                periods: 27,
                throttled_periods: 24,
                throttled_ns,
            }),
        }
    }

    /// Threads also wait while a quota throttles them. This part of the wait must not be blamed on other programs.
    #[test]
    fn a_loss_is_split_between_quota_and_others() {
        let parts = |loss: &CpuLoss| (loss.lost_to_quota(), loss.lost_to_others());
        assert_eq!(
            parts(&loss(Some(490), Some(500))),
            (Some(0.49), Some(0.0)),
            "the quota explains the whole wait"
        );
        assert_eq!(parts(&loss(Some(490), None)), (None, Some(0.49)));
        assert_eq!(
            parts(&loss(Some(700), Some(400))),
            (Some(0.4), Some(0.3)),
            "the quota and other threads each caused a part of the wait"
        );
        assert_eq!(parts(&loss(None, Some(400))), (Some(0.4), None));
        let crowded = CpuLoss {
            shares_cpus: true,
            ..loss(Some(700), Some(400))
        };
        assert_eq!(parts(&crowded), (Some(0.4), None));
        assert!(loss(Some(700), Some(400)).is_disturbed());
        assert!(!loss(Some(490), Some(450)).is_disturbed());
    }
}

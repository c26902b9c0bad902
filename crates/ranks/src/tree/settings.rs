//! Settings of the control thread.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::RankInfo;
use crate::start_lead::StartLead;

/// Settings that the control thread gets at its start.
pub(crate) struct ControlSettings {
    pub(crate) me: RankInfo,
    pub(crate) size: u32,
    pub(crate) fanout: u32,
    pub(crate) message_bytes_max: usize,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) network_timeout: Duration,
    /// Time between two questions for the parent's clock, however patient ranks are.
    pub(crate) clock_interval: Duration,
    /// Time in which rank 0 collects answers about a missing rank.
    pub(crate) collect_time: Duration,
    pub(crate) grace: Duration,
    pub(crate) end_process: bool,
    /// True when a supervisor reports the loss of rank 0.
    pub(crate) supervised: bool,
    /// Lead of aligned starts, once all clocks are known.
    pub(crate) start_lead: Arc<OnceLock<StartLead>>,
}

impl ControlSettings {
    /// Longest silence of a rank that is not taken for lost.
    pub(crate) fn silence_max(&self, is_remote: bool) -> Duration {
        match is_remote {
            true => self.network_timeout,
            false => self.heartbeat_timeout,
        }
    }
}

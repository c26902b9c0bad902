//! Conditions that a rank has to fulfil to be part of a run.

use crate::RankInfo;
use crate::channel::message::Hello;
use tonnage_units::Error;

/// Rank 0's side of every comparison.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) me: RankInfo,
    pub(crate) size: u32,
    /// The giver of the number of ranks.
    pub(crate) source: String,
    pub(crate) plan_hash: String,
}

impl Conditions {
    /// Returns the reason why this rank cannot be part of the run, if there is one; `twin` is one of the same number
    /// that is.
    pub(crate) fn objection(&self, twin: Option<&RankInfo>, hello: &Hello) -> Option<Error> {
        let me = &self.me;
        let info = &hello.info;
        let object = |message: String| {
            Some(Error::Rank {
                rank: info.rank,
                host: info.host.to_string(),
                message,
            })
        };
        if hello.version != env!("CARGO_PKG_VERSION") {
            return object(format!(
                "it is tonnage {}, rank 0 on {} is tonnage {}: install the same version on all hosts",
                hello.version,
                me.host,
                env!("CARGO_PKG_VERSION")
            ));
        }
        if hello.size != self.size || info.rank >= self.size {
            return object(format!(
                "it was told of {} ranks, rank 0 on {} of {} ({}): give all the same number",
                hello.size, me.host, self.size, self.source
            ));
        }
        if let Some(twin) = twin.or((info.rank == 0).then_some(me)) {
            return object(format!(
                "process {} says that it is rank {}, but so does process {} on {}: give every process its own rank",
                info.pid, info.rank, twin.pid, twin.host
            ));
        }
        if hello.plan_hash != self.plan_hash {
            return object(format!(
                "it was started with another command line or plan than rank 0 on {}: start all ranks alike",
                me.host
            ));
        }
        None
    }
}

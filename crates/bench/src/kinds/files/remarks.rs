//! Remarks that a reader of the figures has to know, beside them.

use super::experiment::{Experiment, State};
use super::space::about_space;
use super::storage::LocalStorage;
use crate::kinds::files::names::source_of;
use tonnage_plan::files::{Phase, ReadFrom};

impl Experiment<'_> {
    /// Says what can be said before the first phase.
    pub(super) fn remark(&self, state: &mut State) {
        let remarks = [
            self.about_sources(),
            self.about_servers(&state.places),
            self.about_space(&state.places),
            self.about_votes(),
        ];
        state.remarks.extend(remarks.into_iter().flatten());
    }

    fn about_sources(&self) -> Option<String> {
        let point = self.point;
        if point.read_from == ReadFrom::Own || !point.phases.contains(&Phase::Read) {
            return None;
        }
        let hosts = self.rank.hosts();
        if hosts.is_one_machine() {
            return Some(
                "reads were of what another rank wrote, which proves that the file system hands data from rank to rank; \
                 all ranks are on one host and share its page cache, so it proves nothing about reading what another host \
                 wrote, nor about the disk"
                    .into(),
            );
        }
        let from_other_hosts =
            (0..point.ranks).filter(|&rank| !hosts.share_machine(source_of(point, rank), rank));
        Some(format!(
            "{} of {} ranks read what a rank on another host wrote",
            from_other_hosts.count(),
            point.ranks
        ))
    }

    fn about_servers(&self, places: &[LocalStorage]) -> Option<String> {
        let reads = self.point.phases.iter().any(|phase| phase.reads());
        (reads && places.iter().any(|place| place.network)).then(|| {
            "the page caches of the ranks' hosts were looked at; what the file system's servers hold in memory cannot be \
             seen from here"
                .into()
        })
    }

    fn about_space(&self, places: &[LocalStorage]) -> Option<String> {
        let machines = self.rank.hosts().machines();
        let text = self
            .writes()
            .then(|| about_space(self.point, machines, places))??;
        if self.rank.id() == 0 {
            log::warn!("{text}");
        }
        Some(text)
    }

    fn about_votes(&self) -> Option<String> {
        (self.point.collective && self.point.stonewall.is_some()).then(|| {
            "before each collective call all ranks agreed whether to go on, because of the stonewall: that took time which \
             is in the bandwidth and not in the latencies"
                .into()
        })
    }
}

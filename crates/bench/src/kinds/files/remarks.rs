//! Remarks that a reader of the figures has to know, beside them.

use std::collections::BTreeMap;

use super::experiment::{Experiment, State};
use super::storage::LocalStorage;
use crate::kinds::files::names::{bytes_of_file, source_of};
use tonnage_plan::files::{FileLayout, Phase, ReadFrom};
use tonnage_units::Bytes;

impl Experiment<'_> {
    /// Says what can be said before the first phase.
    pub(super) fn remark(&self, state: &mut State) {
        let remarks = [
            self.about_sources(),
            self.about_servers(&state.places),
            self.about_room(&state.places),
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

    /// Remarks when the whole files do not fit; a stonewall may end the writing before.
    fn about_room(&self, places: &[LocalStorage]) -> Option<String> {
        let point = self.point;
        if !self.writes() {
            return None;
        }
        let trials = if point.file_per_trial {
            u64::from(point.trials)
        } else {
            1
        };
        // Each storage once, with how many ranks use it.
        let mut storages: BTreeMap<StorageKey<'_>, (u64, &LocalStorage)> = BTreeMap::new();
        for (machine, place) in self.rank.hosts().machines().iter().zip(places) {
            let key = storage_key(*machine, place);
            storages.entry(key).or_insert((0, place)).0 += 1;
        }
        let needs = storages.into_values().map(|(users, place)| {
            let files = match point.layout {
                FileLayout::Shared => 1,
                FileLayout::PerProcess => users,
            };
            (bytes_of_file(point).saturating_mul(files * trials), place)
        });
        let mut needs = needs.filter(|(needed, place)| *needed > place.free_bytes);
        let (needed, place) = needs.next()?;
        let text = format!(
            "the files in {} take {} when complete, and {} are free",
            place.directory.display(),
            Bytes(needed),
            Bytes(place.free_bytes)
        );
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

/// Key that tells one storage from another: that of a network file system is the same on all hosts, a disk belongs to a
/// machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StorageKey<'a> {
    Network(&'a str),
    Disk(u32, (u32, u32)),
}

fn storage_key(machine: u32, place: &LocalStorage) -> StorageKey<'_> {
    if place.network {
        StorageKey::Network(&place.source)
    } else {
        StorageKey::Disk(machine, place.device)
    }
}

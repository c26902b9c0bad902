//! What others measured with the same options beside what was measured here. Their machines had other numbers of ranks,
//! so the figures of one rank stand beside each other too.

use tonnage_core::plan::file_point::Published;
use tonnage_core::record::files::{FileRecord, PhaseRecord};

use super::super::text::{number, rate};
use super::words::{MIB, percent};

/// One line for each published figure of a phase that was measured.
pub fn lines(record: &FileRecord) -> Vec<String> {
    let phases = record.phases.iter();
    let lines = phases.flat_map(|phase| {
        let published = record.file.published.iter();
        published
            .filter(|one| one.phase == phase.phase)
            .map(move |one| line(record, phase, one))
    });
    lines.collect()
}

/// One published figure and ours.
struct Pair {
    theirs: f64,
    ours: f64,
    show: fn(f64) -> String,
}

impl Pair {
    fn theirs(&self, ranks: Option<u32>) -> String {
        let all = (self.show)(self.theirs);
        match ranks.filter(|ranks| *ranks > 0) {
            None => all,
            Some(ranks) => format!(
                "{all} ({} a rank)",
                (self.show)(self.theirs / f64::from(ranks))
            ),
        }
    }

    /// Ours, and what part of theirs that is: for each rank where their number is known, else altogether.
    fn ours(&self, ours: u32, theirs: Option<u32>) -> String {
        let own_ranks = f64::from(ours.max(1));
        let each = self.ours / own_ranks;
        let part = match theirs.filter(|ranks| *ranks > 0) {
            _ if self.theirs <= 0.0 => String::new(),
            None => format!(", {} of it", percent(self.ours / self.theirs)),
            Some(ranks) => {
                let part = each / (self.theirs / f64::from(ranks));
                format!(", {} of it a rank", percent(part))
            }
        };
        format!(
            "{} ({} a rank){part}",
            (self.show)(self.ours),
            (self.show)(each)
        )
    }
}

fn line(record: &FileRecord, phase: &PhaseRecord, published: &Published) -> String {
    let summary = &phase.summary;
    let bandwidth = published.bandwidth_mib_per_s.map(|theirs| Pair {
        theirs,
        ours: summary.bandwidth_bytes_per_s.mean / MIB,
        show: |value| format!("{} MiB/s", number(value)),
    });
    let operations = published.operations_per_s.map(|theirs| Pair {
        theirs,
        ours: summary.operations_per_s.mean,
        show: |value| format!("{} IOPS", rate(value)),
    });
    let pairs: Vec<Pair> = bandwidth.into_iter().chain(operations).collect();
    let join = |texts: Vec<String>| texts.join(" and ");
    let theirs = join(
        pairs
            .iter()
            .map(|pair| pair.theirs(published.ranks))
            .collect(),
    );
    let ranks = record.file.ranks;
    let ours = join(
        pairs
            .iter()
            .map(|pair| pair.ours(ranks, published.ranks))
            .collect(),
    );
    let on = |ranks: u32| match ranks {
        1 => "1 rank".to_owned(),
        ranks => format!("{ranks} ranks"),
    };
    let on_theirs = published.ranks.map(|ranks| format!(" on {}", on(ranks)));
    let earlier = published
        .percent_of_earlier
        .map(|percent| format!(", {} % of what was published before it", number(percent)));
    format!(
        "published, {}: {theirs}{}{} [{}]; here {ours} on {}",
        phase.phase.name(),
        on_theirs.unwrap_or_default(),
        earlier.unwrap_or_default(),
        published.what,
        on(ranks)
    )
}

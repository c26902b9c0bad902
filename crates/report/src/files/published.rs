//! Compares published figures with figures measured here with the same options. Figures per rank are compared too,
//! because the numbers of ranks may differ.

use tonnage_plan::files::Published;
use tonnage_record::FileRecord;
use tonnage_record::files::PhaseRecord;
use tonnage_units::quantity::human::{number, prefixed, whole_percent};

use super::words::MIB;

/// One line per published figure of a measured phase.
pub fn lines(record: FileRecord<'_>) -> Vec<String> {
    let phases = record.body.phases.iter();
    let lines = phases.flat_map(|phase| {
        let published = record.body.published.iter();
        published
            .filter(|one| one.phase == phase.phase)
            .map(move |one| line(record, phase, one))
    });
    lines.collect()
}

/// A published figure and the measured one.
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

    fn ours(&self, ranks: u32) -> String {
        let each = (self.show)(self.ours / f64::from(ranks.max(1)));
        format!("{} ({each} a rank)", (self.show)(self.ours))
    }

    /// The measured figure as a percentage of the published one. Compares figures per rank if the published number of
    /// ranks is known.
    fn part(&self, ours: u32, theirs: Option<u32>) -> Option<String> {
        if self.theirs <= 0.0 {
            return None;
        }
        let part = self.ours / self.theirs;
        Some(match theirs.filter(|ranks| *ranks > 0) {
            None => format!("{} of it", whole_percent(part)),
            Some(ranks) => {
                let each = part * f64::from(ranks) / f64::from(ours.max(1));
                format!("{} of it a rank", whole_percent(each))
            }
        })
    }
}

fn line(record: FileRecord<'_>, phase: &PhaseRecord, published: &Published) -> String {
    let summary = &phase.summary;
    let bandwidth = published.bandwidth_mib_per_s.map(|theirs| Pair {
        theirs,
        ours: summary.bandwidth_bytes_per_s.mean / MIB,
        show: |value| format!("{} MiB/s", number(value)),
    });
    let operations = published.operations_per_s.map(|theirs| Pair {
        theirs,
        ours: summary.operations_per_s.mean,
        show: |value| format!("{} IOPS", prefixed(value)),
    });
    let pairs: Vec<Pair> = bandwidth.into_iter().chain(operations).collect();
    let join = |texts: Vec<String>| texts.join(" and ");
    let theirs = join(
        pairs
            .iter()
            .map(|pair| pair.theirs(published.ranks))
            .collect(),
    );
    let ranks = record.body.point.ranks;
    let ours = join(pairs.iter().map(|pair| pair.ours(ranks)).collect());
    let part = join(
        pairs
            .iter()
            .filter_map(|pair| pair.part(ranks, published.ranks))
            .collect(),
    );
    let on = |ranks: u32| match ranks {
        1 => "1 rank".to_owned(),
        ranks => format!("{ranks} ranks"),
    };
    let on_theirs = published.ranks.map(|ranks| format!(" on {}", on(ranks)));
    let earlier = published
        .percent_of_earlier
        .map(|percent| format!(", {percent} % of the figure published before"));
    let part = if part.is_empty() {
        part
    } else {
        format!(": {part}")
    };
    format!(
        "published, {}: {theirs}{}{} [{}]; here {ours} on {}{part}",
        phase.phase.name(),
        on_theirs.unwrap_or_default(),
        earlier.unwrap_or_default(),
        published.what,
        on(ranks)
    )
}

//! A [`FileJob`] as it is written in a plan.

use toml::Value;

use super::point::Published;
use super::{FileJob, ReadShift, Verify};
use crate::read::{count, one_or_many, options, string, sweep_value, text};
use crate::sweep::Sweep;
use tonnage_units::Count;

/// The keys of a `[[file]]` table, in the order in which they are written.
pub(crate) const FILE_KEYS: [&str; 43] = [
    "label",
    "engine",
    "engine-options",
    "hints",
    "path",
    "layout",
    "directory-per-rank",
    "file-per-trial",
    "block",
    "transfer",
    "segments",
    "order",
    "seed",
    "phases",
    "read-percent",
    "read-shift",
    "read-shuffled",
    "fsync",
    "direct",
    "collective",
    "file-view",
    "barriers",
    "keep",
    "existing",
    "threads",
    "window",
    "stonewall",
    "wear-out",
    "wear-out-transfers",
    "stonewall-status",
    "prefill",
    "data",
    "data-seed",
    "verify",
    "drop-caches",
    "stripe-count",
    "stripe-size",
    "outlier",
    "trials",
    "delay",
    "max-duration",
    "limit",
    "published",
];
/// Those that must be there.
pub(crate) const FILE_NEEDS: [(&str, &str); 1] = [("path", "data/file")];

impl FileJob {
    /// Every key with its value, None where the default holds.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, Option<Value>)> {
        let mut pairs = self.where_pairs();
        pairs.extend(self.order_pairs());
        pairs.extend(self.how_pairs());
        pairs.extend(self.length_pairs());
        pairs
    }

    fn where_pairs(&self) -> Vec<(&'static str, Option<Value>)> {
        vec![
            ("label", self.label.as_deref().map(string)),
            ("engine", some_or_many(&texts(&self.engine))),
            ("engine-options", options(&self.engine_options)),
            ("hints", options(&self.hints)),
            ("path", Some(one_or_many(&texts(&self.path)))),
            ("layout", self.layout.map(|layout| string(layout.name()))),
            ("directory-per-rank", flag(self.directory_per_rank)),
            ("file-per-trial", flag(self.file_per_trial)),
            ("block", sweep(&self.block)),
            ("transfer", sweep(&self.transfer)),
            ("segments", self.segments.map(count)),
        ]
    }

    fn order_pairs(&self) -> Vec<(&'static str, Option<Value>)> {
        let phases: Vec<_> = self.phases.iter().map(|phase| phase.name()).collect();
        vec![
            ("order", self.order.map(|order| string(order.name()))),
            ("seed", self.seed.map(count)),
            ("phases", some_or_many(&phases)),
            ("read-percent", self.read_percent.map(count)),
            ("read-shift", self.read_shift.map(read_shift)),
            ("read-shuffled", self.read_shuffled.map(count)),
        ]
    }

    fn how_pairs(&self) -> Vec<(&'static str, Option<Value>)> {
        vec![
            ("fsync", self.fsync.map(|fsync| string(fsync.name()))),
            ("direct", flag(self.direct)),
            ("collective", flag(self.collective)),
            ("file-view", flag(self.file_view)),
            ("barriers", flag(self.barriers)),
            ("keep", flag(self.keep)),
            ("existing", flag(self.existing)),
            ("threads", self.threads.map(count)),
            ("window", sweep(&self.window)),
            ("stonewall", self.stonewall.map(text)),
            ("wear-out", flag(self.wear_out)),
            ("wear-out-transfers", self.wear_out_transfers.map(count)),
            (
                "stonewall-status",
                self.stonewall_status.as_deref().map(string),
            ),
            ("prefill", flag(self.prefill)),
            ("data", self.data.map(text)),
            ("data-seed", self.data_seed.map(count)),
            ("verify", self.verify.as_ref().map(verify)),
            ("drop-caches", flag(self.drop_caches)),
            ("stripe-count", self.stripe_count.map(text)),
            ("stripe-size", self.stripe_size.map(text)),
        ]
    }

    fn length_pairs(&self) -> Vec<(&'static str, Option<Value>)> {
        vec![
            ("outlier", self.outlier.map(text)),
            ("trials", self.trials.map(count)),
            ("delay", self.delay.map(text)),
            ("max-duration", self.max_duration.map(text)),
            ("limit", self.limit.map(text)),
            ("published", published(&self.published)),
        ]
    }
}

fn texts(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}

fn some_or_many(values: &[&str]) -> Option<Value> {
    (!values.is_empty()).then(|| one_or_many(values))
}

fn flag(value: bool) -> Option<Value> {
    value.then_some(Value::Boolean(true))
}

fn sweep(sweep: &Option<Sweep>) -> Option<Value> {
    sweep.as_ref().map(sweep_value)
}

/// A number of ranks is a number in a plan too.
fn read_shift(shift: ReadShift) -> Value {
    match shift {
        ReadShift::Ranks(ranks) => count(Count(ranks)),
        ReadShift::Nodes(_) => text(shift),
    }
}

fn verify(verify: &Verify) -> Value {
    match verify {
        Verify::Last => Value::Boolean(true),
        Verify::After(phases) => {
            one_or_many(&phases.iter().map(|phase| phase.name()).collect::<Vec<_>>())
        }
    }
}

/// A list of inline tables, for the same reason as engine options.
fn published(figures: &[Published]) -> Option<Value> {
    let table = |figure: &Published| {
        let pairs = [
            ("phase", Some(string(figure.phase.name()))),
            (
                "bandwidth-mib-per-s",
                figure.bandwidth_mib_per_s.map(Value::Float),
            ),
            (
                "operations-per-s",
                figure.operations_per_s.map(Value::Float),
            ),
            (
                "ranks",
                figure.ranks.map(|ranks| Value::Integer(ranks.into())),
            ),
            (
                "percent-of-earlier",
                figure.percent_of_earlier.map(Value::Float),
            ),
            ("what", Some(string(&figure.what))),
        ];
        let given = pairs.into_iter();
        Value::Table(
            given
                .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                .collect(),
        )
    };
    (!figures.is_empty()).then(|| Value::Array(figures.iter().map(table).collect()))
}

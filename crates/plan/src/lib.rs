//! The plan of a run, and the list of points that it expands to.
//!
//! A [`Plan`] is the one way in: a plan file is read into it ([`mod@read`]), a command line is compiled to it (in the
//! `tonnage` crate), and [`Plan::points`] turns it into [`point::Point`]s after checking everything that can be checked
//! before a rank starts. Each kind of experiment is a folder: its options, its points, and how one becomes the other.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`mod@read`] | a plan as TOML, read and written |
//! | [`sweep`] | the grammar of several values for one option |
//! | [`names`] | how a limit is written |
//! | [`options`] | what an option is, and tables of them |
//! | [`expand`] | the points of a plan, whatever their kind |
//! | [`point`] | what points of all kinds share |
//! | [`transfer`] | experiments between memories |
//! | [`files`] | experiments with files |
//! | [`connect`] | experiments with connections |
//!
//! Measuring a point is not known here; see `tonnage_bench`.

#![forbid(unsafe_code)]

pub mod connect;
pub mod expand;
pub mod files;
pub mod names;
pub mod options;
pub mod point;
pub mod read;
pub mod sweep;
pub mod transfer;

#[cfg(test)]
mod fixture;

pub use connect::Connect;
use files::FileJob;
use options::Kind;
pub use point::{Planned, Point, Reading};
use tonnage_units::{Error, Result};
pub use transfer::Transfer;

/// Everything that one run is asked to measure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Short name, repeated in every record.
    pub name: String,
    /// One line for the head of a report.
    pub title: Option<String>,
    /// Ranks that the plan is made for; the command line may ask for others.
    pub ranks: Option<u32>,
    /// Phases to measure, in order.
    pub experiments: Vec<Experiment>,
}

/// One experiment: a table of a plan file, or one command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Experiment {
    /// Between memories.
    Transfer(Transfer),
    /// With files.
    File(FileJob),
    /// Setting up connections.
    Connect(Connect),
}

impl Experiment {
    /// The key of its tables in a plan file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Transfer(_) => Transfer::KEY,
            Self::File(_) => FileJob::KEY,
            Self::Connect(_) => Connect::KEY,
        }
    }

    /// Writes what was said of it, as the table of a plan.
    pub(crate) fn write(&self) -> std::result::Result<toml::Table, toml::ser::Error> {
        match self {
            Self::Transfer(transfer) => transfer.write(),
            Self::File(job) => job.write(),
            Self::Connect(connect) => connect.write(),
        }
    }

    /// Chooses its engines, whatever was said of them.
    pub fn use_engines(&mut self, engines: &[String]) {
        let engine = match self {
            Self::Transfer(transfer) => &mut transfer.what.engine,
            Self::File(job) => &mut job.how.engine,
            Self::Connect(connect) => &mut connect.what.engine,
        };
        *engine = Some(engines.to_vec().into());
    }

    /// The heading of its points, if it has one.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Transfer(transfer) => transfer.what.label.as_deref(),
            Self::File(job) => job.files.label.as_deref(),
            Self::Connect(connect) => connect.what.label.as_deref(),
        }
    }
}

impl Plan {
    /// Scales how long everything is measured. Between memories that is time: trial time, duration, iterations and the
    /// bound of `until-ci`, but never below one iteration or one millisecond of each trial; trials and warm-up stay as
    /// they are. With files it is bytes: those of all the ranks that the plan is made for, times the factor, are shared
    /// out to the `ranks` of the run (see [`FileJob`]'s segments and block); stonewalls stay as they are.
    ///
    /// # Errors
    /// When `factor` is not a number from 1/1,000,000,000 to 100,000.
    pub fn scale(&mut self, factor: f64, ranks: u32) -> Result<()> {
        if !(1e-9..=1e5).contains(&factor) {
            return Err(Error::Usage(format!(
                "scale {factor} makes no sense: write a factor from 0.000000001 to 100000, such as 0.1 or 10"
            )));
        }
        let planned = self.ranks.unwrap_or(ranks).max(1);
        let of_rank = factor * f64::from(planned) / f64::from(ranks.max(1));
        for experiment in &mut self.experiments {
            match experiment {
                Experiment::Transfer(transfer) => {
                    transfer::length::scale(&mut transfer.length, factor)
                }
                Experiment::File(job) => job.scale(of_rank),
                Experiment::Connect(connect) => connect.scale(factor),
            }
        }
        Ok(())
    }

    /// Makes a plan that names its ranks one for this many. Where that is fewer than it was made for, ranks that would
    /// read files of a rank too far behind them read those of the farthest that there is.
    pub fn fit_ranks(&mut self, ranks: u32) {
        if self.ranks.is_some_and(|planned| planned > ranks) {
            for job in self.files_mut() {
                job.fit_ranks(ranks);
            }
        }
        self.ranks = self.ranks.map(|_| ranks);
    }

    /// Moves the files of all file experiments to `place`: a directory (one that is there, or a name that ends with a
    /// slash) gets them under their own names, anything else is put before their names with a dash.
    ///
    /// # Errors
    /// `Usage` when that would make one file of two, or the plan has no files.
    pub fn move_files(&mut self, place: &str) -> Result<()> {
        if self.files_mut().next().is_none() {
            return Err(Error::Usage(format!(
                "path {place} has no effect on a plan without a [[file]] table: leave it out"
            )));
        }
        files::move_files(self.files_mut(), place)
    }

    /// Returns whether something in the plan is counted in nodes, so that [`Plan::resolve_nodes`] has to be called once
    /// it is known which ranks share one.
    pub fn counts_nodes(&self) -> bool {
        self.experiments.iter().any(|experiment| match experiment {
            Experiment::File(job) => job.counts_nodes(),
            Experiment::Transfer(_) | Experiment::Connect(_) => false,
        })
    }

    /// Turns what is counted in nodes into ranks; `hosts` says of each rank where it is.
    ///
    /// # Errors
    /// `Usage` when a rank would read what it wrote itself.
    pub fn resolve_nodes<H: PartialEq>(&mut self, hosts: &[H]) -> Result<()> {
        let ranks_of_node = files::ranks_of_node(hosts);
        let ranks = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let mut jobs = self.files_mut();
        jobs.try_for_each(|job| job.resolve_nodes(ranks_of_node, ranks))
    }

    fn files_mut(&mut self) -> impl Iterator<Item = &mut FileJob> {
        self.experiments
            .iter_mut()
            .filter_map(|experiment| match experiment {
                Experiment::File(job) => Some(job),
                Experiment::Transfer(_) | Experiment::Connect(_) => None,
            })
    }

    /// The text from which the ranks of a run see that they run the same plan with the same version of tonnage.
    ///
    /// # Errors
    /// As for [`Plan::to_toml`].
    pub fn hash_text(&self) -> Result<String> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!("tonnage {version}\n{}", self.to_toml()?))
    }
}
